//! Deadlines: a check that does not finish in time counts as unknown, and delays no other check.

use std::thread;
use std::time::Duration;

use kops_agent_plan::doctor::{Seen, Unseen};
use tokio::sync::oneshot;

/// The timeout of one request to a server, including its DNS lookup.
pub const QUESTION: Duration = Duration::from_secs(15);
/// Timeout of one check of the machine. A check may hang because of a network file system or another program.
pub const CHECK_TIMEOUT: Duration = Duration::from_secs(30);

/// The stack size of the thread of a check, in bytes: as large as the stack of the main thread. Without optimization,
/// the derivation of a node's desired state needs more than the default stack of a thread.
const STACK: usize = 8 << 20;

/// The result of `asking`. Fails if it is not available within `within`.
pub async fn with_timeout<T>(within: Duration, asking: impl Future<Output = T>) -> Seen<T> {
    let late = |_| Unseen::new(format_args!("no answer within {} s", within.as_secs()));
    tokio::time::timeout(within, asking).await.map_err(late)
}

/// Runs a check in its own thread, because the check may hang. A thread that hangs ends with the process.
pub async fn run_in_thread<T: Send + 'static>(
    within: Duration,
    check: impl FnOnce() -> T + Send + 'static,
) -> Seen<T> {
    let (tell, told) = oneshot::channel();
    let started = thread::Builder::new().name("look".into()).stack_size(STACK).spawn(move || {
        // Sending fails if the caller has timed out.
        let _ = tell.send(check());
    });
    started.map_err(|error| Unseen::new(format_args!("cannot start a thread: {error}")))?;
    match tokio::time::timeout(within, told).await {
        Ok(Ok(seen)) => Ok(seen),
        Ok(Err(_)) => Err(Unseen::new("it ended without a result")),
        Err(_) => Err(Unseen::new(format_args!("no result within {} s", within.as_secs()))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::mpsc::channel;

    use super::*;

    #[tokio::test]
    async fn a_question_without_an_answer_in_time_is_unknown() {
        assert_eq!(with_timeout(QUESTION, std::future::ready(7)).await, Ok(7));
        let error = with_timeout(Duration::ZERO, std::future::pending::<()>()).await.unwrap_err().to_string();
        assert!(error.contains("no answer within 0 s"), "{error}");
    }

    #[tokio::test]
    async fn a_check_that_hangs_is_abandoned() {
        assert_eq!(run_in_thread(CHECK_TIMEOUT, || 7).await, Ok(7));
        let (keep, hangs) = channel::<()>();
        let error = run_in_thread(Duration::from_millis(10), move || hangs.recv().is_ok()).await.unwrap_err();
        assert!(error.to_string().contains("no result within 0 s"), "{error}");
        drop(keep);
    }
}
