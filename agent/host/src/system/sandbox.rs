//! This process's view of the file systems, if the sandbox of its unit gives it a mount namespace (systemd.exec(5),
//! "Sandboxing"). In the sandbox, mounts have other options, and some folders are hidden or read-only although they
//! are not on the machine. PID 1 has the machine's view.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use nix::sys::statvfs::{FsFlags, statvfs};

/// The root of PID 1, with PID 1's mounts (proc_pid_root(5)).
const MACHINE: &str = "/proc/1/root";

/// Whether this process runs in the sandbox of a unit. Then it has another mount namespace than PID 1, but the same
/// root. In a container or a `chroot`, the result is false, and the root is treated as the machine's root.
pub(super) fn has_other_mounts() -> bool {
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/mnt"));
    let are_other = |namespaces: [io::Result<PathBuf>; 3]| match namespaces {
        // A thread with its own mount namespace is not in a sandbox: the agent unshared the namespace on purpose.
        [Ok(thread), Ok(process), Ok(machine)] => thread == process && process != machine,
        _ => false,
    };
    are_other(["thread-self", "self", "1"].map(namespace)) && is_same("/", &format!("{MACHINE}/"))
}

fn is_same(one: &str, other: &str) -> bool {
    let identity = |path: &str| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    identity(one).is_some_and(|one| Some(one) == identity(other))
}

/// The path at which this process sees the machine's own file or folder, outside the sandbox.
pub(crate) fn on_machine(path: &str) -> PathBuf {
    if has_other_mounts() { below_machine(path) } else { PathBuf::from(path) }
}

fn below_machine(path: &str) -> PathBuf {
    Path::new(MACHINE).join(path.trim_start_matches('/'))
}

/// Whether this process cannot write `path` because of its sandbox, although the machine's mount is writable.
pub fn is_read_only_here(path: &str) -> bool {
    let is_read_only =
        |path: &Path| statvfs(path).ok().map(|found| found.flags().contains(FsFlags::ST_RDONLY));
    is_read_only(Path::new(path)) == Some(true)
        && has_other_mounts()
        && is_read_only(&below_machine(path)) == Some(false)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::process::Command;

    use super::*;

    /// The test starts its own program again, in a sandbox. Only this second process has this variable.
    const SANDBOXED: &str = "KOPS_AGENT_TEST_SANDBOXED";

    #[test]
    fn a_process_in_a_sandbox_knows_how_the_machine_is() {
        if std::env::var_os(SANDBOXED).is_some() {
            assert!(has_other_mounts());
            assert_eq!(on_machine("/proc/sys"), Path::new("/proc/1/root/proc/sys"));
            assert_eq!(["/usr", "/var"].map(is_read_only_here), [true, false]);
            // A thread with its own mount namespace must see its own mounts.
            let unshared = || {
                nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).unwrap();
                (has_other_mounts(), is_read_only_here("/usr"))
            };
            assert_eq!(std::thread::spawn(unshared).join().unwrap(), (false, false));
            return;
        }
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        assert_eq!(["/usr", "/var"].map(is_read_only_here), [false, false]);
        // The first shell is PID 1. The second shell mounts `/usr` read-only, as `ProtectSystem=` does.
        let machine = "unshare --mount -- sh -euc \"$0\" sh \"$@\"; true";
        let sandbox = "mount --bind /usr /usr; mount -o remount,bind,ro /usr; exec \"$@\"";
        let name = "system::sandbox::tests::a_process_in_a_sandbox_knows_how_the_machine_is";
        let mut again = Command::new("unshare");
        again.args(["--pid", "--fork", "--mount-proc", "--", "sh", "-euc", machine, sandbox]);
        again.arg(std::env::current_exe().unwrap());
        let ended = again.args(["--exact", name]).env(SANDBOXED, "yes").output().unwrap();
        let said = String::from_utf8_lossy(&ended.stdout).into_owned();
        assert!(ended.status.success() && said.contains("1 passed"), "{ended:?}");
    }
}
