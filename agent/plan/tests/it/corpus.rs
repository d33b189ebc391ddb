//! The conformance corpus, which is not in the repository.

// These tests must read the corpus. A skipped test prints a message.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::print_stderr)]

use std::fs;
use std::path::{Path, PathBuf};

/// The folder of the corpus: `KOPS_AGENT_CONFORMANCE`, or `shared/conformance` in a folder above this crate.
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

/// All corpus folders, one for each kOps release: the folder that `corpus` returns, and the folders with stores in `conformance-releases`
/// beside it.
pub(crate) fn corpora() -> Vec<PathBuf> {
    let Some(corpus) = corpus() else { return Vec::new() };
    let of_releases = entries(&corpus.with_file_name("conformance-releases"));
    std::iter::once(corpus)
        .chain(of_releases.into_iter().filter(|folder| folder.join("stores").is_dir()))
        .collect()
}

/// The entries of a folder, sorted by name. Empty if the folder does not exist.
pub(crate) fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}
