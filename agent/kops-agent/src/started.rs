//! When this process was started: what a run's timeline counts from.

use std::sync::OnceLock;
use std::time::Instant;

static STARTED: OnceLock<Instant> = OnceLock::new();

/// Notes that the process starts now; called once, first of all.
pub fn note() {
    at();
}

pub fn at() -> Instant {
    *STARTED.get_or_init(Instant::now)
}
