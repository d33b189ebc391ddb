//! Boots Debian test machines in a closed network, and builds the programs and images that they download.

#![allow(clippy::unwrap_used)]

pub mod assets;
pub mod bootstrap;
pub mod client;
pub mod containers;
pub mod instance;
pub mod machine;
pub mod network;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::Instant;

/// The path of a script in `tests/`.
pub fn path_of(script: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join(script)
}

/// Runs a script in `tests/` and returns its output. Panics if the script fails.
#[track_caller]
pub fn script(path: &str, arguments: &[&str]) -> String {
    let output = Command::new(path_of(path)).args(arguments).stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "tests/{path} {arguments:?}: {}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// Prints the next step, the test's name and the elapsed time. With `--nocapture`, this output shows the slow steps of
/// a run.
#[allow(clippy::print_stderr)]
pub fn step(what: &str) {
    static START: OnceLock<Instant> = OnceLock::new();
    let since = START.get_or_init(Instant::now).elapsed().as_secs_f32();
    eprintln!("{since:7.1} s  {}: {what}", thread::current().name().unwrap_or_default());
}

/// The median of the values. If their number is even, the median is the mean of the two middle values.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { f64::midpoint(values[middle - 1], values[middle]) }
}
