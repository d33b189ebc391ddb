//! The `.mount` units by which systemd mounts volumes at boot, before the container runtime and kubelet start.
//!
//! kubelet and containerd are enabled, and start long before a converge at boot could mount a volume. Without its
//! volume, kubelet or containerd would fill the root disk, and the later mount would hide those files. If
//! `/etc/fstab` or an operator's unit already mounts a volume, the agent writes no unit for it.
//!
//! Source of names and options: systemd.mount(5), systemd.unit(5) and systemd-escape(1).

use kops_agent_plan::diff::{CONTAINER_RUNTIME, Enablement, KUBELET, Plan, Stage};
use kops_agent_plan::resource::{DesiredState, Kind, Mount, Resource, ResourceId};

use crate::error::{Error, Result};
use crate::host::Host;
use crate::places::OVERRIDES;
use crate::root::Root;
use crate::staged::write_file;
use crate::system::mounts::Mounts;
use crate::unit_overrides::is_linked;

const FSTAB: &str = "/etc/fstab";
/// The first line of the agent's mount units. It distinguishes the agent's mount unit from an operator's unit for the
/// same volume. Both have the same name, because systemd dictates the name of a volume's unit.
const MARK: &str = "# Written by kops-agent for spec.volumeMounts.\n";

impl Host {
    /// True if the agent has no boot unit to write for the volume: a unit or fstab already mounts the volume at boot, or
    /// an operator masked the volume's unit.
    pub(crate) fn is_mounted_at_boot(&self, mount: &Mount) -> Result<bool> {
        let name = unit_name(&mount.path);
        if is_linked(&self.root, &name)? {
            return Ok(true);
        }
        let text = self.root.read(&mount_unit_path(&name))?;
        let is_ours = match &text {
            Some(text) if !text.starts_with(MARK.as_bytes()) => return Ok(true),
            Some(text) => *text == unit_text(mount)?.into_bytes(),
            None => false,
        };
        let is_enabled = || -> Result<bool> {
            let states = self.systemd.states(&[&name])?;
            Ok(states.first().is_some_and(|state| state.enablement == Enablement::Enabled))
        };
        Ok((is_ours && is_enabled()?) || (text.is_none() && is_in_fstab(&self.root, &mount.path)?))
    }

    /// Refuses a volume if another volume is mounted at its path. This check must come before the first change to a
    /// working node.
    pub(crate) fn refuse_other_volumes(&self, plan: &Plan, desired: &DesiredState) -> Result<()> {
        for step in plan.stage(Stage::Mounts) {
            if let Some(Resource::Mount(mount)) = desired.get(&step.resource) {
                is_volume_mounted(&*self.mounts, mount)?;
            }
        }
        Ok(())
    }

    pub(crate) fn mount_at_boot(&self, mount: &Mount) -> Result<()> {
        if self.is_mounted_at_boot(mount)? {
            return Ok(());
        }
        let (name, text) = (unit_name(&mount.path), unit_text(mount)?);
        let is_there = self.root.read(&mount_unit_path(&name))?;
        if is_there.is_some_and(|present| present != text.as_bytes()) {
            // The old unit may be enabled for targets that the new unit does not have, so the old unit is disabled
            // first. If the run is killed here, the next run finds a disabled unit and enables it.
            self.systemd.disable(&name)?;
        }
        write_file(&self.root, &mount_unit_path(&name), 0o644, None, text.as_bytes())?;
        self.systemd.enable(&name)?;
        self.systemd.reload()
    }

    /// Reverts [`Host::mount_at_boot`] for the volume at `path`. Units of other programs stay.
    pub(crate) fn no_longer_mount_at_boot(&self, path: &str) -> Result<()> {
        if !has_boot_unit(&self.root, path)? {
            return Ok(());
        }
        let name = unit_name(path);
        self.systemd.disable(&name)?;
        if let Some((dir, file)) = self.root.parent(&mount_unit_path(&name))? {
            dir.remove(&file)?;
            dir.sync()?;
        }
        self.systemd.reload()
    }
}

/// Whether a volume is mounted. Fails if another volume is mounted at its path: a second mount would hide the first
/// volume from the programs that use it.
pub(crate) fn is_volume_mounted(mounts: &dyn Mounts, mount: &Mount) -> Result<bool> {
    let Some(found) = mounts.mounted(mount)? else { return Ok(false) };
    if (&found.device, &found.filesystem) == (&mount.device, &mount.filesystem) {
        return Ok(true);
    }
    Err(Error::Path {
        doing: "mount",
        path: mount.device.clone(),
        reason: format!(
            "{} is mounted at {} already, as {}; unmount it, or choose another path",
            found.device, mount.path, found.filesystem
        ),
    })
}

/// Whether a unit of the agent mounts the volume at `path` at boot.
pub(crate) fn has_boot_unit(root: &Root, path: &str) -> Result<bool> {
    let text = root.read(&mount_unit_path(&unit_name(path)))?;
    Ok(text.is_some_and(|text| text.starts_with(MARK.as_bytes())))
}

