//! The cgroups on which kubelet enforces `kubeReserved` and `systemReserved`.

use kops_agent_spec::KubeletConfigSpec;
use kops_agent_spec::invalid::Invalid;
use serde::Serialize;

use crate::resolve::Problems;

/// The maximum length of a unit's name (`UNIT_NAME_MAX` of systemd).
const LONGEST_NAME: usize = 255;
/// The maximum length of a cgroup's path, in bytes. The path includes the names of all parent directories.
const LONGEST_PATH: usize = 1023;

/// A cgroup that must exist when kubelet starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReservedCgroup {
    /// The slice of the cgroup. `None` if systemd does not make the cgroup.
    pub slice: Option<String>,
    /// The directories from the cgroup root down to the cgroup. Each path starts at the cgroup root.
    pub folders: Vec<String>,
}

/// Returns the cgroups on which kubelet enforces limits. Adds a problem for each cgroup that cannot be made.
pub(super) fn resolve(config: &KubeletConfigSpec, problems: &mut Problems) -> Vec<ReservedCgroup> {
    let enforces = |what: &str| {
        let mut words = config.enforce_node_allocatable.split(',');
        words.any(|word| word.strip_suffix("-compressible").unwrap_or(word) == what)
    };
    let wanted = [
        ("kube-reserved", "kubeReservedCgroup", &config.kube_reserved_cgroup),
        ("system-reserved", "systemReservedCgroup", &config.system_reserved_cgroup),
    ];
    let is_cgroupfs = config.cgroup_driver == "cgroupfs";
    wanted
        .into_iter()
        // Another check reports an enforced cgroup without a name.
        .filter(|(what, _, cgroup)| enforces(what) && !cgroup.is_empty())
        .filter_map(|(_, field, cgroup)| {
            let reserved = if is_cgroupfs { of_cgroupfs(cgroup) } else { of_systemd(cgroup) };
            problems.keep(&format!("KubeletConfig.{field}"), reserved.ok_or_else(|| no_cgroup(cgroup)))
        })
        .collect()
}

fn no_cgroup(name: &str) -> Invalid {
    Invalid::new(format!(
        "is {name:?}, but kops-agent cannot make a cgroup of this name, and kubelet does not start without it; use a name of letters, \
         digits, \":\", \"_\" and \".\", with single \"-\" between them, such as /kube-reserved.slice"
    ))
}

/// The slice that kubelet derives from a cgroup's name (`ParseSystemdToCgroupName`, `ToSystemd` in
/// pkg/kubelet/cm/cgroup_manager_linux.go). systemd nests this slice in the directories of its parent slices
/// (systemd.slice(5)).
fn of_systemd(cgroup: &str) -> Option<ReservedCgroup> {
    let name = cgroup.trim_end_matches('/').rsplit('/').next()?;
    let name = name.strip_suffix(".slice").unwrap_or(name);
    let parts: Vec<&str> = name.split('-').collect();
    let slice = format!("{name}.slice");
    if !parts.iter().all(|part| is_plain(part)) || slice.len() > LONGEST_NAME {
        return None;
    }
    let folders = (1..=parts.len()).map(|many| format!("{}.slice", parts[..many].join("-")));
    Some(ReservedCgroup { slice: Some(slice), folders: nested(folders) })
}

fn of_cgroupfs(cgroup: &str) -> Option<ReservedCgroup> {
    let parts: Vec<&str> = cgroup.split('/').filter(|part| !part.is_empty()).collect();
    let is_path = !parts.is_empty()
        && cgroup.len() <= LONGEST_PATH
        && parts.iter().all(|part| is_plain(&part.replace(['-', '@'], "_")));
    is_path.then(|| ReservedCgroup { slice: None, folders: nested(parts.into_iter().map(str::to_owned)) })
}

/// Whether a part of a name needs no quotes in a unit file or a shell, and is not `.` or `..`.
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn config(change: impl Fn(&mut KubeletConfigSpec)) -> KubeletConfigSpec {
        let mut config = KubeletConfigSpec {
            enforce_node_allocatable: "pods,kube-reserved,system-reserved-compressible".into(),
            kube_reserved_cgroup: "/kube-reserved.slice".into(),
            system_reserved_cgroup: "/system.slice".into(),
            ..KubeletConfigSpec::default()
        };
        change(&mut config);
        config
    }

    fn told(change: impl Fn(&mut KubeletConfigSpec)) -> (usize, String) {
        let mut problems = Problems::default();
        let reserved = resolve(&config(change), &mut problems);
        (reserved.len(), problems.to_string())
    }

    #[test]
    fn only_enforced_cgroups_must_exist() {
        let none = String::new();
        assert_eq!(told(|_| {}), (2, none.clone()));
        assert_eq!(told(|config| config.enforce_node_allocatable = "pods".into()), (0, none.clone()));
        assert_eq!(told(|config| config.enforce_node_allocatable = "system-reserved".into()), (1, none));
        let unused = |config: &mut KubeletConfigSpec| {
            config.enforce_node_allocatable = "pods".into();
            config.kube_reserved_cgroup = "/".into();
        };
        assert_eq!(told(unused).1, "");
    }

    #[test]
    fn an_invalid_cgroup_name_is_rejected() {
        for name in ["/", "/a b", "/$(reboot)", "/a--b", "/-a", "/kube.slice/.x"] {
            // Only systemd rejects these two names, because it splits the name of a slice at each "-".
            let has_empty_part = ["/a--b", "/-a"].contains(&name);
            for driver in ["systemd", "cgroupfs", ""]
                .into_iter()
                .filter(|driver| *driver != "cgroupfs" || !has_empty_part)
            {
                let (made, told) = told(|config| {
                    config.cgroup_driver = driver.into();
                    config.kube_reserved_cgroup = name.into();
                });
                let start = format!("KubeletConfig.kubeReservedCgroup: is {name:?}, but");
                assert!(made == 1 && told.starts_with(&start) && told.lines().count() == 1, "{told}");
            }
        }
        let (_, told) = told(|config| {
            config.kube_reserved_cgroup = "/".into();
            config.system_reserved_cgroup = "/".into();
        });
        assert!(told.contains("\nKubeletConfig.systemReservedCgroup: is \"/\", but"), "{told}");
    }

    #[test]
    fn cgroup_names_map_to_slices_as_in_kubelet() {
        for (cgroup, folders) in [
            ("/a-b-c.slice", vec!["a.slice", "a.slice/a-b.slice", "a.slice/a-b.slice/a-b-c.slice"]),
            ("kube", vec!["kube.slice"]),
            ("/system.slice/kubelet.service", vec!["kubelet.service.slice"]),
        ] {
            assert_eq!(of_systemd(cgroup).unwrap().folders, folders, "{cgroup}");
        }
        assert_eq!(of_cgroupfs("/kube/x-y").unwrap().folders, ["kube", "kube/x-y"]);
        assert!(of_cgroupfs("/../etc").is_none());
        assert_eq!(of_cgroupfs(&"/a".repeat(511)).unwrap().folders.len(), 511);
        assert!(of_cgroupfs(&"/a".repeat(512)).is_none());
    }
}
