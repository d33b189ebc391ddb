//! systemd.

use kops_agent_plan::diff::Enablement;

use super::commands::{ask, refused, run};
use crate::error::{Error, Result};

/// What systemd knows of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitState {
    /// Whether there is such a unit.
    pub is_known: bool,
    /// Whether it starts at boot.
    pub enablement: Enablement,
    /// Whether it runs, or has done what it is for.
    pub running: bool,
}

/// The manager of units.
pub trait Systemd: Send + Sync {
    /// The states of these units, in their order.
    ///
    /// # Errors
    /// systemd cannot be asked.
    fn states(&self, units: &[&str]) -> Result<Vec<UnitState>>;

    /// Reads all unit files again.
    ///
    /// # Errors
    /// systemd cannot be asked.
    fn reload(&self) -> Result<()>;

    /// Lets a unit start at boot.
    ///
    /// # Errors
    /// systemd refuses.
    fn enable(&self, unit: &str) -> Result<()>;

    /// Keeps a unit from starting at boot.
    ///
    /// # Errors
    /// systemd refuses.
    fn disable(&self, unit: &str) -> Result<()>;

    /// Starts a unit, and waits until it runs.
    ///
    /// # Errors
    /// It does not start.
    fn start(&self, unit: &str) -> Result<()>;

    /// Stops a unit, and waits until it has stopped.
    ///
    /// # Errors
    /// It does not stop.
    fn stop(&self, unit: &str) -> Result<()>;

    /// Ends everything that still runs in a unit at once, stopped or not.
    ///
    /// # Errors
    /// systemd cannot be asked.
    fn kill(&self, unit: &str) -> Result<()>;

    /// Restarts a unit, and waits until it runs.
    ///
    /// # Errors
    /// It does not start again.
    fn restart(&self, unit: &str) -> Result<()>;
}

/// This machine's systemd, asked by `systemctl`.
pub struct Systemctl;

const SHOW: [&str; 3] = [
    "systemctl",
    "show",
    "--property=LoadState,ActiveState,UnitFileState,Type,Result,TriggeredBy,ExecMainStartTimestampMonotonic",
];

impl Systemd for Systemctl {
    fn states(&self, units: &[&str]) -> Result<Vec<UnitState>> {
        if units.is_empty() {
            return Ok(vec![]);
        }
        let command: Vec<&str> = SHOW.iter().chain(&["--"]).chain(units).copied().collect();
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
    let get = |name: &str| {
        block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).unwrap_or_default()
    };
    let enablement = match get("UnitFileState") {
        "enabled" | "alias" | "linked" => Enablement::Enabled,
        "static" | "indirect" | "generated" | "transient" => Enablement::Static,
        _ => Enablement::Disabled,
    };
    let running = match get("ActiveState") {
        // A unit that systemd restarts again and again is `activating`: there is nothing to start.
        "active" | "reloading" | "refreshing" | "activating" => true,
        "inactive" => has_done_its_work(get),
        _ => false,
    };
    UnitState { is_known: get("LoadState") != "not-found", enablement, running }
}

/// Whether a unit is at rest because nothing is left for it to do: a timer or socket starts it when
/// it is needed, or it was to run once and has, since the machine started.
fn has_done_its_work<'a>(get: impl Fn(&str) -> &'a str) -> bool {
    let has_run = !matches!(get("ExecMainStartTimestampMonotonic"), "" | "0");
    get("Result") == "success" && (!get("TriggeredBy").is_empty() || (get("Type") == "oneshot" && has_run))
}

#[cfg(test)]
mod tests {
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
        let state = |is_known, enablement, running| UnitState { is_known, enablement, running };
        assert_eq!(
            parse(shown),
            [
                state(true, Enablement::Enabled, true),
                state(false, Enablement::Disabled, false),
                state(true, Enablement::Static, true),
                state(true, Enablement::Enabled, false),
                state(true, Enablement::Static, true),
                state(true, Enablement::Disabled, false),
                state(true, Enablement::Enabled, false),
            ]
        );
    }
}
