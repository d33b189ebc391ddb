//! A FUSE file system in memory that injects faults of a disk or a machine on demand.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fuser::consts::FOPEN_KEEP_CACHE;
use fuser::{
    BackgroundSession, FileAttr, FileType, Filesystem, MountOption, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow,
};
use nix::errno::Errno;
use parking_lot::Mutex;

use super::check::shows_a_secret;
use super::fault::{Fault, Offset};
use super::operation::{Logged, Operation};
use super::tree::{Body, Inode, Node, ROOT, Tree};

/// How long the kernel may cache entries and attributes. Every change goes through the kernel, so the cache is never stale.
const KNOWN_FOR: Duration = Duration::from_secs(3600);
const BLOCK: u32 = 4096;
const MANY: u64 = 1 << 24;

/// The operation at which a fault struck.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Struck {
    pub kind: &'static str,
    pub path: String,
}

/// The result of a run on a mounted tree.
#[derive(Debug)]
pub struct Disturbed {
    pub tree: Tree,
    /// All operations that succeeded, in order.
    pub log: Vec<Logged>,
    /// The operation at which the fault struck. `None` if the run ended before the fault struck.
    pub struck: Option<Struck>,
    /// Paths of files that contain a key or a token, and that other users could read at some moment of the run.
    pub shown: Vec<String>,
}

struct State {
    disturbed: Disturbed,
    unused: Inode,
    fault: Option<(usize, Fault)>,
    clock: Offset,
}

impl State {
    /// Performs an operation, unless the fault makes the operation fail.
    fn change(&mut self, by: u32, operation: Operation) -> Result<(), Errno> {
        if let Some((number, fault)) = self.fault
            && self.disturbed.log.len() >= number
        {
            let is_first = self.disturbed.struck.is_none();
            let needs_room = operation.needs_room();
            if is_first && (fault != Fault::Full || needs_room) {
                let tree = &self.disturbed.tree;
                let struck = Struck { kind: operation.kind(tree), path: operation.path(tree) };
                self.disturbed.struck = Some(struck);
                fault.strike(by, &self.clock);
            }
            match fault {
                Fault::Full if needs_room => return Err(Errno::ENOSPC),
                Fault::Unreadable if is_first => return Err(Errno::EIO),
                Fault::ReadOnly => return Err(Errno::EROFS),
                Fault::Killed => return Err(Errno::EINTR),
                _ => {}
            }
        }
        let logged = Logged { operation, at: self.clock.now() };
        self.disturbed.tree.apply(&logged)?;
        self.watch(&logged.operation);
        self.disturbed.log.push(logged);
        Ok(())
    }

    fn watch(&mut self, operation: &Operation) {
        let tree = &self.disturbed.tree;
        if let Some(inode) = operation.touches()
            && tree.node(inode).is_ok_and(shows_a_secret)
        {
            self.disturbed.shown.push(tree.path_of(inode));
        }
    }

    fn make(&mut self, by: &Request<'_>, parent: Inode, name: &OsStr, mode: u32, body: Body) -> Answer {
        let (inode, at) = (self.unused, self.clock.now());
        let node = Node { mode: mode & 0o7777, owner: (by.uid(), by.gid()), modified: at, changed: at, body };
        self.change(by.pid(), Operation::Make { parent, name: text(name)?, inode, node })?;
        self.unused += 1;
        self.attributes(inode)
    }

