//! SHA-256 digests, which identify contents.

use sha2::{Digest, Sha256};

/// Lower-case hexadecimal SHA-256 of `bytes`.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// Whether a text has the form that [`sha256_hex`] returns: 64 lowercase hexadecimal digits.
pub fn is_sha256_hex(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Reads a SHA-256 in upper or lower case, and returns the SHA-256 in lower case. Returns `None` for any
/// other text.
pub fn parse_sha256(text: &str) -> Option<String> {
    let text = text.to_ascii_lowercase();
    is_sha256_hex(&text).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sha256_is_64_digits_in_any_case() {
        let hash = sha256_hex(b"");
        assert!(is_sha256_hex(&hash) && !is_sha256_hex(&hash.to_ascii_uppercase()));
        assert_eq!(parse_sha256(&hash.to_ascii_uppercase()), Some(hash.clone()));
        for other in
            ["", &hash[1..], &format!("{hash}0"), &hash.replace('e', "g"), &format!("ä{}", &hash[2..])]
        {
            assert_eq!(parse_sha256(other), None, "{other}");
        }
    }
}
