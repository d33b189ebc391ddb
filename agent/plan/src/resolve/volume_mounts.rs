//! The volumes that a user wants formatted and mounted.
//!
//! Source: nodeup/pkg/model/volumes.go; the checks are from `validateVolumeMountSpec` in
//! pkg/apis/kops/validation/instancegroup.go.

use std::collections::BTreeSet;

use crate::resource::Mount;
use kops_agent_spec::invalid::Invalid;
use kops_agent_spec::{NodeupConfig, VolumeMountSpec};

use super::{Problems, absolute_path};

pub(super) fn resolve(config: &NodeupConfig, problems: &mut Problems) -> Vec<Mount> {
    let mut devices = BTreeSet::new();
    let mut paths = BTreeSet::new();
    let mut mounts = Vec::new();
    for (index, spec) in config.volume_mounts.iter().enumerate() {
        let field = format!("VolumeMounts[{index}]");
        let device = problems.keep(&format!("{field}.device"), device(spec, &mut devices));
        let path = problems.keep(&format!("{field}.path"), path(spec, &mut paths));
        let filesystem = problems.keep(&format!("{field}.filesystem"), filesystem(&spec.filesystem));
        if let (Some(device), Some(path), Some(filesystem)) = (device, path, filesystem) {
            mounts.push(Mount {
                device,
                path,
                filesystem: filesystem.into(),
                format_options: spec.format_options.clone(),
                mount_options: spec.mount_options.clone(),
                at_boot: true,
            });
        }
    }
    mounts
}

fn device(spec: &VolumeMountSpec, taken: &mut BTreeSet<String>) -> Result<String, Invalid> {
    if spec.device.is_empty() {
        return Err(Invalid::new("is empty; name the block device, such as /dev/nvme1n1"));
    }
    absolute_path::check(&spec.device)?;
    if taken.insert(spec.device.clone()) {
        Ok(spec.device.clone())
    } else {
        Err(Invalid::new(format!(
            "{} is already in another mount; a device can be mounted only once",
            spec.device
        )))
    }
}

fn path(spec: &VolumeMountSpec, taken: &mut BTreeSet<String>) -> Result<String, Invalid> {
    let path = match spec.path.trim_end_matches('/') {
        "" if spec.path.is_empty() => return Err(Invalid::new("is empty; say where to mount the volume")),
        "" => return Err(Invalid::new("is the root of the node; mount the volume somewhere below")),
        path => path,
    };
    absolute_path::check(path)?;
    if let Some(why) = would_hide(path) {
        return Err(Invalid::new(format!(
            "{path} {why}; mount the volume at another path, such as /mnt/data"
        )));
    }
    if taken.insert(path.to_owned()) {
        Ok(path.to_owned())
    } else {
        Err(Invalid::new(format!("{path} is where another volume is mounted; choose another path")))
    }
}

