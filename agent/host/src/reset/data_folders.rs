//! Finds the data folders that the spec gives kubelet and containerd, and decides which of them a reset may remove.

use std::collections::BTreeSet;

use super::RUNTIME_FOLDERS;
use crate::error::Result;
use crate::host::Host;

/// Folders in which programs other than kubelet and containerd have files (hier(7), file-hierarchy(7)).
const SHARED: [&str; 30] = [
    "/run/dbus",
    "/run/lock",
    "/run/log",
    "/run/udev",
    "/run/user",
    "/var/backups",
    "/var/cache",
    "/var/crash",
    "/var/db",
    "/var/lib",
    "/var/lib/NetworkManager",
    "/var/lib/apt",
    "/var/lib/cloud",
    "/var/lib/dbus",
    "/var/lib/dnf",
    "/var/lib/dpkg",
    "/var/lib/kops-agent",
    "/var/lib/rpm",
    "/var/lib/systemd",
    "/var/local",
    "/var/lock",
    "/var/log",
    "/var/log/journal",
    "/var/mail",
    "/var/opt",
    "/var/run",
    "/var/spool",
    "/var/spool/cron",
    "/var/tmp",
    "/var/www",
];

/// Folder trees of the operating system itself.
const SYSTEM: [&str; 12] = [
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/proc",
    "/run/systemd",
    "/sbin",
    "/sys",
    "/usr",
];

/// The data folders that the spec names.
#[derive(Default)]
pub(super) struct DataFolders {
    /// Folders that only kubelet or containerd uses. The reset removes them.
    pub(super) own: BTreeSet<String>,
    /// Folders that may contain files of other programs, so they stay.
    pub(super) shared: BTreeSet<String>,
}

impl Host {
    /// The data folders of the last applied state and of a begun change. Default folders are left out.
    pub(super) fn data_folders(&self) -> Result<DataFolders> {
        let mut folders = DataFolders::default();
        let states = self.kept_states()?;
        for folder in states.iter().flat_map(|state| &state.data_folders) {
            let path = plain(folder);
            if RUNTIME_FOLDERS.contains(&path.as_str()) {
                continue;
            }
            if is_shared(&path) {
                folders.shared.insert(path);
                continue;
            }
            // If the path contains a link, the real folder may be elsewhere.
            let Some(real) = self.root.real_path(&path)? else { continue };
            let folders = if is_shared(&real) { &mut folders.shared } else { &mut folders.own };
            folders.insert(path);
        }
        Ok(folders)
    }
}

/// The path without doubled slashes, `.` components and a trailing slash.
fn plain(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    format!("/{}", parts.join("/"))
}

/// Whether other programs may have files in a folder. True if it is a top-level folder, a home folder, or a system folder.
fn is_shared(path: &str) -> bool {
    let depth = path.split('/').skip(1).count();
    let is_below = |folder: &&str| {
        path.strip_prefix(*folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    depth < 2
        || path.split('/').any(|part| part == "..")
        || depth == 2 && path.starts_with("/home/")
        || SHARED.contains(&path)
        || SYSTEM.iter().any(is_below)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_folders_are_distinguished_from_kubelets_own() {
        for shared in [
            "",
            "/",
            "//",
            "/var",
            "/var/",
            "/var//lib/.",
            "/etc",
            "/etc/kubelet",
            "/usr/local/lib/kubelet",
            "/mnt",
            "/data",
            "/home/admin",
            "/mnt/../etc",
            "/run/systemd/x",
            "/var/lib/dpkg",
        ] {
            assert!(is_shared(&plain(shared)), "{shared}");
        }
        for own in [
            "/mnt/kubelet",
            "/mnt/disks/ssd0",
            "/var/lib/kubelet-data",
            "/home/admin/kubelet",
            "/data/containerd/",
            "/etcetera/x",
        ] {
            assert!(!is_shared(&plain(own)), "{own}");
        }
    }
}
