//! The client of systemd: `systemctl`. It needs no system bus, which may not run yet or may restart during a run.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{ChildStderr, Command, Output, Stdio};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::manager::Systemd;
use super::state::{self, PROPERTIES};
use super::this_run;
use super::unit::{Act, Job, UnitState};
use crate::error::{Error, Result};
use crate::system::child::{POLL, Runner};
use crate::system::clock::Clock;
use crate::system::commands::{Outcome, ask_prepared, not_run, prepare, refused};

/// Timeout of a request to systemd. It is longer than the default of 25 s, because systemd may need more time to read
/// all unit files again.
const ANSWER_TIMEOUT: &str = "180s";
/// The maximum number of attempts at a request. The agent repeats a request whose connection breaks. Connections break,
/// for example, when systemd re-executes itself after its upgrade.
const ATTEMPTS: u32 = 10;
const PAUSE: Duration = Duration::from_secs(1);
/// How long a requested job may take to enter systemd's queue. After this time, the next job is requested anyway.
const QUEUED_WITHIN: Duration = Duration::from_secs(5);
/// Parts of the messages of `systemctl` about a broken connection.
const LOST: [&str; 8] = [
    "connection terminated",
    "Connection reset by peer",
    "Connection refused",
    "Connection timed out",
    "Transport endpoint is not connected",
    "Failed to wait for response",
    "Failed to connect to bus",
    "Failed to get D-Bus connection",
];
/// The entries of `LOST` that `systemctl` prints only while it waits for the end of a job. If `systemctl` has printed
/// such an entry, systemd has already queued the job.
const WAITED: [&str; 2] = ["connection terminated", "Failed to wait for response"];
/// This directory exists if systemd is the machine's init system (sd_booted(3)).
const BOOTED: &str = "/run/systemd/system";

/// This machine's systemd, accessed through `systemctl`.
pub struct Systemctl;

impl Systemd for Systemctl {
    fn states(&self, units: &[&str]) -> Result<Vec<UnitState>> {
        if units.is_empty() {
            return Ok(vec![]);
        }
        let properties = format!("--property={}", PROPERTIES.join(","));
        // Without `TZ`, `systemctl show` prints timestamps in the caller's time zone.
        let mut command = vec!["env", "TZ=UTC", "systemctl", "show", &properties, "--"];
        command.extend(units);
        let states = parse(&run(&command)?, &Clock::now());
        if states.len() == units.len() {
            Ok(states)
        } else {
            Err(Error::Command {
                command: command.join(" "),
                outcome: format!("described {} units instead of {}", states.len(), units.len()),
            })
        }
    }

    fn reload(&self) -> Result<()> {
        run(&["systemctl", "daemon-reload"]).map(drop)
    }

    fn enable(&self, unit: &str) -> Result<()> {
        run(&["systemctl", "enable", "--no-reload", "--", unit]).map(drop)
    }

    fn disable(&self, unit: &str) -> Result<()> {
        run(&["systemctl", "disable", "--no-reload", "--", unit]).map(drop)
    }

    fn start(&self, unit: &str) -> Result<()> {
        act(Act::Start, unit)
    }

    fn enqueue_start(&self, unit: &str) -> Result<()> {
        run(&["systemctl", "start", "--no-block", "--", unit]).map(drop)
    }

    fn stop(&self, unit: &str) -> Result<()> {
        act(Act::Stop, unit)
    }

    fn kill(&self, unit: &str) -> Result<()> {
        // `systemctl kill` fails if no process is left to kill. This failure is ignored.
        ask(&["systemctl", "kill", "--kill-who=all", "--signal=SIGKILL", "--", unit]).map(drop)
    }

    fn restart(&self, unit: &str) -> Result<()> {
        act(Act::Restart, unit)
    }

    fn run_apart(&self, unit: &str, command: &[&str]) -> Result<()> {
        let name = format!("--unit={unit}");
        // A core dump of the program may contain a key.
        let how =
            ["systemd-run", "--quiet", "--collect", "--no-block", "--property=LimitCORE=0", &name, "--"];
        run(&[&how, command].concat()).map(drop).or_else(|refused| {
            run(&["systemctl", "is-active", "--quiet", "--", unit]).map(drop).map_err(|_| refused)
        })
    }

    fn reboot(&self) -> Result<()> {
        run(&["systemctl", "reboot"]).map(drop)
    }

