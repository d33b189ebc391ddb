//! Takes members out of a tar archive that arrives as a stream.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read, Seek as _};
use std::ops::ControlFlow;

use flate2::bufread::MultiGzDecoder;

use super::entries::for_each_file;
use crate::digests::for_each_piece;
use crate::error::{Error, Result};

/// The maximum number of an archive's files that are listed. The archives of a node have at most some tens of files.
const MOST_FILES: usize = 1000;
/// The maximum number of names in an error.
const NAMES_SHOWN: usize = 12;
/// The first bytes of a gzip stream (RFC 1952).
const GZIP: [u8; 2] = [0x1f, 0x8b];

pub(super) enum UnpackError {
    /// The file is not an archive, or it is broken.
    Unreadable(String),
    /// The missing member, and the names of some files in the archive.
    Missing(String, String),
    /// The archive is not the cause: an operation on this machine failed.
    Own(Error),
}

impl From<io::Error> for UnpackError {
    fn from(error: io::Error) -> UnpackError {
        UnpackError::Unreadable(error.to_string())
    }
}

/// Passes each of `members` to `take`, with its size, in the order of the archive. Verifies nothing.
///
/// If `files` is `None`, reading stops after the last member. Otherwise, `files` receives the names of all files. It stays empty if the
/// archive is broken or has more than `MOST_FILES` files.
pub(super) fn unpack(
    archive: &mut dyn BufRead,
    members: &BTreeSet<&str>,
    mut files: Option<&mut BTreeSet<String>>,
    mut take: impl FnMut(&str, u64, &mut dyn Read) -> Result<(), UnpackError>,
) -> Result<(), UnpackError> {
    let mut beginning = Vec::new();
    archive.take(GZIP.len() as u64).read_to_end(&mut beginning)?;
    let is_gzip = beginning == GZIP;
    let archive = Cursor::new(beginning).chain(archive);
    let reader: Box<dyn Read + '_> =
        if is_gzip { Box::new(MultiGzDecoder::new(archive)) } else { Box::new(archive) };
    let mut missing = members.clone();
    let mut present = Vec::new();
    let read = for_each_file(reader, |path, size, content| {
        let name = plain(path);
        if let Some(files) = files.as_deref_mut().filter(|files| files.len() <= MOST_FILES) {
            files.insert(name.to_owned());
        }
        if let Some(member) = missing.iter().find(|member| plain(member) == name).copied() {
            take(member, size, content)?;
            missing.remove(member);
            if missing.is_empty() && files.is_none() {
                return Ok(ControlFlow::Break(()));
            }
        }
        if present.len() < NAMES_SHOWN {
            present.push(name.to_owned());
        }
        Ok(ControlFlow::Continue(()))
    });
    if let Some(files) = files.filter(|files| read.is_err() || files.len() > MOST_FILES) {
        files.clear();
    }
    match missing.first() {
        Some(_) if read.is_err() => read,
        None => Ok(()),
        Some(member) => Err(UnpackError::Missing((*member).to_owned(), present.join(", "))),
    }
}

/// The SHA-256 of each member of an archive, by name. Empty if the archive's own SHA-256 is not `sha256`.
pub(crate) fn member_digests(
    mut archive: File,
    sha256: &str,
    members: &BTreeSet<&str>,
) -> BTreeMap<String, String> {
    let mut digests = BTreeMap::new();
    let is_right =
        for_each_piece(&mut archive, |_| Ok::<(), io::Error>(())).is_ok_and(|found| found == sha256);
    if is_right && archive.rewind().is_ok() {
        // If the archive lacks a member or ends too early, the digests of the members that were already read are still valid.
        let _ = unpack(&mut BufReader::new(archive), members, None, |member, _, content| {
            let digest = for_each_piece(content, |_| Ok::<(), io::Error>(()))?;
            digests.insert(member.to_owned(), digest);
            Ok(())
        });
    }
    digests
}

/// The name of an archive member without the leading `./` that some archives contain.
fn plain(member: &str) -> &str {
    member.trim_start_matches("./")
}
