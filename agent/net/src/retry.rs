//! Retries: with growing, jittered pauses, under a deadline, and only where they can help.

use std::fmt::Display;
use std::time::{Duration, Instant};

use backon::{BackoffBuilder, ExponentialBuilder};

/// The deadline and the backoff of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retries {
    /// Every attempt starts within this time. The time begins at the start of the first attempt.
    pub deadline: Duration,
    /// Timeout of one attempt. The last attempt may take this time even if it passes the deadline: an attempt that
    /// is cut short would not show why the request fails.
    pub attempt: Duration,
    pub pauses: Pauses,
}

/// The pauses between attempts. Each pause is twice as long as the pause before, up to `longest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pauses {
    pub first: Duration,
    pub longest: Duration,
}

impl Pauses {
    /// The pause after a failure. `failures` is the number of earlier failures.
    pub fn after(self, failures: u32) -> Duration {
        self.first.saturating_mul(2u32.saturating_pow(failures.min(16))).min(self.longest)
    }

    /// A function that returns the next pause at each call, without jitter. The pauses grow as in [`Pauses::after`].
    pub fn growing(self) -> impl FnMut() -> Duration {
        let mut failures: u32 = 0;
        move || {
            let pause = self.after(failures);
            failures = failures.saturating_add(1);
            pause
        }
    }

    /// A function that returns the next pause at each call, with a jitter of at most 100 %. With jitter, the nodes of
    /// a group do not all retry at the same time.
    pub fn jittered(self) -> impl FnMut() -> Duration {
        let mut pauses = ExponentialBuilder::default()
            .with_min_delay(self.first)
            .with_max_delay(self.longest)
            .without_max_times()
            .with_jitter()
            .build();
        // The iterator has no maximum number of pauses, so it never ends.
        move || pauses.next().unwrap_or(self.longest)
    }
}

impl Default for Retries {
    fn default() -> Retries {
        Retries {
            deadline: Duration::from_secs(60),
            attempt: Duration::from_secs(20),
            pauses: Pauses { first: Duration::from_millis(200), longest: Duration::from_secs(5) },
        }
    }
}

/// The pauses until a deadline, for a loop for which [`Retries::run`] is not suitable.
pub struct Backoff<P> {
    start: Instant,
    deadline: Duration,
    pause: P,
}

impl<P: FnMut() -> Duration> Backoff<P> {
    /// `deadline` is measured from this call, and every attempt starts within this time. Each call of `pause` returns the
    /// next pause.
    pub fn new(deadline: Duration, pause: P) -> Backoff<P> {
        Backoff { start: Instant::now(), deadline, pause }
    }

    /// The pause after a failure. `None` if the next attempt would start at the deadline or later.
    pub fn next_pause(&mut self) -> Option<Duration> {
        let pause = (self.pause)();
        leaves_time(self.waited() + pause, self.deadline).then_some(pause)
    }

    /// The time since the start of the first attempt.
    pub fn waited(&self) -> Duration {
        self.start.elapsed()
    }
}

/// The failure of all attempts: the last error, the number of attempts, and their duration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GaveUp<E> {
    /// The error of the last attempt.
    pub error: E,
    pub attempts: u32,
    /// The time from the start of the first attempt to the end of the last attempt.
    pub waited: Duration,
}

impl Retries {
    /// Runs attempts until one succeeds, until an error is permanent, or until the deadline.
    ///
    /// `what` names the request in the log. The attempt itself must apply the timeout [`Retries::attempt`].
    /// `deadline` returns how long an error is retried, and zero means no retry. Fails with the error of the last
    /// attempt.
    pub async fn run<T, E, F>(
        &self,
        what: &str,
        attempt: impl FnMut() -> F,
        deadline: impl Fn(&E) -> Duration,
    ) -> Result<T, GaveUp<E>>
    where
        E: Display,
        F: Future<Output = Result<T, E>>,
    {
        let mut pause = self.pauses.jittered();
        self.run_pausing(what, attempt, deadline, |_| pause()).await
    }

    /// Like `run`, but `pause` chooses the pause after an error.
    pub async fn run_pausing<T, E, F>(
        &self,
        what: &str,
        mut attempt: impl FnMut() -> F,
        deadline: impl Fn(&E) -> Duration,
        mut pause: impl FnMut(&E) -> Duration,
    ) -> Result<T, GaveUp<E>>
    where
        E: Display,
        F: Future<Output = Result<T, E>>,
    {
        let start = Instant::now();
        let mut attempts = 0;
        let mut said = String::new();
        loop {
            attempts += 1;
            let error = match attempt().await {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            let waited = start.elapsed();
            let pause = pause(&error);
            let deadline = deadline(&error).min(self.deadline);
            if !leaves_time(waited + pause, deadline) {
                return Err(GaveUp { error, attempts, waited });
            }
            let problem = error.to_string();
            // A repeated error is logged once, because a request that runs every second may fail for hours.
            if problem != said {
                log::info!("{what}: {problem}; trying again {}", until(deadline));
                said = problem;
            }
            tokio::time::sleep(pause).await;
        }
    }
}

/// Whether another attempt may start. `elapsed` is the time since the start of the first attempt.
fn leaves_time(elapsed: Duration, deadline: Duration) -> bool {
    elapsed < deadline
}

/// When retries end, in words for the log.
fn until(deadline: Duration) -> String {
    match deadline {
        Duration::MAX => "until it succeeds".to_owned(),
        deadline => format!("for up to {} s from the first attempt on", deadline.as_secs_f64().ceil()),
    }
}

/// Short pauses, for tests with a local server.
#[cfg(any(test, feature = "testing"))]
pub const FAST: Retries = Retries {
    deadline: Duration::from_secs(30),
    attempt: Duration::from_secs(10),
    pauses: Pauses { first: Duration::from_millis(1), longest: Duration::from_millis(20) },
};

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::cell::Cell;

