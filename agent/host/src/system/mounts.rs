//! File systems and bind mounts.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use kops_agent_plan::resource::{BindMount, Mount};

use super::commands::run;
use super::{devices, sandbox};
use crate::error::{Error, Result};

pub trait Mounts: Send + Sync {
    /// The current mount at `mount.path`. A device may have several names: if one of them is `mount.device`, the result
    /// contains that name.
    fn mounted(&self, mount: &Mount) -> Result<Option<Mount>>;

    /// The bind mount that is now at `bind.path`. If `bind.source` is mounted there, the result has this source, even if
    /// the kernel reports another path. The result has those options of `bind` that are in effect.
    fn bound(&self, bind: &BindMount) -> Result<Option<BindMount>>;

    /// Waits until a device exists.
    fn wait_for(&self, device: &str) -> Result<()> {
        let _ = device;
        Ok(())
    }

    /// Mounts a device. A blank device gets a file system first. Fails if the device is not blank and has
    /// another file system or unknown data.
    fn mount(&self, mount: &Mount) -> Result<()>;

    fn bind(&self, bind: &BindMount) -> Result<()>;

    /// The mount points on or below these folders, the innermost first.
    fn below(&self, folders: &[&str]) -> Result<Vec<String>>;

    /// The mount points below these folders, the innermost first. Leaves out mounts on the folders themselves, and
    /// mounts that another mount hides.
    fn within(&self, folders: &[&str]) -> Result<Vec<String>> {
        let themselves = by_both_names(folders);
        let mut found = self.below(folders)?;
        found.retain(|path| !themselves.contains(path));
        Ok(found)
    }

    /// The folders among `folders` that are mount points themselves.
    fn on(&self, folders: &[&str]) -> Result<BTreeSet<String>> {
        let themselves = by_both_names(folders);
        Ok(self.below(folders)?.into_iter().filter(|path| themselves.contains(path)).collect())
    }

    /// Unmounts the topmost mount of a path.
    fn unmount(&self, path: &str) -> Result<()>;
}

pub struct Machine;

impl Mounts for Machine {
    fn mounted(&self, mount: &Mount) -> Result<Option<Mount>> {
        let Some(found) = topmost(&mountinfo()?, &mount.path) else { return Ok(None) };
        // A device may have several names, so the paths without symbolic links are compared.
        let real = |path: &str| std::fs::canonicalize(path).unwrap_or_else(|_| Path::new(path).into());
        let is_same = real(&found.source) == real(&mount.device);
        let device = if is_same { mount.device.clone() } else { found.source };
        Ok(Some(Mount { device, filesystem: found.filesystem, ..mount.clone() }))
    }

    fn bound(&self, bind: &BindMount) -> Result<Option<BindMount>> {
        let Some(found) = topmost(&mountinfo()?, &bind.path) else { return Ok(None) };
        let has = |wanted: &String| match wanted.as_str() {
            // The kernel lists only the negated options: `noexec`, `nodev`, `nosuid`.
            "exec" | "dev" | "suid" => !found.options.contains(&format!("no{wanted}")),
            "rshared" => found.is_shared,
            _ => found.options.contains(wanted),
        };
        let options = bind.options.iter().filter(|option| has(option)).cloned().collect();
        // mountinfo shows the source directory as a path within its file system. `bind.source` is a path on the
        // machine, so the two may differ.
        let is_same =
            found.within == bind.source.trim_end_matches('/') || is_same_directory(&bind.source, &bind.path);
        let source = if is_same { bind.source.clone() } else { found.within };
        Ok(Some(BindMount { source, options, ..bind.clone() }))
    }

    fn wait_for(&self, device: &str) -> Result<()> {
        devices::wait_for(device)
    }

    fn mount(&self, mount: &Mount) -> Result<()> {
        devices::format_if_blank(&mount.device, &mount.filesystem, &mount.format_options)?;
        let options = mount.mount_options.join(",");
        let mut command = vec!["mount", "--types", &mount.filesystem];
        if !options.is_empty() {
            command.extend(["--options", &options]);
        }
        command.extend(["--", &mount.device, &mount.path]);
        run(&command).map(drop)
    }

    fn bind(&self, bind: &BindMount) -> Result<()> {
        let how = if bind.recursive { "--rbind" } else { "--bind" };
        run(&["mount", how, "--", &bind.source, &bind.path])?;
        let (shared, options): (Vec<&str>, Vec<&str>) =
            bind.options.iter().map(String::as_str).partition(|option| *option == "rshared");
        if !options.is_empty() {
            // The kernel applies options to a bind mount only on a remount.
            run(&["mount", "--options", &format!("remount,bind,{}", options.join(",")), "--", &bind.path])?;
        }
        if !shared.is_empty() {
            run(&["mount", "--make-rshared", "--", &bind.path])?;
        }
        Ok(())
    }

