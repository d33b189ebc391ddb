//! A reset of a machine with mounts. Folders that are mounted into pods are unmounted and never removed, wherever
//! kubelet's folder really is.
//!
//! Each test has its own root and mounts, with the programs of the machine that runs it. It needs the right to mount.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{chroot, symlink};
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::support::{CALM, SCOPE, Store, downloads, state};
use kops_agent_host::system::mounts::Mounts;
use kops_agent_host::system::systemd::{Systemd, UnitState};
use kops_agent_host::{Error, Host, Resetting, Silent};
use kops_agent_plan::diff::{Enablement, diff_with_owned};
use kops_agent_plan::resource::{BindMount, DesiredState, Mount, Unit};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

const NONE: Option<&str> = None;

fn bind(from: &str, to: &str) {
    mount(Some(from), to, NONE, MsFlags::MS_BIND | MsFlags::MS_REC, NONE).unwrap();
}

/// Runs `test` in a root whose mounts disappear with the test. Does nothing if the user may not mount.
fn in_a_root_of_its_own(test: impl FnOnce() + Send) {
    // On real machines, the root and the user's folder are on one file system. So the folder of this test must not be
    // on tmpfs.
    let folder = tempfile::Builder::new().prefix("kops-agent-reset-").tempdir_in("/var/tmp").unwrap();
    let run = || {
        if unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET).is_err() {
            return;
        }
        mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE).unwrap();
        let root = folder.path();
        bind(root.to_str().unwrap(), root.to_str().unwrap());
        for name in ["usr", "bin", "sbin", "lib", "lib64", "proc", "dev"] {
            let (from, to) = (Path::new("/").join(name), root.join(name));
            match fs::read_link(&from) {
                Ok(target) => symlink(target, to).unwrap(),
                Err(_) if from.exists() => {
                    fs::create_dir(&to).unwrap();
                    bind(from.to_str().unwrap(), to.to_str().unwrap());
                    // The machine's folders are read-only for the test.
                    if !["proc", "dev"].contains(&name) {
                        let flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
                        mount(NONE, &to, NONE, flags, NONE).unwrap();
                    }
                }
                Err(_) => {}
            }
        }
        chroot(root).unwrap();
        std::env::set_current_dir("/").unwrap();
        test();
    };
    if let Err(panic) = std::thread::scope(|scope| scope.spawn(run).join()) {
        std::panic::resume_unwind(panic);
    }
}

