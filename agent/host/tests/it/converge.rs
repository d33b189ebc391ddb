//! A whole machine in a scratch root: created, left alone, changed, and repaired after interruptions.
#![allow(clippy::unwrap_used)]

use crate::support;

use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::{CALM, Machine, downloads, noon, state};
use kops_agent_host::system::commands::Commands;
use kops_agent_host::system::kernel::Kernel;
use kops_agent_host::{Error, Host};
use kops_agent_plan::diff::{Action, Plan, diff, text};
use kops_agent_plan::resource::*;

pub(crate) fn certificate(name: &str) -> Certificate {
    Certificate {
        name: name.into(),
        signer: "kubernetes-ca".into(),
        keypair_id: "1".into(),
        certificate_type: CertificateType::Client,
        subject: Subject { common_name: name.into(), organization: vec!["system:nodes".into()] },
        sans: vec![],
        issuer: Issuer::Local,
        include_root: false,
    }
}

pub(crate) fn node() -> DesiredState {
    let mut node = DesiredState::default();
    node.add(Package { name: "chrony".into() });
    node.add(Package { name: "socat".into() });
    node.add(User { name: "etcd".into(), uid: 10002, home: String::new(), shell: "/sbin/nologin".into() });
    node.add(Directory::new("/etc/kubernetes/manifests").mode(Mode(0o700)));
    node.add(File::text("/etc/sysconfig/kubelet", "DAEMON_ARGS=\"--v=2\"\n"));
    node.add(File::text("/etc/sysctl.d/99-k8s-general.conf", "a = 1\n").on_change(&["sysctl", "--system"]));
    node.add(File::text("/var/log/kube-proxy.log", "").mode(Mode(0o400)).create_only());
    node.add(File::text("/var/etcd/config", "x").owned_by("etcd").mode(Mode::PRIVATE));
    node.add(
        File::new(
            "/etc/token",
            Content::SecretText(vec![SecretPiece::Text("t=".into()), SecretPiece::Secret("token".into())]),
        )
        .mode(Mode::PRIVATE),
    );
    node.add(certificate("kubelet"));
    node.add(File::new("/pki/kubelet.crt", Content::Certificate("kubelet".into())));
    node.add(File::new("/pki/kubelet.key", Content::PrivateKey("kubelet".into())).mode(Mode::PRIVATE));
    node.add(File::new("/pki/ca.crt", Content::Ca("kubelet".into())));
    let kubeconfig = Kubeconfig { certificate: "kubelet".into(), server: "https://127.0.0.1".into() };
    node.add(File::new("/var/lib/kubelet/kubeconfig", Content::Kubeconfig(kubeconfig)).mode(Mode(0o400)));
    node.add(Symlink { path: "/opt/kubelet".into(), target: "/usr/local/bin/kubelet".into() });
    node.add(HostsEntry {
        hostname: "api.internal".into(),
        addresses: vec!["10.0.0.1".into()],
        ..HostsEntry::default()
    });
    node.add(HostsEntry { hostname: "later.internal".into(), ..HostsEntry::default() });
    node.add(KernelModule { name: "br_netfilter".into(), package: None });
    node.add(Image { name: "registry.k8s.io/pause:3.10".into(), sources: vec![], sha256: String::new() });
    node.add(Unit::new("containerd.service", "[Service]\nExecStart=/usr/bin/containerd\n"));
    node.add(Unit::existing("chrony.service"));
    node.add(
        Unit::new("kubelet.service", "[Service]\nExecStart=/usr/local/bin/kubelet\n")
            .restarted_by_files(["/etc/sysconfig/kubelet", "/var/lib/kubelet/kubeconfig"]),
    );
    node.checked().unwrap()
}

pub(crate) fn with(mut state: DesiredState, file: File) -> DesiredState {
    let id = Resource::from(file.clone()).id();
    let others: Vec<Resource> =
        state.iter().filter(|(other, _)| **other != id).map(|(_, resource)| resource.clone()).collect();
    state = support::state(others);
    state.add(file);
    state
}

