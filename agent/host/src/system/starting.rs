//! Checks whether a program starts on this machine, by running it. If a program was built for a newer C library or for
//! another machine, the dynamic loader or the kernel refuses it.

use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::time::Duration;

use kops_agent_spec::terminal::one_line;
use nix::libc::SIGILL;

use super::commands::{Outcome, prepare};
use super::deadline::ask_prepared;

/// Timeout of the command that prints a program's version. On a timeout, the program counts as started.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum length of a quoted loader message, in characters.
const LONGEST_TOLD: usize = 300;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotStarting {
    pub why: String,
    /// Whether installing a package may help. A package may provide a missing library, but neither a newer C library
    /// nor another processor.
    pub is_of_library: bool,
}

impl NotStarting {
    fn for_good(why: impl Into<String>) -> NotStarting {
        NotStarting { why: why.into(), is_of_library: false }
    }

    fn without_library(why: String) -> NotStarting {
        NotStarting { why, is_of_library: true }
    }
}

/// Why a program does not start. `None` if it starts; a program that exits with an error has started. Also `None` if
/// the reason is unknown: for example, the file system or a security policy may forbid programs in its folder.
pub(super) fn why_it_does_not_start(program: &Path, flag: &str) -> Option<NotStarting> {
    let path = program.to_str()?;
    let command = [path, flag];
    let mut prepared = prepare(&command).ok()?;
    prepared.env_clear().env("LC_ALL", "C");
    match ask_prepared(&command, prepared, b"", TIMEOUT) {
        Ok(Some(outcome)) => of_outcome(&outcome),
        // The program exists, so the missing file is the program's loader.
        Ok(None) if program.exists() => Some(NotStarting::for_good(
            "it names a dynamic loader that this machine does not have; it was probably built for another C library",
        )),
        Err(error) if error.to_string().contains("Exec format error") => Some(NotStarting::for_good(
            "the kernel cannot run it: it was built for another processor architecture, or is no program",
        )),
        Ok(None) | Err(_) => None,
    }
}

fn of_outcome(outcome: &Outcome) -> Option<NotStarting> {
    if outcome.status.signal() == Some(SIGILL) {
        return Some(NotStarting::for_good(
            "it uses an instruction that this machine's processor does not have",
        ));
    }
    if outcome.status.success() { None } else { of_loader(&outcome.stderr) }
}

/// Why a program does not start, from an error message of glibc's dynamic loader (elf/dl-version.c, elf/dl-load.c,
/// elf/dl-lookup.c).
fn of_loader(said: &str) -> Option<NotStarting> {
    let versions: BTreeSet<&str> = said.lines().filter_map(missing_version).collect();
    if !versions.is_empty() {
        let versions: Vec<&str> = versions.into_iter().collect();
        return Some(NotStarting::for_good(format!(
            "it needs {} of the C library, and this machine's C library is older",
            versions.join(", ")
        )));
    }
    let line = said.lines().find_map(|line| {
        let (_, told) = line.split_once("error while loading shared libraries: ")?;
        Some(told)
    });
    if let Some(told) = line {
        let library = told.split(':').next().unwrap_or_default();
        return Some(NotStarting::without_library(match told.contains("No such file or directory") {
            true => format!(
                "it needs the library {}, which this machine does not have",
                one_line(library, LONGEST_TOLD)
            ),
            false => one_line(told, LONGEST_TOLD),
        }));
    }
    let (_, symbol) = said.lines().find_map(|line| line.split_once("symbol lookup error: "))?;
    let symbol = one_line(symbol, LONGEST_TOLD);
    Some(NotStarting::without_library(format!("a library of this machine is incompatible with it: {symbol}")))
}

/// Extracts `GLIBC_2.34` from ``…/libc.so.6: version `GLIBC_2.34' not found (required by …)``.
fn missing_version(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once(": version `")?;
    let (version, rest) = rest.split_once('\'')?;
    rest.starts_with(" not found").then_some(version)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::PathBuf;
    use std::process::Command;

    use super::*;

    /// Writes a program into its own folder. Uses `cp`, because a child that another test forks could inherit a file
    /// that this process has open for writing. The kernel does not run a program file that is open for writing.
    fn program(bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let (data, path) = (folder.path().join("data"), folder.path().join("program"));
        fs::write(&data, bytes).unwrap();
        fs::set_permissions(&data, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(Command::new("cp").arg("-p").arg(&data).arg(&path).status().unwrap().success());
        (folder, path)
    }

    /// A copy of this machine's `/bin/true`, in which `new` replaces each `old`. `/bin/true` is linked dynamically.
    fn altered(old: &str, new: &str) -> (tempfile::TempDir, PathBuf) {
        assert_eq!(old.len(), new.len());
        let mut bytes = fs::read("/bin/true").unwrap();
        let found: Vec<usize> = bytes
            .windows(old.len())
            .enumerate()
            .filter(|(_, at)| *at == old.as_bytes())
            .map(|(at, _)| at)
            .collect();
        assert!(!found.is_empty(), "/bin/true has no {old}");
        found.iter().for_each(|at| bytes[*at..*at + old.len()].copy_from_slice(new.as_bytes()));
        program(&bytes)
    }

    fn refusal(of: &(tempfile::TempDir, PathBuf)) -> Option<NotStarting> {
        why_it_does_not_start(&of.1, "--version")
    }

    #[test]
    fn a_program_that_the_loader_or_the_kernel_refuses_is_reported() {
        let needs = |of| refusal(&of).unwrap();
        let library = needs(altered("libc.so.6\0", "libq.so.6\0"));
        let why = "it needs the library libq.so.6, which this machine does not have".to_owned();
        assert_eq!(library, NotStarting::without_library(why));
        for (program, why) in [
            (altered("/ld-linux", "/ld-lunix"), "it names a dynamic loader that this machine"),
            (program(b"\x7fELF\x02\x01\x01 of another machine"), "the kernel cannot run it"),
        ] {
            let needed = needs(program);
            assert!(needed.why.starts_with(why) && !needed.is_of_library, "{needed:?}");
        }
    }

    #[test]
    fn a_newer_c_library_is_named_by_its_versions() {
        let said = "./containerd: /lib64/libc.so.6: version `GLIBC_2.32' not found (required by ./containerd)\n\
                    ./containerd: /lib64/libc.so.6: version `GLIBC_2.34' not found (required by ./containerd)\n";
        let why = "it needs GLIBC_2.32, GLIBC_2.34 of the C library, and this machine's C library is older";
        assert_eq!(of_loader(said).unwrap(), NotStarting::for_good(why));
        let said = "runc: symbol lookup error: runc: undefined symbol: seccomp_notify_respond\n";
        assert!(of_loader(said).unwrap().why.contains("undefined symbol: seccomp_notify_respond"));
    }

    #[test]
    fn a_program_that_starts_is_not_refused_however_it_ends() {
        for script in ["#!/bin/sh\nexit 0\n", "#!/bin/sh\necho 'unknown flag --version' >&2\nexit 2\n"] {
            assert_eq!(refusal(&program(script.as_bytes())), None, "{script}");
        }
        assert_eq!(why_it_does_not_start(Path::new("/bin/true"), "--version"), None);
    }
}