    fn attributes(&self, inode: Inode) -> Answer {
        let node = self.disturbed.tree.node(inode)?;
        let (kind, size) = match &node.body {
            Body::File(bytes) => (FileType::RegularFile, bytes.len()),
            Body::Directory(_) => (FileType::Directory, 0),
            Body::Symlink(target) => (FileType::Symlink, target.len()),
        };
        let size = u64::try_from(size).unwrap_or_default();
        // The kernel increases the number of links when a process adds a link. If the number is 0, the kernel treats the file as deleted
        // and refuses to link it.
        let links = if kind == FileType::RegularFile { self.disturbed.tree.links(inode) } else { 1 };
        Ok(FileAttr {
            ino: inode,
            size,
            blocks: size.div_ceil(512),
            atime: node.modified,
            mtime: node.modified,
            ctime: node.changed,
            crtime: node.modified,
            kind,
            perm: u16::try_from(node.mode).unwrap_or_default(),
            nlink: u32::try_from(links).unwrap_or(u32::MAX),
            uid: node.owner.0,
            gid: node.owner.1,
            rdev: 0,
            blksize: BLOCK,
            flags: 0,
        })
    }
}

type Answer = Result<FileAttr, Errno>;

fn text(name: &OsStr) -> Result<String, Errno> {
    name.to_str().map(str::to_owned).ok_or(Errno::EILSEQ)
}

fn code(error: Errno) -> i32 {
    error as i32
}

/// A mounted tree. Dropping it unmounts the tree.
pub struct Mounted {
    state: Arc<Mutex<State>>,
    clock: Offset,
    session: Option<BackgroundSession>,
}

impl Mounted {
    /// Mounts a tree at this folder. The fault strikes at the operation with this number, counted from 0. If the fault
    /// cannot affect this operation, it strikes at the next operation that it can affect.
    pub fn mount(tree: Tree, fault: Option<(usize, Fault)>, at: &Path) -> io::Result<Mounted> {
        let unused = tree.unused();
        let disturbed = Disturbed { tree, log: Vec::new(), struck: None, shown: Vec::new() };
        let clock = Offset::default();
        let state = Arc::new(Mutex::new(State { disturbed, unused, fault, clock: clock.clone() }));
        let options = [MountOption::FSName("kops-agent-faults".into()), MountOption::DefaultPermissions];
        let session = fuser::spawn_mount2(Front(Arc::clone(&state)), at, &options)?;
        Ok(Mounted { state, clock, session: Some(session) })
    }

    pub fn clock(&self) -> &Offset {
        &self.clock
    }

    /// The number of operations that succeeded.
    pub fn done(&self) -> usize {
        self.state.lock().disturbed.log.len()
    }

    pub fn has_struck(&self) -> bool {
        self.state.lock().disturbed.struck.is_some()
    }

    pub fn unmount(mut self) -> Disturbed {
        // The session's thread is not joined, because it may never end. A mount namespace that was created during the run
        // has a copy of the mount, and the kernel sends FUSE requests until this copy is gone.
        drop(self.session.take());
        let mut state = self.state.lock();
        let now = Tree::new(state.disturbed.tree.nodes().clone());
        let empty = Disturbed { tree: now.clone(), log: Vec::new(), struck: None, shown: Vec::new() };
        let disturbed = std::mem::replace(&mut state.disturbed, empty);
        Disturbed { tree: now, ..disturbed }
    }
}

/// The handler of the kernel's FUSE requests.
struct Front(Arc<Mutex<State>>);

impl Front {
    fn change(&self, by: &Request<'_>, operation: Result<Operation, Errno>, reply: ReplyEmpty) {
        match operation.and_then(|operation| self.0.lock().change(by.pid(), operation)) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(code(error)),
        }
    }

    fn is_read_only(&self) -> bool {
        let state = self.0.lock();
        matches!(state.fault, Some((_, Fault::ReadOnly))) && state.disturbed.struck.is_some()
    }
}

/// Replies with the found inode, or with a negative entry, which the kernel also caches.
fn found(answer: Answer, no_inode: FileAttr, reply: ReplyEntry) {
    match answer {
        Err(Errno::ENOENT) => reply.entry(&KNOWN_FOR, &no_inode, 0),
        answer => entry(answer, reply),
    }
}

fn entry(answer: Answer, reply: ReplyEntry) {
    match answer {
        Ok(attributes) => reply.entry(&KNOWN_FOR, &attributes, 0),
        Err(error) => reply.error(code(error)),
    }
}

