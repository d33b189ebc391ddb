//! Every file of every store of the conformance corpus can be read, and a nodeupconfig.yaml loses
//! nothing on its way through our types. The corpus is no part of the repository: without it these
//! tests say so and pass.

// Reading the corpus is the point of these tests; the crate under test still touches no file.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::print_stderr)]

use std::fs;
use std::path::{Path, PathBuf};

use kops_agent_plan::spec::{BootConfig, NodeupConfig};
use serde_json::Value;

/// The corpus, beside this checkout or a folder above it.
fn corpus() -> Option<PathBuf> {
    let found = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .map(|folder| folder.join("shared/conformance"))
        .find(|folder| folder.join("stores").is_dir());
    if found.is_none() {
        eprintln!("skipped: no conformance corpus");
    }
    found
}

fn files_below(folder: &Path, wanted: &dyn Fn(&Path) -> bool) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(files_below(&path, wanted));
        } else if wanted(&path) {
            files.push(path);
        }
    }
    files.sort();
    files
}

fn named<'a>(name: &'a str) -> impl Fn(&Path) -> bool + 'a {
    move |path| path.file_name().is_some_and(|file| file == name)
}

/// Applies `check` to every such file and fails with all that went wrong.
fn for_all(files: &[PathBuf], check: impl Fn(&[u8], &str) -> Result<(), String>) {
    assert!(!files.is_empty(), "the corpus has no such file");
    let problems: Vec<String> = files
        .iter()
        .filter_map(|path| check(&fs::read(path).unwrap(), &path.display().to_string()).err())
        .collect();
    assert!(problems.is_empty(), "{} of {} files:\n{}", problems.len(), files.len(), problems.join("\n"));
}

fn yaml(text: &[u8]) -> Value {
    serde_yaml::from_slice(text).unwrap()
}

#[test]
fn every_nodeup_config_is_written_back_as_it_was() {
    let Some(corpus) = corpus() else { return };
    for_all(&files_below(&corpus.join("stores"), &named("nodeupconfig.yaml")), |text, url| {
        let config = NodeupConfig::parse(text, url).map_err(|error| error.to_string())?;
        let written = serde_json::to_value(&config).unwrap();
        if written == yaml(text) { Ok(()) } else { Err(format!("{url} changed")) }
    });
}

#[test]
fn every_boot_config_is_written_back_as_it_was() {
    let Some(corpus) = corpus() else { return };
    for_all(&files_below(&corpus.join("cases"), &named("kube_env.yaml")), |text, url| {
        let config = BootConfig::parse(text, url).map_err(|error| error.to_string())?;
        let written = serde_json::to_value(&config).unwrap();
        if written == yaml(text) { Ok(()) } else { Err(format!("{url} changed")) }
    });
}
