//! A real kubelet on a machine, started with the files that our node has written, and the containerd that it needs. They run in the
//! machine's root, with the control plane's names.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Receiver;
use std::thread;

use nix::mount::{MsFlags, mount};

use crate::cluster::eventually;

/// The flags that kubelet needs in this test, but not on a machine with systemd. They keep kubelet from changing cgroups and kernel
/// parameters, which belong to the host.
const HERE: [&str; 6] = [
    "--cgroup-driver=cgroupfs",
    "--cgroups-per-qos=false",
    "--enforce-node-allocatable=",
    "--fail-cgroupv1=false",
    "--fail-swap-on=false",
    "--protect-kernel-defaults=false",
];
const NOWHERE: Option<&str> = None;

/// A child process. Dropping it kills the process.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // `kill` fails if the process has already ended. The error is dropped, because the test fails anyway if the process has
        // ended too early.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs containerd and the kubelet of the machine with this root, until `stop` receives a message or closes. The folder `files` has
/// additional files for the machine's `/etc`. Both programs write their logs to `files`.
pub fn run_until(stop: Receiver<()>, root: &Path, files: &Path) {
    let assets = std::env::var_os("KUBEBUILDER_ASSETS").unwrap();
    // kubelet must find the mount that contains its folder, so `root` becomes a mount.
    mount(Some(root), root, NOWHERE, MsFlags::MS_BIND, NOWHERE).unwrap();
    for folder in ["dev", "etc", "proc", "run", "sys", "tmp"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    for folder in ["dev", "proc", "sys"] {
        let from = Path::new("/").join(folder);
        mount(Some(&from), &root.join(folder), NOWHERE, MsFlags::MS_BIND | MsFlags::MS_REC, NOWHERE).unwrap();
    }
    mount(Some("tmpfs"), &root.join("run"), Some("tmpfs"), MsFlags::empty(), NOWHERE).unwrap();
    for file in ["hosts", "resolv.conf"] {
        fs::copy(files.join(file), root.join("etc").join(file)).unwrap();
    }
    for file in ["passwd", "group"] {
        fs::copy(Path::new("/etc").join(file), root.join("etc").join(file)).unwrap();
    }
    // The machine's downloads contain only stand-ins for these programs, so the built programs replace them.
    for (program, path) in [("containerd", "usr/bin/containerd"), ("kubelet", "usr/local/bin/kubelet")] {
        let real = Path::new(&assets).join(program);
        mount(Some(&real), &root.join(path), NOWHERE, MsFlags::MS_BIND, NOWHERE).unwrap();
    }
    let log_of = |program: &str| files.join(Path::new(program).file_name().unwrap()).with_extension("log");
    let start = |program: &str, arguments: &[&str]| {
        let log = fs::File::create(log_of(program)).unwrap();
        let mut command = Command::new("chroot");
        command.arg(root).arg(program).args(arguments).stdin(Stdio::null());
        Running(command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap())
    };
    let _containerd = start("/usr/bin/containerd", &["--config", "/etc/containerd/config.toml"]);
    // If containerd does not listen yet, kubelet exits, and no systemd restarts kubelet in this test.
    let socket = root.join("run/containerd/containerd.sock");
    eventually("containerd listens", || UnixStream::connect(&socket).is_ok());
    let flags = fs::read_to_string(root.join("etc/sysconfig/kubelet")).unwrap();
    let flags = flags
        .lines()
        .find_map(|line| line.strip_prefix("DAEMON_ARGS="))
        .unwrap()
        .trim_matches('"')
        .to_owned();
    let flags: Vec<&str> = flags.split_whitespace().chain(HERE).collect();
    let mut kubelet = start("/usr/local/bin/kubelet", &flags);
    // A closed channel also ends the wait.
    let _ = stop.recv();
    let ended = kubelet.0.try_wait().unwrap();
    assert!(ended.is_none(), "{ended:?}: {}", fs::read_to_string(log_of("kubelet")).unwrap());
}

/// Forwards connections from one address to another, until this process ends.
pub fn forward(from: SocketAddr, to: SocketAddr) {
    let listener = TcpListener::bind(from).unwrap();
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(server) = TcpStream::connect(to) else { continue };
            let ways = [(client.try_clone(), server.try_clone()), (Ok(server), Ok(client))];
            for (from, to) in ways {
                let (Ok(mut from), Ok(mut to)) = (from, to) else { continue };
                thread::spawn(move || {
                    // The error is dropped, because either side may close the connection.
                    let _ = io::copy(&mut from, &mut to);
                    let _ = to.shutdown(std::net::Shutdown::Write);
                });
            }
        }
    });
}