#[tokio::test]
async fn a_node_converges_and_a_second_run_does_nothing() {
    let machine = Machine::new();
    std::fs::create_dir(machine.path("/etc")).unwrap();
    std::fs::write(machine.path("/etc/hosts"), "127.0.0.1 localhost\n").unwrap();
    let host = machine.host();
    let plan = machine.plan(&host, &node());
    assert!(plan.steps.iter().all(|step| step.action == Action::Create), "{plan:?}");
    assert!(machine.tree() == ["/etc/hosts"], "planning writes nothing");
    machine.converge_with(&host, &node()).await.unwrap();

    assert_eq!(
        machine.tree(),
        [
            "/etc/hosts",
            "/etc/modules-load.d/br_netfilter.conf",
            "/etc/sysconfig/kubelet",
            "/etc/sysctl.d/99-k8s-general.conf",
            "/etc/systemd/system/containerd.service",
            "/etc/systemd/system/kubelet.service",
            "/etc/token",
            "/opt/kubelet",
            "/pki/ca.crt",
            "/pki/kubelet.crt",
            "/pki/kubelet.key",
            "/var/etcd/config",
            "/var/lib/kubelet/kubeconfig",
            "/var/log/kube-proxy.log",
        ]
    );
    assert_eq!(machine.read("/etc/token"), "t=hunter2");
    assert!(
        machine.read("/etc/hosts").contains("localhost")
            && machine.read("/etc/hosts").contains("api.internal")
    );
    let mode = |path: &str| std::fs::metadata(machine.path(path)).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode("/pki/kubelet.key"), 0o600);
    assert_eq!(mode("/etc/kubernetes/manifests"), 0o700);
    assert_eq!(mode("/etc/kubernetes"), 0o755);
    assert_eq!(mode("/var/log/kube-proxy.log"), 0o400);
    assert_eq!(
        machine.requests(),
        [
            "packages: install chrony socat",
            "users: user etcd (uid 10002, home none, shell /sbin/nologin)",
            "kernel: load br_netfilter",
            "owner: /var/etcd/config belongs to etcd:root",
            "run: sysctl --system",
            "systemd: enable containerd.service",
            "systemd: enable chrony.service",
            "systemd: enable kubelet.service",
            "systemd: daemon-reload",
            "systemd: start containerd.service",
            "systemd: start chrony.service",
            "systemd: start kubelet.service",
            "images: pull registry.k8s.io/pause:3.10",
        ]
    );

    let again = machine.host();
    assert_eq!(machine.plan(&again, &node()), Plan::default());
    let report = machine.converge_with(&again, &node()).await.unwrap();
    assert_eq!(report.applied, []);
    assert_eq!(machine.requests().len(), 13);
    assert_eq!(machine.leftovers(), [""; 0]);
}

#[tokio::test]
async fn a_change_writes_only_the_changed_resources() {
    let machine = Machine::new();
    machine.converge(&node()).await.unwrap();
    let before = machine.requests().len();
    let changed = with(node(), File::text("/etc/sysconfig/kubelet", "DAEMON_ARGS=\"--v=4\"\n"));
    let plan = machine.plan(&machine.host(), &changed);
    assert_eq!(
        text::plan(&plan, text::Style { colour: false, diffs: true }),
        "files
  ~ file /etc/sysconfig/kubelet
      --- /etc/sysconfig/kubelet
      +++ /etc/sysconfig/kubelet
      @@ -1 +1 @@
      -DAEMON_ARGS=\"--v=2\"
      +DAEMON_ARGS=\"--v=4\"
services
  ! unit kubelet.service: restart, because of file /etc/sysconfig/kubelet

Plan: 1 file changes. Restarts: kubelet.service.
"
    );
    machine.converge(&changed).await.unwrap();
    assert_eq!(machine.requests()[before..], ["systemd: daemon-reload", "systemd: restart kubelet.service"]);
    assert!(machine.plan(&machine.host(), &changed).is_empty());
}