/// The reason why a volume must not be mounted at `path`: the volume would hide files that the machine or kops-agent needs. `None` if a
/// volume may be mounted at `path`.
fn would_hide(path: &str) -> Option<&'static str> {
    /// Trees of the operating system (hier(7)).
    const SYSTEM: [&str; 11] =
        ["/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/sbin", "/sys", "/usr"];
    /// Directories of `/usr/local` that a distribution creates (hier(7)). All other directories of `/usr/local` belong to the operator.
    const LOCAL: [&str; 11] =
        ["bin", "etc", "games", "include", "lib", "lib64", "libexec", "man", "sbin", "share", "src"];
    /// Directories that contain files of many programs. A volume at such a directory would hide these files, but a volume may be mounted
    /// below it.
    const SHARED: [&str; 10] = [
        "/run",
        "/root",
        "/tmp",
        "/var",
        "/var/lib",
        "/var/lib/cloud",
        "/var/lib/dpkg",
        "/var/lib/rpm",
        "/var/lib/systemd",
        "/var/run",
    ];
    /// Directories with files of kops-agent, and with the boot config that kOps' boot script writes (`/opt/kops/conf/kube_env.yaml`).
    const OWN: [&str; 6] =
        ["/opt", "/opt/kops", "/opt/kops/bin", "/opt/kops/conf", "/var/cache/nodeup", "/var/lib/kops-agent"];
    let is_below = |folder: &&str| {
        path.strip_prefix(*folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let local = path.strip_prefix("/usr/local/").and_then(|rest| rest.split('/').next());
    let is_operators = local.is_some_and(|name| !LOCAL.contains(&name));
    if (SYSTEM.iter().any(is_below) && !is_operators) || SHARED.contains(&path) {
        return Some("has files of the operating system, which the volume would hide");
    }
    OWN.contains(&path).then_some("has files that kops-agent needs at each boot, which the volume would hide")
}

/// kOps' API calls btrfs `btfs`.
fn filesystem(name: &str) -> Result<&str, Invalid> {
    match name {
        "ext4" | "xfs" | "btrfs" => Ok(name),
        "btfs" => Ok("btrfs"),
        "" => Err(Invalid::new("is empty; set ext4, xfs or btrfs")),
        other => Err(Invalid::new(format!("{other:?} is not supported; set ext4, xfs or btrfs"))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn resolved(yaml: &str) -> (Vec<Mount>, String) {
        let config =
            NodeupConfig { volume_mounts: serde_yaml::from_str(yaml).unwrap(), ..NodeupConfig::default() };
        let mut problems = Problems::default();
        let mounts = resolve(&config, &mut problems);
        (mounts, problems.to_string())
    }

    #[test]
    fn a_volume_becomes_a_mount() {
        let (mounts, problems) =
            resolved("[{device: /dev/xvdd, filesystem: btfs, path: /srv/data/, mountOptions: [noatime]}]");
        assert_eq!(problems, "");
        assert_eq!(
            mounts,
            [Mount {
                device: "/dev/xvdd".into(),
                path: "/srv/data".into(),
                filesystem: "btrfs".into(),
                format_options: Vec::new(),
                mount_options: vec!["noatime".into()],
                at_boot: true,
            }]
        );
    }

    #[test]
    fn a_volume_must_not_hide_files_of_the_machine() {
        for path in [
            "/",
            "/etc",
            "/etc/",
            "/usr",
            "/usr/local",
            "/usr/local/bin/data",
            "/var",
            "/var/lib",
            "/boot",
            "/opt",
            "/var/lib/kops-agent",
            "/var/lib/dpkg",
            "/opt/kops/conf/",
            "/run",
        ] {
            let (mounts, problems) =
                resolved(&format!("[{{device: /dev/xvdd, filesystem: ext4, path: {path}}}]"));
            assert_eq!(mounts, [], "{path}");
            assert!(problems.starts_with("VolumeMounts[0].path: "), "{path}: {problems}");
        }
        for path in [
            "/usr/local/data",
            "/data",
            "/mnt",
            "/mnt/data",
            "/var/lib/kubelet",
            "/var/lib/containerd",
            "/var/log",
            "/home",
            "/opt/data",
            "/srv",
            "/etcetera",
        ] {
            let (_, problems) = resolved(&format!("[{{device: /dev/xvdd, filesystem: ext4, path: {path}}}]"));
            assert_eq!(problems, "", "{path}");
        }
    }

    #[test]
    fn problems_name_their_fields() {
        let (mounts, problems) = resolved(
            "[{}, {device: xvdd, filesystem: ext4, path: /}, {device: /dev/a, filesystem: ntfs, path: /a}, \
              {device: /dev/a, filesystem: ext4, path: /a}]",
        );
        assert_eq!(mounts, []);
        let fields: Vec<&str> = problems.lines().map(|line| line.split(':').next().unwrap()).collect();
        assert_eq!(
            fields,
            [
                "VolumeMounts[0].device",
                "VolumeMounts[0].path",
                "VolumeMounts[0].filesystem",
                "VolumeMounts[1].device",
                "VolumeMounts[1].path",
                "VolumeMounts[2].filesystem",
                "VolumeMounts[3].device",
                "VolumeMounts[3].path",
            ]
        );
    }
}