    fn below(&self, folders: &[&str]) -> Result<Vec<String>> {
        Ok(innermost_first(&mountinfo()?, &by_both_names(folders)))
    }

    fn within(&self, folders: &[&str]) -> Result<Vec<String>> {
        Ok(within(&mountinfo()?, &by_both_names(folders)))
    }

    fn unmount(&self, path: &str) -> Result<()> {
        run(&["umount", "--", path]).map(drop)
    }
}

fn is_same_directory(one: &str, other: &str) -> bool {
    let identity = |path: &str| std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    identity(one).is_some_and(|one| Some(one) == identity(other))
}

/// The folders, and their paths with symbolic links resolved. mountinfo has only the resolved paths.
fn by_both_names(folders: &[&str]) -> Vec<String> {
    let real = |folder: &&str| Some(std::fs::canonicalize(folder).ok()?.to_str()?.to_owned());
    folders.iter().map(|folder| (*folder).to_owned()).chain(folders.iter().filter_map(real)).collect()
}

fn innermost_first(lines: &[Line], folders: &[String]) -> Vec<String> {
    let is_below = |path: &String| {
        let below = |folder: &String| {
            path.strip_prefix(folder.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        folders.iter().any(below)
    };
    // Reverse the list, because a mount comes after the mount that it is on or inside.
    lines.iter().rev().map(|line| line.path.clone()).filter(is_below).collect()
}

/// The mount points below `folders`, without hidden mounts. A mount below a folder is hidden if another file system
/// was mounted on the folder later.
fn within(lines: &[Line], folders: &[String]) -> Vec<String> {
    let is_within = |line: &&Line, folder: &String| {
        let is_below = line.path.strip_prefix(folder.as_str()).is_some_and(|rest| rest.starts_with('/'));
        is_below && topmost(lines, folder).is_none_or(|top| is_on(lines, line, top.id))
    };
    let reached = lines.iter().rev().filter(|line| folders.iter().any(|folder| is_within(line, folder)));
    reached.map(|line| line.path.clone()).collect()
}

/// Whether a mount is inside the mount with the ID `other`, directly or through other mounts.
fn is_on(lines: &[Line], line: &Line, other: u64) -> bool {
    let parent = |line: &&Line| lines.iter().find(|parent| parent.id == line.parent && parent.id != line.id);
    // Without a cycle, a chain of parents is no longer than the list. The limit ends the search if there is a cycle.
    std::iter::successors(Some(line), parent).take(lines.len() + 1).any(|line| line.parent == other)
}

/// A line of `/proc/PID/mountinfo` (proc_pid_mountinfo(5)).
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    id: u64,
    parent: u64,
    /// `MAJOR:MINOR` of the file system's device.
    device: String,
    /// The mounted directory, as a path within its file system.
    within: String,
    path: String,
    options: Vec<String>,
    is_shared: bool,
    filesystem: String,
    source: String,
}

fn mountinfo() -> Result<Vec<Line>> {
    // A unit with a sandbox has other mount options than the machine: every mount is shared, and most mounts are
    // read-only. So in a sandbox, this function reads the mount list of PID 1. Otherwise it reads the mount list of
    // this thread, because a thread may have its own mount namespace.
    let path = match sandbox::has_other_mounts() {
        true => "/proc/1/mountinfo",
        false => "/proc/thread-self/mountinfo",
    };
    let text = std::fs::read(path).map_err(|error| Error::path("read", path, error))?;
    Ok(parse_all(&text))
}

/// Parses a mount list. Invalid UTF-8 is replaced: a pod can mount a path with any bytes, and such a line must not
/// hide other lines.
fn parse_all(text: &[u8]) -> Vec<Line> {
    String::from_utf8_lossy(text).lines().filter_map(parse).collect()
}

/// The device number (`MAJOR:MINOR`) of the file system on `/`. `mountinfo` is the content of `/proc/PID/mountinfo`.
pub(crate) fn device_of_root(mountinfo: &[u8]) -> Option<String> {
    Some(parse_all(mountinfo).into_iter().rfind(|line| line.path == "/")?.device)
}

fn topmost(lines: &[Line], path: &str) -> Option<Line> {
    lines.iter().rfind(|line| line.path == path.trim_end_matches('/')).cloned()
}

fn parse(line: &str) -> Option<Line> {
    let (mount, filesystem) = line.split_once(" - ")?;
    let mount: Vec<&str> = mount.split(' ').collect();
    let [id, parent, device, within, path, options, tags @ ..] = mount.as_slice() else { return None };
    let mut filesystem = filesystem.split(' ');
    Some(Line {
        id: id.parse().ok()?,
        parent: parent.parse().ok()?,
        device: (*device).to_owned(),
        within: unescape(within),
        path: unescape(path),
        options: options.split(',').map(str::to_owned).collect(),
        is_shared: tags.iter().any(|tag| tag.starts_with("shared:")),
        filesystem: filesystem.next()?.into(),
        source: unescape(filesystem.next()?),
    })
}

/// Decodes the octal numbers that the kernel writes for spaces, tabs, newlines and backslashes.
fn unescape(text: &str) -> String {
    ["\\040", "\\011", "\\012", "\\134"]
        .iter()
        .zip([" ", "\t", "\n", "\\"])
        .fold(text.to_owned(), |text, (code, character)| text.replace(code, character))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(mountinfo: &[&str]) -> Vec<Line> {
        parse_all(mountinfo.join("\n").as_bytes())
    }

    #[test]
    fn mounts_below_a_folder_come_innermost_first() {
        let lines = lines(&[
            "1 0 8:1 / / rw - ext4 /dev/sda1 rw",
            "2 1 0:9 / /var/lib/kubelet rw - tmpfs none rw",
            "3 2 0:9 / /var/lib/kubelet/pods/x rw - tmpfs none rw",
            "4 1 0:9 / /var/lib/kubelet-other rw - tmpfs none rw",
        ]);
        let found = innermost_first(&lines, &["/var/lib/kubelet".into(), "/run/containerd".into()]);
        assert_eq!(found, ["/var/lib/kubelet/pods/x", "/var/lib/kubelet"]);
    }

    #[test]
    fn a_line_with_invalid_utf_8_hides_no_other_mount() {
        let text = b"1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 8:1 /a\xffb /var/lib/kubelet/pods/x rw - ext4 /dev/sda1 rw\n\
            3 1 0:9 / /var/lib/kubelet/pods/\xff rw - tmpfs none rw\n";
        let found = within(&parse_all(text), &["/var/lib/kubelet".into()]);
        assert_eq!(found, ["/var/lib/kubelet/pods/\u{fffd}", "/var/lib/kubelet/pods/x"]);
    }

    #[test]
    fn hidden_mounts_are_left_out() {
        let lines = lines(&[
            "1 0 8:1 / / rw - ext4 /dev/sda1 rw",
            "2 1 0:9 / /var/lib/kubelet/pods/hidden rw - tmpfs none rw",
            "3 1 0:9 / /var/lib/kubelet rw - tmpfs none rw",
            "4 3 0:9 / /var/lib/kubelet/pods/a rw - tmpfs none rw",
            "5 4 0:9 / /var/lib/kubelet/pods/a/b rw - tmpfs none rw",
            "6 1 0:9 / /run/containerd/c rw - tmpfs none rw",
            "7 1 0:9 / /run/containerd-other rw - tmpfs none rw",
        ]);
        let found = within(&lines, &["/var/lib/kubelet".into(), "/run/containerd".into()]);
        assert_eq!(found, ["/run/containerd/c", "/var/lib/kubelet/pods/a/b", "/var/lib/kubelet/pods/a"]);
    }

    #[test]
    fn a_directory_is_recognized_behind_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        for name in ["one", "other"] {
            std::fs::create_dir(path(name)).unwrap();
        }
        std::os::unix::fs::symlink("one", path("link")).unwrap();
        assert!(is_same_directory(&path("one"), &path("link")));
        assert!(!is_same_directory(&path("one"), &path("other")));
        assert!(!is_same_directory(&path("gone"), &path("gone")));
    }

    #[test]
    fn mounts_are_read_as_the_kernel_prints_them() {
        let lines = lines(&[
            "25 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw",
            "534 458 8:1 /var/lib/kubelet /home/kubernetes/mount\\040er rw,nosuid,nodev - ext4 /dev/sda1 rw,commit=30",
            "garbage",
        ]);
        assert_eq!(lines.len(), 2);
        let found = topmost(&lines, "/home/kubernetes/mount er/").unwrap();
        assert_eq!((found.within.as_str(), found.is_shared), ("/var/lib/kubelet", false));
        assert_eq!(found.options, ["rw", "nosuid", "nodev"]);
        assert_eq!(topmost(&lines, "/nowhere"), None);
    }
}
