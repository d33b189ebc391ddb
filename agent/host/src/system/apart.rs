//! What blocks its thread, on a thread of its own: a run that waits for it hears a signal at once.

use std::thread;

use tokio::sync::oneshot;

use crate::error::{Error, Result};

/// Has a thread of its own do something that may take its time and leaves nothing half done. Where its end is not waited
/// for, the thread goes on until the process ends.
///
/// # Errors
/// Those of `act`; or no thread can be started.
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
            // The run may have been asked to stop meanwhile.
            let _ = tell.send(act());
        })
        .map_err(|error| failed(error.to_string()))?;
    told.await.unwrap_or_else(|_| Err(failed("it has ended".into())))
}
