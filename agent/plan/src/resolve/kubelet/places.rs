//! Checks the cgroups and directories that kubelet's settings name.
//!
//! Source: pkg/kubelet/apis/config/validation, and pkg/kubelet/cm/container_manager_linux.go.

use kops_agent_spec::KubeletConfigSpec;

use crate::resolve::Problems;

/// The root of all cgroups, and systemd's slices below the root (systemd.special(7)).
const CGROUPS_OF_SYSTEMD: [&str; 4] = ["", "machine.slice", "system.slice", "user.slice"];

pub(super) fn check(config: &KubeletConfigSpec, problems: &mut Problems) {
    let (root, system) = (config.cgroup_root.as_str(), config.system_cgroups.as_str());
    let mut refuse = |field: &str, problem: String| problems.add(format!("KubeletConfig.{field}"), problem);
    if !system.is_empty() && root.is_empty() {
        refuse("systemCgroups", "needs cgroupRoot, which is not set; set it to \"/\"".into());
    }
    if system == "/" {
        refuse(
            "systemCgroups",
            "\"/\" is refused by kubelet; use another cgroup, such as /system.slice".into(),
        );
    }
    for (field, path) in [
        ("podManifestPath", &config.pod_manifest_path),
        ("rootDir", &config.root_dir),
        ("volumePluginDirectory", &config.volume_plugin_directory),
    ] {
        if !path.is_empty() && !path.starts_with('/') {
            refuse(field, format!("{path:?} is relative; use an absolute path"));
        }
    }
    if !root.is_empty() && !CGROUPS_OF_SYSTEMD.contains(&root.trim_matches('/')) {
        problems.warn(
            "KubeletConfig.cgroupRoot",
            format!(
                "is {root:?}, but kOps does not create this cgroup, and kubelet does not start without the cgroup; set the field to \"/\", \
                 unless the machine's image or a hook creates the cgroup before kubelet starts"
            ),
        );
    }
}
