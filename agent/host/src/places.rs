//! The paths of resources' files.
//!
//! The agent writes a unit where upstream's nodeup writes it, so that each program overwrites the other's file
//! (upup/pkg/fi/nodeup/nodetasks/service.go, `systemdSystemPath`). A unit in `/etc` silently overrides that file
//! (systemd.unit(5)). A unit that an earlier version of the agent wrote to `/etc` is updated there, and moved when the
//! node is healthy. An operator's unit stays ([`crate::unit_overrides`]).

use std::collections::BTreeSet;

use kops_agent_plan::diff::Step;
use kops_agent_plan::resource::{Kind, ResourceId};
use kops_agent_spec::digest::sha256_hex;

use crate::error::Result;
use crate::facts::parse_os_release;
use crate::hosts_file;
use crate::record::Record;
use crate::root::Root;
use crate::system::kernel::boot_file;
use crate::system::packages::list_path;
use crate::system::sandbox;

/// The timelines of runs, below the root (`kops-agent status --timeline`).
pub const TIMELINE: &str = "/var/lib/kops-agent/timeline.json";

/// The folder of administrators' units.
pub(crate) const OVERRIDES: &str = "/etc/systemd/system";

/// The prefix in the names of the agent's own units. Upstream has no units with this prefix. The files of these units may belong to
/// packages.
const OWN: &str = "kops-agent";

pub(crate) fn unit_path(root: &Root, name: &str) -> String {
    let in_etc = format!("{OVERRIDES}/{name}");
    let is_own =
        || has_own_unit_in_etc(root, name) && root.metadata(&in_etc).is_ok_and(|file| file.is_some());
    if is_own() { in_etc } else { upstreams_unit_path(root, name) }
}

/// The path at which upstream writes a unit, even if the unit has a file at another path.
pub(crate) fn upstreams_unit_path(root: &Root, name: &str) -> String {
    let folder = if name.starts_with(OWN) { OVERRIDES } else { root.units_folder(find_folder) };
    format!("{folder}/{name}")
}

/// Whether a step writes a unit's file to a path where another program may have a file. That file is backed up first.
pub(crate) fn is_kept_when_written(root: &Root, step: &Step) -> bool {
    step.writes() && is_kept(root, &step.resource.name, &unit_path(root, &step.resource.name))
}

/// Whether the file at this path is backed up before the agent writes a unit there. Only the files of other programs are backed up, and not
/// the files that an earlier version of the agent wrote.
pub(crate) fn is_kept(root: &Root, name: &str, path: &str) -> bool {
    !name.starts_with(OWN) && path == upstreams_unit_path(root, name)
}

/// The folder in which upstream writes units on this distribution. If the folder is read-only or the distribution is unknown, returns the
/// folder of administrators' units.
fn find_folder(root: &Root) -> &'static str {
    let text =
        ["/etc/os-release", "/usr/lib/os-release"].iter().find_map(|path| root.read(path).ok().flatten());
    let folder = match parse_os_release(&String::from_utf8_lossy(&text.unwrap_or_default())).id.as_str() {
        "debian" | "ubuntu" => "/lib/systemd/system",
        "amzn" | "centos" | "fedora" | "rhel" | "rocky" => "/usr/lib/systemd/system",
        _ => return OVERRIDES,
    };
    let is_writable = |path: &str| {
        let dir = root.dir(path).ok().flatten()?;
        Some(dir.is_writable() || (root.is_machine() && sandbox::is_read_only_here(path)))
    };
    // A missing folder counts as writable if its nearest existing parent is writable.
    let nearest = is_writable(folder).or_else(|| is_writable("/usr")).or_else(|| is_writable("/"));
    if nearest.unwrap_or(false) { folder } else { OVERRIDES }
}

/// Whether an earlier version of the agent wrote a unit into the folder of administrators' units.
pub(crate) fn has_own_unit_in_etc(root: &Root, name: &str) -> bool {
    // If the record is unreadable, do not overwrite units in `/etc`.
    root.own_units_in_etc(|root| own_in_etc(root).unwrap_or_default()).contains(name)
}

