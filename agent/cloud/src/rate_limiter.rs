//! The rate limit for calls to a cloud: a token bucket, and a pause if the cloud asks for one.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use crate::api::ApiError;

/// The rate limiter that all requests to one API share.
#[derive(Debug)]
pub(super) struct RateLimiter(Mutex<TokenBucket>);

impl RateLimiter {
    /// Permits a burst of calls, and then `per_second` calls a second.
    pub(super) fn new(burst: f64, per_second: f64) -> RateLimiter {
        RateLimiter(Mutex::new(TokenBucket::new(burst, per_second)))
    }

    /// Waits until a call is permitted, and counts the call.
    pub(super) async fn acquire(&self) {
        let pause = self.0.lock().take(Instant::now());
        sleep(pause).await;
    }

    /// Permits no call during this pause.
    pub(super) fn pause(&self, pause: Duration) {
        self.0.lock().pause(Instant::now(), pause);
    }

    /// After a throttled call, permits no call during the pause that the API asks for. If the API asks for none, the pause is `usual`.
    pub(super) fn pause_if_throttled<T>(&self, asked: &Result<T, ApiError>, usual: Duration) {
        if let Err(error @ ApiError::Throttled(_)) = asked {
            self.pause(error.retry_after().unwrap_or(usual));
        }
    }
}

#[derive(Debug)]
pub(super) struct TokenBucket {
    burst: f64,
    per_second: f64,
    tokens: f64,
    counted_at: Instant,
    not_before: Instant,
}

impl TokenBucket {
    /// Permits a burst of calls, and then `per_second` calls a second.
    pub(super) fn new(burst: f64, per_second: f64) -> TokenBucket {
        let now = Instant::now();
        TokenBucket { burst, per_second, tokens: burst, counted_at: now, not_before: now }
    }

    /// Counts a call, and returns the pause to make before the call.
    pub(super) fn take(&mut self, now: Instant) -> Duration {
        let earned = now.saturating_duration_since(self.counted_at).as_secs_f64() * self.per_second;
        self.tokens = (self.tokens + earned).min(self.burst) - 1.0;
        self.counted_at = now;
        let until_earned = Duration::from_secs_f64((-self.tokens / self.per_second).max(0.0));
        until_earned.max(self.not_before.saturating_duration_since(now))
    }

    /// Whether a call is permitted now. A permitted call is counted.
    pub(super) fn try_take(&mut self, now: Instant) -> bool {
        let pause = self.take(now);
        if !pause.is_zero() {
            self.tokens += 1.0;
        }
        pause.is_zero()
    }

    /// Permits no call during this pause.
    pub(super) fn pause(&mut self, now: Instant, pause: Duration) {
        self.not_before = self.not_before.max(now + pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_immediately_and_further_calls_are_paced() {
        let mut rate_limiter = TokenBucket::new(50.0, 10.0);
        let now = rate_limiter.counted_at;
        let pauses: Vec<Duration> = (0..60).map(|_| rate_limiter.take(now)).collect();
        assert!(pauses[..50].iter().all(Duration::is_zero));
        assert!(pauses[59] > Duration::from_millis(990) && pauses[59] < Duration::from_millis(1010));
        assert!(rate_limiter.take(now + Duration::from_secs(60)).is_zero(), "it fills up again");
    }

    #[test]
    fn the_bucket_never_has_more_tokens_than_a_burst() {
        let mut rate_limiter = TokenBucket::new(50.0, 10.0);
        let later = rate_limiter.counted_at + Duration::from_secs(3600);
        assert_eq!((0..60).filter(|_| rate_limiter.take(later).is_zero()).count(), 50);
    }

    #[test]
    fn a_cancelled_call_takes_no_token() {
        let mut rate_limiter = TokenBucket::new(2.0, 0.5);
        let now = rate_limiter.counted_at;
        assert_eq!((0..60).filter(|_| rate_limiter.try_take(now)).count(), 2);
        assert!(!rate_limiter.try_take(now + Duration::from_secs(1)));
        assert!(rate_limiter.try_take(now + Duration::from_secs(2)));
    }

    #[test]
    fn a_pause_applies_to_all_calls() {
        let mut rate_limiter = TokenBucket::new(50.0, 10.0);
        let now = rate_limiter.counted_at;
        rate_limiter.pause(now, Duration::from_secs(4));
        rate_limiter.pause(now, Duration::from_secs(1));
        assert_eq!(rate_limiter.take(now), Duration::from_secs(4));
        assert!(rate_limiter.take(now + Duration::from_secs(5)).is_zero());
    }
}
