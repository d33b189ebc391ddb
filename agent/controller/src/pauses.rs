//! Exponential backoff: each pause is twice as long as the pause before, up to the longest.

use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub struct Pauses {
    /// The pause after the first failure. Each later pause is twice as long.
    pub first: Duration,
    pub longest: Duration,
}

impl Pauses {
    /// The pause after a failure that follows this many failures.
    pub fn after(self, failures: u32) -> Duration {
        self.first.saturating_mul(2u32.saturating_pow(failures.min(16))).min(self.longest)
    }
}
