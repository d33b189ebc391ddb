//! Turns a node back into the machine that it was: stops its units, ends containers and mounts, and removes what the
//! agent left. Keys and certificates are overwritten first. Nothing else is touched.

mod data_folders;

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use kops_agent_plan::diff::{CONTAINER_RUNTIME, Enablement, KUBELET};
use kops_agent_plan::resource::{Kind, ResourceId};
use serde::Serialize;

use data_folders::DataFolders;

use crate::applied::shred_applied;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::hosts_file::remove_entries;
use crate::places::{path_of, unit_path, written_file};
use crate::record::Record;
use crate::rollback::restoring::shred_kept_files;
use crate::root::{Entry, Root, temporary_name};
use crate::system::mounts::Mounts;
use crate::system::packages::remove_keys;
use crate::system::pod_network::PodNetworkLeft;
use crate::system::systemd::{Systemd, UnitState};
use crate::unit_files::remove_unit;
use crate::unit_overrides::is_masked;

/// The slice that contains pods if systemd manages control groups.
const PODS: &str = "kubepods.slice";
/// The grace period of pods, which is Kubernetes' default. Without this limit, systemd would wait for 90 s.
const GRACE: Duration = Duration::from_secs(30);

/// Folders that only containers, kubelet and network plugins use. Their files remain after these programs have stopped.
const RUNTIME_FOLDERS: [&str; 7] = [
    "/var/lib/kubelet",
    "/var/lib/containerd",
    "/run/containerd",
    "/var/log/containers",
    "/var/log/pods",
    "/var/lib/cni",
    // The network configuration of the container runtime. The pod of the network plugin writes it.
    "/etc/cni",
];

/// Runtime folders in `/var/log`. Pods that collect logs mount this folder as root, so they can replace its folders by links. A reset
/// removes such a link and does not follow it.
const IN_REACH_OF_PODS: [&str; 2] = ["/var/log/containers", "/var/log/pods"];

/// The logind settings that let kubelet delay a shutdown to end the pods. kubelet writes this file (pkg/kubelet/nodeshutdown/systemd).
const LOGIND_SETTINGS: &str = "/etc/systemd/logind.conf.d/99-kubelet.conf";

/// The folder of named network namespaces, and the prefix in the names of pods' namespaces. The prefix comes from containerd's CRI plugin
/// (its pkg/netns).
const NETWORKS: (&str, &str) = ("/run/netns", "cni-");

/// The folders of the agent's own data.
const OWN_FOLDERS: [&str; 2] = ["/var/cache/nodeup", "/var/lib/kops-agent"];

/// The plan of a reset, in the order of its actions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Reset {
    /// The units to stop and disable.
    pub units: Vec<String>,
    /// Whether the reset removes pods, and the data of kubelet and of the container runtime.
    pub containers: bool,
    pub mounts: Vec<String>,
    /// The resources whose files are removed.
    pub removed: Vec<ResourceId>,
    /// The volumes whose boot units are removed. They may be mounted or not.
    pub removed_volumes: Vec<ResourceId>,
    /// The folders to remove with their content.
    pub folders: Vec<String>,
    /// The folders in `folders` that the spec names as data folders of kubelet or containerd.
    pub data_folders: BTreeSet<String>,
    /// Data folders of kubelet or containerd that stay, because other programs may have files there.
    pub shared: BTreeSet<String>,
    /// The folders that are mount points. The reset empties the mounted file system, which stays mounted. Files that the mount hides stay,
    /// too.
    pub emptied: BTreeSet<String>,
    /// The files that the agent published for other programs, and that the reset removes ([`Host::is_published`]). The caller adds these
    /// files to the plan.
    pub published: Vec<String>,
    /// The parts of the pod network that are removed.
    pub pod_network: PodNetworkLeft,
    /// Resources that stay, because they existed before the agent overwrote them.
    pub kept: Vec<ResourceId>,
}

pub trait Resetting {
    /// Called before each action.
    fn doing(&self, what: &str);
}

