//! The cgroups on which kubelet enforces `kubeReserved` and `systemReserved`. kubelet does not create them, and does not start without
//! them.
//!
//! On cgroup v2, kubelet requires all of `CONTROLLERS` that the kernel has in each cgroup (`Validate` and
//! `getSupportedUnifiedControllers` in pkg/kubelet/cm/cgroup_v2_manager_linux.go, `enforceExistingCgroup` in
//! node_container_manager_linux.go). systemd enables a controller in a slice only if a unit needs it, and never enables hugetlb. So a
//! drop-in makes systemd start the slices, and enables the controllers before each start of kubelet. On cgroup v1, a slice has no
//! directory under controllers that systemd does not use, so the drop-in creates it.

use super::UnitFile;
use crate::desired::unit_file::command_line;
use crate::resource::{DesiredState, File};
use kops_agent_spec::KubeletConfigSpec;

const DROP_IN: &str = "/etc/systemd/system/kubelet.service.d/10-kops-agent-reserved-cgroups.conf";
const CONTROLLERS: [&str; 5] = ["cpu", "cpuset", "memory", "hugetlb", "pids"];
/// The maximum length of a unit's name (`UNIT_NAME_MAX` of systemd).
const LONGEST_NAME: usize = 255;

/// A cgroup that must exist when kubelet starts.
struct Reserved {
    /// The slice, if systemd makes the cgroup.
    slice: Option<String>,
    /// The directories from the cgroup root to the cgroup, each as a path from the root.
    folders: Vec<String>,
}

/// Adds a drop-in that makes the cgroups, if kubelet enforces limits on them.
pub(super) fn add(config: &KubeletConfigSpec, state: &mut DesiredState) {
    let enforces = |what: &str| {
        let mut words = config.enforce_node_allocatable.split(',');
        words.any(|word| word.strip_suffix("-compressible").unwrap_or(word) == what)
    };
    let wanted = [
        ("kube-reserved", &config.kube_reserved_cgroup),
        ("system-reserved", &config.system_reserved_cgroup),
    ];
    let is_cgroupfs = config.cgroup_driver == "cgroupfs";
    let reserved: Vec<Reserved> = wanted
        .into_iter()
        .filter(|(what, _)| enforces(what))
        .filter_map(|(_, cgroup)| if is_cgroupfs { of_cgroupfs(cgroup) } else { of_systemd(cgroup) })
        .collect();
    if reserved.is_empty() {
        return;
    }
    let mut file = UnitFile::default();
    for slice in reserved.iter().filter_map(|reserved| reserved.slice.as_deref()) {
        file = file.set("Unit", "Wants", slice).set("Unit", "After", slice);
    }
    // A failure of the command is ignored (`-`): kubelet then names the missing cgroup, which helps more than a failed unit.
    let command = command_line(&["/bin/sh", "-c", &script(&reserved)]);
    file = file.set("Service", "ExecStartPre", format!("-{command}"));
    state.add(File::text(DROP_IN, file.render()));
}

/// The slice that kubelet derives from a cgroup's name (`ParseSystemdToCgroupName`, `ToSystemd` in
/// pkg/kubelet/cm/cgroup_manager_linux.go). systemd nests it in the directories of its parent slices (systemd.slice(5)).
fn of_systemd(cgroup: &str) -> Option<Reserved> {
    let name = cgroup.trim_end_matches('/').rsplit('/').next()?;
    let name = name.strip_suffix(".slice").unwrap_or(name);
    let parts: Vec<&str> = name.split('-').collect();
    let slice = format!("{name}.slice");
    if !parts.iter().all(|part| is_plain(part)) || slice.len() > LONGEST_NAME {
        return None;
    }
    let folders = (1..=parts.len()).map(|many| format!("{}.slice", parts[..many].join("-")));
    Some(Reserved { slice: Some(slice), folders: nested(folders) })
}

fn of_cgroupfs(cgroup: &str) -> Option<Reserved> {
    let parts: Vec<&str> = cgroup.split('/').filter(|part| !part.is_empty()).collect();
    let is_path = !parts.is_empty() && parts.iter().all(|part| part.split('-').all(is_plain));
    is_path.then(|| Reserved { slice: None, folders: nested(parts.into_iter().map(str::to_owned)) })
}

/// Whether a part of a name needs no quotes in a unit or a shell, and cannot lead out of its directory.
fn is_plain(part: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || ":_.".contains(c);
    !part.is_empty() && !part.starts_with('.') && part.chars().all(is_allowed)
}

fn nested(parts: impl Iterator<Item = String>) -> Vec<String> {
    let mut folders: Vec<String> = Vec::new();
    for part in parts {
        folders.push(match folders.last() {
            Some(above) => format!("{above}/{part}"),
            None => part,
        });
    }
    folders
}

/// A shell script that makes the directories, and enables the controllers from the root down. A cgroup only has controllers that its
/// parent enables. systemd reads `$$` as `$`.
fn script(reserved: &[Reserved]) -> String {
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

    fn drop_in(change: impl Fn(&mut KubeletConfigSpec)) -> Option<String> {
        let mut config = KubeletConfigSpec {
            enforce_node_allocatable: "pods,kube-reserved,system-reserved-compressible".into(),
            kube_reserved_cgroup: "/kube-reserved.slice".into(),
            system_reserved_cgroup: "/system.slice".into(),
            ..KubeletConfigSpec::default()
        };
        change(&mut config);
        let mut state = DesiredState::default();
        add(&config, &mut state);
        state.get(&ResourceId::new(Kind::File, DROP_IN)).map(|resource| match resource {
            Resource::File(file) => file.content.in_clear().unwrap_or_default(),
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn slices_are_started_before_kubelet_where_it_enforces_something_on_them() {
        let text = drop_in(|_| {}).unwrap();
        for line in [
            "Wants=kube-reserved.slice\nAfter=kube-reserved.slice\n",
            "Wants=system.slice\nAfter=system.slice\n",
            "\n[Service]\nExecStartPre=-/bin/sh -c \"cd /sys/fs/cgroup || exit; ",
            ") for d in . kube.slice; do echo +$$c > $$d/cgroup.subtree_control; done;; ",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        let only_pods = drop_in(|config| config.enforce_node_allocatable = "pods".into());
        let of_system = drop_in(|config| config.enforce_node_allocatable = "system-reserved".into());
        assert_eq!((only_pods, of_system.unwrap().contains("kube-reserved")), (None, false));
    }

    #[test]
    fn a_cgroup_is_the_slice_that_kubelet_takes_its_name_for() {
        for (cgroup, folders) in [
            ("/a-b-c.slice", Some(vec!["a.slice", "a.slice/a-b.slice", "a.slice/a-b.slice/a-b-c.slice"])),
            ("kube", Some(vec!["kube.slice"])),
            ("/system.slice/kubelet.service", Some(vec!["kubelet.service.slice"])),
            ("/", None),
            ("/a b", None),
            ("/$(reboot)", None),
            ("/a--b", None),
        ] {
            let found = of_systemd(cgroup).map(|reserved| reserved.folders);
            assert_eq!(
                found,
                folders.map(|folders| folders.into_iter().map(str::to_owned).collect()),
                "{cgroup}"
            );
        }
        assert_eq!(of_cgroupfs("/kube/x-y").unwrap().folders, ["kube", "kube/x-y"]);
        assert!(of_cgroupfs("/../etc").is_none() && of_cgroupfs("/").is_none());
    }
}