#[tokio::test]
async fn drift_is_repaired_and_create_only_files_stay() {
    let machine = Machine::new();
    machine.converge(&node()).await.unwrap();
    std::fs::write(machine.path("/etc/token"), "tampered").unwrap();
    std::fs::remove_file(machine.path("/var/log/kube-proxy.log")).unwrap();
    std::fs::write(machine.path("/var/log/kube-proxy.log"), "a line").unwrap();
    std::fs::set_permissions(machine.path("/pki/ca.crt"), std::fs::Permissions::from_mode(0o666)).unwrap();
    std::fs::remove_file(machine.path("/opt/kubelet")).unwrap();
    std::fs::remove_file(machine.path("/etc/sysconfig/kubelet")).unwrap();
    std::os::unix::fs::symlink("/etc/token", machine.path("/etc/sysconfig/kubelet")).unwrap();
    let plan = machine.plan(&machine.host(), &node());
    let ids: Vec<String> = plan.steps.iter().map(|step| step.resource.to_string()).collect();
    assert_eq!(
        ids,
        [
            "file /etc/sysconfig/kubelet",
            "file /etc/token",
            "file /pki/ca.crt",
            "symlink /opt/kubelet",
            "unit kubelet.service"
        ]
    );
    assert!(!serde_json::to_string(&plan).unwrap().contains("hunter2"));
    machine.converge(&node()).await.unwrap();
    assert!(machine.plan(&machine.host(), &node()).is_empty());
    assert_eq!(machine.read("/var/log/kube-proxy.log"), "a line");
    assert_eq!(machine.read("/etc/token"), "t=hunter2");
}

#[tokio::test]
async fn missing_files_of_a_certificate_are_written_from_the_existing_one() {
    let machine = Machine::new();
    machine.converge(&node()).await.unwrap();
    let (certificate, key) = (machine.read("/pki/kubelet.crt"), machine.read("/pki/kubelet.key"));
    let kubeconfig = machine.read("/var/lib/kubelet/kubeconfig");
    for path in ["/pki/kubelet.crt", "/pki/kubelet.key", "/pki/ca.crt"] {
        std::fs::remove_file(machine.path(path)).unwrap();
    }
    machine.converge(&node()).await.unwrap();
    assert_eq!(
        (machine.read("/pki/kubelet.crt"), machine.read("/pki/kubelet.key")),
        (certificate.clone(), key)
    );
    assert_eq!(machine.read("/var/lib/kubelet/kubeconfig"), kubeconfig);

    // After more than a year, all certificates are renewed.
    let later = || noon() + std::time::Duration::from_secs(400 * 24 * 3600);
    let host = Host::scratch(machine.root.path()).unwrap().with_clock(later);
    let plan = machine.plan(&host, &node());
    assert_eq!((plan.summary().change.number, plan.summary().restart), (4, 1), "{plan:?}");
    machine.converge_with(&host, &node()).await.unwrap();
    assert_ne!(machine.read("/pki/kubelet.crt"), certificate);
    assert!(machine.plan(&host, &node()).is_empty());
}

/// Commands that fail on the first call.
struct Refusing(AtomicUsize);

impl Commands for Refusing {
    fn run(&self, command: &[String]) -> Result<(), Error> {
        match self.0.fetch_add(1, Ordering::SeqCst) {
            0 => Err(Error::Command { command: command.join(" "), outcome: "failed".into() }),
            _ => Ok(()),
        }
    }
}

