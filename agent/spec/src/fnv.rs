//! FNV hashes. kOps uses these hashes to spread events of all machines over time, and to distinguish long
//! names that are truncated.

/// FNV-1 (draft-eastlake-fnv), 32 bits: Go's `fnv.New32`, not `New32a`.
pub fn fnv32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash: u32, byte| hash.wrapping_mul(0x0100_0193) ^ u32::from(*byte))
}

/// FNV-1a, 32 bits: Go's `fnv.New32a`.
pub fn fnv32a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hashes_are_fnv_1_and_1a() {
        assert_eq!(fnv32(b""), 0x811c_9dc5);
        assert_eq!(fnv32(b"foobar"), 0x31f0_b262);
        assert_eq!(fnv32a(b""), 0x811c_9dc5);
        assert_eq!(fnv32a(b"foobar"), 0xbf9c_f968);
    }
}
