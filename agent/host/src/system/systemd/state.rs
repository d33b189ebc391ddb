//! What systemd's properties of a unit say of it: one reading, whichever way systemd was asked.

use kops_agent_plan::diff::Enablement;

use super::{Rest, UnitState};

/// The properties that are read, of `org.freedesktop.systemd1.Unit` and of the interface of the unit's own type.
pub(super) const PROPERTIES: [&str; 8] = [
    "LoadState",
    "ActiveState",
    "SubState",
    "UnitFileState",
    "Type",
    "Result",
    "TriggeredBy",
    "ExecMainStartTimestampMonotonic",
];

/// Reads them, as `systemctl show` writes them; empty where the unit's type has no such property.
pub(super) fn read<'a>(get: impl Fn(&str) -> &'a str) -> UnitState {
    let enablement = match get("UnitFileState") {
        "enabled" | "alias" | "linked" => Enablement::Enabled,
        "static" | "indirect" | "generated" | "transient" => Enablement::Static,
        _ => Enablement::Disabled,
    };
    let running = match get("ActiveState") {
        // A unit that systemd restarts again and again is `activating`: there is nothing to start.
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
    UnitState { is_known: get("LoadState") != "not-found", enablement, running, rests, restarting, starting }
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
