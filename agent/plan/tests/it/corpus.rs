//! The conformance corpus, which is no part of the repository.

// Reading the corpus is the point of these tests, and a skipped one says so.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::print_stderr)]

use std::fs;
use std::path::{Path, PathBuf};

/// The corpus: where KOPS_AGENT_CONFORMANCE says, or `shared/conformance` beside a folder above us.
pub(crate) fn corpus() -> Option<PathBuf> {
    let given = std::env::var_os("KOPS_AGENT_CONFORMANCE").map(PathBuf::from);
    let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let beside = above.map(|folder| folder.join("shared/conformance"));
    let found = given.into_iter().chain(beside).find(|folder| folder.join("stores").is_dir());
    if found.is_none() {
        eprintln!("skipped: no conformance corpus; name its folder in KOPS_AGENT_CONFORMANCE");
    }
    found
}

/// The corpus and those of kOps' releases, beside it.
pub(crate) fn corpora() -> Vec<PathBuf> {
    let Some(corpus) = corpus() else { return Vec::new() };
    let of_releases = entries(&corpus.with_file_name("conformance-releases"));
    std::iter::once(corpus)
        .chain(of_releases.into_iter().filter(|folder| folder.join("stores").is_dir()))
        .collect()
}

/// What is in a folder, in the order of names; nothing where it is not there.
pub(crate) fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}
