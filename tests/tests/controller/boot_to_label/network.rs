//! The networks of a test. One has the control plane and a cloud's metadata service. One has a single machine at a time beside it.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{gettid, sethostname};

use crate::clouds::METADATA;

pub const CONTROL_PLANE: Ipv4Addr = Ipv4Addr::new(10, 20, 32, 10);
const NOWHERE: Option<&str> = None;
/// The number in the name of the next machine's network link.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// Runs `act` in the control plane's network. The network namespace belongs to a new thread, and to the threads and processes that this
/// thread starts.
pub fn on_control_plane(act: impl FnOnce() + Send) {
    thread::scope(|scope| {
        let done = scope.spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).expect("a network of its own, for which it takes root");
            ip("link set lo up");
            for address in [&[CONTROL_PLANE], METADATA.as_slice()].concat() {
                ip(&format!("address add {address}/32 dev lo"));
            }
            act();
        });
        done.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

/// Runs `act` on a machine with this address and this hostname. The machine has its own mounts, can resolve the control plane's names,
/// and has the os-release of the example's machines.
pub fn on_machine<T: Send>(
    address: Ipv4Addr,
    hostname: &str,
    files: &Path,
    act: impl FnOnce() -> T + Send,
) -> T {
    let (tells, told) = mpsc::channel();
    let (connects, connected) = mpsc::channel();
    thread::scope(|scope| {
        let machine = scope.spawn(move || {
            let apart = CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWUTS;
            unshare(apart).unwrap();
            tells.send(gettid()).unwrap();
            connected.recv().unwrap();
            ip("link set lo up");
            ip(&format!("address add {address}/32 dev eth0"));
            ip("link set eth0 up");
            ip("route add default dev eth0");
            sethostname(hostname).unwrap();
            mount(NOWHERE, "/", NOWHERE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NOWHERE).unwrap();
            for file in ["os-release", "hosts", "resolv.conf"] {
                let target = Path::new("/etc").join(file);
                mount(Some(&files.join(file)), &target, NOWHERE, MsFlags::MS_BIND, NOWHERE).unwrap();
            }
            act()
        });
        let id = told.recv().unwrap();
        // The kernel deletes a link some time after the link's network namespace. So each boot uses a new link name.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        ip(&format!("link add name machine{number} type veth peer name eth0 netns {id}"));
        ip(&format!("link set machine{number} up"));
        ip(&format!("route replace {address}/32 dev machine{number} src {CONTROL_PLANE}"));
        connects.send(()).unwrap();
        machine.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Writes the files that each machine mounts over the host's files.
pub fn write_files(files: &Path, names: &[&str]) {
    let hosts = format!("127.0.0.1 localhost\n{CONTROL_PLANE} {}\n", names.join(" "));
    for (file, text) in [
        ("os-release", "ID=ubuntu\nVERSION_ID=\"24.04\"\n"),
        ("hosts", &hosts),
        // No name server listens at this address, so only the names in `hosts` can be resolved.
        ("resolv.conf", "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n"),
    ] {
        fs::write(files.join(file), text).unwrap();
    }
}

fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split(' ')).output().unwrap();
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}
