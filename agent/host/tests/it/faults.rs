//! Images, volumes and commands that fail or hang on a machine that becomes a node. kubelet still runs, unless a
//! volume is missing that kubelet would write to.
#![allow(clippy::unwrap_used)]

use kops_agent_spec::failure::Failing as _;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::support::images::Runtime;
use crate::support::{Machine, Mirror, SHORT, downloads, ended_once, mirror, state};
use kops_agent_host::system::commands::Commands;
use kops_agent_host::system::mounts::Mounts;
use kops_agent_host::{Error, FailedResource, Host, Report, Waits};
use kops_agent_plan::resource::*;
use kops_agent_spec::digest::sha256_hex;

/// The maximum duration of a test. It is shorter than the 600 s of a hanging program, and longer than any other
/// program takes.
const A_WHILE: Duration = Duration::from_secs(400);

/// The volumes of a machine. A device in `missing` does not exist. For a device in `awaited`, the run waits 600 s.
#[derive(Default)]
struct Volumes {
    mounted: Mutex<Vec<Mount>>,
    missing: Mutex<BTreeSet<String>>,
    awaited: Mutex<BTreeSet<String>>,
}

impl Mounts for Volumes {
    fn mounted(&self, mount: &Mount) -> Result<Option<Mount>, Error> {
        Ok(self.mounted.lock().iter().find(|mounted| mounted.path == mount.path).cloned())
    }
    fn bound(&self, _: &BindMount) -> Result<Option<BindMount>, Error> {
        Ok(None)
    }
    fn wait_for(&self, device: &str) -> Result<(), Error> {
        if self.awaited.lock().contains(device) {
            std::thread::sleep(Duration::from_secs(600));
        }
        match self.missing.lock().contains(device) {
            false => Ok(()),
            true => Err(Error::Path {
                doing: "mount",
                path: device.to_owned(),
                reason: "there is no such device".into(),
            }),
        }
    }
    fn mount(&self, mount: &Mount) -> Result<(), Error> {
        self.mounted.lock().push(mount.clone());
        Ok(())
    }
    fn bind(&self, _: &BindMount) -> Result<(), Error> {
        Ok(())
    }
    fn below(&self, _: &[&str]) -> Result<Vec<String>, Error> {
        Ok(vec![])
    }
    fn unmount(&self, path: &str) -> Result<(), Error> {
        self.mounted.lock().retain(|mounted| mounted.path != path);
        Ok(())
    }
}

struct Failing;

impl Commands for Failing {
    fn run(&self, command: &[String]) -> Result<(), Error> {
        Err(Error::Command { command: command.join(" "), outcome: "failed (exit status: 1)".into() })
    }
}

struct Node {
    machine: Machine,
    runtime: Arc<Runtime>,
    volumes: Arc<Volumes>,
    mirror: Mirror,
}

impl Node {
    fn new() -> Node {
        let machine = Machine::new().downloading(downloads(SHORT));
        let runtime = Arc::new(Runtime::default().failing("failing").hanging("hanging"));
        Node { machine, runtime, volumes: Arc::default(), mirror: mirror() }
    }

    fn host(&self) -> Host {
        let image = Duration::from_millis(300);
        let waits = Waits { image, others: Duration::from_millis(100), ..Waits::default() };
        let host = self.machine.host().with_images(self.runtime.clone());
        host.with_mounts(self.volumes.clone()).with_waits(waits)
    }

    async fn converge(&self, desired: &DesiredState) -> Result<Report, Error> {
        self.machine.converge_with(&self.host(), desired).await
    }

    /// Converges. Returns the resources that the run reports as failed.
    async fn failures(&self, desired: &DesiredState) -> Vec<FailedResource> {
        match self.converge(desired).await {
            Err(Error::Resources(failed)) => failed,
            other => panic!("{other:?}"),
        }
    }

    /// An image from an archive.
    fn archive(&self, name: &str) -> Resource {
        let content = format!("the archive {name}");
        let sources = vec![self.mirror.put(&format!("/{name}"), content.as_bytes())];
        Image { name: name.into(), sources, sha256: sha256_hex(content.as_bytes()) }.into()
    }

