//! The path of this program, even if a package manager has replaced the file since the program was started.
//!
//! After a replacement, the kernel appends ` (deleted)` to the path, and no file has that path (proc(5), `/proc/pid/exe`).

use std::borrow::Cow;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

const REPLACED: &[u8] = b" (deleted)";
/// Where packages install this program. The folder is in every `PATH`.
const OF_PACKAGES: &str = "/usr/bin/kops-agent";
/// The beginning of a command of this program in a message.
const COMMAND: &str = "`kops-agent ";

/// The path that this program was started from. After an upgrade, the file there is the new program.
///
/// # Errors
/// If the kernel does not report the path.
pub fn path() -> io::Result<PathBuf> {
    std::env::current_exe().map(|path| of_process(&path))
}

/// The path of a program, from the target of `/proc/PID/exe`.
pub fn of_process(exe: &Path) -> PathBuf {
    let bytes = exe.as_os_str().as_bytes();
    PathBuf::from(OsStr::from_bytes(bytes.strip_suffix(REPLACED).unwrap_or(bytes)))
}

/// Puts the path of this program into the commands that a text advises. A program that a boot script has downloaded may not be in
/// `PATH`.
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
    fn advised_commands_get_the_path_of_this_program() {
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
    fn the_path_of_a_replaced_program_is_the_path_of_its_successor() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        fs::copy("/bin/cat", &program).unwrap();
        // dpkg replaces a file like this: it writes a new file beside the old one, and renames it.
        fs::copy("/bin/cat", folder.path().join("new")).unwrap();
        let mut running = Command::new(&program).stdin(Stdio::piped()).spawn().unwrap();
        fs::rename(folder.path().join("new"), &program).unwrap();
        let exe = fs::read_link(format!("/proc/{}/exe", running.id())).unwrap();
        drop(running.stdin.take());
        running.wait().unwrap();
        assert_ne!(exe, program, "the kernel marks the replaced file");
        assert_eq!(of_process(&exe), program);
        assert_eq!(of_process(&program), program);
    }
}
