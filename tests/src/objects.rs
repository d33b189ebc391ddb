//! The objects of a bucket, as stores list them. The bucket is a folder.

use std::fs;
use std::path::Path;

/// An entry of a bucket's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// The name of an object.
    Object(String),
    /// The common prefix of several objects' names, which ends with the delimiter.
    Folder(String),
}

impl Entry {
    pub(crate) fn name(&self) -> &str {
        match self {
            Entry::Object(name) | Entry::Folder(name) => name,
        }
    }
}

/// The names of all objects in a bucket, sorted.
pub(crate) fn names(bucket: &Path) -> Vec<String> {
    let mut names = Vec::new();
    collect(bucket, bucket, &mut names);
    names.sort();
    names
}

fn collect(bucket: &Path, folder: &Path, names: &mut Vec<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(bucket, &path, names);
        } else if let Ok(name) = path.strip_prefix(bucket) {
            names.push(name.display().to_string());
        }
    }
}

/// Lists the names that begin with `prefix`. If `delimiter` is not empty, each name that contains the delimiter after the
/// prefix is listed as a folder, which ends with the delimiter.
pub(crate) fn entries(names: &[String], prefix: &str, delimiter: &str) -> Vec<Entry> {
    let entry = |name: &String| {
        let rest = name.strip_prefix(prefix)?;
        Some(match rest.find(delimiter).filter(|_| !delimiter.is_empty()) {
            Some(at) => Entry::Folder(format!("{prefix}{}{delimiter}", &rest[..at])),
            None => Entry::Object(name.clone()),
        })
    };
    let mut entries: Vec<Entry> = names.iter().filter_map(entry).collect();
    entries.dedup();
    entries
}
