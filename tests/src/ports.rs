//! Free ports, for programs that take a port as an argument and do not report their port.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::Context as _;

/// The first port of the range. The range is above the ports of well-known services and below the kernel's ephemeral
/// ports.
const FIRST: u16 = 12_000;
const COUNT: u16 = 18_000;
/// The distance between the first ports of two processes with consecutive process ids.
const APART: u32 = 61;

static TAKEN: AtomicU16 = AtomicU16::new(0);

/// Returns a port of the loopback interface without a listener. Later calls in this process return different ports. The
/// kernel does not choose ports of this range for other sockets.
pub fn free_port() -> anyhow::Result<u16> {
    let from = std::process::id().wrapping_mul(APART) % u32::from(COUNT);
    for _ in 0..COUNT {
        let at = from + u32::from(TAKEN.fetch_add(1, Ordering::Relaxed));
        let port = FIRST + u16::try_from(at % u32::from(COUNT))?;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    None.context("no port of the loopback interface is free")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn each_port_is_different_and_free() {
        let (one, other) = (free_port().unwrap(), free_port().unwrap());
        assert_ne!(one, other);
        for port in [one, other] {
            assert!((FIRST..FIRST + COUNT).contains(&port));
            TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        }
    }
}
