//! Where this program is, though a package manager has put another in its place since it was started.
//!
//! The kernel then names it with ` (deleted)` behind its path, which is no path of anything (proc(5), `/proc/pid/exe`).

use std::borrow::Cow;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

const REPLACED: &[u8] = b" (deleted)";
/// Where packages install this program, which is in every `PATH`.
const OF_PACKAGES: &str = "/usr/bin/kops-agent";
/// How a message begins a command of this program.
const COMMAND: &str = "`kops-agent ";

/// The path that this program was started from: what is there now is the program that follows it.
///
/// # Errors
/// If the kernel does not tell.
pub fn path() -> io::Result<PathBuf> {
    std::env::current_exe().map(|path| of_process(&path))
}

/// The path of a program by what `/proc/PID/exe` says.
pub fn of_process(exe: &Path) -> PathBuf {
    let bytes = exe.as_os_str().as_bytes();
    PathBuf::from(OsStr::from_bytes(bytes.strip_suffix(REPLACED).unwrap_or(bytes)))
}

/// The text, with the path of this program in the commands that it advises: a program that a boot script has downloaded need not be
/// in `PATH`.
pub fn with_path_in_commands(text: &str) -> Cow<'_, str> {
    if !text.contains(COMMAND) {
        return Cow::Borrowed(text);
    }
    match path() {
        Ok(path) => with_this_path(text, &path),
        Err(_) => Cow::Borrowed(text),
    }
}

fn with_this_path<'a>(text: &'a str, path: &Path) -> Cow<'a, str> {
    match path.to_str() {
        Some(path) if path != OF_PACKAGES && !path.contains([' ', '`']) => {
            Cow::Owned(text.replace(COMMAND, &format!("`{path} ")))
        }
        _ => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn commands_that_are_advised_work_where_the_program_is_in_no_path() {
        let text = "run `kops-agent verify`, or ask kops-agent's authors";
        let shown = |path: &str| with_this_path(text, Path::new(path)).into_owned();
        assert_eq!(
            shown("/opt/kops/bin/nodeup"),
            "run `/opt/kops/bin/nodeup verify`, or ask kops-agent's authors"
        );
        assert_eq!(shown("/usr/bin/kops-agent"), text);
        assert_eq!(shown("/my programs/kops-agent"), text);
    }

    #[test]
    fn a_program_that_was_replaced_while_it_runs_is_where_its_successor_is() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        fs::copy("/bin/cat", &program).unwrap();
        // As dpkg does it: written beside, and renamed.
        fs::copy("/bin/cat", folder.path().join("new")).unwrap();
        let mut running = Command::new(&program).stdin(Stdio::piped()).spawn().unwrap();
        fs::rename(folder.path().join("new"), &program).unwrap();
        let exe = fs::read_link(format!("/proc/{}/exe", running.id())).unwrap();
        drop(running.stdin.take());
        running.wait().unwrap();
        assert_ne!(exe, program, "the kernel says that it was replaced");
        assert_eq!(of_process(&exe), program);
        assert_eq!(of_process(&program), program);
    }
}
