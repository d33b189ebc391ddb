//! The cgroups on which kubelet enforces `kubeReserved` and `systemReserved`. kubelet does not create them, and does not start without
//! them.
//!
//! On cgroup v2, kubelet requires that each of these cgroups has all `CONTROLLERS` that the kernel supports (`Validate` and
//! `getSupportedUnifiedControllers` in pkg/kubelet/cm/cgroup_v2_manager_linux.go, `enforceExistingCgroup` in
//! node_container_manager_linux.go). systemd enables a controller in a slice only if a unit needs it, and never enables hugetlb. So a
//! drop-in makes systemd start the slices, and enables the controllers before each start of kubelet. On cgroup v1, a slice has no
//! directory under controllers that systemd does not use, so the drop-in creates it.

use super::UnitFile;
use crate::desired::unit_file::command_line;
use crate::resolve::ReservedCgroup;
use crate::resource::{DesiredState, File};

const DROP_IN: &str = "/etc/systemd/system/kubelet.service.d/10-kops-agent-reserved-cgroups.conf";
const CONTROLLERS: [&str; 5] = ["cpu", "cpuset", "memory", "hugetlb", "pids"];

/// Adds a drop-in of kubelet's unit. The drop-in makes the reserved cgroups before kubelet starts.
pub(super) fn add(reserved: &[ReservedCgroup], state: &mut DesiredState) {
    if reserved.is_empty() {
        return;
    }
    let mut file = UnitFile::default();
    for slice in reserved.iter().filter_map(|reserved| reserved.slice.as_deref()) {
        file = file.set("Unit", "Wants", slice).set("Unit", "After", slice);
    }
    // A failure of the command is ignored (`-`). kubelet then reports the missing cgroup, which helps an operator more than a failed unit.
    let command = command_line(&["/bin/sh", "-c", &script(reserved)]);
    file = file.set("Service", "ExecStartPre", format!("-{command}"));
    state.add(File::text(DROP_IN, file.render()));
}

/// A shell script that makes the cgroups' directories, and enables the controllers from the root down. A cgroup only has controllers that
/// its parent enables. systemd reads `$$` as `$`.
fn script(reserved: &[ReservedCgroup]) -> String {
    let mut folders: Vec<&str> = Vec::new();
    for folder in reserved.iter().flat_map(|reserved| &reserved.folders) {
        if !folders.contains(&folder.as_str()) {
            folders.push(folder);
        }
    }
    let cgroups: Vec<&str> =
        reserved.iter().filter_map(|reserved| reserved.folders.last()).map(String::as_str).collect();
    let parents: Vec<&str> = folders
        .iter()
        .copied()
        .filter(|folder| folders.iter().any(|other| is_directly_below(other, folder)))
        .collect();
    let parents = [&["."][..], &parents].concat().join(" ");
    let cgroups = cgroups.join(" ");
    let controllers = CONTROLLERS.join("|");
    let of_v1 = CONTROLLERS.join(" ");
    format!(
        "cd /sys/fs/cgroup || exit; if [ -e cgroup.controllers ]; then mkdir -p {cgroups}; \
         for c in $$(cat cgroup.controllers); do case $$c in {controllers}) \
         for d in {parents}; do echo +$$c > $$d/cgroup.subtree_control; done;; esac; done; \
         else for c in {of_v1}; do [ ! -d $$c ] || (cd $$c && mkdir -p {cgroups}); done; fi"
    )
}

fn is_directly_below(folder: &str, above: &str) -> bool {
    folder.rsplit_once('/').is_some_and(|(parent, _)| parent == above)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::resource::{Kind, Resource, ResourceId};

    fn drop_in(reserved: &[ReservedCgroup]) -> Option<String> {
        let mut state = DesiredState::default();
        add(reserved, &mut state);
        state.get(&ResourceId::new(Kind::File, DROP_IN)).map(|resource| match resource {
            Resource::File(file) => file.content.in_clear().unwrap_or_default(),
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn slices_are_started_before_kubelet() {
        let slice = |name: &str, folders: &[&str]| ReservedCgroup {
            slice: Some(name.into()),
            folders: folders.iter().map(|folder| (*folder).to_owned()).collect(),
        };
        let text = drop_in(&[
            slice("kube-reserved.slice", &["kube.slice", "kube.slice/kube-reserved.slice"]),
            slice("system.slice", &["system.slice"]),
        ]);
        for line in [
            "Wants=kube-reserved.slice\nAfter=kube-reserved.slice\n",
            "Wants=system.slice\nAfter=system.slice\n",
            "\n[Service]\nExecStartPre=-/bin/sh -c \"cd /sys/fs/cgroup || exit; ",
            ") for d in . kube.slice; do echo +$$c > $$d/cgroup.subtree_control; done;; ",
        ] {
            assert!(text.as_ref().unwrap().contains(line), "{line}: {text:?}");
        }
        assert_eq!(drop_in(&[]), None);
    }
}
