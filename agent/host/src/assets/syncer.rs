//! Syncs files to the disk while more bytes arrive, so that the end of a run waits less.

use std::fs::File;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use crate::error::{Error, Result};

/// How many files may wait for the thread. If the queue is full, `sync` blocks.
const WAITING: usize = 16;

/// Passes files to a thread that syncs them.
#[derive(Clone)]
pub(super) struct Syncer(SyncSender<(File, String)>);

/// The syncing thread. It ends when the last `Syncer` is dropped.
pub(super) struct Syncing(JoinHandle<Result<()>>);

impl Syncer {
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

    /// Starts to sync the bytes that were written so far, unless the queue is full. `shown` is the file's name in messages.
    pub(super) fn begin(&self, file: &File, shown: impl FnOnce() -> String) {
        // This sync only makes the final sync faster. The final sync reports errors.
        if let Ok(file) = file.try_clone() {
            let _ = self.0.try_send((file, shown()));
        }
    }

    pub(super) fn sync(&self, file: File, shown: String) {
        // If the syncing thread has ended, `finish` returns its error.
        let _ = self.0.send((file, shown));
    }
}

impl Syncing {
    /// Waits until all files are on the disk. `last` must be the only remaining `Syncer`.
    pub(super) fn finish(self, last: Syncer) -> Result<()> {
        drop(last);
        // If the thread has panicked, raise its panic here.
        self.0.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn everything_is_synced_and_the_first_failure_is_returned() {
        let (syncer, syncing) = Syncer::start().unwrap();
        for _ in 0..3 * WAITING {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(b"x").unwrap();
            syncer.begin(&file, || "a file".into());
            syncer.sync(file, "a file".into());
        }
        syncing.finish(syncer).unwrap();
        let (syncer, syncing) = Syncer::start().unwrap();
        // A pipe cannot be synced.
        let (pipe, _other) = nix::unistd::pipe().unwrap();
        syncer.sync(pipe.into(), "a pipe".into());
        let error = syncing.finish(syncer).unwrap_err().to_string();
        assert!(error.contains("cannot write a pipe: Invalid argument"), "{error}");
    }
}
