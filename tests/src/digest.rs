//! SHA-256, as mirrors and registries write it.

use sha2::{Digest, Sha256};

/// The SHA-256 digest of `content`, in lower-case hexadecimal.
pub fn sha256_hex(content: &[u8]) -> String {
    hex::encode(Sha256::digest(content))
}
