//! Writes files that are complete before they are visible.
//!
//! A file is written beside its target under a temporary name. Its SELinux label, owner and mode are set before the
//! first byte. The file is synced and renamed over the target, and the directory is synced. An interruption leaves
//! the target unchanged. The temporary name derives from the target's name, so that the next run finds and removes
//! the file of a killed run.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::error::{Error, Result};
use crate::root::{Dir, Entry, Root, TEMPORARY, set_mode, set_owner, temporary_name};

/// The maximum number of files that are synced concurrently.
const AT_ONCE: usize = 8;

/// A file that is being written. Dropping this value removes the file.
pub(crate) struct Staged {
    file: File,
    temporary: Temporary,
}

/// A complete file that does not have its final name yet. Dropping this value removes the file.
pub(crate) struct Sealed(Temporary);

struct Temporary {
    dir: Arc<Dir>,
    name: String,
    is_placed: bool,
}

impl Staged {
    /// Creates a file for `path`, and the missing directories of `path`.
    pub(crate) fn new(root: &Root, path: &str, mode: u32, owner: Option<(u32, u32)>) -> Result<Staged> {
        let (dir, name) = root.make_parent(path)?;
        Staged::in_dir(root, Arc::new(dir), &name, mode, owner)
    }

    /// Creates the temporary file that later gets the name `name` in `dir`. From its creation on, the file's owner, mode and label restrict
    /// who can read it.
    pub(crate) fn in_dir(
        root: &Root,
        dir: Arc<Dir>,
        name: &str,
        mode: u32,
        owner: Option<(u32, u32)>,
    ) -> Result<Staged> {
        let temporary = temporary_name(name);
        dir.remove(&temporary)?;
        let file = dir.create_new(&temporary)?;
        let staged = Staged { file, temporary: Temporary { dir, name: name.into(), is_placed: false } };
        staged.set_label(root)?;
        staged.set_owner_and_mode(mode, owner)?;
        Ok(staged)
    }

    /// Sets the SELinux label that the policy has for the final path. Returns whether this succeeded.
    fn set_label(&self, root: &Root) -> Result<bool> {
        root.label_file(&self.file, &self.temporary.dir, &self.temporary.name)
    }

    fn set_owner_and_mode(&self, mode: u32, owner: Option<(u32, u32)>) -> Result<()> {
        if let Some((uid, gid)) = owner {
            set_owner(&self.file, uid, gid).map_err(|error| self.failed("set the owner of", error))?;
        }
        // Set the mode after the owner, because a change of the owner clears mode bits.
        set_mode(&self.file, mode).map_err(|error| self.failed("set the mode of", error))
    }

    fn owner(&self) -> io::Result<(u32, u32)> {
        let metadata = self.file.metadata()?;
        Ok((metadata.uid(), metadata.gid()))
    }

    fn failed(&self, doing: &'static str, error: io::Error) -> Error {
        Error::path(doing, self.shown(), error)
    }

    /// The final path, for messages.
    pub(crate) fn shown(&self) -> String {
        self.temporary.dir.shown(&self.temporary.name)
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(|error| self.failed("write", error))
    }

    /// Completes the file without a sync, so the file may be incomplete after a power cut. Only for stamps and timelines, which count as
    /// missing if they are incomplete.
    pub(crate) fn seal_loosely(self) -> Sealed {
        Sealed(self.temporary)
    }

    /// Syncs the file to the disk.
    pub(crate) fn seal(self) -> Result<Sealed> {
        self.file.sync_all().map_err(|error| self.failed("write", error))?;
        Ok(Sealed(self.temporary))
    }
}

impl Sealed {
    /// The path of the file before it gets its final name.
    pub(crate) fn temporary_path(&self) -> String {
        self.0.dir.shown(&temporary_name(&self.0.name))
    }

    /// Takes over a complete, synced file from a directory of the agent. Keeps its owner and mode, and creates the missing directories of
    /// `path`. If `path` is on another file system, copies the file.
    pub(crate) fn adopt(
        root: &Root,
        path: &str,
        from: &Dir,
        from_name: &str,
        mode: u32,
        owner: Option<(u32, u32)>,
    ) -> Result<Sealed> {
        let (dir, name) = root.make_parent(path)?;
        if !from.move_to(from_name, &dir, &temporary_name(&name))? {
            let mut staged = Staged::in_dir(root, Arc::new(dir), &name, mode, owner)?;
            io::copy(&mut from.open(from_name)?, &mut staged.file)
                .map_err(|error| staged.failed("write", error))?;
            return staged.seal();
        }
        let file = dir.open(&temporary_name(&name))?;
        let staged = Staged { file, temporary: Temporary { dir: Arc::new(dir), name, is_placed: false } };
        // The file was created in another directory, for which the policy may have another label.
        let is_labelled = staged.set_label(root)?;
        // The user that should own the file may not have existed when the file was created.
        let is_others = owner.is_some_and(|owner| staged.owner().is_ok_and(|found| found != owner));
        if is_others {
            staged.set_owner_and_mode(mode, owner)?;
        }
        if is_labelled || is_others { staged.seal() } else { Ok(Sealed(staged.temporary)) }
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.is_placed {
            // If the removal fails, the next run removes the file.
            let _ = self.dir.remove(&temporary_name(&self.name));
        }
    }
}

