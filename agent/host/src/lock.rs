//! One run at a time on one root.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use nix::fcntl::{Flock, FlockArg};

use crate::error::{Error, Result};
use crate::root::Root;
use crate::stamps::STATE;

/// Held while a machine is observed and changed; other runs are refused until it is dropped.
///
/// The kernel lets go of it when the process ends, however it ends.
#[derive(Clone)]
pub struct Lock {
    _file: Arc<Mutex<Flock<File>>>,
}

/// The lock of one root, as this process knows it.
#[derive(Default)]
pub(crate) struct Locks(Mutex<Weak<Mutex<Flock<File>>>>);

impl Locks {
    /// Takes the lock, or a share in it where this process holds it already.
    pub(crate) fn take(&self, root: &Root) -> Result<Lock> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = held.upgrade() {
            return Ok(Lock { _file: file });
        }
        let dir = root.make_dirs(STATE)?;
        let failed = |error| Error::path("write", dir.shown("lock"), error);
        let mut file = match Flock::lock(dir.open_or_create("lock")?, FlockArg::LockExclusiveNonblock) {
            Ok(file) => file,
            Err((mut file, _)) => {
                let mut pid = String::new();
                let is_known = file.read_to_string(&mut pid).is_ok() && !pid.trim().is_empty();
                let pid = if is_known { pid.trim().to_owned() } else { "unknown".into() };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_run_is_told_who_is_at_work() {
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
}
