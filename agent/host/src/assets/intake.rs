//! Receives the bytes of one download in one pass, on a thread that may block. The bytes go into the hash, into the
//! cache and, unpacked if necessary, into the wanted files.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufRead, Read};

use bytes::Bytes;
use kops_agent_net::http;
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_blocking};

use super::BUFFER;
use super::cache::{Cache, Part};
use super::error::{DownloadError, in_units};
use super::request::Request;
use super::staging::{Making, Ready, Staging, Want};
use super::syncer::{Syncer, Syncing};
use super::unpack::{UnpackError, unpack};
use crate::digests::for_each_piece;
use crate::error::{Error, Result};

/// How many pieces may wait while one piece is written. A piece is the result of one read from the network, with up to some hundred
/// kilobytes. A longer queue would only use memory.
const WAITING: usize = 1;
/// The maximum unpacked size of a member, in bytes. The largest programs of a node have some hundred MiB.
const LARGEST: u64 = 1 << 30;
/// How many bytes from the beginning of a download are kept, to recognize wrong content.
const BEGINNING: usize = 512;

/// The result of a download.
pub(super) enum Verdict {
    /// The hash is right. The value contains the files made from the download.
    Right(Vec<Ready>),
    /// The hash is wrong. No bytes are kept.
    Wrong {
        /// The SHA-256 of the received bytes.
        sha256: String,
        size: u64,
        /// A description of the content for people. May be empty.
        looks: &'static str,
    },
    /// The download is incomplete. The received bytes are kept.
    Unfinished,
}

/// Receives a download in pieces. Dropping this value keeps the received bytes.
pub(super) struct Intake {
    pieces: mpsc::Sender<Piece>,
    working: JoinHandle<Result<Verdict>>,
}

/// A reserved place in the queue. The place is reserved before the piece is read.
pub(super) struct Room<'a>(mpsc::Permit<'a, Piece>);

impl Room<'_> {
    pub(super) fn fill(self, bytes: Bytes) {
        self.0.send(Piece::Bytes(bytes));
    }
}

enum Piece {
    Bytes(Bytes),
    End,
}

impl Intake {
    /// Starts to receive the bytes after `part`. Holds `busy` until the last byte is written.
    pub(super) fn begin(
        cache: &Cache,
        request: &Request,
        part: Part,
        busy: mpsc::Sender<()>,
    ) -> Result<Intake> {
        let (pieces, arriving) = mpsc::channel(WAITING);
        let disk = part.file.try_clone().map_err(|error| part.failed("read", error))?;
        let mut stream = Stream::new(disk, request, cache.staging())?;
        stream.arriving = Some(arriving);
        stream.part = Some(part);
        let request = request.clone();
        let staging = cache.staging().clone();
        let working = spawn_blocking(move || {
            let verdict = stream.take_in(&request, &staging);
            drop(busy);
            verdict
        });
        Ok(Intake { pieces, working })
    }

    /// Waits for a place in the queue. `None` if writing has failed. [`Intake::end`] then returns the error.
    pub(super) async fn room(&self) -> Option<Room<'_>> {
        self.pieces.reserve().await.ok().map(Room)
    }

    /// Marks the end of the download and returns the result.
    pub(super) async fn end(self) -> Result<Verdict> {
        // If the thread has already ended, `stop` returns its error.
        let _ = self.pieces.send(Piece::End).await;
        self.stop().await
    }

    /// Waits until all received bytes are written.
    pub(super) async fn stop(self) -> Result<Verdict> {
        drop(self.pieces);
        // If the task has panicked, raise its panic here.
        self.working.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
    }
}

