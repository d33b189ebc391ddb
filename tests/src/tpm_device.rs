//! A device file for a TPM in software, as the kernel has it. A client that opens the file has the TPM to itself. A write is a command,
//! and the next read returns its answer.
//!
//! It is a FUSE file, and mounting it requires root. A test must mount it in its own mount namespace. Otherwise all programs of the
//! machine would see it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result};
use fuser::consts::{FOPEN_DIRECT_IO, FOPEN_NONSEEKABLE};
use fuser::{
    BackgroundSession, FileAttr, FileType, Filesystem, MountOption, ReplyAttr, ReplyData, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyWrite, Request,
};
use nix::errno::Errno;

use crate::swtpm::Swtpm;

/// The name of the device file in the mounted folder.
pub const NAME: &str = "tpm0";
const FOLDER: u64 = 1;
const FILE: u64 = 2;
const KNOWN_FOR: Duration = Duration::from_secs(3600);

/// A mounted folder that contains the device file. Dropping it unmounts the folder.
pub struct TpmDevice(#[allow(dead_code)] BackgroundSession);

impl std::fmt::Debug for TpmDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TpmDevice")
    }
}

impl TpmDevice {
    /// Mounts a folder with the device file on `folder`, in the mount namespace of the caller.
    pub fn mount(tpm: Arc<Swtpm>, folder: &Path) -> Result<TpmDevice> {
        let device = Device { tpm, open: BTreeMap::new(), opened: 0 };
        let options = [MountOption::FSName("kops-agent-tpm".into()), MountOption::DefaultPermissions];
        let session =
            fuser::spawn_mount2(device, folder, &options).context("mounting a TPM's device file")?;
        Ok(TpmDevice(session))
    }
}

struct Device {
    tpm: Arc<Swtpm>,
    /// The open connections to the TPM. The key is the handle of the kernel's open file.
    open: BTreeMap<u64, UnixStream>,
    opened: u64,
}

fn attributes(inode: u64) -> FileAttr {
    let (kind, perm) =
        if inode == FOLDER { (FileType::Directory, 0o755) } else { (FileType::RegularFile, 0o600) };
    let then = SystemTime::UNIX_EPOCH;
    FileAttr {
        ino: inode,
        size: 0,
        blocks: 0,
        atime: then,
        mtime: then,
        ctime: then,
        crtime: then,
        kind,
        perm,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

fn code(error: &std::io::Error) -> i32 {
    error.raw_os_error().unwrap_or(Errno::EIO as i32)
}

impl Filesystem for Device {
    fn lookup(&mut self, _: &Request<'_>, parent: u64, name: &OsStr, reply: ReplyEntry) {
        match parent == FOLDER && name == NAME {
            true => reply.entry(&KNOWN_FOR, &attributes(FILE), 0),
            false => reply.error(Errno::ENOENT as i32),
        }
    }

    fn getattr(&mut self, _: &Request<'_>, inode: u64, _: Option<u64>, reply: ReplyAttr) {
        reply.attr(&KNOWN_FOR, &attributes(inode));
    }

    fn open(&mut self, _: &Request<'_>, _: u64, _: i32, reply: ReplyOpen) {
        match self.tpm.connect() {
            Ok(stream) => {
                self.opened += 1;
                self.open.insert(self.opened, stream);
                reply.opened(self.opened, FOPEN_DIRECT_IO | FOPEN_NONSEEKABLE);
            }
            Err(error) => reply.error(code(&error)),
        }
    }

    fn write(
        &mut self,
        _: &Request<'_>,
        _: u64,
        handle: u64,
        _: i64,
        data: &[u8],
        _: u32,
        _: i32,
        _: Option<u64>,
        reply: ReplyWrite,
    ) {
        let written = self.open.get_mut(&handle).ok_or(ErrorKind::NotFound.into());
        match written.and_then(|stream| stream.write_all(data)) {
            Ok(()) => reply.written(u32::try_from(data.len()).unwrap_or(u32::MAX)),
            Err(error) => reply.error(code(&error)),
        }
    }

    fn read(
        &mut self,
        _: &Request<'_>,
        _: u64,
        handle: u64,
        _: i64,
        size: u32,
        _: i32,
        _: Option<u64>,
        reply: ReplyData,
    ) {
        let mut answer = vec![0; size as usize];
        let read = self.open.get_mut(&handle).ok_or(ErrorKind::NotFound.into());
        match read.and_then(|stream| stream.read(&mut answer)) {
            Ok(length) => reply.data(&answer[..length]),
            Err(error) => reply.error(code(&error)),
        }
    }

    fn release(
        &mut self,
        _: &Request<'_>,
        _: u64,
        handle: u64,
        _: i32,
        _: Option<u64>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.open.remove(&handle);
        reply.ok();
    }
}