/// The names of the units that earlier versions of the agent wrote into the folder of administrators' units (`/etc`). This version writes
/// units into the folder that nodeup uses. If the agent's unit file in nodeup's folder is intact, an edited file in `/etc` belongs to
/// someone else.
fn own_in_etc(root: &Root) -> Result<BTreeSet<String>> {
    let record = Record::read(root)?;
    let mut own = BTreeSet::new();
    for (name, left) in record.unit_texts() {
        let is_left_at = |path: &str| -> Result<Option<bool>> {
            Ok(root.read(path)?.map(|text| sha256_hex(&text) == left))
        };
        let in_etc = is_left_at(&format!("{OVERRIDES}/{name}"))?;
        let elsewhere = is_left_at(&upstreams_unit_path(root, name))?;
        if in_etc == Some(true) || (in_etc.is_some() && elsewhere != Some(true)) {
            own.insert(name.to_owned());
        }
    }
    Ok(own)
}

/// The path of the resource's regular file. For a resource without such a file, returns the resource's name, which may be a path.
pub(crate) fn path_of(root: &Root, id: &ResourceId) -> String {
    file_path(root, id).unwrap_or_else(|| id.name.clone())
}

/// The path of the regular file of a file, unit, kernel module or package source. `None` for other kinds of resources.
fn file_path(root: &Root, id: &ResourceId) -> Option<String> {
    match id.kind {
        Kind::File => Some(id.name.clone()),
        Kind::Unit => Some(unit_path(root, &id.name)),
        Kind::KernelModule => Some(boot_file(&id.name)),
        Kind::PackageSource => Some(list_path(&id.name)),
        _ => None,
    }
}

/// The path of the file that a run writes to create or change a resource.
pub(crate) fn written_file(root: &Root, id: &ResourceId) -> Option<String> {
    match id.kind {
        Kind::Symlink => Some(id.name.clone()),
        Kind::HostsEntry => Some(hosts_file::PATH.to_owned()),
        _ => file_path(root, id),
    }
}

/// The content of the file that makes systemd load a kernel module at every boot.
pub(crate) fn boot_text(module: &str) -> String {
    format!("{module}\n")
}

/// A function that reads the current text of a file.
pub(crate) fn present_texts(root: &Root) -> impl Fn(&str) -> Option<String> {
    |path| String::from_utf8(root.read(path).ok()??).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root_of(os_release: &str) -> (tempfile::TempDir, Root) {
        let temp = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(temp.path().join("usr/lib")).unwrap();
        std::fs::write(temp.path().join("usr/lib/os-release"), os_release).unwrap();
        let root = Root::open(temp.path()).unwrap();
        (temp, root)
    }

    #[test]
    fn units_are_written_where_upstream_writes_them() {
        for (id, folder) in [
            ("debian", "/lib/systemd/system"),
            ("ubuntu", "/lib/systemd/system"),
            ("amzn", "/usr/lib/systemd/system"),
            ("rocky", "/usr/lib/systemd/system"),
            ("flatcar", OVERRIDES),
            ("", OVERRIDES),
        ] {
            let (_temp, root) = root_of(&format!("ID={id}\n"));
            assert_eq!(unit_path(&root, "kubelet.service"), format!("{folder}/kubelet.service"), "{id}");
            let own = "kops-agent-controller.service";
            assert_eq!(unit_path(&root, own), format!("{OVERRIDES}/{own}"), "{id}");
        }
    }

    #[test]
    fn an_operators_unit_in_etc_is_not_overwritten() {
        let (temp, root) = root_of("ID=debian\n");
        let etc = temp.path().join("etc/systemd/system");
        std::fs::create_dir_all(&etc).unwrap();
        std::fs::write(etc.join("a.service"), "").unwrap();
        std::os::unix::fs::symlink("/dev/null", etc.join("masked.service")).unwrap();
        for unit in ["a.service", "masked.service", "b.service"] {
            assert_eq!(unit_path(&root, unit), format!("/lib/systemd/system/{unit}"));
        }
    }
}
