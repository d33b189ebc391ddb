//! How many calls may be made of a cloud: a token bucket, with a pause where the cloud asks for one.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use crate::api::ApiError;

/// The rate limiter that all requests to one API share.
#[derive(Debug)]
pub(super) struct RateLimiter(Mutex<TokenBucket>);

impl RateLimiter {
    /// So many calls at once, and so many a second after that.
    pub(super) fn of(burst: f64, per_second: f64) -> RateLimiter {
        RateLimiter(Mutex::new(TokenBucket::of(burst, per_second)))
    }

    /// Waits until the next call may be made, which is counted as made.
    pub(super) async fn turn(&self) {
        let pause = self.0.lock().take(Instant::now());
        sleep(pause).await;
    }

    /// Makes no call for a while.
    pub(super) fn put_off(&self, pause: Duration) {
        self.0.lock().put_off(Instant::now(), pause);
    }

    /// Makes no call for as long as an API asks for that throttled one, or for `usual` where it does not say.
    pub(super) fn heed<T>(&self, asked: &Result<T, ApiError>, usual: Duration) {
        if let Err(error @ ApiError::Throttled(_)) = asked {
            self.put_off(error.retry_after().unwrap_or(usual));
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
    /// So many calls at once, and so many a second after that.
    pub(super) fn of(burst: f64, per_second: f64) -> TokenBucket {
        let now = Instant::now();
        TokenBucket { burst, per_second, tokens: burst, counted_at: now, not_before: now }
    }

    /// How long to wait before the next call, which is counted as made.
    pub(super) fn take(&mut self, now: Instant) -> Duration {
        let earned = now.saturating_duration_since(self.counted_at).as_secs_f64() * self.per_second;
        self.tokens = (self.tokens + earned).min(self.burst) - 1.0;
        self.counted_at = now;
        let until_earned = Duration::from_secs_f64((-self.tokens / self.per_second).max(0.0));
        until_earned.max(self.not_before.saturating_duration_since(now))
    }

    /// Whether a call may be made now; it is counted as made then.
    pub(super) fn has_one(&mut self, now: Instant) -> bool {
        let pause = self.take(now);
        if !pause.is_zero() {
            self.tokens += 1.0;
        }
        pause.is_zero()
    }

    /// Makes no call for a while.
    pub(super) fn put_off(&mut self, now: Instant, pause: Duration) {
        self.not_before = self.not_before.max(now + pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_goes_at_once_and_the_rest_in_its_time() {
        let mut rate_limiter = TokenBucket::of(50.0, 10.0);
        let now = rate_limiter.counted_at;
        let pauses: Vec<Duration> = (0..60).map(|_| rate_limiter.take(now)).collect();
        assert!(pauses[..50].iter().all(Duration::is_zero));
        assert!(pauses[59] > Duration::from_millis(990) && pauses[59] < Duration::from_millis(1010));
        assert!(rate_limiter.take(now + Duration::from_secs(60)).is_zero(), "it fills up again");
    }

    #[test]
    fn it_never_holds_more_than_a_burst() {
        let mut rate_limiter = TokenBucket::of(50.0, 10.0);
        let later = rate_limiter.counted_at + Duration::from_secs(3600);
        assert_eq!((0..60).filter(|_| rate_limiter.take(later).is_zero()).count(), 50);
    }

    #[test]
    fn a_call_that_is_not_made_costs_nothing() {
        let mut rate_limiter = TokenBucket::of(2.0, 0.5);
        let now = rate_limiter.counted_at;
        assert_eq!((0..60).filter(|_| rate_limiter.has_one(now)).count(), 2);
        assert!(!rate_limiter.has_one(now + Duration::from_secs(1)));
        assert!(rate_limiter.has_one(now + Duration::from_secs(2)));
    }

    #[test]
    fn a_pause_is_for_all_calls() {
        let mut rate_limiter = TokenBucket::of(50.0, 10.0);
        let now = rate_limiter.counted_at;
        rate_limiter.put_off(now, Duration::from_secs(4));
        rate_limiter.put_off(now, Duration::from_secs(1));
        assert_eq!(rate_limiter.take(now), Duration::from_secs(4));
        assert!(rate_limiter.take(now + Duration::from_secs(5)).is_zero());
    }
}
