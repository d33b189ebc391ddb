//! What systemd's properties of a unit say of it.

use std::time::{Duration, SystemTime};

use kops_agent_plan::diff::Enablement;
use time::PrimitiveDateTime;
use time::macros::format_description;

use super::unit::{Rest, UnitState};
use crate::system::clock::Clock;

/// The properties that are read, of `org.freedesktop.systemd1.Unit` and of the interface of the unit's own type.
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

/// Reads them, as `systemctl show` writes them in UTC; empty where the unit's type has no such property.
pub(super) fn read<'a>(get: impl Fn(&str) -> &'a str, clock: &Clock) -> UnitState {
    let enablement = match get("UnitFileState") {
        "enabled" | "alias" | "linked" => Enablement::Enabled,
        "static" | "indirect" | "generated" | "transient" => Enablement::Static,
        _ => Enablement::Disabled,
    };
    let running = match get("ActiveState") {
        // A unit in a restart loop of systemd's is `activating`: there is nothing to start.
        "active" | "reloading" | "refreshing" | "activating" => true,
        "inactive" => has_done_its_work(&get),
        _ => false,
    };
    let rests = match (get("ActiveState"), get("Type"), get("Result")) {
        ("inactive", "oneshot", "success") => Rest::RunsOnce,
        ("inactive", _, _) => Rest::Yes,
        _ => Rest::No,
    };
    // `auto-restart-queued` is of systemd 254 and later.
    let restarting = get("SubState").starts_with("auto-restart");
    let starting = is_starting(&get);
    let started = started(&get, clock);
    let unread = get("NeedDaemonReload") == "yes";
    let is_known = get("LoadState") != "not-found";
    UnitState { is_known, enablement, running, rests, restarting, starting, started, unread }
}

/// When the main process of a unit was started. A clock that was set back since makes it earlier than it was by the
/// clock of files of before, so it is then when systemd noted that it was. Of what a timer or socket starts anew whenever
/// it is needed, nothing runs in between.
fn started<'a>(get: impl Fn(&str) -> &'a str, clock: &Clock) -> Option<SystemTime> {
    if get("ActiveState") == "inactive" && !get("TriggeredBy").is_empty() {
        return None;
    }
    let monotonic: u64 =
        get("ExecMainStartTimestampMonotonic").parse().ok().filter(|started| *started > 0)?;
    let told = clock.of_monotonic(Duration::from_micros(monotonic));
    told.max(noted(get("ExecMainStartTimestamp")))
}

/// A time of day as `systemctl` writes it: `Sun 2026-11-22 21:44:25 UTC`.
fn noted(timestamp: &str) -> Option<SystemTime> {
    let format = format_description!("[year]-[month]-[day] [hour]:[minute]:[second]");
    let (_weekday, rest) = timestamp.strip_suffix(" UTC")?.split_once(' ')?;
    PrimitiveDateTime::parse(rest, format).ok().map(|time| time.assume_utc().into())
}

/// Whether a process of the unit has begun to start it.
pub(super) fn is_starting<'a>(get: impl Fn(&str) -> &'a str) -> bool {
    get("ActiveState") == "activating" && !get("SubState").starts_with("auto-restart")
}

/// Whether a unit is at rest because nothing is left for it to do: a timer or socket starts it when
/// it is needed, or it was to run once and has, since the machine started.
fn has_done_its_work<'a>(get: impl Fn(&str) -> &'a str) -> bool {
    let has_run = !matches!(get("ExecMainStartTimestampMonotonic"), "" | "0");
    get("Result") == "success" && (!get("TriggeredBy").is_empty() || (get("Type") == "oneshot" && has_run))
}
