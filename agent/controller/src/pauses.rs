//! Pauses between attempts that fail, each twice as long as the one before.

use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub struct Pauses {
    /// After the first failure. Each later pause is twice as long.
    pub first: Duration,
    pub longest: Duration,
}

impl Pauses {
    /// The pause after so many failures before this one.
    pub fn after(self, failures: u32) -> Duration {
        self.first.saturating_mul(2u32.saturating_pow(failures.min(16))).min(self.longest)
    }
}
