//! A machine that is a thread with its own root, overlaid on the root that `tests/packages/root` makes. All changes of
//! the test vanish with the thread.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::chroot;
use std::path::Path;
use std::process::Command;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

/// Runs `test` on a machine with its own root, which disappears when this thread ends.
pub(crate) fn on_a_machine(test: impl FnOnce() + Send) {
    let lower = std::env::var("KOPS_AGENT_PACKAGES_ROOT").expect("tests/packages/run sets it");
    // The upper folder of an overlay cannot be on tmpfs or overlayfs, and /tmp may be on tmpfs.
    let folder = tempfile::Builder::new().prefix("kops-agent-packages-").tempdir_in("/var/tmp").unwrap();
    let ended = std::thread::scope(|scope| {
        scope
            .spawn(|| {
                enter(&lower, folder.path());
                test();
            })
            .join()
    });
    if let Err(panic) = ended {
        std::panic::resume_unwind(panic);
    }
}

fn enter(lower: &str, folder: &Path) {
    unshare(CloneFlags::CLONE_NEWNS).unwrap();
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
    for name in ["upper", "work", "root"] {
        fs::create_dir(folder.join(name)).unwrap();
    }
    let root = folder.join("root");
    let at = folder.display();
    let layers = format!("lowerdir={lower},upperdir={at}/upper,workdir={at}/work");
    mount(Some("overlay"), &root, Some("overlay"), MsFlags::empty(), Some(layers.as_str())).unwrap();
    for shared in ["proc", "dev"] {
        let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
        mount(Some(&*format!("/{shared}")), &root.join(shared), none, flags, none).unwrap();
    }
    chroot(&root).unwrap();
    std::env::set_current_dir("/").unwrap();
}

/// Runs a script that must succeed.
#[track_caller]
pub(crate) fn sh(script: &str) -> String {
    let output = Command::new("/bin/bash").args(["-euc", script]).env("PATH", PATH).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{script}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
