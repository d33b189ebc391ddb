//! Has files written to the disk while more of them is still to come, so that the end of a run does not wait for all of it.

use std::fs::File;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use crate::error::{Error, Result};

/// How many files may wait; handing over more blocks.
const WAITING: usize = 16;

/// Hands files to a thread that waits for the disk.
#[derive(Clone)]
pub(super) struct Syncer(SyncSender<(File, String)>);

/// The thread. It ends when its last handle is dropped.
pub(super) struct Syncing(JoinHandle<Result<()>>);

impl Syncer {
    /// # Errors
    /// There can be no more threads.
    pub(super) fn start() -> Result<(Syncer, Syncing)> {
        let (queue, files) = sync_channel::<(File, String)>(WAITING);
        let work = move || {
            for (file, shown) in files {
                file.sync_all().map_err(|error| Error::path("write", shown, error))?;
            }
            Ok(())
        };
        let working = std::thread::Builder::new()
            .name("syncer".into())
            .spawn(work)
            .map_err(|error| Error::path("start", "a thread that writes to the disk", error))?;
        Ok((Syncer(queue), Syncing(working)))
    }

    /// Has what is written of a file so far brought to the disk, unless it is busy with others. `shown` is the
    /// file's name for messages.
    pub(super) fn begin(&self, file: &File, shown: impl FnOnce() -> String) {
        // Only to save time later: what fails now fails again in the end.
        if let Ok(file) = file.try_clone() {
            let _ = self.0.try_send((file, shown()));
        }
    }

    /// Has a complete file brought to the disk.
    pub(super) fn sync(&self, file: File, shown: String) {
        // If it has ended, `finish` says why.
        let _ = self.0.send((file, shown));
    }
}

impl Syncing {
    /// Waits until all files that were handed over are on the disk; `last` is the last handle.
    ///
    /// # Errors
    /// The first that could not be written.
    pub(super) fn finish(self, last: Syncer) -> Result<()> {
        drop(last);
        // A panic there is one here.
        self.0.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn everything_is_synced_and_the_first_failure_is_told() {
        let (syncer, syncing) = Syncer::start().unwrap();
        for _ in 0..3 * WAITING {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(b"x").unwrap();
            syncer.begin(&file, || "a file".into());
            syncer.sync(file, "a file".into());
        }
        syncing.finish(syncer).unwrap();
        // What has no disk behind it cannot be synced.
        let (syncer, syncing) = Syncer::start().unwrap();
        let (pipe, _other) = nix::unistd::pipe().unwrap();
        syncer.sync(pipe.into(), "a pipe".into());
        let error = syncing.finish(syncer).unwrap_err().to_string();
        assert!(error.contains("cannot write a pipe: Invalid argument"), "{error}");
    }
}
