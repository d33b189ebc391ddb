//! Reports a run to systemd while systemd waits for it (sd_notify(3)): the current step, that the run is alive, and
//! that the node has converged. If `NOTIFY_SOCKET` is not set, nothing is reported, and that is not an error.
//!
//! A run works on the only thread of its runtime, and cannot report while it waits, for example for a package manager.
//! So a second thread reports: each step as soon as it starts, and at intervals that the run is alive. If a step takes
//! longer than the time that the run has allowed for it, the thread stops these reports. Then systemd's own timeouts
//! (`WatchdogSec=`, which counts from the first report on, and `TimeoutStartSec=`) expire, and systemd ends the run.

use std::convert::Infallible;
use std::fmt::Display;
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use sd_notify::NotifyState;

use crate::output::one_line;
use crate::program::with_path_in_commands;

/// The longest time that a step may take without a report. It is longer than the timeout of each wait in a run.
pub const TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// The interval of reports that a run is alive, unless systemd's watchdog needs a shorter interval.
const BEAT: Duration = Duration::from_secs(20);
/// The number of intervals by which each report extends systemd's timeout, so that a single lost report does not end a run.
const BEATS: u32 = 3;
/// The maximum length of a status, in characters. `systemctl status` cannot show a longer text usefully in one line.
const LONGEST_STATUS: usize = 300;

/// The environment variables in which systemd tells a process where and how often to send reports (sd_notify(3), sd_watchdog_enabled(3)).
const VARIABLES: [&str; 3] = ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"];

static LISTENER: OnceLock<Arc<Shared>> = OnceLock::new();

/// Starts to report this process to systemd, if `NOTIFY_SOCKET` is set.
pub fn start() {
    if std::env::var_os("NOTIFY_SOCKET").is_none() {
        return;
    }
    let shared = Arc::new(Shared { run: Mutex::new(Run::new(Instant::now())), changed: Condvar::new() });
    let telling = Arc::clone(&shared);
    let beat = beat(sd_notify::watchdog_enabled());
    match thread::Builder::new().name("service-manager".into()).spawn(move || telling.tell(beat)) {
        Ok(_) => drop(LISTENER.set(shared)),
        Err(error) => log::debug!("cannot report this run to systemd: cannot start a thread: {error}"),
    }
}

/// Keeps a child process from reporting to systemd, because systemd would take the child's reports for reports of this process.
pub fn keep_from_reporting(child: &mut Command) {
    for variable in VARIABLES {
        child.env_remove(variable);
    }
}

/// Reports the current step to systemd, in words. The next report must follow within [`TIMEOUT`].
pub fn doing(what: impl Display) {
    waiting(what, TIMEOUT);
}

/// Reports the current step to systemd, in words. The next report must follow within `timeout`.
pub fn waiting(what: impl Display, timeout: Duration) {
    if let Some(shared) = LISTENER.get() {
        // `status` removes line breaks, because a line break would start another message to systemd.
        shared.run.lock().does(status(&what), Instant::now(), timeout);
        shared.changed.notify_one();
    }
}

/// Reports that the node has converged. systemd then starts the units that wait for this unit.
pub fn ready(what: impl Display) {
    end(Some(NotifyState::Ready), &what);
}

/// Reports that this process serves requests. systemd then starts the units that wait for this unit. The process continues until it is done
/// or receives a signal to stop.
pub fn serving(what: impl Display) {
    doing(&what);
    if LISTENER.get().is_some() {
        notify(&[NotifyState::Ready]);
    }
}

/// Reports that this process is alive, as long as this future is polled. If the runtime is blocked, no reports are sent.
pub async fn go_on_serving(what: &str) -> Infallible {
    repeat(BEAT, || doing(what)).await
}

async fn repeat(every: Duration, tell: impl Fn()) -> Infallible {
    loop {
        tell();
        tokio::time::sleep(every).await;
    }
}

/// Reports that this process stops because it received a signal.
pub fn stopping(what: impl Display) {
    end(Some(NotifyState::Stopping), &what);
}

/// Reports that this process ends, and why.
pub fn failed(what: impl Display) {
    end(None, &what);
}

/// Reports the end of a run. No other report follows.
fn end(state: Option<NotifyState<'_>>, what: &dyn Display) {
    let Some(shared) = LISTENER.get() else { return };
    // While this thread holds the lock, the thread that sends reports at intervals sends none. So this report is the last one.
    let mut run = shared.run.lock();
    if !std::mem::replace(&mut run.has_ended, true) {
        let status = status(what);
        let states: Vec<_> = state.into_iter().chain([NotifyState::Status(&status)]).collect();
        notify(&states);
    }
}

