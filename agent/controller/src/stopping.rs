//! Why a process of the control plane ends that nothing is wrong with.

use std::path::PathBuf;

/// Waits for a signal, or until a file has changed that was read at the start, and says which it was, as the end of a sentence.
pub async fn reason(
    stopped: &mut (impl Future<Output = &'static str> + Unpin),
    changed: impl Future<Output = PathBuf>,
) -> String {
    tokio::select! {
        signal = stopped => format!("{signal} came"),
        file = changed => {
            format!("{} has changed: its supervisor, systemd say, starts it anew with it", file.display())
        }
    }
}
