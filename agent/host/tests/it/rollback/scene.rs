//! A working node, and actions on it.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kops_agent_host::health::{Health, HealthTimings, unhealthy};
use kops_agent_host::system::pods::Pods;
use kops_agent_host::system::systemd::{Systemd, UnitState};
use kops_agent_host::{Error, Host};
use kops_agent_plan::diff::Enablement;
use kops_agent_plan::health::{Check, StaticPod};
use kops_agent_plan::resource::*;
use kops_agent_spec::digest::sha256_hex;
use kops_agent_spec::failure::Failure;
use parking_lot::Mutex;

use crate::support::{Machine, noon};

pub(crate) const KUBELET_CONFIG: &str = "/var/lib/kubelet/kubelet.conf";
pub(crate) const TOKEN: &str = "/etc/token";

/// The systemd and the components of a machine. A component that reads a text with `bad` is unhealthy. A healthy
/// kubelet sees a manifest as soon as it is written. A pod reads its key when the pod starts.
pub(crate) struct Node {
    root: PathBuf,
    units: Mutex<BTreeMap<String, (bool, bool)>>,
    pub(crate) asked: Mutex<Vec<String>>,
    /// The text that each component read when it started.
    pub(crate) started_with: Mutex<BTreeMap<String, String>>,
    /// Requests that systemd always refuses.
    pub(crate) refused: Mutex<Vec<String>>,
    /// A process that does not belong to kubelet and listens on kubelet's port.
    pub(crate) other_listener: Mutex<Option<String>>,
    /// Number of requests to systemd until the machine loses power.
    left: AtomicUsize,
}

impl Node {
    pub(crate) fn new(machine: &Machine) -> Arc<Node> {
        Arc::new(Node {
            root: machine.root.path().to_owned(),
            units: Mutex::default(),
            asked: Mutex::default(),
            started_with: Mutex::default(),
            refused: Mutex::default(),
            other_listener: Mutex::default(),
            left: AtomicUsize::new(usize::MAX),
        })
    }

    /// Makes the machine lose power after `left` more requests to systemd.
    pub(crate) fn lose_power_after(&self, left: usize) {
        self.left.store(left, Ordering::SeqCst);
    }

    fn use_power(&self, asked: &str) -> Result<(), Error> {
        let left = |left: usize| left.checked_sub(1);
        self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, left).map(drop).map_err(|_| {
            Error::Command { command: format!("systemctl {asked}"), outcome: "lost power".into() }
        })
    }

    fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.root.join(path.trim_start_matches('/'))).unwrap_or_default()
    }

    fn act(
        &self,
        verb: &'static str,
        unit: &str,
        change: impl FnOnce(&mut (bool, bool)),
    ) -> Result<(), Error> {
        let asked = format!("{verb} {unit}");
        self.use_power(&asked)?;
        self.asked.lock().push(asked.clone());
        let is_spoilt =
            verb == "restart" && self.read(&format!("/etc/systemd/system/{unit}")).contains("refused");
        if is_spoilt || self.refused.lock().contains(&asked) {
            return Err(Error::Unit { doing: verb, unit: unit.into(), reason: "its job has failed".into() });
        }
        change(self.units.lock().entry(unit.into()).or_default());
        if matches!(verb, "start" | "restart") {
            let read = self.read(KUBELET_CONFIG) + &self.read(&format!("/etc/systemd/system/{unit}"));
            self.started_with.lock().insert(unit.into(), read);
        }
        Ok(())
    }

    fn is_healthy(&self, unit: &str) -> bool {
        self.started_with.lock().get(unit).is_some_and(|text| !text.contains("bad"))
    }

    /// The key that the pod read when it started. A new `uid` means that the pod has started again.
    fn key_of(&self, pod: &str, uid: &str) -> String {
        let mut started = self.started_with.lock();
        let started = started.entry(format!("pod {pod}")).or_default();
        if !started.starts_with(uid) {
            *started = format!("{uid} {}", self.read(&key_path(pod)));
        }
        started.clone()
    }

    /// The requests since the last call of `news`.
    pub(crate) fn news(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock())
    }
}

