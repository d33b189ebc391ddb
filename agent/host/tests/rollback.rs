//! A node that works, changed: components one after another, each waited for; and everything put back where one does
//! not come back.
#![allow(clippy::unwrap_used)]

mod support;

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kops_agent_host::health::{Asking, Health, Pace};
use kops_agent_host::system::pods::Pods;
use kops_agent_host::system::systemd::{Systemd, UnitState};
use kops_agent_host::{Error, Host, Record, Resetting};
use kops_agent_plan::diff::{Enablement, sha256_hex};
use kops_agent_plan::health::{Check, StaticPod};
use kops_agent_plan::resource::*;
use support::{Machine, noon};

const KUBELET_CONFIG: &str = "/var/lib/kubelet/kubelet.conf";
const TOKEN: &str = "/etc/token";

/// A machine's systemd and components: what reads a text with `bad` in it is not well. kubelet sees manifests as soon
/// as they are written, unless it is not well itself; a pod reads its key when it is started.
struct Node {
    root: PathBuf,
    units: Mutex<BTreeMap<String, (bool, bool)>>,
    asked: Mutex<Vec<String>>,
    /// What each component was started with.
    started_with: Mutex<BTreeMap<String, String>>,
}

impl Node {
    fn of(machine: &Machine) -> Arc<Node> {
        Arc::new(Node {
            root: machine.root.path().to_owned(),
            units: Mutex::default(),
            asked: Mutex::default(),
            started_with: Mutex::default(),
        })
    }

    fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.root.join(path.trim_start_matches('/'))).unwrap_or_default()
    }

    fn act(&self, verb: &str, unit: &str, change: impl FnOnce(&mut (bool, bool))) -> Result<(), Error> {
        self.asked.lock().unwrap().push(format!("{verb} {unit}").trim_end().to_owned());
        change(self.units.lock().unwrap().entry(unit.into()).or_default());
        if matches!(verb, "start" | "restart") {
            let read = self.read(KUBELET_CONFIG) + &self.read(&format!("/etc/systemd/system/{unit}"));
            self.started_with.lock().unwrap().insert(unit.into(), read);
        }
        Ok(())
    }

    fn is_well(&self, unit: &str) -> bool {
        self.started_with.lock().unwrap().get(unit).is_some_and(|text| !text.contains("bad"))
    }

    /// The key with which a pod was started, of which `uid` is the UID now.
    fn key_of(&self, pod: &str, uid: &str) -> String {
        let mut started = self.started_with.lock().unwrap();
        let started = started.entry(format!("pod {pod}")).or_default();
        if !started.starts_with(uid) {
            *started = format!("{uid} {}", self.read(&key_path(pod)));
        }
        started.clone()
    }

    /// What was asked since this was called last.
    fn news(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}