    fn asked(&self) -> Vec<String> {
        self.runtime.take_asked()
    }

    fn has_been_asked(&self, request: &str) -> bool {
        self.machine.requests().iter().any(|line| line == request)
    }

    #[track_caller]
    fn joins(&self) {
        for request in ["systemd: enable kubelet.service", "systemd: start kubelet.service"] {
            assert!(self.has_been_asked(request), "no {request:?} in {:#?}", self.machine.requests());
        }
    }

    fn left(&self, desired: &DesiredState) -> Vec<String> {
        let plan = self.machine.plan(&self.host(), desired);
        plan.steps.iter().map(|step| step.resource.to_string()).collect()
    }
}

fn pulled(name: &str) -> Resource {
    Image { name: name.into(), sources: vec![], sha256: String::new() }.into()
}

fn unit(name: &str, text: &str) -> Resource {
    let text = format!("[Unit]\n{text}\n[Service]\nExecStart=/x\n[Install]\nWantedBy=multi-user.target\n");
    Unit::new(name, text).into()
}

/// A node with the units of containerd, kubelet and chrony, and with the resources in `others`.
fn node(others: impl IntoIterator<Item = Resource>) -> DesiredState {
    let own = [
        unit("containerd.service", ""),
        unit("kubelet.service", "After=containerd.service"),
        Unit::existing("chrony.service").into(),
    ];
    state(own.into_iter().chain(others))
}

fn named(failed: &[FailedResource]) -> Vec<String> {
    failed.iter().map(|failed| failed.resource.to_string()).collect()
}

#[tokio::test]
async fn an_image_that_cannot_be_loaded_is_reported_and_kubelet_starts() {
    let it = Node::new();
    let desired = node([it.archive("failing.tar"), it.archive("good.tar"), pulled("failing:1")]);
    let error = it.converge(&desired).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("import failing.tar` failed (exit status: 1): broken archive"), "{text}");
    assert!(
        error.kind().misses_images()
            && error.kind().leaves_a_working_node()
            && !error.kind().is_configuration()
    );
    it.joins();
    assert_eq!(it.left(&desired), ["image failing.tar", "image failing:1"]);
    assert!(it.host().status().unwrap().failure.unwrap().problem.contains("broken archive"));

    // The next run repeats only the steps that failed.
    let before = it.machine.requests().len();
    it.asked();
    it.runtime.mend();
    it.converge(&desired).await.unwrap();
    assert_eq!(it.asked(), ["import failing.tar", "pull failing:1"]);
    assert_eq!(it.machine.requests().len(), before);
    assert!(it.left(&desired).is_empty() && it.host().status().unwrap().converged);
}

#[tokio::test]
async fn an_image_that_hangs_times_out_and_kubelet_starts() {
    let it = Node::new();
    let desired = node([it.archive("hanging.tar"), it.archive("z.tar"), pulled("hanging:1")]);
    let failed = it.failures(&desired).await;
    assert_eq!(named(&failed), ["image hanging.tar", "image hanging:1"]);
    assert!(failed[0].why.contains("`sleep 600` has not ended within 0 s"), "{failed:?}");
    it.joins();
}

#[tokio::test]
async fn kubelet_does_not_wait_for_images_that_are_pulled() {
    let it = Node::new();
    let desired = node([pulled("hanging:1"), it.archive("a.tar")]);
    let host = it.host().with_waits(Waits::default());
    let run = it.machine.converge_with(&host, &desired);
    let kubelet_is_started = || it.has_been_asked("systemd: start kubelet.service");
    ended_once(run, || it.runtime.has_been_asked("pull hanging:1") && kubelet_is_started()).await;
    it.joins();
    assert_eq!(it.asked(), ["import a.tar", "pull hanging:1"]);
}

