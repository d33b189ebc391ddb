//! What is downloaded: fetched at once and in parts, verified before anything is placed, never held
//! in memory.

mod archive;
mod cache;
mod download;
mod progress;

pub(crate) use archive::unpack;
pub(crate) use cache::Cache;
pub(crate) use download::Request;
pub use download::{DownloadError, Downloads};
pub use progress::{Progress, Silent};

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
