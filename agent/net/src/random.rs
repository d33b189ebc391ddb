//! Unpredictable random numbers.

use kops_agent_spec::failure::{Failing, Kind};
use rustls::crypto::aws_lc_rs;
use thiserror::Error;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the kernel provides no random numbers")]
pub struct NoRandomness;

impl Failing for NoRandomness {
    fn kind(&self) -> Kind {
        Kind::NoHttpClient
    }
}

pub fn bytes<const N: usize>() -> Result<[u8; N], NoRandomness> {
    let mut bytes = [0; N];
    aws_lc_rs::default_provider().secure_random.fill(&mut bytes).map_err(|_| NoRandomness)?;
    Ok(bytes)
}

/// A unique name: 32 hexadecimal digits.
pub fn name() -> Result<String, NoRandomness> {
    Ok(hex::encode(bytes::<16>()?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_are_unique() {
        let (one, other) = (name().unwrap(), name().unwrap());
        assert_ne!(one, other);
        assert!(one.len() == 32 && one.bytes().all(|digit| digit.is_ascii_hexdigit()), "{one}");
    }
}