impl Systemd for Node {
    fn states(&self, units: &[&str]) -> Result<Vec<UnitState>, Error> {
        let known = self.units.lock();
        let state = |unit: &&str| match known.get(*unit) {
            Some((true, running)) => UnitState::existing(Enablement::Enabled, *running),
            Some((false, running)) => UnitState::existing(Enablement::Disabled, *running),
            None => UnitState::UNKNOWN,
        };
        Ok(units.iter().map(state).collect())
    }
    fn reload(&self) -> Result<(), Error> {
        self.use_power("daemon-reload")
    }
    fn enable(&self, unit: &str) -> Result<(), Error> {
        self.act("enable", unit, |state| state.0 = true)
    }
    fn disable(&self, unit: &str) -> Result<(), Error> {
        self.act("disable", unit, |state| state.0 = false)
    }
    fn start(&self, unit: &str) -> Result<(), Error> {
        self.act("start", unit, |state| state.1 = true)
    }
    fn stop(&self, unit: &str) -> Result<(), Error> {
        self.act("stop", unit, |state| state.1 = false)
    }
    fn kill(&self, unit: &str) -> Result<(), Error> {
        self.act("kill", unit, |_| {})
    }
    fn restart(&self, unit: &str) -> Result<(), Error> {
        self.act("restart", unit, |state| state.1 = true)
    }
}

#[async_trait::async_trait]
impl Health for Node {
    async fn ask(&self, check: &Check) -> Result<(), Failure> {
        match check {
            Check::Answers { url } if url.contains(":10248/") && !self.is_healthy("kubelet.service") => {
                Err(unhealthy("connection refused"))
            }
            _ => Ok(()),
        }
    }

    fn other_listener(&self, url: &str, unit: &str) -> Option<String> {
        assert_eq!(unit, "kubelet.service");
        self.other_listener.lock().as_ref().map(|name| format!("{name} listens at {url}"))
    }

    fn pod_uid(&self, pod: &StaticPod, _socket: &str) -> Result<Option<String>, Failure> {
        let manifest = self.read(&format!("/etc/kubernetes/manifests/{}.manifest", pod.name));
        let uid = sha256_hex(manifest.as_bytes());
        let news = format!("pod {} {}", pod.name, manifest.lines().last().unwrap_or_default());
        let mut asked = self.asked.lock();
        if asked.last() != Some(&news) {
            asked.push(news);
        }
        drop(asked);
        let has_bad_key = self.key_of(&pod.name, &uid).contains("bad");
        match manifest.contains("bad") || has_bad_key || !self.is_healthy("kubelet.service") {
            true => Err(unhealthy(format!("{} does not run", pod.name))),
            false => Ok(Some(uid)),
        }
    }

    fn last_words(&self, _resource: &ResourceId) -> Vec<String> {
        vec!["unknown field bad".into()]
    }
}

impl Pods for Node {
    fn end_containers(&self, pod: &StaticPod, _socket: &str) -> Result<(), Error> {
        self.asked.lock().push(format!("end {}", pod.name));
        self.started_with.lock().remove(&format!("pod {}", pod.name));
        Ok(())
    }
}

pub(crate) fn key_path(pod: &str) -> String {
    format!("/srv/kubernetes/{pod}/tls.key")
}

pub(crate) const TIMINGS: HealthTimings = HealthTimings {
    timeout: Duration::from_millis(60),
    pause: Duration::from_millis(2),
    steady: Duration::from_millis(6),
    unnoticed: Duration::from_secs(60),
    restarted: Duration::ZERO,
};

/// The desired state of the test node in its version `version`. The texts of its files contain `version`.
pub(crate) fn node(version: &str) -> DesiredState {
    let mut node = DesiredState::default();
    node.add(File::text(KUBELET_CONFIG, format!("maxPods: {version}\n")));
    node.add(Directory::new("/etc/kops").mode(if version == "1" { Mode(0o700) } else { Mode(0o755) }));
    node.add(File::text(format!("/etc/kops/only-{version}"), version));
    node.add(File::text(TOKEN, format!("secret {version}")).mode(Mode::PRIVATE));
    node.add(Symlink { path: "/opt/version".into(), target: version.into() });
    node.add(HostsEntry {
        hostname: "api".into(),
        addresses: vec![format!("10.0.0.{}", version.len())],
        ..HostsEntry::default()
    });
    node.add(Unit::new("containerd.service", "[Service]\nExecStart=/usr/bin/containerd\n"));
    node.add(Unit::new(format!("only-{version}.service"), "[Service]\n"));
    node.add(Unit::existing("chrony.service"));
    let kubelet = format!("[Service]\nExecStart=/usr/local/bin/kubelet\nEnvironment=VERSION={version}\n");
    node.add(Unit::new("kubelet.service", kubelet).restarted_by_files([KUBELET_CONFIG]));
    node
}

