//! The start time of this process. The timeline of a run counts from it.

use std::sync::OnceLock;
use std::time::Instant;

static STARTED: OnceLock<Instant> = OnceLock::new();

/// Records the time of the start. `main` calls this first.
pub fn note() {
    at();
}

pub fn at() -> Instant {
    *STARTED.get_or_init(Instant::now)
}
