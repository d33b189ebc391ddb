//! Writes YAML with the same bytes as Go programs of Kubernetes (`sigs.k8s.io/yaml` 1.6 over
//! `go.yaml.in/yaml/v2` 2.4). It is used for the YAML that Kubernetes or kOps reads.
//!
//! The bytes matter for two reasons. User-data pins nodeupconfig.yaml by the hash of its bytes. Go's readers
//! follow YAML 1.1, where `yes`, `1_000`, `12:30` and `2001-01-01` are strings only in quotes.
//!
//! Our output differs from Go's only where Go's output would not read back as the same value. A key `<<`, and
//! text with control characters or the line breaks CR, NEL, LS and PS, are written in double quotes.

#[cfg(test)]
mod arbitrary;
mod emitter;
mod key_order;
mod resolve;
mod scalar;

use serde::Serialize;
use serde_json::Value;

pub use resolve::is_plain_string;
pub(crate) use resolve::{float, value};

/// Writes a value as a YAML document that ends with a line break.
///
/// # Panics
/// If the type cannot be converted to JSON, for example a map whose keys are lists. (Go also converts to JSON
/// first.) Whether this function panics depends only on the type, not on the value.
pub fn to_string(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(value) => value_to_string(&value),
        Err(error) => panic!("a type to be written as YAML cannot be JSON: {error}"),
    }
}

/// Writes a JSON value as a YAML document that ends with a line break.
pub fn value_to_string(value: &Value) -> String {
    emitter::document(value)
}

/// Whether Go's `omitempty` omits this value: `None`, zero, false, or an empty string, list or map. Go never omits a struct that is not a
/// pointer. So a field with a struct type and without `Option` must not use this function.
pub fn is_zero<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[cfg(test)]
mod tests;
