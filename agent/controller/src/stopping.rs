//! The reasons for which a healthy control-plane process ends.

use std::path::PathBuf;

/// Waits for a signal, or for a change of a file that was read at the start. Returns the reason as the end of a sentence.
pub async fn reason(
    stopped: &mut (impl Future<Output = &'static str> + Unpin),
    changed: impl Future<Output = PathBuf>,
) -> String {
    tokio::select! {
        signal = stopped => format!("{signal} came"),
        file = changed => {
            format!("{} has changed; systemd (or another supervisor) restarts this process", file.display())
        }
    }
}