    fn begin(&self, act: Act, unit: &str) -> Job {
        let runner = Runner::default();
        let begun = begin(act, unit, &runner);
        let ends = EndOnDrop(runner);
        let unit = unit.to_owned();
        Box::pin(async move {
            let _ends = ends;
            begun?.await.unwrap_or_else(|_| {
                let reason = "the thread for systemctl ended without a result".to_owned();
                Err(Error::Unit { doing: act.name(), unit, reason })
            })
        })
    }

    fn is_starting(&self, unit: &str) -> Result<bool> {
        let shown = run(&["systemctl", "show", "--property=ActiveState,SubState", "--", unit])?;
        Ok(state::is_starting(|name| property(&shown, name)))
    }

    fn waits_for_this_run(&self, unit: &str, left: &BTreeSet<String>) -> Result<bool> {
        this_run::is_waited_for_by(unit, left)
    }
}

/// Kills the `systemctl` of a job when the job's future is dropped. The job itself continues.
struct EndOnDrop(Runner);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Requests a job, and returns once the job is in systemd's queue. If the caller requested the next job earlier, the
/// units could start in the wrong order, because systemd orders only queued jobs. A thread waits for the end of the
/// job.
fn begin(act: Act, unit: &str, runner: &Runner) -> Result<oneshot::Receiver<Result<()>>> {
    let command = ["systemctl", act.name(), "--", unit];
    let not_run = |error: std::io::Error| not_run(&command, &error);
    let mut prepared = of_systemd(&command)?;
    prepared.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let started = runner.start(&mut prepared).map_err(not_run)?;
    let stderr = started.and_then(|started| started.stderr);
    let (tell, told) = oneshot::channel();
    let (waiting, waited_for) = (runner.clone(), unit.to_owned());
    let wait = move || {
        // If the waiting future was dropped, sending fails.
        let _ = tell.send(end_of(act, &waited_for, &waiting, stderr));
    };
    let thread = thread::Builder::new().name("systemctl".into()).spawn(wait).map_err(|error| {
        let reason = format!("cannot start a thread for systemctl: {error}");
        Error::Unit { doing: act.name(), unit: unit.to_owned(), reason }
    })?;
    let deadline = Instant::now() + QUEUED_WITHIN;
    while !thread.is_finished() && Instant::now() < deadline {
        let shown = run(&["systemctl", "show", "--property=Job", "--", unit])?;
        if !matches!(property(&shown, "Job"), "" | "0") {
            break;
        }
        sleep(POLL);
    }
    Ok(told)
}

/// Waits until the `systemctl` of `runner` ends. Returns the error of the job that this `systemctl` requested.
fn end_of(act: Act, unit: &str, runner: &Runner, stderr: Option<ChildStderr>) -> Result<()> {
    let command = ["systemctl", act.name(), "--", unit];
    let not_run = |error: std::io::Error| not_run(&command, &error);
    let mut said = Vec::new();
    stderr.map_or(Ok(0), |mut stderr| stderr.read_to_end(&mut said)).map_err(not_run)?;
    let forever = Instant::now() + Duration::from_secs(u32::MAX.into());
    // The runner killed `systemctl` because the waiting future was dropped.
    let Some(status) = runner.wait(forever).map_err(not_run)? else { return Ok(()) };
    conclude(act, unit, Output { status, stdout: Vec::new(), stderr: said }.into())
}

/// Requests a job and waits for its end.
fn act(act: Act, unit: &str) -> Result<()> {
    conclude(act, unit, ask_once(&["systemctl", act.name(), "--", unit])?)
}

/// Fails if a job failed. `outcome` is the outcome of the `systemctl` that requested the job. If the connection of
/// `systemctl` breaks, the job continues. Then another `systemctl` waits for the job.
pub(super) fn conclude(act: Act, unit: &str, outcome: Outcome) -> Result<()> {
    let mut verb = act.name();
    let outcome = until_answered(outcome, |lost| {
        // If the restart is already queued, a start request waits for it. A second restart request would restart the
        // unit twice.
        if act == Act::Restart && WAITED.iter().any(|part| lost.says(part)) {
            verb = Act::Start.name();
        }
        ask_once(&["systemctl", verb, "--", unit])
    })?;
    if outcome.status.success() {
        return Ok(());
    }
    let shown = run(&["systemctl", "show", "--property=Result", "--", unit]).unwrap_or_default();
    match why_it_failed(act, unit, &outcome.stderr, property(&shown, "Result")) {
        Some(reason) => Err(Error::Unit { doing: act.name(), unit: unit.to_owned(), reason }),
        None => Err(refused(&["systemctl", verb, "--", unit], &outcome)),
    }
}

