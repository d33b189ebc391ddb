//! Members of tar archives, taken out as a stream.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use sha2::{Digest, Sha256};

use super::download::DownloadError;
use super::{BUFFER, hex};
use crate::error::Result;

/// How many names an error lists.
const NAMES_SHOWN: usize = 12;
/// How a gzip stream begins (RFC 1952).
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Hands each of `members` to `take`, in the order in which they are in the archive, and returns once
/// the whole archive is known to have the right hash. What was taken must not be used before.
///
/// # Errors
/// A member is missing, `take` fails, or the archive is not what it should be.
pub(crate) fn unpack(
    archive: File,
    url: &str,
    sha256: &str,
    members: &BTreeSet<String>,
    mut take: impl FnMut(&str, &mut dyn Read) -> Result<()>,
) -> Result<()> {
    let bad = |reason: String| DownloadError::BadArchive { url: url.into(), reason };
    let mut hashed = BufReader::with_capacity(BUFFER, Hashed { inner: archive, hasher: Sha256::new() });
    let is_gzip = peek(&mut hashed).map_err(|error| bad(error.to_string()))? == GZIP;
    let mut missing = members.clone();
    let mut present = Vec::new();
    {
        let reader: Box<dyn Read + '_> =
            if is_gzip { Box::new(MultiGzDecoder::new(&mut hashed)) } else { Box::new(&mut hashed) };
        let mut tar = tar::Archive::new(reader);
        for entry in tar.entries().map_err(|error| bad(error.to_string()))? {
            let mut entry = entry.map_err(|error| bad(error.to_string()))?;
            let path = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            let name = path.trim_start_matches("./");
            if entry.header().entry_type().is_file() {
                if let Some(member) =
                    missing.iter().find(|member| member.trim_start_matches("./") == name).cloned()
                {
                    take(&member, &mut entry)?;
                    missing.remove(&member);
                }
                if present.len() < NAMES_SHOWN {
                    present.push(name.to_owned());
                }
            }
            if missing.is_empty() {
                break;
            }
        }
    }
    // The rest of the archive counts for the hash.
    io::copy(&mut hashed, &mut io::sink()).map_err(|error| bad(error.to_string()))?;
    let found = hex(hashed.into_inner().hasher.finalize());
    if found != sha256 {
        return Err(
            bad(format!("it has changed in the cache: expected SHA-256 {sha256}, got {found}")).into()
        );
    }
    match missing.into_iter().next() {
        None => Ok(()),
        Some(member) => {
            Err(DownloadError::NoMember { url: url.into(), member, present: present.join(", ") }.into())
        }
    }
}

fn peek(reader: &mut BufReader<Hashed>) -> io::Result<[u8; 2]> {
    use std::io::BufRead as _;
    Ok(reader.fill_buf()?.first_chunk().copied().unwrap_or_default())
}

/// Bytes that are hashed as they are read.
struct Hashed {
    inner: File,
    hasher: Sha256,
}

impl Read for Hashed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let size = self.inner.read(buffer)?;
        self.hasher.update(&buffer[..size]);
        Ok(size)
    }
}
