//! Runs blocking work on its own thread, so that an async run reacts to a signal immediately.

use std::thread;

use tokio::sync::oneshot;

use crate::error::{Error, Result};

/// Runs a closure on its own thread and waits for it.
///
/// If the caller stops waiting, the thread continues until the process ends. So the closure must leave nothing half
/// done, even if the process ends first.
pub(crate) async fn apart<T: Send + 'static>(
    doing: &'static str,
    act: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let (tell, told) = oneshot::channel();
    let failed =
        |reason: String| Error::Path { doing: "start", path: format!("a thread for {doing}"), reason };
    thread::Builder::new()
        .name("apart".into())
        .spawn(move || {
            // Sending fails if the caller has stopped waiting.
            let _ = tell.send(act());
        })
        .map_err(|error| failed(error.to_string()))?;
    told.await.unwrap_or_else(|_| Err(failed("the thread ended without a result".into())))
}
