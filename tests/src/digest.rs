//! SHA-256, as mirrors and registries write it.

use sha2::{Digest, Sha256};

/// Lower-case hexadecimal SHA-256 of a content.
pub fn sha256_hex(content: &[u8]) -> String {
    hex::encode(Sha256::digest(content))
}
