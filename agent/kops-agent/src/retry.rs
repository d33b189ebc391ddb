//! Trying again: with growing, jittered pauses, under a deadline, and only where it can help.

use std::time::{Duration, Instant};

use backon::{BackoffBuilder, ExponentialBuilder};

/// How long to go on trying, and how fast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retries {
    /// No attempt begins later than this after the first one did.
    pub deadline: Duration,
    /// One attempt may take this long.
    pub attempt: Duration,
    /// The pause after the first attempt; each later one is about twice as long.
    pub first_pause: Duration,
    /// No pause is longer, but for its jitter of up to as much again.
    pub longest_pause: Duration,
}

impl Default for Retries {
    fn default() -> Retries {
        Retries {
            deadline: Duration::from_secs(60),
            attempt: Duration::from_secs(20),
            first_pause: Duration::from_millis(200),
            longest_pause: Duration::from_secs(5),
        }
    }
}

/// The last failure, and what was done to avoid it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GaveUp<E> {
    /// What was wrong in the last attempt.
    pub error: E,
    /// How often it was tried.
    pub attempts: u32,
    /// From the beginning of the first attempt to the end of the last.
    pub waited: Duration,
}

impl Retries {
    /// Attempts until one succeeds, one fails for good, or there is no time left.
    ///
    /// `attempt` gets the time that it may take. `patience` says for how long such a failure is
    /// worth trying again: not at all where it is zero.
    ///
    /// # Errors
    /// The last failure.
    pub async fn run<T, E, F>(
        &self,
        mut attempt: impl FnMut(Duration) -> F,
        patience: impl Fn(&E) -> Duration,
    ) -> Result<T, GaveUp<E>>
    where
        F: Future<Output = Result<T, E>>,
    {
        let start = Instant::now();
        let mut attempts = 0;
        let mut pauses = ExponentialBuilder::default()
            .with_min_delay(self.first_pause)
            .with_max_delay(self.longest_pause)
            .without_max_times()
            .with_jitter()
            .build();
        loop {
            attempts += 1;
            let left = self.deadline.saturating_sub(start.elapsed());
            let error = match attempt(left.min(self.attempt)).await {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            let waited = start.elapsed();
            let pause = pauses.next().unwrap_or(self.longest_pause);
            if waited + pause >= patience(&error).min(self.deadline) {
                return Err(GaveUp { error, attempts, waited });
            }
            tokio::time::sleep(pause).await;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::cell::Cell;

    use super::*;

    const FAST: Retries = Retries {
        deadline: Duration::from_millis(200),
        attempt: Duration::from_millis(50),
        first_pause: Duration::from_millis(1),
        longest_pause: Duration::from_millis(4),
    };

    #[tokio::test]
    async fn what_passes_is_tried_again() {
        let attempts = Cell::new(0);
        let attempt = |_| async {
            attempts.set(attempts.get() + 1);
            if attempts.get() < 4 { Err("busy") } else { Ok("there") }
        };
        assert_eq!(FAST.run(attempt, |_| Duration::MAX).await, Ok("there"));
        assert_eq!(attempts.get(), 4);
    }

    #[tokio::test]
    async fn what_stays_is_not_tried_again() {
        let gave_up =
            FAST.run(|_| async { Err::<(), _>("forbidden") }, |_| Duration::ZERO).await.unwrap_err();
        assert_eq!((gave_up.error, gave_up.attempts), ("forbidden", 1));
    }

    #[tokio::test]
    async fn the_deadline_ends_it_and_bounds_each_attempt() {
        let longest = Cell::new(Duration::ZERO);
        let attempt = |time: Duration| {
            longest.set(longest.get().max(time));
            async move { Err::<(), _>("busy") }
        };
        let gave_up = FAST.run(attempt, |_| Duration::MAX).await.unwrap_err();
        assert!(gave_up.attempts > 10, "{gave_up:?}");
        assert!(gave_up.waited <= FAST.deadline, "{gave_up:?}");
        assert_eq!(longest.get(), FAST.attempt);
    }

    #[tokio::test]
    async fn some_failures_deserve_less_patience() {
        let gave_up = FAST
            .run(|_| async { Err::<(), _>("no credentials") }, |_| Duration::from_millis(20))
            .await
            .unwrap_err();
        assert!(gave_up.attempts > 1 && gave_up.waited < Duration::from_millis(20), "{gave_up:?}");
    }
}