/// Why a job failed. `said` has the messages of `systemctl`, and `result` is the `Result` property of the unit.
/// `None` if the messages name no reason.
fn why_it_failed(act: Act, unit: &str, said: &str, result: &str) -> Option<String> {
    let refusal = format!("Failed to {} {unit}: ", act.name());
    if let Some(reason) = said.lines().find_map(|line| line.strip_prefix(&refusal)) {
        return Some(reason.to_owned());
    }
    let meaning = if said.contains("A dependency job for ") {
        "a unit that it needs did not start".to_owned()
    } else if said.contains(&format!("Job for {unit} canceled.")) {
        "another request to systemd replaced this one".to_owned()
    } else if said.contains(&format!("Job for {unit} timed out.")) {
        "its job timed out".to_owned()
    } else if said.contains(&format!("Job for {unit} failed")) || said.contains(&format!("{unit} failed")) {
        match result {
            // systemd has started the unit again since the failure, so `result` is not about the failed start.
            "" | "success" => "its job has failed".to_owned(),
            result => format!("it has failed with the result {result}"),
        }
    } else {
        return None;
    };
    Some(format!("{meaning}; see `journalctl -u {unit}`"))
}

/// Prepares a systemd program. The program has its own process group, so Ctrl-C does not end it in the middle of a
/// request.
fn of_systemd(command: &[&str]) -> Result<Command> {
    let mut prepared = prepare(command)?;
    prepared.env("SYSTEMD_BUS_TIMEOUT", ANSWER_TIMEOUT).process_group(0);
    Ok(prepared)
}

pub(super) fn ask_once(command: &[&str]) -> Result<Outcome> {
    ask_prepared(command, &mut of_systemd(command)?)
}

/// Runs a systemd program to its end. If its connection breaks, the program runs again, because each request in this
/// file may be repeated.
fn ask(command: &[&str]) -> Result<Outcome> {
    until_answered(ask_once(command)?, |_| ask_once(command))
}

/// Repeats a request while its connection breaks. `again` receives the outcome of the last attempt, and repeats the
/// request.
fn until_answered(first: Outcome, mut again: impl FnMut(&Outcome) -> Result<Outcome>) -> Result<Outcome> {
    let mut outcome = first;
    for _ in 1..ATTEMPTS {
        if !is_lost(&outcome) {
            return Ok(outcome);
        }
        sleep(PAUSE);
        outcome = again(&outcome)?;
    }
    if is_lost(&outcome) { Err(lost(&outcome)) } else { Ok(outcome) }
}

/// Like [`ask`], but returns the standard output. An exit status other than 0 is an error.
pub(super) fn run(command: &[&str]) -> Result<String> {
    ask(command)?.succeeded(command)
}

/// Whether a program failed because its connection to systemd broke. If systemd does not run on this machine, a retry
/// is useless, so the result is false.
fn is_lost(outcome: &Outcome) -> bool {
    LOST.iter().any(|part| outcome.says(part)) && Path::new(BOOTED).is_dir()
}

/// The error for a broken connection. It says nothing about a unit, so it does not count as a refusal
/// ([`Error::is_refusal`]).
fn lost(outcome: &Outcome) -> Error {
    let reason = format!("{}; see `journalctl -t systemd`", outcome.stderr.trim().replace('\n', "; "));
    Error::Path { doing: "ask", path: "systemd".into(), reason }
}

/// Parses the output of `systemctl show`: one block per unit, separated by empty lines.
fn parse(shown: &str, clock: &Clock) -> Vec<UnitState> {
    let blocks = shown.split("\n\n").filter(|block| !block.trim().is_empty());
    blocks.map(|block| state::read(|name| property(block, name), clock)).collect()
}

