//! The clock of the machine.

use std::time::Duration;

use kops_agent_host::system::programs;
use kops_agent_plan::doctor::{Seen, Unseen};

use crate::machine::uptime;

/// How long after boot a time service may need to synchronize the clock.
const SETTLED_AFTER: Duration = Duration::from_secs(600);

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

/// The state of the clock for a report. In the first minutes after boot, an unsynchronized clock counts as unknown.
pub(super) fn once_settled(is_synchronized: Seen<bool>) -> Seen<bool> {
    match is_synchronized {
        Ok(false) if uptime() < SETTLED_AFTER => Err(Unseen::new(format_args!(
            "this machine booted less than {} minutes ago; the next report observes the clock",
            SETTLED_AFTER.as_secs() / 60
        ))),
        seen => seen,
    }
}
