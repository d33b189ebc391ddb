//! stand-in until branch derive lands
/// stand-in
pub fn to_string<T: serde::Serialize>(value: &T) -> String { serde_json::to_string_pretty(value).unwrap_or_default() }
