//! Decodes base64 texts.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Decodes base64 into text. Returns `None` if `encoded` is not base64 or the bytes are not UTF-8.
pub fn decoded(encoded: &str) -> Option<String> {
    String::from_utf8(STANDARD.decode(encoded).ok()?).ok()
}