#[tokio::test]
async fn the_next_run_repeats_a_failed_command() {
    let machine = Machine::new();
    let commands = Arc::new(Refusing(AtomicUsize::new(0)));
    let desired = state([
        File::text("/etc/sysctl.d/1.conf", "a").on_change(&["sysctl", "--system"]),
        File::text("/etc/sysctl.d/2.conf", "b").on_change(&["sysctl", "--system"]),
    ]);
    let host = || machine.host().with_commands(commands.clone());
    assert!(machine.converge_with(&host(), &desired).await.is_err());
    assert_eq!(machine.plan(&host(), &desired).steps.len(), 2);
    machine.converge_with(&host(), &desired).await.unwrap();
    assert_eq!(commands.0.load(Ordering::SeqCst), 2, "once for both files");
    assert!(machine.plan(&host(), &desired).is_empty());
}

/// A kernel whose parameters differ from the files until a command sets these parameters again.
struct Altered(AtomicUsize);

impl Commands for Altered {
    fn run(&self, _: &[String]) -> Result<(), Error> {
        self.0.store(0, Ordering::SeqCst);
        Ok(())
    }
    fn has_other_parameters(&self, file: &str) -> Result<bool, Error> {
        Ok(file == "/etc/sysctl.d/1.conf" && self.0.load(Ordering::SeqCst) == 1)
    }
}

#[tokio::test]
async fn a_changed_kernel_parameter_is_set_again() {
    let machine = Machine::new();
    let kernel = Arc::new(Altered(AtomicUsize::new(0)));
    let host = || machine.host().with_commands(kernel.clone());
    let file = |path: &str| File::text(path, "a").on_change(&["sysctl", "--system"]);
    let desired = state(["/etc/sysctl.d/1.conf", "/etc/sysctl.d/2.conf"].map(file));
    machine.converge_with(&host(), &desired).await.unwrap();
    assert!(machine.plan(&host(), &desired).is_empty());
    kernel.0.store(1, Ordering::SeqCst);
    let plan = machine.plan(&host(), &desired);
    let ids: Vec<String> = plan.steps.iter().map(|step| step.resource.to_string()).collect();
    assert_eq!(ids, ["file /etc/sysctl.d/1.conf"]);
    machine.converge_with(&host(), &desired).await.unwrap();
    assert!(machine.plan(&host(), &desired).is_empty());
}

/// A kernel without any module.
struct Bare;

impl Kernel for Bare {
    fn is_loaded(&self, _module: &str) -> Result<bool, Error> {
        Ok(false)
    }
    fn has(&self, _module: &str) -> bool {
        false
    }
    fn load(&self, module: &str) -> Result<(), Error> {
        Err(Error::Command { command: format!("modprobe {module}"), outcome: "not found".into() })
    }
}

#[tokio::test]
async fn the_package_of_a_missing_kernel_module_is_installed_once() {
    let machine = Machine::new();
    let host = || machine.host().with_kernel(Arc::new(Bare));
    let desired =
        state([KernelModule { name: "ip_set".into(), package: Some("kernel-modules-extra-6.12".into()) }]);
    machine.converge_with(&host(), &desired).await.unwrap();
    assert_eq!(machine.requests(), ["packages: install kernel-modules-extra-6.12"]);
    assert!(machine.plan(&host(), &desired).is_empty());
}

#[tokio::test]
async fn the_next_run_removes_the_leftovers_of_a_killed_run() {
    let machine = Machine::new();
    machine.converge(&node()).await.unwrap();
    for path in [
        "/etc/.token.kops-agent",
        "/etc/systemd/system/.kubelet.service.kops-agent",
        "/etc/.hosts.kops-agent",
    ] {
        std::fs::write(machine.path(path), "half").unwrap();
    }
    machine.converge(&node()).await.unwrap();
    assert_eq!(machine.leftovers(), [""; 0]);
}

#[tokio::test]
async fn two_runs_at_the_same_time_are_refused() {
    let machine = Machine::new();
    let (one, two) = (machine.host(), machine.host());
    let lock = one.lock().unwrap();
    let error = machine.converge_with(&two, &node()).await.unwrap_err().to_string();
    assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
    machine.converge_with(&one, &node()).await.unwrap();
    drop(lock);
    machine.converge_with(&two, &node()).await.unwrap();
}

