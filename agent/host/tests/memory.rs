//! Peak memory, in a process of its own.
#![allow(clippy::unwrap_used)]

mod support;

use support::{Answer, Machine, Mirror, asset, state};

/// What the whole of `converge` may take (issue 3).
const LIMIT_KB: u64 = 24 * 1024;
const SIZE: usize = 32 * 1024 * 1024;

/// The most memory that this process ever had.
fn peak_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[tokio::test]
async fn a_large_download_is_never_held_in_memory() {
    let (machine, mirror) = (Machine::new(), Mirror::start().await);
    let url = mirror.at("/large", [Answer::Zeros(SIZE)]);
    let hash = {
        // Hashed in pieces, for the test not to hold them either.
        use sha2::Digest as _;
        let mut hasher = sha2::Sha256::new();
        (0..SIZE / 65536).for_each(|_| hasher.update([0; 65536]));
        hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    machine.converge(&state([asset("/large", &url, &hash, None)])).await.unwrap();
    assert_eq!(std::fs::metadata(machine.path("/large")).unwrap().len(), SIZE as u64);
    assert!(peak_kb() < LIMIT_KB, "{} kB, of which the test itself needs little", peak_kb());
}