/// The text that `systemctl status` shows, in one line.
fn status(what: &dyn Display) -> String {
    one_line(&with_path_in_commands(&what.to_string()), LONGEST_STATUS)
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        log::debug!("cannot report this run to systemd: {error}");
    }
}

struct Shared {
    run: Mutex<Run>,
    changed: Condvar,
}

impl Shared {
    fn tell(&self, beat: Duration) {
        let mut run = self.run.lock();
        let mut next_beat = Instant::now();
        while !run.has_ended {
            let now = Instant::now();
            let mut states = Vec::new();
            let status = std::mem::take(&mut run.untold).then(|| run.status.clone());
            states.extend(status.as_deref().map(NotifyState::Status));
            if now >= next_beat {
                next_beat = now + beat;
                states.extend(run.beat(now, beat));
            }
            if !states.is_empty() {
                notify(&states);
            }
            let wait = next_beat.saturating_duration_since(Instant::now());
            self.changed.wait_for(&mut run, wait);
        }
    }
}

/// The state that a run reports to systemd.
struct Run {
    status: String,
    /// Whether `status` has not been sent to systemd yet.
    untold: bool,
    /// After this time, the run is not reported as alive until it reports a step.
    alive_until: Instant,
    is_given_up: bool,
    has_ended: bool,
}

impl Run {
    fn new(now: Instant) -> Run {
        let status = "starting".to_owned();
        Run { status, untold: true, alive_until: now + TIMEOUT, is_given_up: false, has_ended: false }
    }

    fn does(&mut self, what: String, now: Instant, timeout: Duration) {
        self.untold |= what != self.status;
        self.status = what;
        self.alive_until = now + timeout;
        self.is_given_up = false;
    }

    /// The messages for one interval, which report that the run is alive. Empty if `alive_until` has passed.
    fn beat(&mut self, now: Instant, beat: Duration) -> Vec<NotifyState<'static>> {
        if now <= self.alive_until {
            let extension = u32::try_from((beat * BEATS).as_micros()).unwrap_or(u32::MAX);
            return vec![NotifyState::ExtendTimeoutUsec(extension), NotifyState::Watchdog];
        }
        if !std::mem::replace(&mut self.is_given_up, true) {
            log::error!(
                "this run reports no progress, so systemd will end it after a timeout; last step: {}",
                self.status
            );
        }
        vec![]
    }
}

/// The interval between reports that a run is alive. It is at most half of the watchdog's interval.
fn beat(watchdog: Option<Duration>) -> Duration {
    watchdog.map_or(BEAT, |watchdog| BEAT.min(watchdog / 2)).max(Duration::from_millis(1))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn a_run_counts_as_alive_until_its_timeout() {
        let start = Instant::now();
        let seconds = Duration::from_secs;
        let mut run = Run::new(start);
        let beats = |run: &mut Run, at| !run.beat(start + at, BEAT).is_empty();
        assert!(beats(&mut run, TIMEOUT));
        assert!(!beats(&mut run, TIMEOUT + seconds(1)));
        // If a run reports a step after its timeout, the run is reported as alive again.
        run.does("downloading".into(), start + TIMEOUT + seconds(2), TIMEOUT);
        assert!(beats(&mut run, TIMEOUT * 2));
        run.does("waiting".into(), start, seconds(30));
        assert!(beats(&mut run, seconds(30)) && !beats(&mut run, seconds(31)));
    }

    #[test]
    fn a_child_process_does_not_report_in_place_of_this_process() {
        let mut child = Command::new("env");
        child.env_clear().envs(VARIABLES.map(|variable| (variable, "1"))).env("OTHER", "1");
        keep_from_reporting(&mut child);
        let printed = child.output().unwrap().stdout;
        assert_eq!(String::from_utf8(printed).unwrap(), "OTHER=1\n");
    }

    #[test]
    fn reports_come_before_the_watchdog_expires() {
        assert_eq!(beat(None), BEAT);
        assert_eq!(beat(Some(Duration::from_secs(3600))), BEAT);
        assert_eq!(beat(Some(Duration::from_secs(10))), Duration::from_secs(5));
        assert!(beat(Some(Duration::ZERO)) > Duration::ZERO);
    }

    #[tokio::test]
    async fn a_server_reports_repeatedly_that_it_is_alive() {
        const { assert!(BEAT.as_secs() * 2 < TIMEOUT.as_secs()) };
        let told = AtomicU32::new(0);
        let telling = repeat(Duration::from_millis(1), || {
            told.fetch_add(1, Ordering::Relaxed);
        });
        let seen = async {
            while told.load(Ordering::Relaxed) < 5 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            _ = telling => unreachable!("it has no end"),
            () = seen => {}
        }
    }
}
