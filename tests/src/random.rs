//! Random tokens, which cannot be guessed, for new keys.

use std::fs::File;
use std::io::Read;

use anyhow::Context;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789AZ";

/// Letters and digits from the kernel's random source.
pub fn token(length: usize) -> anyhow::Result<String> {
    let mut bytes = vec![0; length];
    File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .context("reading /dev/urandom")?;
    Ok(bytes.iter().map(|byte| char::from(ALPHABET[usize::from(byte % 64)])).collect())
}