/// Renames files to their final names in the given order, without other work in between. Then syncs their directories.
pub(crate) fn place(files: Vec<Sealed>) -> Result<()> {
    let mut dirs: Vec<Arc<Dir>> = Vec::new();
    for Sealed(mut file) in files {
        file.dir.rename(&temporary_name(&file.name), &file.name)?;
        file.is_placed = true;
        if !dirs.iter().any(|dir| dir.shown("") == file.dir.shown("")) {
            dirs.push(Arc::clone(&file.dir));
        }
    }
    in_parallel(AT_ONCE, &dirs, |dir| dir.sync())
}

/// Renames a file to its final name, without a sync.
pub(crate) fn place_loosely(Sealed(mut file): Sealed) -> Result<()> {
    file.dir.rename(&temporary_name(&file.name), &file.name)?;
    file.is_placed = true;
    Ok(())
}

/// Syncs all files concurrently, because a file system with a journal commits many files in one transaction.
pub(crate) fn seal_all(files: Vec<Staged>) -> Result<Vec<Sealed>> {
    in_parallel(AT_ONCE, &files, |staged| {
        staged.file.sync_all().map_err(|error| staged.failed("write", error))
    })?;
    Ok(files.into_iter().map(|staged| Sealed(staged.temporary)).collect())
}

/// Runs `act` for each item, with at most `at_once` threads. Returns the first failure.
pub(crate) fn in_parallel<T: Sync>(
    at_once: usize,
    items: &[T],
    act: impl Fn(&T) -> Result<()> + Sync,
) -> Result<()> {
    let next = AtomicUsize::new(0);
    let work = || -> Result<()> {
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            act(item)?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let helpers = at_once.min(items.len()).saturating_sub(1);
        // If the system does not allow enough threads, continue with fewer threads.
        let helpers: Vec<_> =
            (0..helpers).map_while(|_| thread::Builder::new().spawn_scoped(scope, work).ok()).collect();
        let mine = work();
        let theirs = helpers
            .into_iter()
            .map(|helper| helper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        std::iter::once(mine).chain(theirs).collect()
    })
}

/// Atomically writes a small file.
pub(crate) fn write_file(
    root: &Root,
    path: &str,
    mode: u32,
    owner: Option<(u32, u32)>,
    bytes: &[u8],
) -> Result<()> {
    let mut staged = Staged::new(root, path, mode, owner)?;
    staged.write(bytes)?;
    place(vec![staged.seal()?])
}

/// Removes a small file, if it exists.
pub(crate) fn remove_file(root: &Root, path: &str) -> Result<()> {
    root.parent(path)?.map_or(Ok(()), |(dir, name)| dir.remove(&name))
}

/// Removes the temporary file of `path` that remains after a killed run.
pub(crate) fn sweep(root: &Root, path: &str) -> Result<()> {
    match root.parent(path)? {
        Some((dir, name)) => dir.remove(&temporary_name(&name)),
        None => Ok(()),
    }
}