    use super::*;

    #[tokio::test]
    async fn temporary_errors_are_retried() {
        let attempts = Cell::new(0);
        let attempt = || async {
            attempts.set(attempts.get() + 1);
            if attempts.get() < 4 { Err("busy") } else { Ok("there") }
        };
        assert_eq!(FAST.run("test", attempt, |_| Duration::MAX).await, Ok("there"));
        assert_eq!(attempts.get(), 4);
    }

    #[tokio::test]
    async fn permanent_errors_are_not_retried() {
        let gave_up =
            FAST.run("test", || async { Err::<(), _>("forbidden") }, |_| Duration::ZERO).await.unwrap_err();
        assert_eq!((gave_up.error, gave_up.attempts), ("forbidden", 1));
    }

    #[tokio::test]
    async fn an_error_may_choose_its_own_pause() {
        let attempts = Cell::new(0);
        let mut paused_for: Vec<&'static str> = Vec::new();
        let attempt = || async {
            attempts.set(attempts.get() + 1);
            match attempts.get() {
                1 | 2 => Err("refused"),
                3 => Err("busy"),
                _ => Ok(()),
            }
        };
        let pause = |error: &&'static str| {
            paused_for.push(error);
            if *error == "refused" { Duration::ZERO } else { FAST.pauses.longest }
        };
        FAST.run_pausing("test", attempt, |_| Duration::MAX, pause).await.unwrap();
        assert_eq!(paused_for, ["refused", "refused", "busy"]);
    }

    #[test]
    fn pauses_without_jitter_double_up_to_the_longest() {
        let millis = Duration::from_millis;
        let pauses = Pauses { first: millis(5), longest: millis(30) };
        let given: Vec<Duration> = std::iter::repeat_with(pauses.growing()).take(5).collect();
        assert_eq!(given, [5, 10, 20, 30, 30].map(millis));
    }

    #[test]
    fn pauses_grow_up_to_the_longest_and_differ() {
        let Pauses { first, longest } = Retries::default().pauses;
        let pauses: Vec<Duration> =
            std::iter::repeat_with(Pauses { first, longest }.jittered()).take(40).collect();
        assert!(pauses[0] >= first && pauses[0] <= 2 * first, "{pauses:?}");
        for pause in &pauses[10..] {
            assert!(*pause >= longest && *pause <= 2 * longest, "{pauses:?}");
        }
        assert!(
            pauses[10..].windows(2).any(|two| two[0] != two[1]),
            "all nodes of a group would retry at the same time"
        );
    }

    #[tokio::test]
    async fn the_earlier_deadline_ends_the_attempts() {
        let (never, always) = (Duration::ZERO, Duration::MAX);
        let short = Retries { deadline: Duration::ZERO, ..FAST };
        for (retries, deadline) in [(FAST, never), (short, always)] {
            let gave_up = retries.run("test", || async { Err::<(), _>("busy") }, |_| deadline).await;
            assert_eq!(gave_up.unwrap_err().attempts, 1);
        }
    }

    #[test]
    fn a_backoff_gives_pauses_until_the_next_attempt_would_miss_the_deadline() {
        let seconds = Duration::from_secs;
        let mut pauses = [seconds(1), seconds(2), seconds(600), seconds(3)].into_iter();
        let mut backoff = Backoff::new(seconds(300), || pauses.next().unwrap());
        let given: Vec<Option<Duration>> = (0..4).map(|_| backoff.next_pause()).collect();
        assert_eq!(given, [Some(seconds(1)), Some(seconds(2)), None, Some(seconds(3))]);
        assert!(backoff.waited() < seconds(300));
        assert_eq!(Backoff::new(Duration::ZERO, || Duration::ZERO).next_pause(), None);
        assert_eq!(Backoff::new(Duration::MAX, || seconds(600)).next_pause(), Some(seconds(600)));
    }

    #[test]
    fn no_attempt_starts_at_the_deadline() {
        let seconds = Duration::from_secs;
        assert!(leaves_time(seconds(29), seconds(30)));
        assert!(!leaves_time(seconds(30), seconds(30)));
        assert!(!leaves_time(seconds(15), seconds(15)));
        assert!(!leaves_time(Duration::ZERO, Duration::ZERO));
    }

    #[test]
    fn the_log_says_how_long_retries_continue() {
        assert_eq!(until(Duration::MAX), "until it succeeds");
        assert_eq!(until(Duration::from_millis(1500)), "for up to 2 s from the first attempt on");
    }
}
