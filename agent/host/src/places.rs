//! Where the files of resources are.
//!
//! That of a unit is where upstream's nodeup writes it, so that either program overwrites the other's
//! (upup/pkg/fi/nodeup/nodetasks/service.go, `systemdSystemPath`). What is in `/etc` wins over that in silence
//! (systemd.unit(5)). A unit that an earlier version of the agent has left there is written there until it is moved, once all
//! is well; an operator's is left ([`crate::unit_overrides`]).

use std::collections::BTreeSet;

use kops_agent_plan::diff::Step;
use kops_agent_plan::digest::sha256_hex;
use kops_agent_plan::resource::{Kind, ResourceId};

use crate::error::Result;
use crate::facts::parse_os_release;
use crate::hosts_file;
use crate::record::Record;
use crate::root::Root;
use crate::system::kernel::boot_file;
use crate::system::packages::list_path;

/// Where the timelines of runs are kept (`kops-agent status --timeline`), below the root: what took how long.
pub const TIMELINE: &str = "/var/lib/kops-agent/timeline.json";

/// Where administrators write units.
pub(crate) const OVERRIDES: &str = "/etc/systemd/system";

/// The agent's own units, of which upstream has none and packages may bring the files.
const OWN: &str = "kops-agent";

/// The file of a unit that the agent writes.
pub(crate) fn unit_path(root: &Root, name: &str) -> String {
    let in_etc = format!("{OVERRIDES}/{name}");
    let is_own =
        || has_own_unit_in_etc(root, name) && root.metadata(&in_etc).is_ok_and(|file| file.is_some());
    if is_own() { in_etc } else { upstreams_unit_path(root, name) }
}

/// Where upstream writes a unit, whatever there is elsewhere.
pub(crate) fn upstreams_unit_path(root: &Root, name: &str) -> String {
    let folder = if name.starts_with(OWN) { OVERRIDES } else { root.units_folder(find_folder) };
    format!("{folder}/{name}")
}

/// Whether a step writes a unit where another may be, which is kept then.
pub(crate) fn is_kept_when_written(root: &Root, step: &Step) -> bool {
    step.writes() && is_kept(root, &step.resource.name, &unit_path(root, &step.resource.name))
}

/// Whether what another has written at a path is kept when a unit is written there: not what an earlier version of the
/// agent has.
pub(crate) fn is_kept(root: &Root, name: &str, path: &str) -> bool {
    !name.starts_with(OWN) && path == upstreams_unit_path(root, name)
}

/// The folder of units in which upstream writes on this distribution; that of administrators where it cannot be written
/// to, and where the distribution is not known.
fn find_folder(root: &Root) -> &'static str {
    let text =
        ["/etc/os-release", "/usr/lib/os-release"].iter().find_map(|path| root.read(path).ok().flatten());
    let folder = match parse_os_release(&String::from_utf8_lossy(&text.unwrap_or_default())).id.as_str() {
        "debian" | "ubuntu" => "/lib/systemd/system",
        "amzn" | "centos" | "fedora" | "rhel" | "rocky" => "/usr/lib/systemd/system",
        _ => return OVERRIDES,
    };
    let is_writable = |path: &str| root.dir(path).ok().flatten().map(|dir| dir.is_writable());
    // The nearest folder above that is there says it of what is yet to be made.
    let nearest = is_writable(folder).or_else(|| is_writable("/usr")).or_else(|| is_writable("/"));
    if nearest.unwrap_or(false) { folder } else { OVERRIDES }
}

/// Whether an earlier version of the agent has written a unit into the folder of administrators.
pub(crate) fn has_own_unit_in_etc(root: &Root, name: &str) -> bool {
    // A unit whose origin is not known is not written over.
    root.own_units_in_etc(|root| own_in_etc(root).unwrap_or_default()).contains(name)
}

/// The units that earlier versions of the agent have written into the folder of administrators, where this one writes
/// into another: by name. A file of a unit that the agent left elsewhere, and that is there as it was left, is another's.
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

/// Where a recorded resource is: the file that it is, or the path that names it.
pub(crate) fn path_of(root: &Root, id: &ResourceId) -> String {
    file_path(root, id).unwrap_or_else(|| id.name.clone())
}

/// The file that a resource is, where it is one.
fn file_path(root: &Root, id: &ResourceId) -> Option<String> {
    match id.kind {
        Kind::File => Some(id.name.clone()),
        Kind::Unit => Some(unit_path(root, &id.name)),
        Kind::KernelModule => Some(boot_file(&id.name)),
        Kind::PackageSource => Some(list_path(&id.name)),
        _ => None,
    }
}

/// The file that is written anew where a resource is made or changed.
pub(crate) fn written_file(root: &Root, id: &ResourceId) -> Option<String> {
    match id.kind {
        Kind::Symlink => Some(id.name.clone()),
        Kind::HostsEntry => Some(hosts_file::PATH.to_owned()),
        _ => file_path(root, id),
    }
}

/// What is in the file by which systemd loads a module at every boot.
pub(crate) fn boot_text(module: &str) -> String {
    format!("{module}\n")
}

/// The texts of files as they are.
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
    fn what_an_operator_has_in_etc_is_no_place_for_ours() {
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