/// Makes the wanted files from a complete download in the cache. `None` if the cache has no such download. If the download is damaged,
/// removes it and returns `None`.
pub(super) fn take_cached(cache: &Cache, request: &Request) -> Result<Option<Vec<Ready>>> {
    let (sha256, name) = (&request.sha256, request.name());
    let Some((file, _)) = cache.get(sha256, name)? else { return Ok(None) };
    match Stream::new(file, request, cache.staging())?.take_in(request, cache.staging())? {
        Verdict::Right(files) => Ok(Some(files)),
        Verdict::Wrong { .. } | Verdict::Unfinished => {
            cache.remove(sha256, name)?;
            Ok(None)
        }
    }
}

/// The bytes of a download in order: first the bytes on the disk, then the bytes that arrive. Each read hashes and stores its bytes.
struct Stream {
    disk: Option<File>,
    arriving: Option<mpsc::Receiver<Piece>>,
    part: Option<Part>,
    /// Files whose content is the whole download.
    wholes: Vec<Making>,
    syncer: Syncer,
    syncing: Syncing,
    hasher: Sha256,
    size: u64,
    beginning: Vec<u8>,
    current: Bytes,
    failed: Option<Error>,
    is_unfinished: bool,
}

impl Stream {
    fn new(disk: File, request: &Request, staging: &Staging) -> Result<Stream> {
        let wholes = request.wants.iter().filter(|want| want.member.is_none());
        let (syncer, syncing) = Syncer::start()?;
        Ok(Stream {
            wholes: wholes.map(|want| staging.begin(want)).collect::<Result<_>>()?,
            syncer,
            syncing,
            disk: Some(disk),
            arriving: None,
            part: None,
            hasher: Sha256::new(),
            size: 0,
            beginning: Vec::new(),
            current: Bytes::new(),
            failed: None,
            is_unfinished: false,
        })
    }

    /// Reads all bytes and checks the hash.
    fn take_in(mut self, request: &Request, staging: &Staging) -> Result<Verdict> {
        let mut ready = Vec::new();
        let mut files = BTreeSet::new();
        let unpacked = unpack_members(&mut self, &request.wants, staging, &mut ready, &mut files);
        let url = || request.name().to_owned();
        let unusable = match unpacked {
            Ok(()) => None,
            Err(UnpackError::Own(error)) => return Err(error),
            Err(UnpackError::Unreadable(reason)) => Some(DownloadError::BadArchive { url: url(), reason }),
            Err(UnpackError::Missing(member, present)) => {
                Some(DownloadError::NoMember { url: url(), member, present })
            }
        };
        // Read all bytes. The hash also covers the bytes after the last member, and the bytes of a broken archive.
        let drained = self.drain();
        if let Some(error) = self.failed {
            return Err(error);
        }
        if self.is_unfinished {
            return Ok(Verdict::Unfinished);
        }
        drained.map_err(|error| Error::path("read", request.name(), error))?;
        let sha256 = hex::encode(self.hasher.finalize());
        if sha256 != request.sha256 {
            self.part.map_or(Ok(()), Part::discard)?;
            return Ok(Verdict::Wrong { sha256, size: self.size, looks: describe_content(&self.beginning) });
        }
        self.part.map_or(Ok(()), Part::keep)?;
        if !files.is_empty() {
            staging.saw(&sha256, files);
        }
        if let Some(error) = unusable {
            return Err(error.into());
        }
        ready.extend(self.wholes.into_iter().map(|whole| whole.seal(&sha256, &self.syncer)));
        self.syncing.finish(self.syncer)?;
        Ok(Verdict::Right(ready))
    }

    fn drain(&mut self) -> io::Result<()> {
        loop {
            let size = self.fill_buf()?.len();
            if size == 0 {
                return Ok(());
            }
            self.consume(size);
        }
    }