fn is_in_fstab(root: &Root, path: &str) -> Result<bool> {
    let fstab = root.read(FSTAB)?.unwrap_or_default();
    let fstab = String::from_utf8_lossy(&fstab);
    let mounted_at = |line: &str| match line.trim_start() {
        comment if comment.starts_with('#') => None,
        line => line.split_whitespace().nth(1).map(|path| path.trim_end_matches('/').to_owned()),
    };
    Ok(fstab.lines().filter_map(mounted_at).any(|mounted| mounted == path))
}

/// Whether a node works without this volume: it has the mount option `nofail` (systemd.mount(5)).
pub(crate) fn is_optional(mount: &Mount) -> bool {
    let mut options = mount.mount_options.iter().flat_map(|options| options.split(','));
    options.any(|option| option == "nofail")
}

/// The text of a volume's mount unit. Boot and login do not wait for a late or missing device. The container runtime
/// and kubelet wait for the device. Without the device, they start only if the volume is optional.
fn unit_text(mount: &Mount) -> Result<String> {
    let options = mount.mount_options.join(",");
    for value in [&mount.device, &mount.path, &options] {
        if value.contains(|c: char| c.is_control()) {
            let id = ResourceId::new(Kind::Mount, &mount.path);
            return Err(Error::Invalid { id, reason: format!("{value:?} has a control character in it") });
        }
    }
    let mut lines = vec![
        "[Unit]".to_owned(),
        "Description=A volume of this kOps node".to_owned(),
        "DefaultDependencies=no".to_owned(),
        "After=local-fs-pre.target".to_owned(),
        format!("Before={CONTAINER_RUNTIME} {KUBELET}"),
        "Conflicts=umount.target".to_owned(),
        "Before=umount.target".to_owned(),
        String::new(),
        "[Mount]".to_owned(),
        format!("What={}", literal(&mount.device)),
        format!("Where={}", literal(&mount.path)),
        format!("Type={}", mount.filesystem),
    ];
    if !options.is_empty() {
        lines.push(format!("Options={}", literal(&options)));
    }
    lines.extend([String::new(), "[Install]".to_owned(), "WantedBy=multi-user.target".to_owned()]);
    if !is_optional(mount) {
        lines.push(format!("RequiredBy={CONTAINER_RUNTIME} {KUBELET}"));
    }
    lines.push(String::new());
    Ok(format!("{MARK}{}", lines.join("\n")))
}

/// Escapes `%`, which systemd would expand.
fn literal(value: &str) -> String {
    value.replace('%', "%%")
}

/// The path of a mount unit, in the folder of administrators' units. Upstream has no path for mount units, because it
/// writes none.
fn mount_unit_path(name: &str) -> String {
    format!("{OVERRIDES}/{name}")
}

/// The name that systemd requires of the unit that mounts `path`.
fn unit_name(path: &str) -> String {
    let mut name = String::new();
    let words: Vec<&str> = path.split('/').filter(|word| !word.is_empty()).collect();
    for (at, byte) in words.join("/").bytes().enumerate() {
        match byte {
            b'/' => name.push('-'),
            b'.' if at == 0 => name.push_str("\\x2e"),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b':' | b'_' | b'.' => name.push(char::from(byte)),
            other => name.push_str(&format!("\\x{other:02x}")),
        }
    }
    format!("{}.mount", if name.is_empty() { "-" } else { &name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_units_are_those_of_systemd_escape() {
        // Output of `systemd-escape --path --suffix=mount`.
        for (path, name) in [
            ("/data", "data.mount"),
            ("/var/lib/containerd/", "var-lib-containerd.mount"),
            ("/srv//my-data", "srv-my\\x2ddata.mount"),
            ("/.hidden/.x", "\\x2ehidden-.x.mount"),
            ("/a b", "a\\x20b.mount"),
        ] {
            assert_eq!(unit_name(path), name);
        }
    }

    #[test]
    fn a_volume_is_mounted_before_kubelet_and_the_runtime_start() {
        let mut mount = Mount {
            device: "/dev/disk/by-label/50%".into(),
            path: "/data".into(),
            filesystem: "xfs".into(),
            format_options: vec![],
            mount_options: vec!["noatime".into(), "ro".into()],
            at_boot: true,
        };
        let text = unit_text(&mount).unwrap();
        for line in [
            "Before=containerd.service kubelet.service",
            "What=/dev/disk/by-label/50%%",
            "Where=/data",
            "Type=xfs",
            "Options=noatime,ro",
            "WantedBy=multi-user.target",
        ] {
            assert!(text.lines().any(|found| found == line), "no {line} in {text}");
        }
        mount.mount_options = vec!["ro\nExecStart=/bin/x".into()];
        assert!(unit_text(&mount).is_err());
    }
}