#[tokio::test]
async fn a_run_that_is_asked_to_stop_ends_the_program_that_hangs() {
    let it = Node::new();
    let desired = node([it.archive("hanging.tar")]);
    let host = it.host().with_waits(Waits::default());
    let since = Instant::now();
    let run = it.machine.converge_with(&host, &desired);
    ended_once(run, || it.runtime.has_been_asked("import hanging.tar")).await;
    assert!(since.elapsed() < A_WHILE, "it took {:?}", since.elapsed());
    assert_eq!(it.asked(), ["import hanging.tar"]);
}

#[tokio::test]
async fn an_archive_that_cannot_be_downloaded_is_reported_and_kubelet_starts() {
    let it = Node::new();
    let gone = Image {
        name: "gone.tar".into(),
        sources: vec![format!("{}/gone.tar", it.mirror.url())],
        sha256: "0".repeat(64),
    };
    let desired = node([gone.into(), it.archive("good.tar")]);
    let failed = it.failures(&desired).await;
    assert_eq!(named(&failed), ["image gone.tar"]);
    assert!(failed[0].why.contains("/gone.tar"), "{failed:?}");
    assert_eq!(it.asked(), ["import good.tar"]);
    it.joins();
}

const MANIFEST: &str = "/etc/kubernetes/manifests/kube-apiserver.manifest";

fn control_plane(version: &str, images: impl IntoIterator<Item = Resource>) -> DesiredState {
    let mut desired = node(images);
    desired.add(File::text(
        MANIFEST,
        format!("metadata: {{name: kube-apiserver, labels: {{version: {version}}}}}\n"),
    ));
    desired
}

#[tokio::test]
async fn a_working_node_stays_unchanged_if_images_are_missing() {
    let it = Node::new();
    it.converge(&control_plane("one", [])).await.unwrap();
    let (before, requests) = (it.machine.read(MANIFEST), it.machine.requests());
    let error = it.converge(&control_plane("two", [it.archive("failing.tar")])).await.unwrap_err();
    assert!(
        !error.kind().leaves_a_working_node() && error.to_string().contains("load the image failing.tar"),
        "{error}"
    );
    assert_eq!(it.machine.read(MANIFEST), before, "the node changed although an image is missing");
    assert_eq!(it.machine.requests(), requests, "the change was refused before anything changed");
    assert!(!it.host().status().unwrap().unfinished);

    let sources = vec![format!("{}/gone.tar", it.mirror.url())];
    let gone = Image { name: "gone.tar".into(), sources, sha256: "0".repeat(64) };
    let error = it.converge(&control_plane("two", [gone.into()])).await.unwrap_err();
    assert!(matches!(error, Error::Download(_)), "{error:?}");
    assert_eq!(it.machine.requests(), requests, "the change was refused before anything changed");

    it.runtime.mend();
    it.converge(&control_plane("two", [it.archive("failing.tar")])).await.unwrap();
    assert_ne!(it.machine.read(MANIFEST), before);
}

fn volume(device: &str, path: &str, options: &[&str]) -> Resource {
    Mount {
        device: device.into(),
        path: path.into(),
        filesystem: "ext4".into(),
        format_options: vec![],
        mount_options: options.iter().map(|option| (*option).to_owned()).collect(),
        at_boot: true,
    }
    .into()
}

