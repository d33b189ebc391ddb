//! Being asked to stop: a run ends at the next point where nothing is half done, and says so.
//!
//! Between two stages and while it downloads, a run can be dropped (see `Host::apply`). systemd sends SIGTERM,
//! a person SIGINT.

use std::future::Future;
use std::sync::mpsc;
use std::thread;

use anyhow::{Context, Result, anyhow};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use crate::service_manager;

/// Ends once a signal has come that asks this process to stop, with its name. From the call on the process does
/// not end by itself when one comes. systemd is told at once, by a thread that is not held up by what the run does.
///
/// # Errors
/// If the kernel refuses to have the signals caught, or to start a thread.
pub fn asked() -> Result<impl Future<Output = &'static str>> {
    let (ready, is_ready) = mpsc::sync_channel(1);
    let (tell, told) = oneshot::channel();
    let wait = move || {
        let runtime = match Builder::new_current_thread().enable_all().build().context("waiting for signals")
        {
            Ok(runtime) => runtime,
            Err(error) => return drop(ready.send(Err(error))),
        };
        runtime.block_on(async {
            let coming = match coming() {
                Ok(coming) => coming,
                Err(error) => return drop(ready.send(Err(error))),
            };
            // The caller waits for it.
            let _ = ready.send(Ok(()));
            let signal = coming.await;
            service_manager::stopping(format_args!("stopping, because {signal} came"));
            // A run that is over by itself does not listen any more.
            let _ = tell.send(signal);
        });
    };
    thread::Builder::new().name("signals".into()).spawn(wait).context("starting a thread for signals")?;
    is_ready.recv().context("waiting for signals")??;
    Ok(async move {
        match told.await {
            Ok(signal) => signal,
            // Nothing ends that thread but a signal and the end of the process.
            Err(_) => std::future::pending().await,
        }
    })
}

fn coming() -> Result<impl Future<Output = &'static str>> {
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
