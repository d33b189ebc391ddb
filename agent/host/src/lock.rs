//! The lock that allows one run at a time on a root.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Arc, Weak};

use nix::fcntl::{Flock, FlockArg};
use nix::sys::stat::{major, minor};
use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::root::Root;
use crate::stamps::STATE;

/// The lock of a run that observes and changes a machine. Other runs fail until the lock is dropped.
///
/// The kernel also releases the lock when the process ends, even if it is killed.
#[derive(Clone)]
pub struct Lock {
    _file: Arc<Mutex<Flock<File>>>,
}

/// The lock of a root, shared by all its holders in this process.
#[derive(Default)]
pub(crate) struct Locks(Mutex<Weak<Mutex<Flock<File>>>>);

impl Locks {
    /// Takes the lock. If this process already holds the lock, returns another handle of the held lock.
    pub(crate) fn take(&self, root: &Root) -> Result<Lock> {
        let mut held = self.0.lock();
        if let Some(file) = held.upgrade() {
            return Ok(Lock { _file: file });
        }
        let dir = root.make_dirs(STATE)?;
        let failed = |error| Error::path("write", dir.shown("lock"), error);
        let mut file = match Flock::lock(dir.open_or_create("lock")?, FlockArg::LockExclusiveNonblock) {
            Ok(file) => file,
            Err((mut file, _)) => {
                // The holder may have taken the lock just now, and may not have written its PID yet.
                let pid = holder(&file).or_else(|| written(&mut file)).unwrap_or_else(|| "unknown".into());
                return Err(Error::Locked { root: root.shown("/"), pid });
            }
        };
        file.set_len(0).map_err(failed)?;
        file.rewind().map_err(failed)?;
        writeln!(file, "{}", std::process::id()).map_err(failed)?;
        let file = Arc::new(Mutex::new(file));
        *held = Arc::downgrade(&file);
        Ok(Lock { _file: file })
    }
}

/// The PID of the process that locked a file, from the kernel (proc_locks(5)). `None` on file systems such as btrfs, where the device
/// numbers in `/proc/locks` differ from those in the metadata of files.
fn holder(file: &File) -> Option<String> {
    let metadata = file.metadata().ok()?;
    let device = metadata.dev();
    let inode = format!("{:02x}:{:02x}:{}", major(device), minor(device), metadata.ino());
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let holder = locks.lines().find_map(|line| match line.split_whitespace().collect::<Vec<_>>()[..] {
        [_, "FLOCK", _, _, pid, file, ..] if file == inode => Some(pid),
        _ => None,
    })?;
    // The kernel shows PID 0 for a process that is outside this PID namespace.
    (holder != "0").then(|| holder.to_owned())
}

/// The PID that the holder of the lock has written into the file.
fn written(file: &mut File) -> Option<String> {
    let mut pid = String::new();
    file.read_to_string(&mut pid).ok()?;
    let pid = pid.trim();
    if pid.is_empty() { None } else { Some(pid.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_run_learns_which_process_holds_the_lock() {
        let temp = tempfile::tempdir().unwrap();
        let root = Root::open(temp.path()).unwrap();
        let (mine, theirs) = (Locks::default(), Locks::default());
        let lock = mine.take(&root).unwrap();
        let share = mine.take(&root).unwrap();
        let error = theirs.take(&root).err().unwrap().to_string();
        assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
        drop(lock);
        assert!(theirs.take(&root).is_err());
        drop(share);
        assert!(theirs.take(&root).is_ok());
    }

    #[test]
    fn a_stale_pid_in_the_file_is_not_reported() {
        let temp = tempfile::tempdir().unwrap();
        let root = Root::open(temp.path()).unwrap();
        let lock = Locks::default().take(&root).unwrap();
        for stale in ["", "1\n"] {
            let path = temp.path().join("var/lib/kops-agent/lock");
            std::fs::write(&path, stale).unwrap();
            let file = File::open(&path).unwrap();
            // On some file systems, the file cannot be found in `/proc/locks`.
            if let Some(pid) = holder(&file) {
                assert_eq!(pid, std::process::id().to_string());
                let error = Locks::default().take(&root).err().unwrap().to_string();
                assert!(error.contains(&format!("process {pid})")), "{error}");
            }
        }
        drop(lock);
    }
}
