//! Inspects a machine for `kops-agent doctor` and changes nothing. An unreadable file is reported with the reason.
//!
//! All paths, also `/proc` and `/sys`, are below the machine's root, so that another root stands for another machine.

mod delivered;
mod disks;
mod kernel;
pub(crate) mod listeners;
mod packages;
pub(crate) mod processes;
mod volumes;

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use kops_agent_plan::doctor::{Module, ModuleState, Seen, Unseen};

use crate::host::Host;
use crate::system::programs;

pub use disks::disks;
pub use kernel::{cgroups, missing_parameters, parameters_are_read_only};
pub use listeners::listeners;
pub use processes::{processes, swap};
pub use volumes::volumes;

/// Timeout of `timedatectl`.
const TIMEDATED: Duration = Duration::from_secs(10);

/// Whether the machine was booted with systemd (sd_booted(3)).
pub fn runs_systemd(root: &Path) -> Seen<bool> {
    match std::fs::symlink_metadata(root.join("run/systemd/system")) {
        Ok(found) => Ok(found.is_dir()),
        Err(error) if error.kind() == ErrorKind::NotFound && root.join("run").is_dir() => Ok(false),
        Err(error) => Err(unseen(&root.join("run"), &error)),
    }
}

/// Whether the kernel's clock is synchronized over the network (adjtimex(2), `STA_UNSYNC`).
pub fn is_clock_synchronized() -> Seen<bool> {
    let command = ["timedatectl", "show", "--property=NTPSynchronized", "--value"];
    let answer = programs::ask(&command, TIMEDATED).map_err(Unseen::new)?;
    match answer.stdout.trim() {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(Unseen::new(format_args!("timedatectl says: {}", answer.stderr.trim()))),
    }
}

impl Host {
    pub fn module(&self, name: &str) -> Module {
        Module { name: name.to_owned(), state: self.module_state(name) }
    }

    fn module_state(&self, name: &str) -> Seen<ModuleState> {
        if self.kernel.is_loaded(name).map_err(Unseen::new)? {
            return Ok(ModuleState::Loaded);
        }
        if let Some(line) = self.kernel.forbidden(name).map_err(Unseen::new)? {
            return Ok(ModuleState::Forbidden(line));
        }
        // If the kernel knows a file system without a loaded module, the file system is built in.
        let filesystems = self.root.read("/proc/filesystems").ok().flatten().unwrap_or_default();
        let filesystems = String::from_utf8_lossy(&filesystems);
        if filesystems.lines().any(|line| line.split_whitespace().next_back() == Some(name)) {
            return Ok(ModuleState::Loaded);
        }
        Ok(if self.kernel.has(name) { ModuleState::Available } else { ModuleState::Missing })
    }
}

/// The reason for a file that cannot be read.
fn unseen(path: &Path, error: &std::io::Error) -> Unseen {
    Unseen::new(format_args!("cannot look at {}: {}", path.display(), crate::error::explain(error)))
}

#[cfg(test)]
mod tests;