impl Host {
    /// Plans a reset. `own_units` are units that start the agent and belong to no package. `own_files` are the files that these units read.
    /// `of_packages` are units that start the agent and whose files belong to a package, so their files stay. Changes nothing. Fails if the
    /// record is unreadable, or if it was lost and no run has finished since.
    pub fn plan_reset(&self, own_units: &[&str], own_files: &[&str], of_packages: &[&str]) -> Result<Reset> {
        let record = self.record()?;
        // Before a run finishes, a new record only contains the resources that the run was about to write.
        let is_unsettled = record.was_lost && record.config_hash.is_empty();
        let unsettled = || {
            "kops-agent does not know what it left on this machine: its record could not be read, and no run has \
             finished since"
                .to_owned()
        };
        if let Some(reason) = record.unreadable.clone().or_else(|| is_unsettled.then(unsettled)) {
            return Err(Error::Path {
                doing: "reset",
                path: self.root.shown("/"),
                reason: format!(
                    "{reason}; restore the record from a backup, or write a new one with `kops-agent converge`"
                ),
            });
        }
        for unknown in record.unknown() {
            log::warn!(
                "{unknown} stays: another version of kops-agent made it, and only that version can remove it"
            );
        }
        let mut units: Vec<String> = Vec::new();
        for unit in own_units {
            if self.root.read(&unit_path(&self.root, unit))?.is_some() {
                units.push((*unit).to_owned());
            }
        }
        let own: Vec<ResourceId> = units.iter().map(|unit| ResourceId::new(Kind::Unit, unit)).collect();
        let mut of_node = record.units();
        of_node.sort_by_key(|unit| (stop_order(unit), (*unit).to_owned()));
        // First stop the units that start the agent. Otherwise they would make the machine a node again, now or at the next boot.
        let starting = would_start(&*self.systemd, of_packages, &of_node)?;
        units.splice(0..0, starting);
        units.extend(of_node.iter().map(|unit| (*unit).to_owned()));

        let containers = of_node.contains(&CONTAINER_RUNTIME) || of_node.contains(&KUBELET);
        let data = if containers { self.data_folders()? } else { DataFolders::default() };
        let runtime = self.runtime_folders(containers, &data.own)?;
        let mut folders = Vec::new();
        for folder in runtime.iter().chain(&OWN_FOLDERS) {
            if self.root.dir(folder)?.is_some() {
                folders.push((*folder).to_owned());
            }
        }
        let (mut kept, mut removed) = kept_and_removed(&record);
        let of_packages = self.of_packages(removed.iter())?;
        removed.retain(|id| !of_packages.contains(id));
        kept.extend(of_packages);
        removed.extend(own);
        for folder in IN_REACH_OF_PODS {
            if containers && self.is_link(folder)? {
                removed.push(ResourceId::new(Kind::File, folder));
            }
        }
        let of_kubelet = containers.then_some(&LOGIND_SETTINGS);
        for path in own_files.iter().chain(of_kubelet) {
            if self.root.read(path)?.is_some() {
                removed.push(ResourceId::new(Kind::File, *path));
            }
        }
        let (volumes, removed): (Vec<_>, Vec<_>) = removed.into_iter().partition(|id| id.kind.is_mount());
        let paths: Vec<&str> = volumes.iter().map(|id| id.name.as_str()).collect();
        let mut mounts = self.mounts.within(&runtime)?;
        mounts.extend(pod_networks(&*self.mounts, containers)?);
        for volume in self.mounted_among(&paths)? {
            if !mounts.contains(&volume) {
                mounts.push(volume);
            }
        }
        let mut emptied = self.mounts.on(&runtime)?;
        emptied.retain(|path| !mounts.contains(path));
        let pod_network = if containers { self.pod_network.left()? } else { PodNetworkLeft::default() };
        Ok(Reset {
            units,
            containers,
            mounts,
            removed,
            removed_volumes: volumes,
            folders,
            data_folders: data.own.clone(),
            shared: data.shared,
            emptied,
            published: Vec::new(),
            pod_network,
            kept,
        })
    }

    /// The given files that exist.
    pub fn existing_files(&self, files: &[&str]) -> Result<Vec<String>> {
        let mut there = Vec::new();
        for path in files {
            if self.root.metadata(path)?.is_some() {
                there.push((*path).to_owned());
            }
        }
        Ok(there)
    }

    /// Stops and disables units of a reset. [`Host::reset`] calls this function first, even if its caller has already called it.
    pub fn stop_units(&self, units: &[String], progress: &dyn Resetting) -> Result<()> {
        let names: Vec<&str> = units.iter().map(String::as_str).collect();
        for (unit, state) in names.iter().zip(self.systemd.states(&names)?) {
            progress.doing(&format!("stopping {unit}"));
            self.stop(unit, state)?;
        }
        Ok(())
    }

