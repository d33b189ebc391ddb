//! Random numbers that nobody can foresee.

use rustls::crypto::aws_lc_rs;
use thiserror::Error;

/// There are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("there are no random numbers")]
pub struct NoRandomness;

/// So many random bytes.
///
/// # Errors
/// If the kernel has none.
pub fn bytes<const N: usize>() -> Result<[u8; N], NoRandomness> {
    let mut bytes = [0; N];
    aws_lc_rs::default_provider().secure_random.fill(&mut bytes).map_err(|_| NoRandomness)?;
    Ok(bytes)
}

/// A name that nobody else has: 32 hexadecimal digits.
///
/// # Errors
/// If the kernel has no random bytes.
pub fn name() -> Result<String, NoRandomness> {
    Ok(bytes::<16>()?.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_name_is_nobody_elses() {
        let (one, other) = (name().unwrap(), name().unwrap());
        assert_ne!(one, other);
        assert!(one.len() == 32 && one.bytes().all(|digit| digit.is_ascii_hexdigit()), "{one}");
    }
}