    /// The next bytes, or `None` at the end.
    fn next(&mut self) -> io::Result<Option<Bytes>> {
        if let Some(disk) = &mut self.disk {
            let mut buffer = vec![0; BUFFER];
            let size = disk.read(&mut buffer).inspect_err(|_| self.is_unfinished = true)?;
            if size > 0 {
                buffer.truncate(size);
                return Ok(Some(buffer.into()));
            }
            self.disk = None;
        }
        let Some(arriving) = &mut self.arriving else { return Ok(None) };
        match arriving.blocking_recv() {
            Some(Piece::Bytes(bytes)) => {
                if let Some(part) = &mut self.part
                    && let Err(error) = part.write(&bytes)
                {
                    return Err(self.fail(error));
                }
                Ok(Some(bytes))
            }
            Some(Piece::End) => {
                self.arriving = None;
                Ok(None)
            }
            None => {
                self.is_unfinished = true;
                Err(io::Error::from(io::ErrorKind::UnexpectedEof))
            }
        }
    }

    /// Stores the error that ends the download.
    fn fail(&mut self, error: Error) -> io::Error {
        self.failed = Some(error);
        io::Error::from(io::ErrorKind::Other)
    }
}

impl BufRead for Stream {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.current.is_empty() {
            if self.failed.is_some() || self.is_unfinished {
                return Err(io::Error::from(io::ErrorKind::Other));
            }
            let Some(bytes) = self.next()? else { break };
            self.hasher.update(&bytes);
            self.size += bytes.len() as u64;
            let wanted = BEGINNING.saturating_sub(self.beginning.len()).min(bytes.len());
            self.beginning.extend_from_slice(&bytes[..wanted]);
            if let Err(error) = self.wholes.iter_mut().try_for_each(|whole| whole.write(&bytes, &self.syncer))
            {
                return Err(self.fail(error));
            }
            self.current = bytes;
        }
        Ok(&self.current)
    }

    fn consume(&mut self, size: usize) {
        drop(self.current.split_to(size));
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let size = self.fill_buf()?.read(buffer)?;
        self.consume(size);
        Ok(size)
    }
}

fn unpack_members(
    stream: &mut Stream,
    wants: &[Want],
    staging: &Staging,
    ready: &mut Vec<Ready>,
    files: &mut BTreeSet<String>,
) -> Result<(), UnpackError> {
    let members: BTreeSet<&str> = wants.iter().filter_map(|want| want.member.as_deref()).collect();
    if members.is_empty() {
        return Ok(());
    }
    let syncer = stream.syncer.clone();
    unpack(stream, &members, Some(files), |member, size, reader| {
        let wants: Vec<&Want> = wants.iter().filter(|want| want.member.as_deref() == Some(member)).collect();
        refuse_too_large(member, size.saturating_mul(wants.len() as u64), staging)?;
        let mut files = wants
            .into_iter()
            .map(|want| staging.begin(want))
            .collect::<Result<Vec<Making>>>()
            .map_err(UnpackError::Own)?;
        let sha256 = for_each_piece(reader, |piece| {
            files.iter_mut().try_for_each(|file| file.write(piece, &syncer)).map_err(UnpackError::Own)
        })?;
        ready.extend(files.into_iter().map(|file| file.seal(&sha256, &syncer)));
        Ok(())
    })
}

/// Rejects a member that would fill the disk. A few kilobytes may unpack to any size. The hash check cannot prevent this, because it comes
/// only after the last byte.
fn refuse_too_large(member: &str, size: u64, staging: &Staging) -> Result<(), UnpackError> {
    let free = staging.free_space().map_err(UnpackError::Own)?;
    let most = free.min(LARGEST);
    if size <= most {
        return Ok(());
    }
    let (size, most) = (in_units(size), in_units(most));
    Err(UnpackError::Unreadable(format!(
        "{member} would take {size} unpacked; the limit on this disk is {most}"
    )))
}

/// Describes wrong content, judging by the first bytes.
fn describe_content(beginning: &[u8]) -> &'static str {
    if http::is_page(beginning) {
        " (a proxy or mirror answered with an HTML page)"
    } else if beginning.is_empty() {
        " (the answer was empty)"
    } else {
        ""
    }
}