    /// Executes a plan of [`Host::plan_reset`]. Stops at the first action that fails. An interrupted or failed reset can be repeated.
    pub fn reset(&self, reset: &Reset, progress: &dyn Resetting) -> Result<()> {
        let _lock = self.lock()?;
        self.stop_units(&reset.units, progress)?;
        for path in &reset.published {
            progress.doing(&format!("removing {path}"));
            // If the removal fails, the reset continues. The folder belongs to another program, which may change the folder at any time.
            if let Err(error) = self.withdraw(path) {
                log::warn!("{error}");
            }
        }
        // Pods have ended, so no pod can create a link now.
        let runtime = self.runtime_folders(reset.containers, &reset.data_folders)?;
        unmount_all(&*self.mounts, || self.mounts.within(&runtime), progress)?;
        for path in unmount_all(&*self.mounts, || pod_networks(&*self.mounts, reset.containers), progress)? {
            if let Some((dir, name)) = self.root.parent(&path)? {
                dir.remove(&name)?;
            }
        }
        if reset.containers {
            progress.doing("removing the interfaces and the rules of the pod network");
            for problem in self.pod_network.remove() {
                log::warn!("{problem}; restart this machine to remove the rest of the pod network");
            }
        }
        let is_host = |id: &&ResourceId| id.kind == Kind::HostsEntry;
        let hosts: Vec<&str> = reset.removed.iter().filter(is_host).map(|id| id.name.as_str()).collect();
        if !hosts.is_empty() {
            progress.doing("removing the entries in /etc/hosts");
            remove_entries(&self.root, &hosts)?;
        }
        for id in reset.removed.iter().chain(&reset.kept) {
            remove_temporary(&self.root, id)?;
        }
        let (directories, files): (Vec<_>, Vec<_>) =
            reset.removed.iter().filter(|id| !is_host(id)).partition(|id| id.kind == Kind::Directory);
        for id in files {
            progress.doing(&format!("removing {id}"));
            remove_resource(&self.root, id)?;
        }
        // Volumes are still mounted at this point, so that folders on volumes are removed, too. If a volume were unmounted first, its
        // folders would exist again after the next mount.
        let is_of_runtime = |folder: &&String| runtime.contains(&folder.as_str());
        for folder in reset.folders.iter().filter(is_of_runtime) {
            progress.doing(&format!("removing {folder}"));
            self.root.remove_tree(folder)?;
        }
        for volume in reset.removed_volumes.iter().chain(&reset.kept).filter(|id| id.kind == Kind::Mount) {
            self.no_longer_mount_at_boot(&volume.name)?;
        }
        // The volumes no longer contain files of the agent, kubelet or the container runtime. Their other files stay.
        let mounts: Vec<&str> = reset.mounts.iter().map(String::as_str).collect();
        unmount_all(&*self.mounts, || self.mounted_among(&mounts), progress)?;
        for id in directories {
            progress.doing(&format!("removing {id}"));
            remove_resource(&self.root, id)?;
        }
        self.systemd.reload()?;
        // The backups of an interrupted change may contain keys, so they are overwritten.
        shred_kept_files(&self.root)?;
        shred_applied(&self.root)?;
        for folder in &reset.folders {
            progress.doing(&format!("removing {folder}"));
            match IN_REACH_OF_PODS.contains(&folder.as_str()) && self.is_link(folder)? {
                true => remove_resource(&self.root, &ResourceId::new(Kind::File, folder))?,
                false => self.root.remove_tree(folder)?,
            }
        }
        Ok(())
    }

    /// The folders of kubelet and the container runtime, if the machine has containers. A link that a pod may have put in the place of a
    /// folder is left out.
    fn runtime_folders<'a>(&self, containers: bool, data: &'a BTreeSet<String>) -> Result<Vec<&'a str>> {
        let mut folders: Vec<&str> = data.iter().map(String::as_str).collect();
        for folder in RUNTIME_FOLDERS.into_iter().filter(|_| containers) {
            if !(IN_REACH_OF_PODS.contains(&folder) && self.is_link(folder)?) {
                folders.push(folder);
            }
        }
        Ok(folders)
    }

    fn is_link(&self, path: &str) -> Result<bool> {
        let Some((dir, name)) = self.root.parent(path)? else { return Ok(false) };
        Ok(matches!(dir.entry(&name)?, Some(Entry::Symlink(_))))
    }

    fn stop(&self, unit: &str, state: UnitState) -> Result<()> {
        // systemd fails to stop an unknown unit, which an earlier reset or an operator may have removed.
        if state.is_known || state.running {
            self.systemd.stop(unit)?;
        }
        // Pods and containers may still run, even if this unit does not.
        match unit {
            KUBELET => stop_or_kill(&*self.systemd, PODS, GRACE)?,
            // The processes that supervise containers continue after the container runtime stops.
            CONTAINER_RUNTIME => self.systemd.kill(unit)?,
            _ => {}
        }
        // A masked unit does not start at boot, so there is nothing to disable. The operator's mask stays.
        if state.is_known && !is_masked(&self.root, unit)? { self.systemd.disable(unit) } else { Ok(()) }
    }
}

