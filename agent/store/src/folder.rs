//! A store in a folder of this machine.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::LARGEST_FILE;
use super::error::StoreError;

/// The file at `path`, which is known as `url`.
pub(super) fn read(path: &Path, url: &str) -> Result<Vec<u8>, StoreError> {
    let mut bytes = Vec::new();
    // Not by the length of its metadata: what is read may be a pipe, or grow.
    let read = File::open(path).and_then(|file| file.take(LARGEST_FILE + 1).read_to_end(&mut bytes));
    match read {
        Ok(_) if bytes.len() as u64 > LARGEST_FILE => Err(StoreError::TooLarge { url: url.to_owned() }),
        Ok(_) => Ok(bytes),
        Err(error) => Err(failed(path, url, error)),
    }
}

/// The names in the folder at `path`, which is known as `url`.
pub(super) fn list(path: &Path, url: &str) -> Result<Vec<String>, StoreError> {
    let entries = fs::read_dir(path).and_then(|entries| {
        entries
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect::<io::Result<Vec<_>>>()
    });
    match entries {
        Ok(mut names) => {
            names.sort();
            Ok(names)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(failed(path, url, error)),
    }
}

/// The files in the folder at `path`, which is known as `url`, whose paths from there lie between two.
pub(super) fn versions(
    path: &Path,
    url: &str,
    first: &str,
    last: &str,
) -> Result<BTreeMap<String, String>, StoreError> {
    let mut versions = BTreeMap::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        for name in list(&path.join(&folder), url)? {
            let name = if folder.is_empty() { name } else { format!("{folder}/{name}") };
            // Metadata of what is gone meanwhile, or of a link to nowhere, is none: it is no file.
            let Ok(metadata) = fs::metadata(path.join(&name)) else { continue };
            let may_hold = first.starts_with(&format!("{name}/")) || name.as_str() >= first;
            if metadata.is_dir() && may_hold && name.as_str() <= last {
                folders.push(name);
            } else if metadata.is_file() && (first..=last).contains(&name.as_str()) {
                let version = (metadata.ino(), metadata.len(), metadata.mtime(), metadata.mtime_nsec());
                versions.insert(name, format!("{version:?}"));
            }
        }
    }
    Ok(versions)
}

fn failed(path: &Path, url: &str, error: io::Error) -> StoreError {
    let url = url.to_owned();
    let place = if url.ends_with(&*path.to_string_lossy()) {
        String::new()
    } else {
        format!(" (looked for in {})", path.display())
    };
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => StoreError::NotFound { url, place },
        _ => StoreError::Io { url, place, source: error },
    }
}
