//! Checks of the machine itself: its programs, kernel, package manager and free disk space. They change nothing. An
//! unreadable file is reported with the reason.
//!
//! All paths, also `/proc` and `/sys`, are below the machine's root, so that another root stands for another machine.

mod clock;
mod disks;
mod kernel;
mod listeners;
mod packages;
mod processes;
mod volumes;

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind};
use std::path::Path;
use std::time::Duration;

use kops_agent_plan::doctor::early_warnings::LOGS;
use kops_agent_plan::doctor::{Disk, Kernel, Listener, Machine, Module, Packages, Seen, Unseen, Volumes};

use super::deadline::{CHECK_TIMEOUT, run_in_thread};
use super::node::Wanted;
use crate::machine::open;
use crate::options::NodeOptions;

/// The folder of downloads.
const CACHE: &str = "/var/cache/nodeup";
/// The folders whose content grows while a node runs: data of pods, images, and logs.
const GROWING: [&str; 3] = ["/var/lib/kubelet", "/var/lib/containerd", LOGS];

pub(super) struct Seeing {
    pub(super) listeners: Seen<Vec<Listener>>,
    pub(super) kernel: Kernel,
    pub(super) machine: Machine,
}

pub(super) async fn examine(options: &NodeOptions, wanted: &Wanted) -> Seeing {
    let (root, all) = (options.source.node_root.clone(), wanted.clone());
    let (allows_swap, unfit) = (wanted.allows_swap, wanted.unfit.clone());
    let seeing = run_in_thread(CHECK_TIMEOUT, move || {
        let host = open(&root).map_err(Unseen::new);
        let module = |name: &String| match &host {
            Ok(host) => kernel::module(host, &root, name),
            Err(why) => Module { name: name.clone(), state: Err(why.clone()) },
        };
        Seeing {
            listeners: listeners::listeners(&root),
            kernel: Kernel {
                cgroups: kernel::cgroups(&root),
                modules: all.modules.iter().map(module).collect(),
                missing_parameters: kernel::missing_parameters(&root, &all.parameters),
                parameters_are_read_only: kernel::parameters_are_read_only(&root),
            },
            machine: Machine {
                unfit,
                runs_systemd: runs_systemd(&root),
                swap: processes::swap(&root),
                allows_swap,
                processes: processes::processes(&root),
            },
        }
    });
    seeing.await.unwrap_or_else(|why| unseen(&why, wanted))
}

/// The block devices of the desired volumes.
pub(super) async fn volumes(options: &NodeOptions, wanted: &Wanted) -> Seen<Volumes> {
    let (root, desired) = (options.source.node_root.clone(), wanted.desired.clone().unwrap_or_default());
    run_in_thread(CHECK_TIMEOUT, move || volumes::volumes(&root, &desired)).await.and_then(|volumes| volumes)
}

/// The state of the package manager. Package repositories are checked only if packages are missing.
pub(super) async fn packages(options: &NodeOptions, wanted: &Wanted) -> Packages {
    let (root, desired) = (options.source.node_root.clone(), wanted.desired.clone());
    let seen = run_in_thread(CHECK_TIMEOUT, move || {
        let host = open(&root).map_err(Unseen::new)?;
        let missing = desired.map(|desired| packages::missing(&host, &desired));
        let is_to_install = matches!(&missing, Some(Ok(names)) if !names.is_empty());
        let repositories = is_to_install.then(|| host.repositories());
        Ok(Packages { lock: packages::lock(&host), missing, repositories })
    });
    let seen = seen.await.and_then(|seen| seen);
    seen.unwrap_or_else(|why| Packages { lock: Err(why), missing: None, repositories: None })
}

fn unseen(why: &Unseen, wanted: &Wanted) -> Seeing {
    let module = |name: &String| Module { name: name.clone(), state: Err(why.clone()) };
    Seeing {
        listeners: Err(why.clone()),
        kernel: Kernel {
            cgroups: Err(why.clone()),
            modules: wanted.modules.iter().map(module).collect(),
            missing_parameters: Err(why.clone()),
            parameters_are_read_only: Err(why.clone()),
        },
        machine: Machine {
            unfit: wanted.unfit.clone(),
            runs_systemd: Err(why.clone()),
            swap: Err(why.clone()),
            allows_swap: wanted.allows_swap,
            processes: Err(why.clone()),
        },
    }
}

/// The disks of the download cache and of the folders that the node writes to, with their free space. `sizes` has the
/// sizes of missing downloads in bytes, by URL.
pub(super) async fn disks(
    options: &NodeOptions,
    wanted: &Wanted,
    sizes: BTreeMap<String, u64>,
) -> Seen<Vec<Disk>> {
    // A server may report any size, so the sum must not overflow.
    let size = sizes.values().fold(0, |sum: u64, size| sum.saturating_add(*size));
    let mut folders: Vec<(String, u64)> = vec![(CACHE.to_owned(), size)];
    folders.extend(wanted.folders.iter().map(|folder| (folder.clone(), 0)));
    let root = options.source.node_root.clone();
    run_in_thread(CHECK_TIMEOUT, move || disks::disks(&root, &folders)).await.and_then(|disks| disks)
}

/// The file systems of the folders whose content grows while a node runs.
pub(super) async fn growing_disks(root: &Path, within: Duration) -> Seen<Vec<Disk>> {
    let (root, folders) = (root.to_owned(), GROWING.map(|folder| (folder.to_owned(), 0_u64)));
    run_in_thread(within, move || disks::disks(&root, &folders)).await.and_then(|disks| disks)
}

/// Whether the clock is synchronized over the network. Only the root `/` has a clock.
pub(super) async fn is_clock_synchronized(is_this_machine: bool, within: Duration) -> Seen<bool> {
    match is_this_machine {
        true => run_in_thread(within, move || clock::is_synchronized(within)).await.and_then(|seen| seen),
        false => Err(Unseen::new("a root other than / has no clock")),
    }
}

/// Like [`is_clock_synchronized`], but an unsynchronized clock counts as unknown in the first minutes after boot.
pub(super) async fn is_settled_clock_synchronized(is_this_machine: bool, within: Duration) -> Seen<bool> {
    clock::once_settled(is_clock_synchronized(is_this_machine, within).await)
}

/// Whether the machine was booted with systemd (sd_booted(3)).
fn runs_systemd(root: &Path) -> Seen<bool> {
    match std::fs::symlink_metadata(root.join("run/systemd/system")) {
        Ok(found) => Ok(found.is_dir()),
        Err(error) if error.kind() == ErrorKind::NotFound && root.join("run").is_dir() => Ok(false),
        Err(error) => Err(unreadable(&root.join("run"), error)),
    }
}

fn unreadable(path: &Path, error: Error) -> Unseen {
    Unseen::new(kops_agent_host::Error::path("look at", path.display().to_string(), error))
}

#[cfg(test)]
mod tests;
