//! Stop signals. A run that gets a stop signal ends at the next point where nothing is half done, and reports that it was stopped.
//!
//! A run can be dropped between two stages and during downloads (see `Host::apply`). systemd sends SIGTERM, a
//! person SIGINT.

use std::future::Future;
use std::sync::mpsc;
use std::thread;

use anyhow::{Context, Result};
use kops_agent_spec::failure::{Failure, Kind};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use crate::service_manager;

/// Returns a future that waits for SIGTERM or SIGINT. Its output is the name of the signal. After this call, these signals no longer end
/// the process. A separate thread reports the stop to systemd immediately, even if the run is busy.
pub fn signal_received() -> Result<impl Future<Output = &'static str>> {
    let (ready, is_ready) = mpsc::sync_channel(1);
    let (tell, told) = oneshot::channel();
    let wait = move || {
        let runtime = match Builder::new_current_thread().enable_all().build().context("waiting for signals")
        {
            Ok(runtime) => runtime,
            Err(error) => return drop(ready.send(Err(error))),
        };
        runtime.block_on(async {
            let coming = match next_signal() {
                Ok(coming) => coming,
                Err(error) => return drop(ready.send(Err(error))),
            };
            // The caller waits for this message, so sending it does not fail.
            let _ = ready.send(Ok(()));
            let signal = coming.await;
            service_manager::stopping(format_args!("stopping because of {signal}"));
            // If the run has already ended, nothing receives the signal's name.
            let _ = tell.send(signal);
        });
    };
    thread::Builder::new().name("signals".into()).spawn(wait).context("starting a thread for signals")?;
    is_ready.recv().context("waiting for signals")??;
    Ok(async move {
        match told.await {
            Ok(signal) => signal,
            // The thread ends without a signal only if the whole process ends. So no signal can come any more.
            Err(_) => std::future::pending().await,
        }
    })
}

fn next_signal() -> Result<impl Future<Output = &'static str>> {
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

/// The error of a run that a signal has ended.
pub fn stopped_by(signal: &str) -> anyhow::Error {
    let problem = format!(
        "stopped by {signal} between two steps; no step is half done, and the next run continues from here"
    );
    Failure::new(Kind::Stopped, problem).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_signal_is_received_and_does_not_end_the_process() {
        let received = signal_received().unwrap();
        nix::sys::signal::raise(nix::sys::signal::Signal::SIGTERM).unwrap();
        assert_eq!(received.await, "SIGTERM");
    }
}
