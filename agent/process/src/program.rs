//! The path of this program, even if a package manager has replaced the file since the program was started.
//!
//! After a replacement, the kernel appends ` (deleted)` to the path, and no file has that path (proc(5), `/proc/pid/exe`).

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use kops_agent_spec::digest::sha256_hex_of;

const REPLACED: &[u8] = b" (deleted)";
/// The path where packages install this program. Its folder is in every `PATH`.
const OF_PACKAGES: &str = "/usr/bin/kops-agent";
/// The beginning of a command of this program in a text.
const COMMAND: &str = "`kops-agent ";

/// The environment variable for a new program that runs under a temporary name before it is installed. The value is the path at which the
/// program will be installed. [`path`] then returns this path, so the new program plans the same units as after its installation. The
/// variable has an effect only if the program's file has the temporary name for this path. So the variable cannot mislead an installed
/// program.
pub const PATH_TO_BE: &str = "KOPS_AGENT_PATH_TO_BE";

/// The path from which this program was started. After an upgrade, the file at this path is the new program.
pub fn path() -> io::Result<PathBuf> {
    let own = of_process(&std::env::current_exe()?);
    let to_be = std::env::var_os(PATH_TO_BE).map(PathBuf::from);
    Ok(to_be.filter(|to_be| is_tried_for(&own, to_be)).unwrap_or(own))
}

/// Whether `program` has the temporary name that a file has before it is installed at `to_be` (`temporary_name` of agent/host).
fn is_tried_for(program: &Path, to_be: &Path) -> bool {
    let Some(name) = to_be.file_name().and_then(OsStr::to_str) else { return false };
    to_be.is_absolute() && program == to_be.with_file_name(format!(".{name}.kops-agent"))
}

/// Whether this process runs the file at [`path`]. `false` if an upgrade has replaced the file since the process started.
pub fn is_in_place() -> io::Result<bool> {
    let (file, own) = (fs::metadata(path()?)?, fs::metadata("/proc/self/exe")?);
    Ok((file.dev(), file.ino()) == (own.dev(), own.ino()))
}

/// SHA-256 of the program that this process runs, even if its file has been replaced. The file is read only at the first call.
pub fn sha256() -> io::Result<&'static str> {
    static READ: OnceLock<String> = OnceLock::new();
    if let Some(read) = READ.get() {
        return Ok(read);
    }
    let sha256 = sha256_hex_of(File::open("/proc/self/exe")?)?;
    Ok(READ.get_or_init(|| sha256))
}

/// The path of a program, from the target of `/proc/PID/exe`.
pub fn of_process(exe: &Path) -> PathBuf {
    let bytes = exe.as_os_str().as_bytes();
    PathBuf::from(OsStr::from_bytes(bytes.strip_suffix(REPLACED).unwrap_or(bytes)))
}

/// Replaces this program's name by its full path in commands that a text recommends, because a downloaded program may not be in `PATH`.
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
    fn the_hash_of_this_program_is_the_hash_of_its_file() {
        let bytes = fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(sha256().unwrap(), kops_agent_spec::digest::sha256_hex(&bytes));
    }

    #[test]
    fn the_variable_counts_only_for_a_program_with_the_temporary_name() {
        for (program, to_be, expected) in [
            ("/opt/kops/bin/.nodeup.kops-agent", "/opt/kops/bin/nodeup", true),
            ("/opt/kops/bin/nodeup", "/opt/kops/bin/nodeup", false),
            ("/usr/bin/kops-agent", "/opt/kops/bin/nodeup", false),
            ("/tmp/.nodeup.kops-agent", "/opt/kops/bin/nodeup", false),
            (".nodeup.kops-agent", "nodeup", false),
            ("/.kops-agent", "/", false),
        ] {
            assert_eq!(is_tried_for(Path::new(program), Path::new(to_be)), expected, "{program} {to_be}");
        }
        assert!(is_in_place().unwrap());
    }

    #[test]
    fn the_path_of_a_replaced_program_is_the_path_of_its_successor() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        fs::copy("/bin/cat", &program).unwrap();
        // Like dpkg, the test writes a new file beside the old one and renames it.
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
