//! The listening TCP ports and their processes.

use std::path::Path;

use kops_agent_host::system::listeners::{owners, sockets};
use kops_agent_plan::doctor::{Listener, Seen, Unseen};

/// All listening TCP ports with their processes, sorted, without duplicates.
pub(super) fn listeners(root: &Path) -> Seen<Vec<Listener>> {
    let sockets = sockets(root).map_err(Unseen::new)?;
    if sockets.is_empty() {
        return Ok(Vec::new());
    }
    let owners = owners(root);
    let mut listeners: Vec<Listener> = sockets
        .into_iter()
        .map(|(address, inode)| Listener { port: address.port(), process: owners.get(&inode).cloned() })
        .collect();
    listeners.sort();
    listeners.dedup();
    Ok(listeners)
}
