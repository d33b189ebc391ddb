//! Go's own YAML parser (`tests/go-yaml`), built once for each test binary.

// This module must start Go's parser. The lint is for the crate under test, which must not start programs.
#![allow(unreachable_pub, clippy::disallowed_methods, clippy::disallowed_types, clippy::print_stderr)]

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::Value;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/go-yaml");
const PROGRAM: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/go-yaml");

/// Reads each document with Go. Returns the value, or the reason why Go cannot read the document. If Go is not installed, prints a message
/// and returns `None`.
pub fn read(documents: &[String]) -> Option<Vec<Result<Value, String>>> {
    if let Err(error) = Command::new("go").arg("version").output() {
        eprintln!("skipped: reading our YAML with Go, because go cannot be started: {error}");
        return None;
    }
    // Go caches its build, so a second build is fast.
    let built = Command::new("go").args(["build", "-o", PROGRAM, "."]).current_dir(SOURCE).status().unwrap();
    assert!(built.success(), "{SOURCE} cannot be built");
    let mut reader = Command::new(PROGRAM).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = reader.stdin.take().unwrap();
    let lines: String = documents.iter().map(|text| format!("{}\n", Value::from(text.as_str()))).collect();
    let writer = std::thread::spawn(move || stdin.write_all(lines.as_bytes()));
    let output = reader.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success());
    let answers: Vec<_> = String::from_utf8(output.stdout).unwrap().lines().map(answer).collect();
    assert_eq!(answers.len(), documents.len());
    Some(answers)
}

fn answer(line: &str) -> Result<Value, String> {
    let mut answer: Value = serde_json::from_str(line).unwrap();
    match answer["error"].take() {
        Value::String(error) => Err(error),
        _ => Ok(answer["value"].take()),
    }
}