/// A systemd that executes every request.
#[derive(Default)]
struct Willing(Mutex<BTreeMap<String, BTreeSet<&'static str>>>);

impl Willing {
    fn set(&self, unit: &str, what: &'static str, is_so: bool) {
        let mut units = self.0.lock();
        let unit = units.entry(unit.into()).or_default();
        if is_so {
            unit.insert(what)
        } else {
            unit.remove(what)
        };
    }
}

impl Systemd for Willing {
    fn states(&self, units: &[&str]) -> Result<Vec<UnitState>, Error> {
        let known = self.0.lock();
        let state = |unit: &&str| match known.get(*unit) {
            Some(is) if is.contains("enabled") => {
                UnitState::existing(Enablement::Enabled, is.contains("running"))
            }
            Some(is) => UnitState::existing(Enablement::Disabled, is.contains("running")),
            None => UnitState::UNKNOWN,
        };
        Ok(units.iter().map(state).collect())
    }
    fn reload(&self) -> Result<(), Error> {
        Ok(())
    }
    fn enable(&self, unit: &str) -> Result<(), Error> {
        self.set(unit, "enabled", true);
        Ok(())
    }
    fn disable(&self, unit: &str) -> Result<(), Error> {
        self.set(unit, "enabled", false);
        Ok(())
    }
    fn start(&self, unit: &str) -> Result<(), Error> {
        self.set(unit, "running", true);
        Ok(())
    }
    fn stop(&self, unit: &str) -> Result<(), Error> {
        self.set(unit, "running", false);
        Ok(())
    }
    fn kill(&self, _: &str) -> Result<(), Error> {
        Ok(())
    }
    fn restart(&self, _: &str) -> Result<(), Error> {
        Ok(())
    }
}

struct Deaf;

impl Resetting for Deaf {
    fn doing(&self, _: &str) {}
}

/// A node with the units of kubelet and containerd. No program runs, because [`Willing`] starts none.
fn node() -> Host {
    let host = Host::machine().unwrap().with_systemd(Arc::<Willing>::default());
    let desired: DesiredState =
        state(["containerd.service", "kubelet.service"].map(|unit| Unit::new(unit, "[Service]\n")));
    let store = Store::new();
    let plan = diff_with_owned(&desired, &host.observe(&desired, &store).unwrap(), &host.owned().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(host.apply(&plan, &desired, &store, &downloads(CALM), &Silent, SCOPE)).unwrap();
    host
}

const KUBELET: &str = "/var/lib/kubelet";
const VOLUMES: &str = "/var/lib/kubelet/pods/1/volumes";

/// Files of a user. They are on the same file system as kubelet's folder.
fn users_folder() {
    fs::create_dir_all("/srv/users/deep/deeper").unwrap();
    fs::write("/srv/users/file", "theirs").unwrap();
    fs::write("/srv/users/deep/deeper/file", "theirs, too").unwrap();
}

#[track_caller]
fn users_folder_is_as_it_was() {
    assert_eq!(fs::read_to_string("/srv/users/file").unwrap(), "theirs");
    assert_eq!(fs::read_to_string("/srv/users/deep/deeper/file").unwrap(), "theirs, too");
}

/// Makes the mounts of a pod: the folder `/srv/users`, and inside this mount its subfolder `deep`. Also mounts a folder
/// and a file as subPaths, and a tmpfs.
fn mount_into_a_pod() {
    for folder in ["own", "own/more", "theirs", "subpath", "memory"] {
        fs::create_dir_all(format!("{VOLUMES}/{folder}")).unwrap();
    }
    fs::write(format!("{VOLUMES}/own/more/file"), "the pod's").unwrap();
    fs::write(format!("{VOLUMES}/subpath-file"), "").unwrap();
    bind("/srv/users", &format!("{VOLUMES}/theirs"));
    bind("/srv/users/deep", &format!("{VOLUMES}/theirs/deep"));
    bind("/srv/users/deep/deeper", &format!("{VOLUMES}/subpath"));
    bind("/srv/users/file", &format!("{VOLUMES}/subpath-file"));
    mount(Some("tmpfs"), format!("{VOLUMES}/memory").as_str(), Some("tmpfs"), MsFlags::empty(), NONE)
        .unwrap();
}

fn kubelet_is_elsewhere() {
    fs::create_dir_all("/data/kubelet").unwrap();
    fs::create_dir_all("/var/lib").unwrap();
    symlink("/data/kubelet", KUBELET).unwrap();
}

#[test]
fn a_users_folder_in_a_pod_survives_wherever_kubelets_folder_is() {
    for is_elsewhere in [false, true] {
        in_a_root_of_its_own(move || {
            if is_elsewhere {
                kubelet_is_elsewhere();
            }
            users_folder();
            let host = node();
            mount_into_a_pod();
            let reset = host.plan_reset(&[], &[], &[]).unwrap();
            assert_eq!(reset.mounts.len(), 5, "{:?}", reset.mounts);
            host.reset(&reset, &Deaf).unwrap();
            users_folder_is_as_it_was();
            assert!(!Path::new(VOLUMES).exists());
            assert_eq!(Path::new("/data/kubelet").exists(), is_elsewhere, "the operator's folder stays");
        });
    }
}

#[test]
fn a_busy_or_hidden_mount_ends_the_reset_before_its_removal() {
    in_a_root_of_its_own(|| {
        users_folder();
        let host = node();
        mount_into_a_pod();
        let in_use = fs::File::open(format!("{VOLUMES}/theirs/file")).unwrap();
        let reset = host.plan_reset(&[], &[], &[]).unwrap();
        let error = host.reset(&reset, &Deaf).unwrap_err().to_string();
        assert!(error.contains("busy"), "{error}");
        users_folder_is_as_it_was();
        drop(in_use);
        host.reset(&host.plan_reset(&[], &[], &[]).unwrap(), &Deaf).unwrap();
        users_folder_is_as_it_was();
    });
    // Only a link in containerd's folder leads to this mount, and the search for mounts does not follow links.
    in_a_root_of_its_own(|| {
        users_folder();
        let host = node();
        fs::create_dir_all("/data/containerd").unwrap();
        fs::create_dir_all("/var/lib/containerd/inner").unwrap();
        bind("/srv/users", "/data/containerd");
        symlink("/data/containerd", "/var/lib/containerd/link").unwrap();
        host.reset(&host.plan_reset(&[], &[], &[]).unwrap(), &Deaf).unwrap();
        users_folder_is_as_it_was();
        assert!(!Path::new("/var/lib/containerd").exists());
    });
}

#[test]
fn a_file_system_of_kubelet_is_emptied_and_the_operators_mount_stays() {
    for is_elsewhere in [false, true] {
        in_a_root_of_its_own(move || {
            if is_elsewhere {
                kubelet_is_elsewhere();
            }
            fs::create_dir_all(KUBELET).unwrap();
            fs::create_dir_all("/disk").unwrap();
            mount(Some("tmpfs"), "/disk", Some("tmpfs"), MsFlags::empty(), NONE).unwrap();
            bind("/disk", KUBELET);
            users_folder();
            let host = node();
            fs::create_dir_all("/var/lib/kubelet/pki").unwrap();
            for file in ["kubeconfig", "pki/kubelet-client-current.pem"] {
                fs::write(format!("{KUBELET}/{file}"), "a key").unwrap();
            }
            mount_into_a_pod();
            let reset = host.plan_reset(&[], &[], &[]).unwrap();
            assert_eq!(reset.mounts.len(), 5, "{:?}", reset.mounts);
            let at = if is_elsewhere { "/data/kubelet" } else { KUBELET };
            assert_eq!(reset.emptied, [at.to_owned()].into());
            for _ in 0..2 {
                host.reset(&host.plan_reset(&[], &[], &[]).unwrap(), &Deaf).unwrap();
                users_folder_is_as_it_was();
                assert_eq!(
                    fs::read_dir("/disk").unwrap().count(),
                    0,
                    "the file system is mounted again at the next boot, so it must be empty"
                );
                let mounts = fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
                assert_eq!(mounts.matches(&format!("{at} ")).count(), 1, "{mounts}");
            }
        });
    }
}

#[test]
fn the_target_of_a_pods_log_link_stays_with_its_mounts() {
    in_a_root_of_its_own(|| {
        users_folder();
        fs::create_dir_all("/srv/users/inner").unwrap();
        fs::create_dir_all("/data/more").unwrap();
        fs::create_dir_all("/var/log").unwrap();
        bind("/srv/users", "/data/more");
        symlink("/data", "/var/log/pods").unwrap();
        symlink("../../srv/users", "/var/log/containers").unwrap();
        let host = node();
        let reset = host.plan_reset(&[], &[], &[]).unwrap();
        assert!(!reset.mounts.iter().any(|path| path.starts_with("/data")), "{:?}", reset.mounts);
        assert!(!reset.folders.iter().any(|folder| folder.starts_with("/var/log")), "{:?}", reset.folders);
        host.reset(&reset, &Deaf).unwrap();
        users_folder_is_as_it_was();
        assert_eq!(fs::read_dir("/data/more").unwrap().count(), fs::read_dir("/srv/users").unwrap().count());
        assert_eq!(fs::read_dir("/var/log").unwrap().count(), 0);
    });
}

/// A mount table in which the search finds nothing, as if the mount appeared right after the search.
struct Blind;

impl Mounts for Blind {
    fn mounted(&self, _: &Mount) -> Result<Option<Mount>, Error> {
        Ok(None)
    }
    fn bound(&self, _: &BindMount) -> Result<Option<BindMount>, Error> {
        Ok(None)
    }
    fn mount(&self, _: &Mount) -> Result<(), Error> {
        Ok(())
    }
    fn bind(&self, _: &BindMount) -> Result<(), Error> {
        Ok(())
    }
    fn below(&self, _: &[&str]) -> Result<Vec<String>, Error> {
        Ok(vec![])
    }
    fn unmount(&self, _: &str) -> Result<(), Error> {
        Ok(())
    }
}

#[test]
fn a_mount_that_the_search_missed_is_not_entered() {
    for what in ["theirs", "subpath-file"] {
        in_a_root_of_its_own(move || {
            users_folder();
            let host = node().with_mounts(Arc::new(Blind));
            fs::create_dir_all(format!("{VOLUMES}/theirs")).unwrap();
            fs::write(format!("{VOLUMES}/subpath-file"), "").unwrap();
            let from = if what == "theirs" { "/srv/users" } else { "/srv/users/file" };
            bind(from, &format!("{VOLUMES}/{what}"));
            let error = host.reset(&host.plan_reset(&[], &[], &[]).unwrap(), &Deaf).unwrap_err().to_string();
            assert!(error.contains("something is mounted there") && error.contains(what), "{error}");
            users_folder_is_as_it_was();
        });
    }
}

#[test]
fn interfaces_of_pods_are_removed_and_an_operators_stay() {
    in_a_root_of_its_own(|| {
        let ip = |arguments: &str| {
            let output = std::process::Command::new("ip").args(arguments.split(' ')).output().unwrap();
            assert!(output.status.success(), "ip {arguments}: {output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        let host = node();
        for name in ["cni0", "flannel.1", "mine0"] {
            ip(&format!("link add {name} type bridge"));
        }
        fs::create_dir_all("/etc/cni/net.d").unwrap();
        fs::write("/etc/cni/net.d/10-x.conflist", "{}").unwrap();
        let reset = host.plan_reset(&[], &[], &[]).unwrap();
        assert_eq!(reset.pod_network.interfaces, ["cni0", "flannel.1"]);
        host.reset(&reset, &Deaf).unwrap();
        let left = ip("-oneline link show");
        assert!(left.contains("mine0") && !left.contains("cni0") && !left.contains("flannel.1"), "{left}");
        assert!(!Path::new("/etc/cni").exists());
    });
}
