//! Deadlines: what does not come to its end in time is not known, and holds nothing up.

use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;

/// For one question to a server, its name included.
pub const QUESTION: Duration = Duration::from_secs(15);
/// For a look at the machine: a file system of the network may hang, and a program that is asked.
pub const LOOK: Duration = Duration::from_secs(30);

/// As much as the main thread has: without optimization, deciding a node takes more than other threads get.
const STACK: usize = 8 << 20;

/// What comes of asking, or that it has not come in time.
pub async fn asked<T>(within: Duration, asking: impl Future<Output = T>) -> Result<T, String> {
    tokio::time::timeout(within, asking)
        .await
        .map_err(|_| format!("there is no answer within {} s", within.as_secs()))
}

/// What comes of a look that may hang, which has a thread of its own; that one ends with the process.
pub async fn looked<T: Send + 'static>(
    within: Duration,
    look: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    let (tell, told) = oneshot::channel();
    let started = thread::Builder::new().name("look".into()).stack_size(STACK).spawn(move || {
        // The one that waits may have given up.
        let _ = tell.send(look());
    });
    started.map_err(|error| format!("no thread can be started for it: {error}"))?;
    match tokio::time::timeout(within, told).await {
        Ok(Ok(seen)) => Ok(seen),
        Ok(Err(_)) => Err("it could not be looked at".to_owned()),
        Err(_) => Err(format!("looking at it has not come to an end within {} s", within.as_secs())),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::mpsc::channel;

    use super::*;

    #[tokio::test]
    async fn what_has_not_come_in_time_is_not_known() {
        assert_eq!(asked(QUESTION, std::future::ready(7)).await, Ok(7));
        let error = asked(Duration::ZERO, std::future::pending::<()>()).await.unwrap_err();
        assert!(error.contains("no answer within 0 s"), "{error}");
    }

    #[tokio::test]
    async fn a_look_that_hangs_is_left_behind() {
        assert_eq!(looked(LOOK, || 7).await, Ok(7));
        let (keep, hangs) = channel::<()>();
        let error = looked(Duration::from_millis(10), move || hangs.recv().is_ok()).await.unwrap_err();
        assert!(error.contains("has not come to an end within 0 s"), "{error}");
        drop(keep);
    }
}