#[tokio::test]
async fn an_impossible_plan_is_refused_before_anything_changes() {
    let machine = Machine::new();
    let unreadable = File::new("/etc/x", Content::SecretText(vec![SecretPiece::Secret("no-such".into())]));
    let bad = File::new("/etc/x", Content::Base64("*".into()));
    for (resource, message) in [
        (Resource::from(unreadable), "needs the secret no-such, which is not in the state store"),
        (bad.into(), "the content is not base64"),
        (Certificate { signer: "other-ca".into(), ..certificate("x") }.into(), "keyset other-ca"),
        (Directory::new("relative").into(), "it is not an absolute path"),
    ] {
        let mut desired = node();
        desired.add(resource);
        let error = machine.error(&desired).await;
        assert!(error.contains(message), "{error}");
        assert_eq!(machine.tree(), [""; 0], "{message}");
    }
}

#[tokio::test]
async fn obstacles_are_named() {
    let machine = Machine::new();
    std::fs::create_dir_all(machine.path("/etc/token")).unwrap();
    let error = machine.error(&node()).await;
    assert!(error.contains("file /etc/token: a directory is in its place"), "{error}");
    let error = Host::scratch(std::path::Path::new("/sys/kops-agent")).err().unwrap().to_string();
    assert!(error.starts_with("cannot make the directory /sys/kops-agent: "), "{error}");
}

#[tokio::test]
async fn no_link_leads_out_of_the_root() {
    let machine = Machine::new();
    let outside = tempfile::tempdir().unwrap();
    std::fs::create_dir(machine.path("/etc")).unwrap();
    std::os::unix::fs::symlink(outside.path(), machine.path("/etc/sysconfig")).unwrap();
    assert!(machine.converge(&node()).await.is_err());
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_full_disk_leaves_nothing_half_written() {
    use nix::mount::{MsFlags, mount, umount};
    let disk = tempfile::tempdir().unwrap();
    let size = Some("size=600k");
    if mount(Some("tmpfs"), disk.path(), Some("tmpfs"), MsFlags::empty(), size).is_err() {
        // The test needs the right to mount a small disk. Without this right, it checks nothing.
        return;
    }
    let machine = Machine { root: tempfile::tempdir_in(disk.path()).unwrap(), ..Machine::new() };
    machine.converge(&node()).await.unwrap();
    let large = with(node(), File::text("/etc/sysconfig/kubelet", "x".repeat(900_000)));
    let error = machine.error(&large).await;
    let (before, leftovers) = (machine.read("/etc/sysconfig/kubelet"), machine.leftovers());
    let healed = machine.plan(&machine.host(), &node()).is_empty();
    drop(machine);
    umount(disk.path()).unwrap();
    assert!(error.contains("/etc/sysconfig/kubelet: No space left on device; free some space"), "{error}");
    assert_eq!(before, "DAEMON_ARGS=\"--v=2\"\n");
    assert_eq!(leftovers, [""; 0]);
    assert!(healed);
}

#[tokio::test]
async fn a_plan_of_another_state_is_refused() {
    let machine = Machine::new();
    let host = machine.host();
    let plan = diff(&node(), &host.observe(&node(), &machine.store).unwrap());
    let (nothing, downloads) = (DesiredState::default(), downloads(CALM));
    let run =
        host.apply(&plan, &nothing, &machine.store, &downloads, &kops_agent_host::Silent, support::SCOPE);
    // A program may spawn the future on another thread, so the future must be `Send`.
    fn is_send<T: Send>(future: T) -> T {
        future
    }
    let error = is_send(run).await.unwrap_err().to_string();
    assert!(error.contains("not of the same run"), "{error}");
}