pub(super) fn property<'a>(block: &'a str, name: &str) -> &'a str {
    block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::{Duration, SystemTime};

    use kops_agent_plan::diff::Enablement;

    use super::super::unit::Rest;
    use super::*;

    const NOW: u64 = 1_800_000_000;

    fn clock() -> Clock {
        Clock {
            wall: SystemTime::UNIX_EPOCH + Duration::from_secs(NOW),
            monotonic: Duration::from_secs(1000),
            since_boot: Duration::from_secs(1000),
        }
    }

    #[test]
    fn the_start_time_of_a_process_survives_changes_of_the_clock() {
        let started = |monotonic: &str, noted: &str| {
            let shown = format!(
                "ActiveState=active\nNeedDaemonReload=yes\nExecMainStartTimestampMonotonic={monotonic}\n\
                 ExecMainStartTimestamp={noted}\n"
            );
            let state = parse(&shown, &clock())[0];
            assert!(state.unread);
            state.started.map(|at| at.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs())
        };
        assert_eq!(started("0", ""), None, "it has no process");
        assert_eq!(started("900000000", ""), Some(NOW - 100));
        // At boot, the clock was years behind.
        assert_eq!(started("900000000", "Thu 1970-01-01 00:15:00 UTC"), Some(NOW - 100));
        // When the unit started, the clock was 50 s ahead. So the dates of all files from that time are 50 s ahead,
        // too.
        assert_eq!(started("900000000", "Fri 2027-01-15 07:59:10 UTC"), Some(NOW - 50));
    }

    #[test]
    fn states_are_read_as_systemctl_prints_them() {
        let shown = "LoadState=loaded\nActiveState=active\nUnitFileState=enabled\nType=notify\nResult=success\n\n\
                     LoadState=not-found\nActiveState=inactive\nUnitFileState=\nResult=success\n\n\
                     Type=oneshot\nResult=success\nExecMainStartTimestampMonotonic=123\nLoadState=loaded\n\
                     ActiveState=inactive\nUnitFileState=static\n\n\
                     Type=oneshot\nResult=success\nExecMainStartTimestampMonotonic=0\nLoadState=loaded\n\
                     ActiveState=inactive\nUnitFileState=enabled\n\n\
                     Type=simple\nResult=success\nExecMainStartTimestampMonotonic=0\nLoadState=loaded\n\
                     ActiveState=inactive\nUnitFileState=static\nTriggeredBy=logrotate.timer\n\n\
                     Type=simple\nResult=success\nExecMainStartTimestampMonotonic=9\nLoadState=loaded\n\
                     ActiveState=inactive\nUnitFileState=disabled\nTriggeredBy=\n\n\
                     Type=simple\nResult=exit-code\nLoadState=loaded\nActiveState=failed\nUnitFileState=enabled\n";
        let state = |is_known, enablement, running, rests| UnitState {
            is_known,
            enablement,
            running,
            rests,
            ..UnitState::UNKNOWN
        };
        let mut states = parse(shown, &clock());
        let started: Vec<bool> = states.iter_mut().map(|state| state.started.take().is_some()).collect();
        assert_eq!(started, [false, false, true, false, false, true, false]);
        assert_eq!(
            states,
            [
                state(true, Enablement::Enabled, true, Rest::No),
                state(false, Enablement::Disabled, false, Rest::Yes),
                state(true, Enablement::Static, true, Rest::RunsOnce),
                state(true, Enablement::Enabled, false, Rest::RunsOnce),
                state(true, Enablement::Static, true, Rest::Yes),
                state(true, Enablement::Disabled, false, Rest::Yes),
                state(true, Enablement::Enabled, false, Rest::No),
            ]
        );
    }

    #[test]
    fn a_failed_job_is_explained() {
        let why = |said: &str, result: &str| why_it_failed(Act::Start, "a.service", said, result);
        let failed = "Job for a.service failed because the control process exited with error code.\n\
                      See \"systemctl status a.service\" and \"journalctl -xeu a.service\" for details.\n";
        assert_eq!(
            why(failed, "exit-code").unwrap(),
            "it has failed with the result exit-code; see `journalctl -u a.service`"
        );
        assert_eq!(why(failed, "success").unwrap(), "its job has failed; see `journalctl -u a.service`");
        assert!(
            why("Timeout on a.mount; a.service failed.\n", "timeout").unwrap().contains("the result timeout")
        );
        assert!(why("Job for a.service timed out.\n", "success").unwrap().starts_with("its job timed out"));
        let dependency = "A dependency job for a.service failed. See 'journalctl -xe' for details.\n";
        assert!(why(dependency, "success").unwrap().starts_with("a unit that it needs did not start"));
        assert!(why("Job for a.service canceled.\n", "success").unwrap().starts_with("another request"));
        let masked = "Failed to start a.service: Unit a.service is masked.\n";
        assert_eq!(why(masked, "success").unwrap(), "Unit a.service is masked.");
        assert_eq!(why("Failed to connect to bus: No such file or directory\n", ""), None);
    }

    #[test]
    fn a_unit_that_fails_repeatedly_is_not_starting() {
        let restarting = |sub: &str| {
            parse(&format!("LoadState=loaded\nActiveState=activating\nSubState={sub}"), &clock())[0]
                .restarting
        };
        assert!(restarting("auto-restart") && restarting("auto-restart-queued"));
        assert!(!restarting("start") && !restarting("start-pre"));
    }
}
