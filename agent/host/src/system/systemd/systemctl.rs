//! systemd, asked by `systemctl`: where there is no system bus, and for who has no right to it.

use std::thread;

use tokio::sync::oneshot;

use super::state::{self, PROPERTIES};
use super::{Act, Job, Systemd, UnitState};
use crate::error::{Error, Result};
use crate::system::commands::{ask, refused, run};

/// This machine's systemd, asked by `systemctl`.
pub struct Systemctl;

impl Systemd for Systemctl {
    fn states(&self, units: &[&str]) -> Result<Vec<UnitState>> {
        if units.is_empty() {
            return Ok(vec![]);
        }
        let properties = format!("--property={}", PROPERTIES.join(","));
        let mut command = vec!["systemctl", "show", &properties, "--"];
        command.extend(units);
        let states = parse(&run(&command)?);
        if states.len() == units.len() {
            Ok(states)
        } else {
            Err(Error::Command {
                command: command.join(" "),
                outcome: format!("told of {} units instead of {}", states.len(), units.len()),
            })
        }
    }

    fn reload(&self) -> Result<()> {
        run(&["systemctl", "daemon-reload"]).map(drop)
    }

    fn enable(&self, unit: &str) -> Result<()> {
        run(&["systemctl", "enable", "--", unit]).map(drop)
    }

    fn disable(&self, unit: &str) -> Result<()> {
        run(&["systemctl", "disable", "--", unit]).map(drop)
    }

    fn start(&self, unit: &str) -> Result<()> {
        act("start", unit)
    }

    fn enqueue_start(&self, unit: &str) -> Result<()> {
        run(&["systemctl", "start", "--no-block", "--", unit]).map(drop)
    }

    fn stop(&self, unit: &str) -> Result<()> {
        act("stop", unit)
    }

    fn kill(&self, unit: &str) -> Result<()> {
        // It fails where nothing is left to end, which is as good.
        ask(&["systemctl", "kill", "--kill-who=all", "--signal=SIGKILL", "--", unit]).map(drop)
    }

    fn restart(&self, unit: &str) -> Result<()> {
        act("restart", unit)
    }

    fn begin(&self, act: Act, unit: &str) -> Job {
        let (tell, told) = oneshot::channel();
        let (unit, waited_for) = (unit.to_owned(), unit.to_owned());
        let wait = move || {
            // The future that waits for it may have been dropped.
            let _ = tell.send(self::act(act.name(), &waited_for));
        };
        let started = thread::Builder::new().name("systemctl".into()).spawn(wait);
        let failed = move |reason: String| Error::Unit { doing: act.name(), unit: unit.clone(), reason };
        Box::pin(async move {
            started.map_err(|error| failed(format!("no thread can be started for it: {error}")))?;
            told.await.unwrap_or_else(|_| Err(failed("the thread that waited for it has ended".into())))
        })
    }

    fn is_starting(&self, unit: &str) -> Result<bool> {
        let shown = run(&["systemctl", "show", "--property=ActiveState,SubState", "--", unit])?;
        Ok(state::is_starting(|name| property(&shown, name)))
    }
}

fn act(verb: &str, unit: &str) -> Result<()> {
    let command = ["systemctl", verb, "--", unit];
    let outcome = ask(&command)?;
    if outcome.status.success() { Ok(()) } else { Err(refused(&command, &outcome)) }
}

/// Reads what `systemctl show` prints: a block for each unit, with an empty line between them.
fn parse(shown: &str) -> Vec<UnitState> {
    shown.split("\n\n").filter(|block| !block.trim().is_empty()).map(parse_block).collect()
}

fn parse_block(block: &str) -> UnitState {
    state::read(|name| property(block, name))
}

fn property<'a>(block: &'a str, name: &str) -> &'a str {
    block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use kops_agent_plan::diff::Enablement;

    use super::super::Rest;
    use super::*;

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
            restarting: false,
            starting: false,
        };
        assert_eq!(
            parse(shown),
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
    fn a_unit_that_fails_again_and_again_is_not_taken_for_one_that_starts() {
        let restarting = |sub: &str| {
            parse_block(&format!("LoadState=loaded\nActiveState=activating\nSubState={sub}")).restarting
        };
        assert!(restarting("auto-restart") && restarting("auto-restart-queued"));
        assert!(!restarting("start") && !restarting("start-pre"));
    }
}
