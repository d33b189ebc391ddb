//! The hash by which kOps spreads over time what would otherwise happen to all machines at once.

/// FNV-1 (draft-eastlake-fnv), 32 bits: Go's `fnv.New32`, not `New32a`.
pub fn fnv32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash: u32, byte| hash.wrapping_mul(0x0100_0193) ^ u32::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_fnv_1() {
        assert_eq!(fnv32(b""), 0x811c_9dc5);
        assert_eq!(fnv32(b"foobar"), 0x31f0_b262);
    }
}
