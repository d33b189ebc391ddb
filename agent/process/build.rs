//! Puts the commit into `--version` of a release build. In a test build, the commit would cause a rebuild after each
//! commit.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let commit = match env::var("PROFILE").as_deref() {
        Ok("release") => commit().unwrap_or_else(|| "unknown commit".to_owned()),
        _ => "development".to_owned(),
    };
    println!("cargo::rustc-env=KOPS_AGENT_COMMIT={commit}");
}

/// The commit that is checked out. Cargo runs this script again when HEAD or the log of HEAD changes. In a worktree both files are outside
/// `.git`, so the script asks git for their paths.
fn commit() -> Option<String> {
    for changed in ["HEAD", "logs/HEAD"] {
        println!("cargo::rerun-if-changed={}", git(&["rev-parse", "--git-path", changed])?);
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let said = output.status.success().then_some(output.stdout)?;
    Some(String::from_utf8(said).ok()?.trim().to_owned())
}