fn attr(answer: Answer, reply: ReplyAttr) {
    match answer {
        Ok(attributes) => reply.attr(&KNOWN_FOR, &attributes),
        Err(error) => reply.error(code(error)),
    }
}

impl Filesystem for Front {
    fn lookup(&mut self, _: &Request<'_>, parent: u64, name: &OsStr, reply: ReplyEntry) {
        let state = self.0.lock();
        let inode = text(name).and_then(|name| state.disturbed.tree.lookup(parent, &name));
        match state.attributes(ROOT) {
            Ok(root) => {
                // In FUSE, inode 0 is a negative entry: the name does not exist.
                let no_inode = FileAttr { ino: 0, ..root };
                found(inode.and_then(|inode| state.attributes(inode)), no_inode, reply);
            }
            Err(error) => reply.error(code(error)),
        }
    }

    fn getattr(&mut self, _: &Request<'_>, ino: u64, _: Option<u64>, reply: ReplyAttr) {
        attr(self.0.lock().attributes(ino), reply);
    }

    fn setattr(
        &mut self,
        by: &Request<'_>,
        ino: u64,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<u64>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<u32>,
        reply: ReplyAttr,
    ) {
        let mut state = self.0.lock();
        let now = state.clock.now();
        let change = Operation::Change {
            inode: ino,
            mode: mode.map(|mode| mode & 0o7777),
            owner: (uid, gid),
            size: size.and_then(|size| usize::try_from(size).ok()),
            modified: mtime.map(|time| match time {
                TimeOrNow::SpecificTime(time) => time,
                TimeOrNow::Now => now,
            }),
        };
        let changed = state.change(by.pid(), change);
        attr(changed.and_then(|()| state.attributes(ino)), reply);
    }

    fn readlink(&mut self, _: &Request<'_>, ino: u64, reply: ReplyData) {
        match self.0.lock().disturbed.tree.node(ino).map(|node| &node.body) {
            Ok(Body::Symlink(target)) => reply.data(target.as_bytes()),
            Ok(_) => reply.error(code(Errno::EINVAL)),
            Err(error) => reply.error(code(error)),
        }
    }

    fn mkdir(
        &mut self,
        by: &Request<'_>,
        parent: u64,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let body = Body::Directory(std::collections::BTreeMap::new());
        entry(self.0.lock().make(by, parent, name, mode & !umask, body), reply);
    }

    fn unlink(&mut self, by: &Request<'_>, parent: u64, name: &OsStr, reply: ReplyEmpty) {
        self.change(by, text(name).map(|name| Operation::Unlink { parent, name }), reply);
    }

    fn rmdir(&mut self, by: &Request<'_>, parent: u64, name: &OsStr, reply: ReplyEmpty) {
        self.change(by, text(name).map(|name| Operation::RemoveDirectory { parent, name }), reply);
    }

    fn symlink(&mut self, by: &Request<'_>, parent: u64, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let body = text(target.as_os_str()).map(Body::Symlink);
        entry(body.and_then(|body| self.0.lock().make(by, parent, name, 0o777, body)), reply);
    }

    fn rename(
        &mut self,
        by: &Request<'_>,
        parent: u64,
        name: &OsStr,
        newparent: u64,
        newname: &OsStr,
        flags: u32,
        reply: ReplyEmpty,
    ) {
        let operation = match flags {
            0 => text(name).and_then(|name| {
                Ok(Operation::Rename { parent, name, to: newparent, to_name: text(newname)? })
            }),
            _ => Err(Errno::EINVAL),
        };
        self.change(by, operation, reply);
    }

    fn link(&mut self, by: &Request<'_>, ino: u64, newparent: u64, newname: &OsStr, reply: ReplyEntry) {
        let operation = text(newname).map(|name| Operation::Link { inode: ino, parent: newparent, name });
        let mut state = self.0.lock();
        let linked = operation.and_then(|operation| state.change(by.pid(), operation));
        entry(linked.and_then(|()| state.attributes(ino)), reply);
    }