/// Removes the temporary files in and below a folder of the agent that remain after a killed run.
pub(crate) fn sweep_below(root: &Root, path: &str) -> Result<()> {
    let Some(dir) = root.dir(path)? else { return Ok(()) };
    for name in dir.names()? {
        if name.starts_with('.') && name.ends_with(TEMPORARY) {
            dir.remove(&name)?;
        } else if matches!(dir.entry(&name)?, Some(Entry::Directory(_))) {
            sweep_below(root, &format!("{path}/{name}"))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn names(path: &std::path::Path) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(path)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_has_its_mode_before_its_content_and_its_name_after() {
        let temp = tempfile::tempdir().unwrap();
        let root = Root::open(temp.path()).unwrap();
        std::fs::write(temp.path().join("a"), "before").unwrap();
        let mut staged = Staged::new(&root, "/a", 0o400, None).unwrap();
        let mode = std::fs::metadata(temp.path().join(".a.kops-agent")).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o400);
        staged.write(b"after").unwrap();
        let sealed = staged.seal().unwrap();
        assert_eq!(std::fs::read_to_string(temp.path().join("a")).unwrap(), "before");
        place(vec![sealed]).unwrap();
        assert_eq!(std::fs::read_to_string(temp.path().join("a")).unwrap(), "after");
        assert_eq!(names(temp.path()), ["a"]);
    }

    #[test]
    fn a_file_has_its_label_before_its_content_and_its_name_after() {
        use rustix::fs::{XattrFlags, lgetxattr, lsetxattr};

        let temp = tempfile::tempdir().unwrap();
        let (config, contexts) =
            (temp.path().join("etc/selinux"), temp.path().join("etc/selinux/x/contexts/files"));
        std::fs::create_dir_all(&contexts).unwrap();
        if lsetxattr(&config, "security.selinux", b"u:r:t:s0\0", XattrFlags::empty()).is_err() {
            // Only root can set labels, and only on some file systems. tests/it/selinux.rs reports when labels cannot be tested.
            return;
        }
        std::fs::write(config.join("config"), "SELINUX=permissive\nSELINUXTYPE=x\n").unwrap();
        std::fs::write(contexts.join("file_contexts"), "/b/a -- u:r:right_t:s0\n").unwrap();
        let root = Root::open(temp.path()).unwrap();
        let label = |path: &str| {
            let mut buffer = [0; 64];
            let size = lgetxattr(temp.path().join(path), "security.selinux", &mut buffer).unwrap();
            String::from_utf8(buffer[..size].to_vec()).unwrap()
        };
        let mut staged = Staged::new(&root, "/b/a", 0o600, None).unwrap();
        assert_eq!(label("b/.a.kops-agent"), "u:r:right_t:s0\0");
        staged.write(b"secret").unwrap();
        place(vec![staged.seal().unwrap()]).unwrap();
        assert_eq!(label("b/a"), "u:r:right_t:s0\0");

        std::fs::write(temp.path().join("made"), "downloaded").unwrap();
        let sealed =
            Sealed::adopt(&root, "/b/a", &root.dir("/").unwrap().unwrap(), "made", 0o644, None).unwrap();
        assert_eq!(label("b/.a.kops-agent"), "u:r:right_t:s0\0");
        drop(sealed);
    }

    #[test]
    fn many_files_are_complete_together() {
        let temp = tempfile::tempdir().unwrap();
        let root = Root::open(temp.path()).unwrap();
        let staged = (0..50).map(|number| {
            let mut staged = Staged::new(&root, &format!("/{}/{number}", number % 3), 0o644, None).unwrap();
            staged.write(b"new").unwrap();
            staged
        });
        place(seal_all(staged.collect()).unwrap()).unwrap();
        for number in 0..50 {
            let path = temp.path().join(format!("{}/{number}", number % 3));
            assert_eq!(std::fs::read_to_string(path).unwrap(), "new");
        }
        seal_all(vec![]).unwrap();
    }

    #[test]
    fn one_failure_among_many_is_returned() {
        let items: Vec<usize> = (0..50).collect();
        let act = |item: &usize| match item {
            37 => Err(Error::Path { doing: "write", path: "37".into(), reason: String::new() }),
            _ => Ok(()),
        };
        assert!(in_parallel(AT_ONCE, &items, act).unwrap_err().to_string().contains("37"));
        in_parallel(AT_ONCE, &items[..37], act).unwrap();
    }

    #[test]
    fn an_unfinished_file_is_removed() {
        let temp = tempfile::tempdir().unwrap();
        let root = Root::open(temp.path()).unwrap();
        let mut staged = Staged::new(&root, "/a", 0o600, None).unwrap();
        staged.write(b"half").unwrap();
        drop(staged);
        drop(Staged::new(&root, "/b", 0o600, None).unwrap().seal().unwrap());
        assert_eq!(names(temp.path()), [""; 0]);
    }

    #[test]
    fn temporary_files_of_a_killed_run_are_replaced_or_removed() {
        let temp = tempfile::tempdir().unwrap();
        let root = Root::open(temp.path()).unwrap();
        std::fs::write(temp.path().join(".a.kops-agent"), "left behind").unwrap();
        std::fs::write(temp.path().join(".b.kops-agent"), "left behind").unwrap();
        std::fs::create_dir_all(temp.path().join("own/below")).unwrap();
        std::fs::write(temp.path().join("own/.c.kops-agent"), "left behind").unwrap();
        std::fs::write(temp.path().join("own/below/.d.kops-agent"), "left behind").unwrap();
        std::fs::write(temp.path().join("own/below/kept"), "").unwrap();
        write_file(&root, "/a", 0o644, None, b"new").unwrap();
        sweep(&root, "/b").unwrap();
        sweep(&root, "/missing/c").unwrap();
        sweep_below(&root, "/own").unwrap();
        sweep_below(&root, "/missing").unwrap();
        assert_eq!(names(temp.path()), ["a", "own"]);
        assert_eq!(names(&temp.path().join("own")), ["below"]);
        assert_eq!(names(&temp.path().join("own/below")), ["kept"]);
        assert_eq!(std::fs::read_to_string(temp.path().join("a")).unwrap(), "new");
    }

    #[test]
    fn a_link_at_the_target_is_replaced_and_not_followed() {
        let temp = tempfile::tempdir().unwrap();
        let root = Root::open(temp.path()).unwrap();
        std::fs::write(temp.path().join("other"), "untouched").unwrap();
        std::os::unix::fs::symlink("other", temp.path().join("a")).unwrap();
        write_file(&root, "/a", 0o644, None, b"new").unwrap();
        assert_eq!(std::fs::read_to_string(temp.path().join("other")).unwrap(), "untouched");
        assert!(!std::fs::symlink_metadata(temp.path().join("a")).unwrap().is_symlink());
    }
}
