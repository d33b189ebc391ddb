//! The clock of the machine.

use std::fs;
use std::time::Duration;

use kops_agent_host::system::programs;
use kops_agent_plan::doctor::{Seen, Unseen};

/// How long after boot a time service may need to synchronize the clock.
const SETTLED_AFTER: f64 = 600.0;

/// Whether the kernel's clock is synchronized over the network (adjtimex(2), `STA_UNSYNC`).
pub(super) fn is_synchronized(within: Duration) -> Seen<bool> {
    let command = ["timedatectl", "show", "--property=NTPSynchronized", "--value"];
    let answer = programs::ask(&command, within).map_err(Unseen::new)?;
    match answer.stdout.trim() {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(Unseen::new(format_args!("timedatectl says: {}", answer.stderr.trim()))),
    }
}

/// Whether this machine has booted so recently that a time service may not have synchronized the clock yet. `false` if
/// the uptime is unknown.
pub(super) fn is_settling() -> bool {
    let uptime = fs::read_to_string("/proc/uptime").ok();
    let seconds = uptime.and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
    seconds.is_some_and(|seconds| seconds < SETTLED_AFTER)
}