/// The units in `of_packages` that run or start at boot, except the units in `listed`.
fn would_start(systemd: &dyn Systemd, of_packages: &[&str], listed: &[&str]) -> Result<Vec<String>> {
    let states = systemd.states(of_packages)?;
    let would_start = |(unit, state): (&&str, UnitState)| {
        let is_due = state.is_known && (state.running || state.enablement == Enablement::Enabled);
        (is_due && !listed.contains(unit)).then(|| (*unit).to_owned())
    };
    Ok(of_packages.iter().zip(states).filter_map(would_start).collect())
}

/// The mount points of pods' network namespaces.
fn pod_networks(mounts: &dyn Mounts, containers: bool) -> Result<Vec<String>> {
    let (folder, prefix) = NETWORKS;
    let of_pods = format!("{folder}/{prefix}");
    let mut paths = if containers { mounts.below(&[folder])? } else { Vec::new() };
    paths.retain(|path| path.starts_with(&of_pods));
    Ok(paths)
}

/// Unmounts all paths that `find` returns. Returns the unmounted paths. Unmounting one path may also remove the mount of another path.
fn unmount_all(
    mounts: &dyn Mounts,
    find: impl Fn() -> Result<Vec<String>>,
    progress: &dyn Resetting,
) -> Result<Vec<String>> {
    let found = find()?;
    for path in &found {
        progress.doing(&format!("unmounting {path}"));
        if let Err(error) = mounts.unmount(path)
            && find()?.contains(path)
        {
            return Err(error);
        }
    }
    Ok(found)
}

fn remove_resource(root: &Root, id: &ResourceId) -> Result<()> {
    let Some((dir, name)) = root.parent(&path_of(root, id))? else { return Ok(()) };
    match id.kind {
        Kind::Directory => {
            if let Some(Entry::Symlink(target)) = dir.entry(&name)? {
                log::warn!("{} stays: it is a link to {target}, not a directory", dir.shown(&name));
            }
            dir.remove_dir_if_empty(&name)
        }
        Kind::File => dir.shred(&name),
        Kind::Unit => remove_unit(root, id, &dir, &name),
        Kind::PackageSource => dir.remove(&name).and_then(|()| remove_keys(root, &id.name)),
        _ => dir.remove(&name),
    }
}

/// Overwrites and removes the temporary file that remains of a resource after a killed run. The temporary file may contain a key.
fn remove_temporary(root: &Root, id: &ResourceId) -> Result<()> {
    let Some(path) = written_file(root, id) else { return Ok(()) };
    match root.parent(&path)? {
        Some((dir, name)) => dir.shred(&temporary_name(&name)),
        None => Ok(()),
    }
}

/// Stops a unit. If the unit still runs after `grace`, kills it.
fn stop_or_kill(systemd: &dyn Systemd, unit: &str, grace: Duration) -> Result<()> {
    thread::scope(|scope| {
        let (ended, waiting) = channel();
        scope.spawn(move || ended.send(systemd.stop(unit)));
        match waiting.recv_timeout(grace) {
            Ok(stopped) => stopped,
            Err(_) => {
                systemd.kill(unit)?;
                waiting.recv().unwrap_or(Ok(()))
            }
        }
    })
}

/// The resources that stay because they existed before the agent, and the resources to remove. In the second list, a directory comes after
/// its content.
fn kept_and_removed(record: &Record) -> (Vec<ResourceId>, Vec<ResourceId>) {
    let (mut kept, mut removed) = (Vec::new(), Vec::new());
    for (id, was_there) in record.claims() {
        match id.kind {
            Kind::Directory if was_there => {}
            Kind::HostsEntry => removed.push(id.clone()),
            _ if was_there => kept.push(id.clone()),
            _ => removed.push(id.clone()),
        }
    }
    removed.sort_by_key(|id| (id.kind == Kind::Directory, Reverse(id.clone())));
    (kept, removed)
}

/// The order in which units stop: kubelet before its dependencies, and the container runtime last.
fn stop_order(unit: &str) -> u8 {
    match unit {
        KUBELET => 0,
        CONTAINER_RUNTIME => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests;
