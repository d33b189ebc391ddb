//! SHA-256 digests, which identify contents.

use std::io::{self, ErrorKind, Read};

use sha2::{Digest, Sha256};

/// Size of one read, in bytes.
const BUFFER: usize = 64 << 10;

/// Lower-case hexadecimal SHA-256 of `bytes`.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// Lower-case hexadecimal SHA-256 of the remaining bytes of `input`.
pub fn sha256_hex_of(mut input: impl Read) -> io::Result<String> {
    let (mut hasher, mut buffer) = (Sha256::new(), vec![0; BUFFER]);
    loop {
        match input.read(&mut buffer) {
            Ok(0) => return Ok(hex::encode(hasher.finalize())),
            Ok(count) => hasher.update(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Whether a text has the form that [`sha256_hex`] returns: 64 lowercase hexadecimal digits.
pub fn is_sha256_hex(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Converts a SHA-256 to lower case. Returns `None` if the text is no SHA-256.
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
        assert_eq!(sha256_hex_of(&b""[..]).ok(), Some(hash.clone()));
        assert!(is_sha256_hex(&hash) && !is_sha256_hex(&hash.to_ascii_uppercase()));
        assert_eq!(parse_sha256(&hash.to_ascii_uppercase()), Some(hash.clone()));
        for other in
            ["", &hash[1..], &format!("{hash}0"), &hash.replace('e', "g"), &format!("ä{}", &hash[2..])]
        {
            assert_eq!(parse_sha256(other), None, "{other}");
        }
    }
}
