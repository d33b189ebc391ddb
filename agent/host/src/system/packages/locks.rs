//! The locks of package managers: finds the process that holds a lock, and waits for it. Unattended upgrades run at
//! boot.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;

use crate::assets::Progress;
use crate::error::{Error, Result};

#[derive(Clone, Copy, Debug)]
pub(super) enum LockFile<'a> {
    /// The path of a file that is locked by fcntl(2). apt, dpkg and rpm lock files in this way.
    Locked(&'a str),
    /// The path of a file that contains the PID of the holder. dnf and yum lock in this way. They check whether the
    /// process still runs, so a stale file is no lock.
    Numbered(&'a str),
}

/// How to wait for a lock that another process holds.
#[derive(Clone, Copy)]
pub(super) struct Waiting<'a> {
    pub(super) timeout: Duration,
    /// Time between two checks of the lock.
    pub(super) pause: Duration,
    /// Receives the name of the process that holds the lock.
    pub(super) progress: &'a dyn Progress,
}

impl<'a> Waiting<'a> {
    /// Waits up to 600 s for a lock. An upgrade of all packages can take that long.
    pub(super) fn reporting_to(progress: &'a dyn Progress) -> Waiting<'a> {
        Waiting { timeout: Duration::from_secs(600), pause: Duration::from_secs(1), progress }
    }

    /// Waits until no process holds any of these locks.
    pub(super) fn for_locks(&self, files: &[LockFile<'_>]) -> Result<()> {
        let since = Instant::now();
        let mut told = String::new();
        while let Some((path, holder)) = first_held(files)? {
            if since.elapsed() >= self.timeout {
                return Err(Error::Path {
                    doing: "take the lock",
                    path: path.to_owned(),
                    reason: format!(
                        "{holder} has held the lock for {} s; if this process hangs, end it; run again after \
                         its end",
                        since.elapsed().as_secs()
                    ),
                });
            }
            if told != holder {
                self.progress.waiting_for(&format!("waiting for {holder}, which holds the lock {path}"));
                told = holder;
            }
            sleep(self.pause);
        }
        Ok(())
    }
}

/// The first of these files that another process has locked, and a description of the other process.
pub(super) fn held(files: &[LockFile<'_>]) -> Result<Option<(String, String)>> {
    Ok(first_held(files)?.map(|(path, holder)| (path.to_owned(), holder)))
}

/// The first of these files that another process has locked, and a description of the other process.
fn first_held<'f>(files: &[LockFile<'f>]) -> Result<Option<(&'f str, String)>> {
    for file in files {
        let (path, holder) = match *file {
            LockFile::Locked(path) => (path, holder(path)),
            LockFile::Numbered(path) => (path, numbered(path)),
        };
        if let Some(holder) = holder.map_err(|error| Error::path("look at the lock", path, error))? {
            return Ok(Some((path, holder)));
        }
    }
    Ok(None)
}

/// The process that has a file locked, according to the kernel.
fn holder(path: &str) -> io::Result<Option<String>> {
    let Some(file) = open(path)? else { return Ok(None) };
    let mut lock = libc::flock {
        l_type: libc::F_WRLCK as _,
        l_whence: libc::SEEK_SET as _,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    fcntl(file.as_fd(), FcntlArg::F_GETLK(&mut lock))?;
    Ok((i32::from(lock.l_type) != libc::F_UNLCK).then(|| describe(lock.l_pid)))
}

/// The process whose PID is in a file, if it still runs.
fn numbered(path: &str) -> io::Result<Option<String>> {
    let Some(file) = open(path)? else { return Ok(None) };
    let number: Option<i32> = io::read_to_string(file)?.trim().parse().ok();
    Ok(number.filter(|number| Path::new(&format!("/proc/{number}")).exists()).map(describe))
}

fn open(path: &str) -> io::Result<Option<File>> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Describes a process for people. `number` is not positive if the process is in another PID namespace, because its PID
/// is unknown here.
fn describe(number: i32) -> String {
    if number <= 0 {
        return "another process".into();
    }
    match std::fs::read_to_string(format!("/proc/{number}/comm")) {
        Ok(name) => format!("{} (process {number})", name.trim_end()),
        Err(_) => format!("process {number}"),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::process::{Child, Command, Stdio};

    use parking_lot::Mutex;

    use super::*;

    /// Kills a process as soon as the agent reports that it waits for the process. Records the reports.
    struct Ending(Mutex<(Option<Child>, Vec<String>)>);

    impl Progress for Ending {
        fn waiting_for(&self, what: &str) {
            let mut state = self.0.lock();
            state.1.push(what.to_owned());
            if let Some(mut child) = state.0.take() {
                child.kill().unwrap();
                child.wait().unwrap();
            }
        }
    }

    /// Starts a process that locks a file by fcntl(2), as apt and rpm do.
    fn holding(path: &Path) -> Child {
        let script = format!(
            "import fcntl, sys, time\nfile = open({path:?}, 'w')\nfcntl.lockf(file, fcntl.LOCK_EX)\n\
             print('held', flush=True)\ntime.sleep(600)"
        );
        let mut child = Command::new("python3").args(["-c", &script]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "held\n");
        child
    }

    fn waiting(progress: &Ending, timeout: Duration) -> Waiting<'_> {
        Waiting { timeout, pause: Duration::from_millis(1), progress }
    }

    #[test]
    fn the_run_waits_for_the_holder_of_a_lock_and_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock-frontend");
        let child = holding(&path);
        let number = child.id();
        let progress = Ending(Mutex::new((Some(child), vec![])));
        let shown = path.to_str().unwrap();
        waiting(&progress, Duration::MAX).for_locks(&[LockFile::Locked(shown)]).unwrap();
        let told = &progress.0.lock().1;
        assert_eq!(*told, [format!("waiting for python3 (process {number}), which holds the lock {shown}")]);
    }

    #[test]
    fn the_error_names_a_process_that_keeps_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let mut child = holding(&path);
        let progress = Ending(Mutex::default());
        let error = waiting(&progress, Duration::ZERO)
            .for_locks(&[LockFile::Locked(path.to_str().unwrap())])
            .unwrap_err()
            .to_string();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(error.contains(&format!("python3 (process {}) has held the lock", child.id())), "{error}");
    }

    #[test]
    fn a_pid_counts_while_its_process_runs() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("yum.pid");
        let shown = path.to_str().unwrap();
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        std::fs::write(&path, format!("{}\n", child.id())).unwrap();
        // Right after the start, the kernel may still show the child under the test's own name.
        while !numbered(shown).unwrap().unwrap().contains("sleep") {
            assert!(child.try_wait().unwrap().is_none(), "the process does not run, or has another name");
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(numbered(shown).unwrap(), None);
        assert_eq!(numbered("/no/such/file").unwrap(), None);
        std::fs::write(&path, "").unwrap();
        assert_eq!(numbered(shown).unwrap(), None);
    }
}