pub(crate) fn with_pods(mut state: DesiredState, versions: [&str; 3]) -> DesiredState {
    for (name, version) in ["kube-scheduler", "kube-apiserver", "etcd-main"].into_iter().zip(versions) {
        let text = format!(
            "metadata: {{name: {name}, namespace: kube-system, labels: {{of: '{version}'}}}}\nspec: {{containers: [{{name: \
             {name}}}]}}\n# {version}"
        );
        state.add(File::text(format!("/etc/kubernetes/manifests/{name}.manifest"), text));
    }
    state
}

/// Version 1 of the node, with static pods that mount `keys`. The manifests of the pods do not depend on the keys.
pub(crate) fn with_keys(keys: [&str; 3]) -> DesiredState {
    let mut state = node("1");
    for (name, key) in ["kube-scheduler", "kube-apiserver", "etcd-main"].into_iter().zip(keys) {
        let text = format!(
            "metadata: {{name: {name}, namespace: kube-system}}\nspec: {{containers: [{{name: {name}}}], \
             volumes: [{{name: keys, hostPath: {{path: /srv/kubernetes/{name}}}}}]}}\n"
        );
        state.add(File::text(format!("/etc/kubernetes/manifests/{name}.manifest"), text));
        state.add(File::text(key_path(name), key).mode(Mode::PRIVATE));
    }
    state
}

pub(crate) struct Scene {
    pub(crate) machine: Machine,
    pub(crate) node: Arc<Node>,
}

impl Scene {
    /// A node that has converged to `state`.
    pub(crate) async fn converged(state: &DesiredState) -> Scene {
        let machine = Machine::new();
        std::fs::create_dir_all(machine.path("/etc")).unwrap();
        std::fs::write(machine.path("/etc/hosts"), "127.0.0.1 localhost\n").unwrap();
        let scene = Scene { node: Node::new(&machine), machine };
        scene.converge(state).await.unwrap();
        scene.node.news();
        scene
    }

    pub(crate) fn host(&self) -> Host {
        let host = Host::scratch(self.machine.root.path()).unwrap().with_clock(noon);
        host.with_systemd(self.node.clone())
            .with_health(self.node.clone())
            .with_pods(self.node.clone())
            .with_health_timings(TIMINGS)
    }

    pub(crate) async fn converge(&self, state: &DesiredState) -> Result<(), Error> {
        self.machine.converge_with(&self.host(), state).await.map(drop)
    }

    /// Starts a run that would wait for a minute, and interrupts the run after the request `once_asked`.
    pub(crate) async fn interrupt(&self, state: &DesiredState, once_asked: &str) {
        let lenient =
            self.host().with_health_timings(HealthTimings { timeout: Duration::from_secs(60), ..TIMINGS });
        let has_asked = async {
            while !self.node.asked.lock().iter().any(|asked| asked == once_asked) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::select! {
            outcome = self.machine.converge_with(&lenient, state) => panic!("it has ended: {:?}", outcome.err()),
            () = has_asked => {}
        }
    }

    /// All files except the agent's own, with modes and contents.
    pub(crate) fn files(&self) -> Vec<String> {
        let describe = |path: &String| {
            let at = self.machine.path(path);
            let metadata = std::fs::symlink_metadata(&at).unwrap();
            let content = match metadata.is_symlink() {
                true => std::fs::read_link(&at).unwrap().display().to_string(),
                false => self.machine.read(path),
            };
            format!("{path} {:o} {content}", metadata.permissions().mode())
        };
        let mut files: Vec<String> = self.machine.tree().iter().map(describe).collect();
        files.push(format!("{:o}", self.machine.path("/etc/kops").metadata().unwrap().permissions().mode()));
        files
    }

    pub(crate) fn is_clean(&self) {
        assert_eq!(self.machine.leftovers(), [""; 0]);
        assert!(!self.machine.path("/var/lib/kops-agent/rollback").exists());
    }
}
