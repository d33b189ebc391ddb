//! The clock of the machine.

use std::time::Duration;

use kops_agent_host::system::programs;
use kops_agent_plan::doctor::{Seen, Unseen};

/// Timeout of `timedatectl`.
const TIMEDATED: Duration = Duration::from_secs(10);

/// Whether the kernel's clock is synchronized over the network (adjtimex(2), `STA_UNSYNC`).
pub(super) fn is_synchronized() -> Seen<bool> {
    let command = ["timedatectl", "show", "--property=NTPSynchronized", "--value"];
    let answer = programs::ask(&command, TIMEDATED).map_err(Unseen::new)?;
    match answer.stdout.trim() {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(Unseen::new(format_args!("timedatectl says: {}", answer.stderr.trim()))),
    }
}
