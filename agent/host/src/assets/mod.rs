//! What is downloaded: several at once, each in one pass from the network into its hash, the cache and the files
//! that are made of it; verified before anything is placed, and never held in memory.
//!
//! [`Downloads`] says how; [`prepare`](crate::prepare) says what. Of one download, in the order of its bytes:
//! `fetching` chooses the mirror and goes on where another broke off, `attempt` asks and reads one answer, `intake`
//! hashes and unpacks it on a thread of its own, `staging` holds what is made until it is verified.

mod attempt;
mod cache;
mod document;
mod download;
mod error;
mod fetching;
mod intake;
mod progress;
mod rate;
mod servers;
mod space;
mod staging;
mod syncer;
mod trim;
mod unpack;

pub(crate) use cache::Cache;
pub(crate) use download::Request;
pub use download::{Downloads, Patience};
pub use error::{DownloadError, MirrorFailure};
pub use progress::{Progress, Silent};
pub(crate) use staging::{Ready, Want};
pub(crate) use unpack::member_digests;

use std::fmt::Write as _;
use std::io::{self, Read};

use sha2::{Digest, Sha256};

/// How much is read at a time.
const BUFFER: usize = 64 * 1024;

/// Lower-case hexadecimal.
pub(crate) fn hex(digest: impl AsRef<[u8]>) -> String {
    digest.as_ref().iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// Reads all of `reader` in pieces, and returns their SHA-256.
pub(crate) fn for_each_piece<E: From<io::Error>>(
    reader: &mut dyn Read,
    mut piece: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<String, E> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; BUFFER];
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => return Ok(hex(hasher.finalize())),
            Ok(size) => {
                hasher.update(&buffer[..size]);
                piece(&buffer[..size])?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
}