    fn open(&mut self, _: &Request<'_>, _ino: u64, flags: i32, reply: ReplyOpen) {
        // The two lowest bits are O_WRONLY and O_RDWR on every Linux architecture.
        match flags & 0b11 != 0 && self.is_read_only() {
            true => reply.error(code(Errno::EROFS)),
            false => reply.opened(0, FOPEN_KEEP_CACHE),
        }
    }

    fn opendir(&mut self, _: &Request<'_>, _ino: u64, _flags: i32, reply: ReplyOpen) {
        // After ENOSYS, the kernel opens directories without asking this file system.
        reply.error(code(Errno::ENOSYS));
    }

    fn read(
        &mut self,
        _: &Request<'_>,
        ino: u64,
        _fh: u64,
        offset: i64,
        size: u32,
        _flags: i32,
        _lock_owner: Option<u64>,
        reply: ReplyData,
    ) {
        match self.0.lock().disturbed.tree.node(ino).map(|node| &node.body) {
            Ok(Body::File(bytes)) => {
                let from = usize::try_from(offset).unwrap_or_default().min(bytes.len());
                let to = from.saturating_add(usize::try_from(size).unwrap_or_default()).min(bytes.len());
                reply.data(&bytes[from..to]);
            }
            Ok(_) => reply.error(code(Errno::EISDIR)),
            Err(error) => reply.error(code(error)),
        }
    }

    fn write(
        &mut self,
        by: &Request<'_>,
        ino: u64,
        _fh: u64,
        offset: i64,
        data: &[u8],
        _write_flags: u32,
        _flags: i32,
        _lock_owner: Option<u64>,
        reply: ReplyWrite,
    ) {
        let offset = usize::try_from(offset).unwrap_or_default();
        let write = Operation::Write { inode: ino, offset, bytes: Arc::from(data) };
        match self.0.lock().change(by.pid(), write) {
            Ok(()) => reply.written(u32::try_from(data.len()).unwrap_or_default()),
            Err(error) => reply.error(code(error)),
        }
    }

    fn fsync(&mut self, by: &Request<'_>, ino: u64, _fh: u64, _datasync: bool, reply: ReplyEmpty) {
        self.change(by, Ok(Operation::Sync { inode: ino }), reply);
    }

    fn fsyncdir(&mut self, by: &Request<'_>, ino: u64, _fh: u64, _datasync: bool, reply: ReplyEmpty) {
        self.change(by, Ok(Operation::Sync { inode: ino }), reply);
    }

    fn readdir(&mut self, _: &Request<'_>, ino: u64, _fh: u64, offset: i64, mut reply: ReplyDirectory) {
        let state = self.0.lock();
        let names = match state.disturbed.tree.names(ino) {
            Ok(names) => names,
            Err(error) => return reply.error(code(error)),
        };
        let kind = |inode: Inode| state.attributes(inode).map_or(FileType::RegularFile, |found| found.kind);
        let dots = [(".", ino), ("..", ino)].into_iter();
        let all = dots.chain(names.iter().map(|(name, inode)| (name.as_str(), *inode)));
        for (next, (name, inode)) in (1..).zip(all).skip(usize::try_from(offset).unwrap_or_default()) {
            if reply.add(inode, next, kind(inode), name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&mut self, _: &Request<'_>, _ino: u64, reply: ReplyStatfs) {
        reply.statfs(MANY, MANY, MANY, MANY, MANY, BLOCK, 255, BLOCK);
    }

    fn create(
        &mut self,
        by: &Request<'_>,
        parent: u64,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        match self.0.lock().make(by, parent, name, mode & !umask, Body::File(Arc::default())) {
            Ok(attributes) => reply.created(&KNOWN_FOR, &attributes, 0, 0, 0),
            Err(error) => reply.error(code(error)),
        }
    }
}
