//! Texts in base64.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The text; `None` where it is no base64, or of bytes that are no text.
pub(crate) fn decoded(encoded: &str) -> Option<String> {
    String::from_utf8(STANDARD.decode(encoded).ok()?).ok()
}
