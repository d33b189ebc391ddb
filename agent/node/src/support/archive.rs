//! A bundle as one file: a tar archive, compressed with Zstandard, that only root can read.

use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use tar::{Builder, EntryType, Header};
use tempfile::NamedTempFile;
use time::OffsetDateTime;

use super::part::Part;

/// The mode of each file in the archive.
const MODE: u32 = 0o600;

/// Packs an archive whose files are all in `folder`.
pub fn pack(folder: &str, now: OffsetDateTime, manifest: &str, parts: &[Part]) -> Result<Vec<u8>> {
    let mut tar = Builder::new(Vec::new());
    let mut add = |name: &str, bytes: &[u8]| {
        let mut header = Header::new_ustar();
        header.set_entry_type(EntryType::Regular);
        header.set_size(bytes.len() as u64);
        header.set_mode(MODE);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(u64::try_from(now.unix_timestamp()).unwrap_or_default());
        tar.append_data(&mut header, format!("{folder}/{name}"), bytes)
    };
    add("MANIFEST", manifest.as_bytes())?;
    for part in parts {
        if let Some(bytes) = part.bytes() {
            add(&part.name, &bytes)?;
        }
    }
    Ok(compress_to_vec(tar.into_inner()?.as_slice(), CompressionLevel::Fastest))
}

/// The folder of a path; `.` for a bare file name.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Writes a new file atomically, through a temporary file in the same folder. Fails if the file exists already.
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let failed = || {
        let folder = folder_of(path).display();
        format!(
            "writing the bundle {} ({} bytes); if {folder} has no space, name a file elsewhere with --out",
            path.display(),
            bytes.len()
        )
    };
    // A temporary file has mode 0600 from the beginning.
    let mut file = NamedTempFile::new_in(folder_of(path)).with_context(failed)?;
    file.write_all(bytes).and_then(|()| file.as_file().sync_all()).with_context(failed)?;
    file.persist_noclobber(path).map_err(|error| error.error).with_context(failed)?;
    Ok(())
}
