//! The config drive: a small disk with a server's metadata. A cloud provides a config drive instead of a metadata service, or in addition.
//!
//! Source: Nova, "Config drives" (label, file systems, files); upstream's `getFromConfigDrive` in
//! `upup/pkg/fi/cloudup/openstack/openstackmetadata/metadata.go`. If udev has made no link, upstream asks `blkid`, but this
//! module finds no drive.

use std::fs::{self, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::thread;

use kops_agent_net::causes::in_one_line;
use kops_agent_spec::invalid::Invalid;
use nix::fcntl::OFlag;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use tokio::sync::oneshot;

/// The path of a server's metadata, on the drive and at the metadata service.
/// Upstream: `MetadataLatestPath` in upup/pkg/fi/cloudup/openstack/openstackmetadata/metadata.go.
pub(super) const META_DATA: &str = "/openstack/latest/meta_data.json";
/// udev's links to disks by label. The label of a vfat disk is in upper case.
const LINKS: [&str; 2] = ["dev/disk/by-label/config-2", "dev/disk/by-label/CONFIG-2"];
const FILE_SYSTEMS: [&str; 2] = ["iso9660", "vfat"];
/// The temporary mount point of the drive. Only one thread sees the mount, so `/run` stays visible to all other threads.
const MOUNT_POINT: &str = "/run";
/// The maximum size of the metadata file, in bytes. With the keys of many users, the file has about 10 KiB.
const LONGEST: u64 = 512 * 1024;

/// Reads the metadata from the config drive of the machine with this root directory.
pub(super) async fn read(root: &Path) -> Result<String, Invalid> {
    let drive = LINKS.iter().map(|link| root.join(link)).find(|link| link.exists());
    let drive = drive.ok_or_else(|| Invalid::new("there is no disk with the label config-2"))?;
    Ok(read_from(drive, mounted).await?)
}

/// Reads the metadata in a separate thread. The mount disappears when this thread ends.
async fn read_from(drive: PathBuf, mounted: fn(&Path) -> Result<PathBuf, String>) -> Result<String, String> {
    let (tell, told) = oneshot::channel();
    let shown = drive.display().to_string();
    let reading = move || {
        let _told = tell.send(mounted(&drive).and_then(|folder| meta_data(&folder)));
    };
    let cannot = |why: String| format!("{shown} cannot be read: {why}");
    thread::Builder::new()
        .name("config-drive".into())
        .spawn(reading)
        .map_err(|error| cannot(in_one_line(&error)))?;
    told.await.unwrap_or_else(|_| Err("the thread that reads it has ended".into())).map_err(cannot)
}

/// Mounts a drive so that only this thread sees it, and returns the mount point. Any disk may have the label of a config drive, so the
/// mount permits no programs, no device files and no setuid bits.
fn mounted(drive: &Path) -> Result<PathBuf, String> {
    let cannot = |doing: &str, error: nix::Error| format!("{doing}: {}", error.desc());
    unshare(CloneFlags::CLONE_NEWNS).map_err(|error| cannot("cannot create a mount namespace", error))?;
    let none = None::<&str>;
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(none, "/", none, private, none).map_err(|error| cannot("cannot make mounts private", error))?;
    let harmless = MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    let mut why = Vec::new();
    for file_system in FILE_SYSTEMS {
        match mount(Some(drive), MOUNT_POINT, Some(file_system), harmless, none) {
            Ok(()) => return Ok(PathBuf::from(MOUNT_POINT)),
            Err(error) => why.push(cannot(file_system, error)),
        }
    }
    Err(format!("it cannot be mounted ({})", why.join("; ")))
}

/// The metadata in the folder that a drive is mounted on.
fn meta_data(folder: &Path) -> Result<String, String> {
    let file = folder.join(META_DATA.trim_start_matches('/'));
    let cannot = |error: std::io::Error| format!("{META_DATA} on the drive: {}", in_one_line(&error));
    // A symlink on the drive could lead to a file outside the drive, so the resolved path must be below the folder.
    let folder = folder.canonicalize().map_err(cannot)?;
    let is_on_it = file.parent().and_then(|parent| fs::canonicalize(parent).ok());
    if !is_on_it.is_some_and(|parent| parent.starts_with(&folder)) {
        return Err(format!("{META_DATA} is not on the drive"));
    }
    let file =
        OpenOptions::new().read(true).custom_flags(OFlag::O_NOFOLLOW.bits()).open(file).map_err(cannot)?;
    let mut text = String::new();
    file.take(LONGEST + 1).read_to_string(&mut text).map_err(cannot)?;
    match text.len() as u64 {
        0..=LONGEST => Ok(text),
        _ => Err(format!("{META_DATA} on the drive has more than {LONGEST} bytes")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::symlink;

    use super::*;

    fn with(text: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let latest = folder.path().join("openstack/latest");
        fs::create_dir_all(&latest).unwrap();
        fs::write(latest.join("meta_data.json"), text).unwrap();
        folder
    }

    #[tokio::test]
    async fn a_drive_is_found_by_its_label_and_read() {
        let drive = with("{}");
        // The test uses the folder in place of a mounted disk.
        let as_mounted = |drive: &Path| Ok(drive.to_owned());
        assert_eq!(read_from(drive.path().to_owned(), as_mounted).await.unwrap(), "{}");
        let error = read_from(drive.path().to_owned(), |_| Err("iso9660: no".into())).await.unwrap_err();
        assert_eq!(error, format!("{} cannot be read: iso9660: no", drive.path().display()));

        let machine = tempfile::tempdir().unwrap();
        let error = read(machine.path()).await.unwrap_err().to_string();
        assert_eq!(error, "there is no disk with the label config-2");
        let labels = machine.path().join("dev/disk/by-label");
        fs::create_dir_all(&labels).unwrap();
        // The file is not a disk, so not even root can mount it.
        fs::write(labels.join("CONFIG-2"), "").unwrap();
        let error = read(machine.path()).await.unwrap_err().to_string();
        assert!(error.contains("by-label/CONFIG-2 cannot be read: "), "{error}");
        assert!(!Path::new(MOUNT_POINT).join("openstack").exists());
    }

    #[test]
    fn files_outside_the_drive_are_not_read() {
        let long = with(&"x".repeat(LONGEST as usize + 1));
        assert!(meta_data(long.path()).unwrap_err().ends_with("has more than 524288 bytes"));
        let fits = with(&"x".repeat(LONGEST as usize));
        assert_eq!(meta_data(fits.path()).unwrap().len() as u64, LONGEST);

        let secret = with("secret");
        let linked = tempfile::tempdir().unwrap();
        symlink(secret.path().join("openstack"), linked.path().join("openstack")).unwrap();
        assert!(meta_data(linked.path()).unwrap_err().ends_with("is not on the drive"));
        let file = with("");
        let name = file.path().join("openstack/latest/meta_data.json");
        fs::remove_file(&name).unwrap();
        symlink(secret.path().join("openstack/latest/meta_data.json"), &name).unwrap();
        let error = meta_data(file.path()).unwrap_err();
        assert!(error.contains("meta_data.json on the drive: ") && !error.contains("secret"), "{error}");
        assert!(meta_data(tempfile::tempdir().unwrap().path()).unwrap_err().ends_with("is not on the drive"));
    }
}
