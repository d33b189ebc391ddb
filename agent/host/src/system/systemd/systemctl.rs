//! The client of systemd: `systemctl`. It needs no system bus, which may not run yet or may restart during a run.

use std::collections::BTreeSet;
use std::thread;

use tokio::sync::oneshot;

use super::manager::Systemd;
use super::state::{self, PROPERTIES};
use super::this_run;
use super::unit::{Act, Job, UnitState};
use crate::error::{Error, Result};
use crate::system::clock::Clock;
use crate::system::commands::{ask, refused, run};

/// This machine's systemd.
pub struct Systemctl;

impl Systemd for Systemctl {
    fn states(&self, units: &[&str]) -> Result<Vec<UnitState>> {
        if units.is_empty() {
            return Ok(vec![]);
        }
        let properties = format!("--property={}", PROPERTIES.join(","));
        // systemctl prints timestamps in the caller's time zone.
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
        // systemctl fails if no process is left. That counts as success.
        ask(&["systemctl", "kill", "--kill-who=all", "--signal=SIGKILL", "--", unit]).map(drop)
    }

    fn restart(&self, unit: &str) -> Result<()> {
        act(Act::Restart, unit)
    }

    fn run_apart(&self, unit: &str, command: &[&str]) -> Result<()> {
        let name = format!("--unit={unit}");
        // The program's memory may hold a key, so it must not dump core.
        let how =
            ["systemd-run", "--quiet", "--collect", "--no-block", "--property=LimitCORE=0", &name, "--"];
        run(&[&how, command].concat()).map(drop).or_else(|refused| {
            run(&["systemctl", "is-active", "--quiet", "--", unit]).map(drop).map_err(|_| refused)
        })
    }

    fn begin(&self, act: Act, unit: &str) -> Job {
        let (tell, told) = oneshot::channel();
        let (unit, waited_for) = (unit.to_owned(), unit.to_owned());
        let wait = move || {
            // The waiting future may have been dropped.
            let _ = tell.send(self::act(act, &waited_for));
        };
        let started = thread::Builder::new().name("systemctl".into()).spawn(wait);
        let failed = move |reason: String| Error::Unit { doing: act.name(), unit: unit.clone(), reason };
        Box::pin(async move {
            started.map_err(|error| failed(format!("cannot start a thread for it: {error}")))?;
            told.await.unwrap_or_else(|_| Err(failed("the thread for it ended without a result".into())))
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

/// Asks for a job, and waits for its end.
fn act(act: Act, unit: &str) -> Result<()> {
    let command = ["systemctl", act.name(), "--", unit];
    let outcome = ask(&command)?;
    if outcome.status.success() {
        return Ok(());
    }
    let result = run(&["systemctl", "show", "--property=Result", "--value", "--", unit]).unwrap_or_default();
    match why_it_failed(act, unit, &outcome.stderr, result.trim()) {
        Some(reason) => Err(Error::Unit { doing: act.name(), unit: unit.to_owned(), reason }),
        None => Err(refused(&command, &outcome)),
    }
}

/// Why a job failed: from the messages of `systemctl`, and from the `Result` property of the unit. `None` if neither is known.
fn why_it_failed(act: Act, unit: &str, said: &str, result: &str) -> Option<String> {
    let refusal = format!("Failed to {} {unit}: ", act.name());
    if let Some(reason) = said.lines().find_map(|line| line.strip_prefix(&refusal)) {
        return Some(reason.to_owned());
    }
    let meaning = if said.contains("A dependency job for ") {
        "a unit that it needs did not start".to_owned()
    } else if said.contains(&format!("Job for {unit} canceled.")) {
        "another request to systemd replaced this one".to_owned()
    } else if said.contains(&format!("Job for {unit} failed")) {
        match result {
            // systemd started the unit again in the meantime.
            "" | "success" => "its job has failed".to_owned(),
            result => format!("it has failed with the result {result}"),
        }
    } else {
        return None;
    };
    Some(format!("{meaning}; see `journalctl -u {unit}`"))
}

/// Parses the output of `systemctl show`: one block per unit, separated by empty lines.
fn parse(shown: &str, clock: &Clock) -> Vec<UnitState> {
    let blocks = shown.split("\n\n").filter(|block| !block.trim().is_empty());
    blocks.map(|block| state::read(|name| property(block, name), clock)).collect()
}

fn property<'a>(block: &'a str, name: &str) -> &'a str {
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
    fn when_a_process_was_started_is_told_whatever_the_clock_was_set_to_since() {
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
        // The clock was years behind at boot.
        assert_eq!(started("900000000", "Thu 1970-01-01 00:15:00 UTC"), Some(NOW - 100));
        // The clock was 50 s ahead, and so are the dates of all files from that time.
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
        let dependency = "A dependency job for a.service failed. See 'journalctl -xe' for details.\n";
        assert!(why(dependency, "success").unwrap().starts_with("a unit that it needs did not start"));
        assert!(why("Job for a.service canceled.\n", "success").unwrap().starts_with("another request"));
        let masked = "Failed to start a.service: Unit a.service is masked.\n";
        assert_eq!(why(masked, "success").unwrap(), "Unit a.service is masked.");
        assert_eq!(why("Failed to connect to bus: No such file or directory\n", ""), None);
    }

    #[test]
    fn a_unit_that_fails_again_and_again_is_not_taken_for_one_that_starts() {
        let restarting = |sub: &str| {
            parse(&format!("LoadState=loaded\nActiveState=activating\nSubState={sub}"), &clock())[0]
                .restarting
        };
        assert!(restarting("auto-restart") && restarting("auto-restart-queued"));
        assert!(!restarting("start") && !restarting("start-pre"));
    }
}