impl Systemd for Node {
    fn states(&self, units: &[&str]) -> Result<Vec<UnitState>, Error> {
        let known = self.units.lock().unwrap();
        let state = |unit: &&str| {
            let (enabled, running) = known.get(*unit).copied().unwrap_or_default();
            let enablement = if enabled { Enablement::Enabled } else { Enablement::Disabled };
            UnitState { is_known: known.contains_key(*unit), enablement, running, restarting: false }
        };
        Ok(units.iter().map(state).collect())
    }
    fn reload(&self) -> Result<(), Error> {
        Ok(())
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

impl Health for Node {
    fn ask<'a>(&'a self, check: &'a Check) -> Asking<'a> {
        let answer = match check {
            Check::Answers { url } if url.contains(":10248/") && !self.is_well("kubelet.service") => {
                Err("connection refused".to_owned())
            }
            _ => Ok(()),
        };
        Box::pin(std::future::ready(answer))
    }

    fn pod_uid(&self, pod: &StaticPod, _socket: &str) -> Result<Option<String>, String> {
        let manifest = self.read(&format!("/etc/kubernetes/manifests/{}.manifest", pod.name));
        let uid = sha256_hex(manifest.as_bytes());
        let news = format!("pod {} {}", pod.name, manifest.lines().last().unwrap_or_default());
        let mut asked = self.asked.lock().unwrap();
        if asked.last() != Some(&news) {
            asked.push(news);
        }
        drop(asked);
        let has_bad_key = self.key_of(&pod.name, &uid).contains("bad");
        match manifest.contains("bad") || has_bad_key || !self.is_well("kubelet.service") {
            true => Err(format!("{} does not run", pod.name)),
            false => Ok(Some(uid)),
        }
    }

    fn last_words(&self, _resource: &ResourceId) -> Vec<String> {
        vec!["unknown field bad".into()]
    }
}

impl Pods for Node {
    fn end_containers(&self, pod: &StaticPod, _socket: &str) -> Result<(), Error> {
        self.asked.lock().unwrap().push(format!("end {}", pod.name));
        self.started_with.lock().unwrap().remove(&format!("pod {}", pod.name));
        Ok(())
    }
}

fn key_path(pod: &str) -> String {
    format!("/srv/kubernetes/{pod}/tls.key")
}

const PACE: Pace = Pace {
    patience: Duration::from_millis(60),
    pause: Duration::from_millis(2),
    steady: Duration::from_millis(6),
    unnoticed: Duration::from_secs(60),
};

/// A node of a version: every text has it in it.
fn node(version: &str) -> DesiredState {
    let mut node = DesiredState::default();
    node.add(File::text(KUBELET_CONFIG, format!("maxPods: {version}\n")));
    node.add(Directory::new("/etc/kops").mode(if version == "1" { Mode(0o700) } else { Mode(0o755) }));
    node.add(File::text(format!("/etc/kops/only-{version}"), version));
    node.add(File::text(TOKEN, format!("secret {version}")).mode(Mode::PRIVATE));
    node.add(Symlink { path: "/opt/version".into(), target: version.into() });
    node.add(HostsEntry { hostname: "api".into(), addresses: vec![format!("10.0.0.{}", version.len())] });
    node.add(Unit::new("containerd.service", "[Service]\nExecStart=/usr/bin/containerd\n"));
    node.add(Unit::new(format!("only-{version}.service"), "[Service]\n"));
    node.add(Unit::existing("chrony.service"));
    let kubelet = format!("[Service]\nExecStart=/usr/local/bin/kubelet\n# {version}\n");
    node.add(Unit::new("kubelet.service", kubelet).restarted_by_files([KUBELET_CONFIG]));
    node
}

fn with_pods(mut state: DesiredState, versions: [&str; 3]) -> DesiredState {
    for (name, version) in ["kube-scheduler", "kube-apiserver", "etcd-main"].into_iter().zip(versions) {
        let text = format!(
            "metadata: {{name: {name}, namespace: kube-system}}\nspec: {{containers: [{{name: {name}}}]}}\n# {version}"
        );
        state.add(File::text(format!("/etc/kubernetes/manifests/{name}.manifest"), text));
    }
    state
}

/// The same node with static pods that do not change and have these keys mounted.
fn with_keys(keys: [&str; 3]) -> DesiredState {
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

struct Scene {
    machine: Machine,
    node: Arc<Node>,
}

impl Scene {
    /// A node that has converged to a state.
    async fn converged(state: &DesiredState) -> Scene {
        let machine = Machine::new();
        std::fs::create_dir_all(machine.path("/etc")).unwrap();
        std::fs::write(machine.path("/etc/hosts"), "127.0.0.1 localhost\n").unwrap();
        let scene = Scene { node: Node::of(&machine), machine };
        scene.converge(state).await.unwrap();
        scene.node.news();
        scene
    }

    fn host(&self) -> Host {
        let host = Host::scratch(self.machine.root.path()).unwrap().with_clock(noon);
        host.with_systemd(self.node.clone())
            .with_health(self.node.clone())
            .with_pods(self.node.clone())
            .with_pace(PACE)
    }

    async fn converge(&self, state: &DesiredState) -> Result<(), Error> {
        self.machine.converge_with(&self.host(), state).await.map(drop)
    }

    /// Everything that is not the agent's own business: paths with modes and contents.
    fn files(&self) -> Vec<String> {
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

    fn is_clean(&self) {
        assert_eq!(self.machine.leftovers(), [""; 0]);
        assert!(!self.machine.path("/var/lib/kops-agent/rollback").exists());
    }
}

#[tokio::test]
async fn everything_is_put_back_if_kubelet_does_not_come_back() {
    let scene = Scene::converged(&node("1")).await;
    let before = scene.files();
    let error = scene.converge(&node("bad")).await.unwrap_err();
    assert!(matches!(error, Error::RolledBack(_)), "{error:?}");
    let error = error.to_string();
    for part in [
        "unit kubelet.service did not come back: connection refused; its last words: unknown field bad",
        "`journalctl -u kubelet.service`",
        "rolled back to the configuration of before (hash), with which everything is well again",
        "--retry-failed",
    ] {
        assert!(error.contains(part), "{part:?} is not in {error}");
    }
    assert_eq!(scene.files(), before);
    scene.is_clean();
    let news = scene.node.news();
    let of_kubelet: Vec<_> = news.iter().filter(|news| news.ends_with("kubelet.service")).collect();
    assert_eq!(of_kubelet, ["restart kubelet.service", "restart kubelet.service"]);
    assert!(!news.iter().any(|news| news.ends_with("containerd.service")), "{news:?}");
    assert!(news.contains(&"stop only-bad.service".to_owned()), "{news:?}");
    assert!(!news.contains(&"stop only-1.service".to_owned()), "removals come when all is well: {news:?}");

    let status = scene.host().status().unwrap();
    assert!(!status.converged && status.changed.is_empty(), "{status:?}");
    assert_eq!(status.rolled_back.unwrap().back_to, "hash");
    assert!(scene.machine.plan(&scene.host(), &node("1")).is_empty());

    // The same is not tried again by itself, another is.
    let error = scene.converge(&node("bad")).await.unwrap_err();
    assert!(matches!(error, Error::FailedBefore(_)), "{error:?}");
    assert!(
        error.to_string().contains("is not tried again: unit kubelet.service did not come back"),
        "{error}"
    );
    assert_eq!((scene.node.news(), scene.files()), (vec![], before.clone()));
    let again = scene.host().retrying_failed(true);
    let error = scene.machine.converge_with(&again, &node("bad")).await.unwrap_err();
    assert!(matches!(error, Error::RolledBack(_)), "{error:?}");
    assert_eq!(scene.files(), before);
    scene.converge(&node("22")).await.unwrap();
    let status = scene.host().status().unwrap();
    assert!(status.converged && status.rolled_back.is_none() && status.failure.is_none(), "{status:?}");
    assert!(!scene.machine.path("/etc/kops/only-1").exists());
    scene.is_clean();
}

#[tokio::test]
async fn back_at_the_configuration_of_before_nothing_is_left_to_do() {
    let scene = Scene::converged(&node("1")).await;
    scene.converge(&node("bad")).await.unwrap_err();
    scene.node.news();
    scene.converge(&node("1")).await.unwrap();
    assert_eq!(scene.node.news(), [""; 0]);
    assert!(scene.host().status().unwrap().converged);
}

#[tokio::test]
async fn static_pods_change_one_after_another_before_kubelet() {
    let scene = Scene::converged(&with_pods(node("1"), ["1", "1", "1"])).await;
    scene.converge(&with_pods(node("22"), ["2", "2", "2"])).await.unwrap();
    let news = scene.node.news();
    let at = |what: &str| {
        news.iter().position(|news| news == what).unwrap_or_else(|| panic!("no {what} in {news:?}"))
    };
    let order =
        ["pod etcd-main # 2", "pod kube-apiserver # 2", "pod kube-scheduler # 2", "restart kubelet.service"];
    assert!(order.windows(2).all(|two| at(two[0]) < at(two[1])), "{news:?}");
    scene.is_clean();
}

#[tokio::test]
async fn a_pod_that_does_not_come_back_takes_back_those_before_it() {
    let before = with_pods(node("1"), ["1", "1", "1"]);
    let scene = Scene::converged(&before).await;
    let files = scene.files();
    let error = scene.converge(&with_pods(node("22"), ["2", "bad", "2"])).await.unwrap_err().to_string();
    assert!(
        error.contains("kube-apiserver.manifest did not come back: kube-apiserver does not run"),
        "{error}"
    );
    assert_eq!(scene.files(), files);
    let news = scene.node.news();
    assert!(!news.contains(&"pod kube-scheduler # 2".to_owned()), "{news:?}");
    assert!(!news.contains(&"restart kubelet.service".to_owned()), "its turn never came: {news:?}");
    assert_eq!(news.iter().rfind(|news| news.starts_with("pod etcd-main")).unwrap(), "pod etcd-main # 1");
    assert!(scene.machine.plan(&scene.host(), &before).is_empty());
    scene.is_clean();
}

#[tokio::test]
async fn pods_whose_keys_change_are_started_anew_one_after_another() {
    let scene = Scene::converged(&with_keys(["1", "1", "1"])).await;
    assert!(scene.machine.plan(&scene.host(), &with_keys(["1", "1", "1"])).is_empty());
    scene.converge(&with_keys(["1", "2", "2"])).await.unwrap();
    let ended = |news: Vec<String>| {
        news.into_iter().filter(|news| news.starts_with("end ") || news.starts_with("restart ")).collect()
    };
    let news: Vec<String> = ended(scene.node.news());
    assert_eq!(news, ["end etcd-main", "end kube-apiserver"], "each once, and nobody else");
    scene.converge(&with_keys(["1", "2", "2"])).await.unwrap();
    assert_eq!(ended(scene.node.news()), [""; 0]);
    scene.is_clean();
}

#[tokio::test]
async fn a_pod_that_does_not_come_back_with_a_new_key_gets_the_old_one_again() {
    let before = with_keys(["1", "1", "1"]);
    let scene = Scene::converged(&before).await;
    let files = scene.files();
    let error = scene.converge(&with_keys(["2", "bad", "2"])).await.unwrap_err();
    assert!(matches!(error, Error::RolledBack(_)), "{error:?}");
    assert_eq!(scene.files(), files);
    let news = scene.node.news();
    let ended: Vec<&String> = news.iter().filter(|news| news.starts_with("end ")).collect();
    assert_eq!(ended, ["end etcd-main", "end kube-apiserver", "end etcd-main", "end kube-apiserver"]);
    let status = scene.host().status().unwrap();
    assert_eq!(status.rolled_back.unwrap().still_wrong, [""; 0]);
    assert!(scene.machine.plan(&scene.host(), &before).is_empty());
    scene.is_clean();
}

#[tokio::test]
async fn a_pod_that_an_interrupted_run_did_not_get_to_is_started_anew_by_the_next() {
    let scene = Scene::converged(&with_keys(["1", "1", "1"])).await;
    let patient = scene.host().with_pace(Pace { patience: Duration::from_secs(60), ..PACE });
    let bad = with_keys(["2", "2", "bad"]);
    let run = scene.machine.converge_with(&patient, &bad);
    // It would wait for etcd for a minute.
    tokio::time::timeout(Duration::from_millis(100), run).await.unwrap_err();
    drop(patient);
    scene.node.news();
    scene.converge(&with_keys(["2", "2", "3"])).await.unwrap();
    let news = scene.node.news();
    let ended: Vec<&String> = news.iter().filter(|news| news.starts_with("end ")).collect();
    assert_eq!(ended, ["end etcd-main", "end kube-apiserver", "end kube-scheduler"]);
    scene.is_clean();
}

#[tokio::test]
async fn what_was_interrupted_while_it_waited_goes_on() {
    for (then, is_good) in [("bad", false), ("22", true)] {
        let scene = Scene::converged(&node("1")).await;
        let before = scene.files();
        let patient = scene.host().with_pace(Pace { patience: Duration::from_secs(60), ..PACE });
        let bad = node("bad");
        let run = scene.machine.converge_with(&patient, &bad);
        // It would wait for a minute.
        tokio::time::timeout(Duration::from_millis(100), run).await.unwrap_err();
        drop(patient);
        assert!(scene.machine.path("/var/lib/kops-agent/rollback/journal.json").exists());
        let folder = scene.machine.path("/var/lib/kops-agent/rollback").metadata().unwrap();
        assert_eq!(folder.mode() & 0o777, 0o700);
        match scene.converge(&node(then)).await {
            Ok(()) => assert!(is_good),
            Err(error) => {
                assert!(!is_good && matches!(error, Error::RolledBack(_)), "{error}");
                assert_eq!(scene.files(), before, "back to what was before the run that was interrupted");
            }
        }
        scene.is_clean();
    }
}

#[tokio::test]
async fn pods_that_an_interrupted_run_has_changed_are_waited_for_by_the_next() {
    let scene = Scene::converged(&with_pods(node("1"), ["1", "1", "1"])).await;
    let before = scene.files();
    let patient = scene.host().with_pace(Pace { patience: Duration::from_secs(60), ..PACE });
    let bad = with_pods(node("1"), ["bad", "1", "1"]);
    let run = scene.machine.converge_with(&patient, &bad);
    tokio::time::timeout(Duration::from_millis(100), run).await.unwrap_err();
    drop(patient);
    assert!(scene.machine.plan(&scene.host(), &bad).is_empty(), "all files are written");
    let error = scene.converge(&bad).await.unwrap_err();
    assert!(matches!(error, Error::RolledBack(_)), "{error}");
    assert_eq!(scene.files(), before);
    scene.is_clean();
}

#[tokio::test]
async fn what_repairs_is_not_rolled_back() {
    let scene = Scene::converged(&node("1")).await;
    std::fs::write(scene.machine.path("/etc/systemd/system/kubelet.service"), "broken by hand").unwrap();
    let good = scene.machine.read(KUBELET_CONFIG);
    std::fs::write(scene.machine.path(KUBELET_CONFIG), "broken by hand").unwrap();
    scene.node.started_with.lock().unwrap().clear();
    let stubborn = Stubborn(scene.node.clone());
    let host = scene.host().with_health(Arc::new(stubborn));
    let error = scene.machine.converge_with(&host, &node("1")).await.unwrap_err();
    assert!(matches!(error, Error::Unwell { .. }), "{error:?}");
    assert_eq!(scene.machine.read(KUBELET_CONFIG), good);
    // And it is tried again.
    scene.converge(&node("1")).await.unwrap();
    assert_eq!(scene.node.news().iter().filter(|news| *news == "restart kubelet.service").count(), 2);
    scene.is_clean();
}

struct Quiet;

impl Resetting for Quiet {
    fn doing(&self, _what: &str) {}
}

#[tokio::test]
async fn a_reset_after_an_interrupted_change_takes_what_was_kept_and_spares_what_is_not_the_agents() {
    let with_motd = |version: &str, mode: Mode| {
        let mut state = node(version);
        state.add(File::text("/etc/motd", "hello").mode(mode));
        state
    };
    let machine = Machine::new();
    std::fs::create_dir_all(machine.path("/etc")).unwrap();
    std::fs::write(machine.path("/etc/motd"), "hello").unwrap();
    let scene = Scene { node: Node::of(&machine), machine };
    scene.converge(&with_motd("1", Mode::FILE)).await.unwrap();
    let patient = scene.host().with_pace(Pace { patience: Duration::from_secs(60), ..PACE });
    let bad = with_motd("bad", Mode::PRIVATE);
    let run = scene.machine.converge_with(&patient, &bad);
    tokio::time::timeout(Duration::from_millis(100), run).await.unwrap_err();
    drop(patient);
    let motd = scene.machine.path("/etc/motd").metadata().unwrap();
    assert_eq!(motd.nlink(), 2, "it is not kept by a second name, so this test shows nothing");

    let host = scene.host();
    host.reset(&host.plan_reset(&[], &[], &[]).unwrap(), &Quiet).unwrap();
    assert_eq!(scene.machine.read("/etc/motd"), "hello");
    assert!(!scene.machine.path("/var/lib/kops-agent").exists());
}

/// Nothing is ever well.
struct Stubborn(Arc<Node>);

impl Health for Stubborn {
    fn ask<'a>(&'a self, _check: &'a Check) -> Asking<'a> {
        Box::pin(std::future::ready(Err("connection refused".into())))
    }
    fn pod_uid(&self, _pod: &StaticPod, _socket: &str) -> Result<Option<String>, String> {
        Err("no pod".into())
    }
    fn last_words(&self, resource: &ResourceId) -> Vec<String> {
        self.0.last_words(resource)
    }
}

#[tokio::test]
async fn what_stays_unwell_is_told_and_the_rest_is_put_back() {
    let scene = Scene::converged(&node("1")).await;
    let before = scene.files();
    let host = scene.host().with_health(Arc::new(Stubborn(scene.node.clone())));
    let error = scene.machine.converge_with(&host, &node("22")).await.unwrap_err().to_string();
    assert!(error.contains(", and still: unit kubelet.service did not come back"), "{error}");
    assert_eq!(scene.files(), before);
    assert_eq!(scene.host().status().unwrap().rolled_back.unwrap().still_wrong.len(), 1);
    scene.is_clean();
}

#[tokio::test]
async fn nobody_waits_where_nothing_worked_before_or_nobody_wants_to() {
    let machine = Machine::new();
    let scene = Scene { node: Node::of(&machine), machine };
    scene.converge(&node("bad")).await.unwrap();
    let hasty = scene.host().with_pace(Pace { patience: Duration::ZERO, ..PACE });
    scene.machine.converge_with(&hasty, &node("bad-too")).await.unwrap();
    let mut warming = node("1");
    let kubelet = Unit { running: false, ..Unit::new("kubelet.service", "[Service]\n") };
    let others: Vec<Resource> = warming
        .iter()
        .filter(|(id, _)| id.name != "kubelet.service")
        .map(|(_, resource)| resource.clone())
        .collect();
    warming = support::state(others);
    warming.add(kubelet);
    scene.converge(&warming).await.unwrap();
    scene.is_clean();
}

#[tokio::test]
async fn what_is_kept_may_be_on_another_file_system() {
    use nix::mount::{MsFlags, mount, umount};
    let scene = Scene::converged(&node("1")).await;
    let disk = scene.machine.path("/var/lib/kops-agent/rollback");
    std::fs::create_dir_all(&disk).unwrap();
    if mount(Some("tmpfs"), &disk, Some("tmpfs"), MsFlags::empty(), Some("size=1m")).is_err() {
        // Whoever may not mount has one file system.
        return;
    }
    let before = scene.files();
    let error = scene.converge(&node("bad")).await;
    let after = scene.files();
    umount(&disk).unwrap();
    assert!(matches!(error, Err(Error::RolledBack(_))), "{error:?}");
    assert_eq!(after, before);
    assert_eq!(scene.machine.leftovers(), [""; 0]);
}

#[tokio::test]
async fn a_scratch_root_can_be_told_that_a_unit_does_not_start() {
    let machine = Machine::new();
    machine.converge(&node("1")).await.unwrap();
    let path = machine.path("/var/lib/kops-agent/recorded/state.json");
    let mut state: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    state["refusals"] =
        serde_json::json!([{"unit": "kubelet.service", "path": KUBELET_CONFIG, "text": "22"}]);
    std::fs::write(&path, serde_json::to_vec(&state).unwrap()).unwrap();
    let error = machine.error(&node("22")).await;
    assert!(error.contains("`systemctl restart kubelet.service` is refused while"), "{error}");
    assert_eq!(machine.read(KUBELET_CONFIG), "maxPods: 1\n");
    machine.converge(&node("333")).await.unwrap();
    assert!(machine.path(Record::PATH).exists());
}
