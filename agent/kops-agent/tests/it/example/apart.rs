//! A network or mounts of a test's own.

// A skipped test prints why it is skipped.
#![allow(clippy::print_stderr)]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

/// Runs `act` in its own mount and network namespaces, with a loopback interface and `resolv_conf` as
/// `/etc/resolv.conf`.
pub fn apart(resolv_conf: &str, act: impl FnOnce() + Send) {
    let is_allowed =
        Command::new("unshare").args(["--mount", "--net", "ip", "link", "set", "lo", "up"]).output();
    if !is_allowed.is_ok_and(|outcome| outcome.status.success()) {
        eprintln!("skipped: it needs a network of its own, which only root may have, and `ip` of iproute2");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("resolv.conf");
    fs::write(&file, resolv_conf).unwrap();
    thread::scope(|scope| {
        // A namespace belongs to a thread, and to all threads and processes that this thread starts.
        let done = scope.spawn(|| {
            unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET).unwrap();
            let nothing = None::<&Path>;
            mount(nothing, "/", nothing, MsFlags::MS_REC | MsFlags::MS_PRIVATE, nothing).unwrap();
            mount(Some(&file), "/etc/resolv.conf", nothing, MsFlags::MS_BIND, nothing).unwrap();
            assert!(Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap().success());
            act();
        });
        done.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

/// A command that runs the shell script `script` in its own mount namespace, with `call` as "$@". If this machine
/// does not allow such a namespace, prints a message and returns `None`.
pub fn with_mounts(call: &Command, script: &str) -> Option<Command> {
    let may_mount = Command::new("unshare").args(["--map-root-user", "--mount", "true"]).status();
    if !may_mount.is_ok_and(|status| status.success()) {
        eprintln!("skipped: it needs a mount namespace, and this machine gives none");
        return None;
    }
    let mut run = Command::new("unshare");
    run.args(["--map-root-user", "--mount", "sh", "-c", script, "sh"]);
    run.arg(call.get_program()).args(call.get_args());
    run.envs(call.get_envs().filter_map(|(name, value)| Some((name, value?))));
    Some(run)
}
