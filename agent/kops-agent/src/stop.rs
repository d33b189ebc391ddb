//! Being asked to stop: a run ends at the next point where nothing is half done, and says so.
//!
//! Between two stages and while it downloads, a run can be dropped (see `Host::apply`). systemd sends SIGTERM,
//! a person SIGINT.

use std::future::Future;

use anyhow::{Context, Result, anyhow};
use tokio::signal::unix::{SignalKind, signal};

/// Ends once a signal has come that asks this process to stop, with its name. From the call on the process does
/// not end by itself when one comes.
///
/// # Errors
/// If the kernel refuses to have the signals caught.
pub fn asked() -> Result<impl Future<Output = &'static str>> {
    let catch = |kind, name| signal(kind).with_context(|| format!("catching {name}"));
    let mut terminated = catch(SignalKind::terminate(), "SIGTERM")?;
    let mut interrupted = catch(SignalKind::interrupt(), "SIGINT")?;
    Ok(async move {
        tokio::select! {
            _ = terminated.recv() => "SIGTERM",
            _ = interrupted.recv() => "SIGINT",
        }
    })
}

/// Why a run ended that was asked to.
pub fn stopped_by(signal: &str) -> anyhow::Error {
    anyhow!(
        "stopped between two steps, because {signal} came; nothing is half done, and the next run goes on from here"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_signal_is_waited_for_and_not_died_of() {
        let asked = asked().unwrap();
        nix::sys::signal::raise(nix::sys::signal::Signal::SIGTERM).unwrap();
        assert_eq!(asked.await, "SIGTERM");
    }
}