#[tokio::test]
async fn without_a_volume_only_programs_that_would_write_there_do_not_start() {
    let it = Node::new();
    it.volumes.missing.lock().insert("/dev/xvdd".into());
    let mut desired = node([volume("/dev/xvdd", "/data", &[]), it.archive("a.tar")]);
    desired.add(Directory::new("/data/etcd"));
    desired.add(File::text("/data/etcd/config", "a"));
    desired.add(File::text("/etc/config", "a"));
    let failed = it.failures(&desired).await;
    assert_eq!(
        named(&failed),
        ["mount /data", "unit containerd.service", "unit kubelet.service"],
        "{failed:?}"
    );
    assert!(failed[0].why.contains("/dev/xvdd: there is no such device"), "{failed:?}");
    assert!(failed[2].why.contains("the volume of /data is not mounted"), "{failed:?}");
    let requests = it.machine.requests();
    let asked = |verb: &str, unit: &str| requests.contains(&format!("systemd: {verb} {unit}"));
    assert!(asked("enable", "chrony.service") && asked("start", "chrony.service"), "{requests:?}");
    for unit in ["kubelet.service", "containerd.service"] {
        assert!(!asked("enable", unit) && !asked("start", unit), "{requests:?}");
    }
    assert!(asked("enable", "data.mount"), "at the next boot, units wait for the volume");
    assert!(it.machine.read("/etc/config") == "a" && !it.machine.path("/data/etcd").exists());
    assert!(it.machine.tree().iter().any(|path| path.ends_with("/kubelet.service")));
    assert_eq!(it.asked(), [""; 0]);

    it.volumes.missing.lock().clear();
    it.converge(&desired).await.unwrap();
    it.joins();
    assert_eq!(it.machine.read("/data/etcd/config"), "a");
    assert!(it.left(&desired).is_empty());
}

#[tokio::test]
async fn a_missing_volume_with_nofail_is_reported_and_blocks_nothing() {
    let it = Node::new();
    it.volumes.missing.lock().insert("/dev/xvdd".into());
    let desired = node([volume("/dev/xvdd", "/data", &["noatime,nofail"])]);
    assert_eq!(named(&it.failures(&desired).await), ["mount /data"]);
    it.joins();
    let text = it.machine.read("/etc/systemd/system/data.mount");
    assert!(!text.contains("RequiredBy="), "{text}");
}

#[tokio::test]
async fn a_run_that_waits_for_a_device_can_be_asked_to_stop() {
    let it = Node::new();
    it.volumes.awaited.lock().insert("/dev/xvdd".into());
    let desired = node([volume("/dev/xvdd", "/data", &[])]);
    let since = Instant::now();
    let (host, limit) = (it.host(), Duration::from_millis(500));
    let run = it.machine.converge_with(&host, &desired);
    assert!(tokio::time::timeout(limit, run).await.is_err());
    assert!(since.elapsed() < A_WHILE, "it took {:?}", since.elapsed());
}

#[tokio::test]
async fn another_device_is_refused_before_a_working_node_changes() {
    let it = Node::new();
    let with = |device: &str, text: &str| {
        let mut desired = node([volume(device, "/data", &[])]);
        desired.add(User { name: text.into(), uid: 1234, home: String::new(), shell: "/bin/sh".into() });
        desired.add(File::text("/etc/config", text));
        desired
    };
    it.converge(&with("/dev/xvdd", "one")).await.unwrap();
    let (requests, tree) = (it.machine.requests(), it.machine.tree());
    let unit = it.machine.read("/etc/systemd/system/data.mount");
    let error = it.converge(&with("/dev/xvde", "two")).await.unwrap_err().to_string();
    assert!(error.contains("/dev/xvde: /dev/xvdd is mounted at /data already"), "{error}");
    assert_eq!((it.machine.requests(), it.machine.tree()), (requests, tree));
    assert_eq!(it.machine.read("/etc/systemd/system/data.mount"), unit);
    assert_eq!(it.machine.read("/etc/config"), "one");
}

#[tokio::test]
async fn a_command_that_fails_is_reported_and_kubelet_starts() {
    let it = Node::new();
    let mut desired = node([]);
    desired.add(File::text("/etc/sysctl.d/99-x.conf", "a").on_change(&["sysctl", "--system"]));
    let host = it.host().with_commands(Arc::new(Failing));
    match it.machine.converge_with(&host, &desired).await {
        Err(Error::Resources(failed)) => assert_eq!(named(&failed), ["file /etc/sysctl.d/99-x.conf"]),
        other => panic!("{other:?}"),
    }
    it.joins();
    assert_eq!(it.left(&desired), ["file /etc/sysctl.d/99-x.conf"], "the next run tries the command again");
    it.converge(&desired).await.unwrap();
    assert!(it.left(&desired).is_empty());
}
