//! The three checksums that S3 uses, in the place of the crate of this name.
//!
//! The SDK of S3 checks what it downloads by one of three checksums, and takes them from a crate that has dozens, with tables for each and
//! for each kind of processor: 0.7 MB of the binary. The crate `crc` has a table for each checksum that is asked for. What another
//! crate would use beside that fails to compile.

// `pub` says here that the SDK may use it.
#![allow(unreachable_pub)]

use crc::{CRC_32_ISCSI, CRC_32_ISO_HDLC, CRC_64_NVME, Crc};

static CRC32: Crc<u32> = Crc::<u32>::new(&CRC_32_ISO_HDLC);
static CRC32C: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);
static CRC64: Crc<u64> = Crc::<u64>::new(&CRC_64_NVME);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrcAlgorithm {
    /// CRC-32, as in gzip.
    Crc32IsoHdlc,
    /// CRC-32C, as in iSCSI.
    Crc32Iscsi,
    /// CRC-64/NVME.
    Crc64Nvme,
}

#[derive(Clone)]
enum Register {
    Of32(crc::Digest<'static, u32>),
    Of64(crc::Digest<'static, u64>),
}

/// A checksum that is under way.
#[derive(Clone)]
pub struct Digest {
    register: Register,
}

impl std::fmt::Debug for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Digest").field(&self.finalize()).finish()
    }
}

impl Digest {
    /// That of no bytes.
    pub fn new(algorithm: CrcAlgorithm) -> Digest {
        let register = match algorithm {
            CrcAlgorithm::Crc32IsoHdlc => Register::Of32(CRC32.digest()),
            CrcAlgorithm::Crc32Iscsi => Register::Of32(CRC32C.digest()),
            CrcAlgorithm::Crc64Nvme => Register::Of64(CRC64.digest()),
        };
        Digest { register }
    }

    /// Takes in more bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.register {
            Register::Of32(digest) => digest.update(bytes),
            Register::Of64(digest) => digest.update(bytes),
        }
    }

    /// The checksum of all bytes, in the lower half where it has 32 bits.
    pub fn finalize(&self) -> u64 {
        match &self.register {
            Register::Of32(digest) => digest.clone().finalize().into(),
            Register::Of64(digest) => digest.clone().finalize(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksums_are_those_of_the_catalogue() {
        for (algorithm, check) in [
            (CrcAlgorithm::Crc32IsoHdlc, 0xCBF4_3926),
            (CrcAlgorithm::Crc32Iscsi, 0xE306_9283),
            (CrcAlgorithm::Crc64Nvme, 0xAE8B_1486_0A79_9888),
        ] {
            let mut digest = Digest::new(algorithm);
            assert_eq!(digest.finalize(), 0);
            digest.update(b"1234");
            digest.update(b"56789");
            assert_eq!(digest.finalize(), check, "{algorithm:?}");
        }
    }
}
