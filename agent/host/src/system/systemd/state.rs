//! Derives the state of a unit from its properties in systemd.

use std::time::{Duration, SystemTime};

use kops_agent_plan::diff::Enablement;
use time::PrimitiveDateTime;
use time::macros::format_description;

use super::unit::{Rest, UnitState};
use crate::system::clock::Clock;

/// The properties that [`read`] uses. They belong to the interface `org.freedesktop.systemd1.Unit` or to the interface
/// for the unit's type.
pub(super) const PROPERTIES: [&str; 10] = [
    "LoadState",
    "ActiveState",
    "SubState",
    "UnitFileState",
    "Type",
    "Result",
    "TriggeredBy",
    "ExecMainStartTimestamp",
    "ExecMainStartTimestampMonotonic",
    "NeedDaemonReload",
];

/// Derives a unit's state from its properties. `get` returns a property as `systemctl show` writes it in UTC. If the
/// unit's type has no such property, `get` returns an empty string.
pub(super) fn read<'a>(get: impl Fn(&str) -> &'a str, clock: &Clock) -> UnitState {
    let enablement = match get("UnitFileState") {
        "enabled" | "alias" | "linked" => Enablement::Enabled,
        "static" | "indirect" | "generated" | "transient" => Enablement::Static,
        _ => Enablement::Disabled,
    };
    let running = match get("ActiveState") {
        // A unit in a restart loop is `activating`. It counts as running, because systemd itself restarts it.
        "active" | "reloading" | "refreshing" | "activating" => true,
        "inactive" => has_done_its_work(&get),
        _ => false,
    };
    let rests = match (get("ActiveState"), get("Type"), get("Result")) {
        ("inactive", "oneshot", "success") => Rest::RunsOnce,
        ("inactive", _, _) => Rest::Yes,
        _ => Rest::No,
    };
    // systemd 254 and later also have the state `auto-restart-queued`.
    let restarting = get("SubState").starts_with("auto-restart");
    let starting = is_starting(&get);
    let started = started(&get, clock);
    let unread = get("NeedDaemonReload") == "yes";
    let is_known = get("LoadState") != "not-found";
    UnitState { is_known, enablement, running, rests, restarting, starting, started, unread }
}

/// When the main process of a unit started. This is the later of two times: systemd's timestamp, and the time that is
/// computed from the monotonic clock. If the clock was set back after the start, the computed time is earlier than the
/// dates of files written before the start. `None` if the unit had no main process since boot, or if the unit is
/// inactive and a timer or socket starts it.
fn started<'a>(get: impl Fn(&str) -> &'a str, clock: &Clock) -> Option<SystemTime> {
    if get("ActiveState") == "inactive" && !get("TriggeredBy").is_empty() {
        return None;
    }
    let monotonic: u64 =
        get("ExecMainStartTimestampMonotonic").parse().ok().filter(|started| *started > 0)?;
    let told = clock.of_monotonic(Duration::from_micros(monotonic));
    told.max(noted(get("ExecMainStartTimestamp")))
}

/// Parses a timestamp of `systemctl`: `Sun 2026-11-22 21:44:25 UTC`.
fn noted(timestamp: &str) -> Option<SystemTime> {
    let format = format_description!("[year]-[month]-[day] [hour]:[minute]:[second]");
    let (_weekday, rest) = timestamp.strip_suffix(" UTC")?.split_once(' ')?;
    PrimitiveDateTime::parse(rest, format).ok().map(|time| time.assume_utc().into())
}

/// Whether a unit is starting, with a running process.
pub(super) fn is_starting<'a>(get: impl Fn(&str) -> &'a str) -> bool {
    get("ActiveState") == "activating" && !get("SubState").starts_with("auto-restart")
}

/// Whether an inactive unit has nothing left to do. This is so for a unit that a timer or socket starts, and for a
/// oneshot that has run since boot.
fn has_done_its_work<'a>(get: impl Fn(&str) -> &'a str) -> bool {
    let has_run = !matches!(get("ExecMainStartTimestampMonotonic"), "" | "0");
    get("Result") == "success" && (!get("TriggeredBy").is_empty() || (get("Type") == "oneshot" && has_run))
}
