//! A store in a folder of this machine.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::future::ready;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use kops_agent_net::Location;
use reqwest::Url;

use super::backend::{Backend, BackendFuture, LARGEST_FILE, Misspelt, Opening, Place, Setup, Split};
use super::error::StoreError;

/// A backend for all folders of this machine. The key of a place is a path.
#[derive(Debug)]
pub(crate) struct Folder;

pub(crate) fn open(_: Setup) -> Opening {
    Box::pin(ready(Ok(Box::new(Folder) as Box<dyn Backend>)))
}

/// Splits an absolute path, which has no bucket.
pub(crate) fn split(rest: &str) -> Result<Split<'_>, Misspelt> {
    match rest.starts_with('/') {
        true => Ok(Split { bucket: "", key: rest }),
        false => Err(Misspelt { problem: "a path must be absolute", example: "/srv/state" }),
    }
}

pub(crate) fn rights(_: &str, _: &str) -> String {
    READ_ACCESS.to_owned()
}

/// The permission to read a file of this machine, as errors name it.
pub(crate) const READ_ACCESS: &str = "read access";

impl Backend for Folder {
    fn read<'a>(&'a self, file: &'a Place) -> BackendFuture<'a, Vec<u8>> {
        Box::pin(async { read(Path::new(&file.key), &file.url) })
    }

    fn list<'a>(&'a self, folder: &'a Place) -> BackendFuture<'a, Vec<String>> {
        Box::pin(async { list(Path::new(&folder.key), &folder.url) })
    }

    fn versions<'a>(
        &'a self,
        folder: &'a Place,
        first: &'a str,
        last: &'a str,
    ) -> BackendFuture<'a, BTreeMap<String, String>> {
        Box::pin(async move { versions(Path::new(&folder.key), &folder.url, first, last) })
    }

    fn locate<'a>(&'a self, file: &'a Place) -> BackendFuture<'a, Location> {
        let located = std::path::absolute(&file.key).ok().and_then(|path| Url::from_file_path(path).ok());
        let location = located.map(Location::new).ok_or_else(|| StoreError::BadUrl {
            url: file.url.clone(),
            problem: "it is not the path of a file".into(),
        });
        Box::pin(ready(location))
    }
}

/// Reads the file at `path`. Errors contain `url`.
fn read(path: &Path, url: &str) -> Result<Vec<u8>, StoreError> {
    let mut bytes = Vec::new();
    // The limit applies to the bytes that are read. The size in the metadata may be wrong, because the path may be a pipe, or the file may
    // grow.
    let read = File::open(path).and_then(|file| file.take(LARGEST_FILE + 1).read_to_end(&mut bytes));
    match read {
        Ok(_) if bytes.len() as u64 > LARGEST_FILE => Err(StoreError::TooLarge { url: url.to_owned() }),
        Ok(_) => Ok(bytes),
        Err(error) => Err(failed(path, url, error)),
    }
}

/// The names in the folder at `path`. Errors contain `url`.
fn list(path: &Path, url: &str) -> Result<Vec<String>, StoreError> {
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

/// The files in the folder at `path` whose relative paths lie between `first` and `last`. Errors contain `url`.
fn versions(path: &Path, url: &str, first: &str, last: &str) -> Result<BTreeMap<String, String>, StoreError> {
    let mut versions = BTreeMap::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        for name in list(&path.join(&folder), url)? {
            let name = if folder.is_empty() { name } else { format!("{folder}/{name}") };
            // Skips dangling links, and files that were deleted after the folder was listed, because they have no metadata.
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
