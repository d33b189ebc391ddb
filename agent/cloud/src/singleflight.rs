//! One question that many callers ask at the same time: one request answers all of them.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};

/// How long a question waits, so that several callers share one request.
const WINDOW: Duration = Duration::from_millis(50);
/// The minimum time between two requests for the same question.
const INTERVAL: Duration = Duration::from_millis(500);

/// The last answer to a question, with the time at which the answer was requested.
#[derive(Debug)]
pub(super) struct Singleflight<T, E> {
    last: Arc<Mutex<Option<LastAnswer<T, E>>>>,
}

#[derive(Debug)]
struct LastAnswer<T, E> {
    /// When the answer was requested.
    at: Instant,
    answer: Result<Arc<T>, Arc<E>>,
}

// A derived implementation would require `T: Default` and `E: Default`.
impl<T, E> Default for Singleflight<T, E> {
    fn default() -> Singleflight<T, E> {
        Singleflight { last: Arc::default() }
    }
}

impl<T: Send + Sync + 'static, E: Send + Sync + 'static> Singleflight<T, E> {
    /// Returns the last answer if it was requested at most `longest` ago, else a new answer from `ask`. If `longest` is zero, the request
    /// begins after this call. A failure goes to all waiting callers, but is not cached. A request runs to its end even if no caller waits
    /// any more. Otherwise, if the request takes longer than the timeout of each caller, no caller would ever get an answer.
    /// Only one caller holds the future of the request, because thousands of futures would need much memory.
    pub(super) async fn get<A: Future<Output = Result<T, E>> + Send + 'static>(
        &self,
        longest: Duration,
        ask: impl FnOnce() -> A + Send + 'static,
    ) -> Result<Arc<T>, Arc<E>> {
        let called = Instant::now();
        // The caller with this lock asks. The other callers wait for the lock, and then find the answer.
        let mut last = self.last.clone().lock_owned().await;
        if let Some(answered) = last.as_ref() {
            let good_for = if answered.answer.is_ok() { longest } else { Duration::ZERO };
            if answered.at + good_for >= called {
                return answered.answer.clone();
            }
        }
        let earliest = last.as_ref().map_or(called, |answered| answered.at + INTERVAL);
        let asking = tokio::spawn(async move {
            sleep_until(earliest.max(called + WINDOW)).await;
            let at = Instant::now();
            let answer = ask().await.map(Arc::new).map_err(Arc::new);
            *last = Some(LastAnswer { at, answer: answer.clone() });
            answer
        });
        asking.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
    }

    /// The last answer, if it was requested at most `longest` ago. Waits for a running request, but starts no request.
    pub(super) async fn cached(&self, longest: Duration) -> Option<Arc<T>> {
        let called = Instant::now();
        let last = self.last.lock().await;
        let answered = last.as_ref().filter(|answered| answered.at + longest >= called)?;
        answered.answer.as_ref().ok().cloned()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::future::{Ready, ready};
    use std::sync::atomic::{AtomicU32, Ordering};

    use futures_util::future::join_all;

    use super::*;

    fn ask(count: &Arc<AtomicU32>) -> impl FnOnce() -> Ready<Result<u32, String>> + Send + 'static {
        let count = count.clone();
        move || ready(Ok(count.fetch_add(1, Ordering::Relaxed)))
    }

    #[tokio::test]
    async fn callers_at_the_same_time_get_the_same_answer() {
        let (singleflight, count) = (Singleflight::default(), Arc::new(AtomicU32::new(0)));
        let questions = (0..1000).map(|_| singleflight.get(Duration::ZERO, ask(&count)));
        assert!(join_all(questions).await.iter().all(|answer| **answer.as_ref().unwrap() == 0));
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn a_cached_answer_is_used_up_to_its_maximum_age() {
        let (singleflight, count) = (Singleflight::default(), Arc::new(AtomicU32::new(0)));
        let minute = Duration::from_secs(60);
        for (longest, expected) in [(minute, 0), (minute, 0), (Duration::ZERO, 1), (minute, 1)] {
            assert_eq!(*singleflight.get(longest, ask(&count)).await.unwrap(), expected);
        }
    }

    #[tokio::test]
    async fn a_cached_answer_needs_no_request() {
        let (singleflight, count) = (Singleflight::default(), Arc::new(AtomicU32::new(0)));
        let minute = Duration::from_secs(60);
        assert_eq!(singleflight.cached(minute).await, None);
        let (answer, cached) =
            tokio::join!(singleflight.get(minute, ask(&count)), singleflight.cached(minute));
        assert_eq!(
            (answer.unwrap(), cached),
            (Arc::new(0), Some(Arc::new(0))),
            "it waits for the caller that asks"
        );
        assert_eq!(singleflight.cached(minute).await, Some(Arc::new(0)));
        assert_eq!(singleflight.cached(Duration::ZERO).await, None, "it is older than that");
        let failed = singleflight.get(Duration::ZERO, || ready(Err("busy".to_owned()))).await;
        assert_eq!((failed.is_err(), singleflight.cached(minute).await), (true, None));
    }

    #[tokio::test]
    async fn a_failure_reaches_all_waiting_callers_and_is_not_cached() {
        let (singleflight, count) = (Singleflight::default(), Arc::new(AtomicU32::new(0)));
        let fail = || {
            let asked = ask(&count);
            || async { asked().await.and(Err("busy".to_owned())) }
        };
        let minute = Duration::from_secs(60);
        let answers = join_all((0..10).map(|_| singleflight.get(minute, fail()))).await;
        assert!(answers.iter().all(|answer| **answer.as_ref().unwrap_err() == "busy"));
        assert_eq!(count.load(Ordering::Relaxed), 1);
        assert_eq!(*singleflight.get(minute, ask(&count)).await.unwrap(), 1);
    }

    #[tokio::test]
    async fn a_started_request_completes_for_later_callers() {
        let (singleflight, count) = (Singleflight::default(), Arc::new(AtomicU32::new(0)));
        let (answer, answered) = tokio::sync::oneshot::channel();
        let (begun, has_begun) = tokio::sync::oneshot::channel();
        let slow = || async move {
            begun.send(()).unwrap();
            answered.await.map_err(|_| "busy".to_owned())
        };
        tokio::select! {
            _ = singleflight.get(Duration::ZERO, slow) => panic!("there is no answer"),
            begun = has_begun => begun.unwrap(),
        }
        answer.send(7).unwrap();
        assert_eq!(*singleflight.get(Duration::from_secs(60), ask(&count)).await.unwrap(), 7);
        assert_eq!(count.load(Ordering::Relaxed), 0);
    }
}
