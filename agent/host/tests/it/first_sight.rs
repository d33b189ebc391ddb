//! The first sight of a working machine: nodeup made the machine, or the record was lost. Only components that
//! started before their files changed are restarted.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, SystemTime};

use crate::support::Machine;
use kops_agent_host::Host;
use kops_agent_host::health::HealthTimings;
use kops_agent_plan::resource::*;

const CONFIG: &str = "/var/lib/kubelet/kubelet.conf";
const KUBELET_UNIT: &str = "/lib/systemd/system/kubelet.service";
const KEY: &str = "/srv/kubernetes/kube-scheduler/key";
const MANIFEST: &str = "/etc/kubernetes/manifests/kube-scheduler.manifest";
const TEXT: &str = "[Service]\nExecStart=/usr/local/bin/kubelet\n";
const POD: &str = "kind: Pod\nmetadata: {name: kube-scheduler, namespace: kube-system}\nspec: {containers: [{name: a}], \
                   volumes: [{name: k, hostPath: {path: /srv/kubernetes/kube-scheduler}}]}\n";

/// The time at which all files were written, in seconds since 1970.
const MORNING: u64 = 1_700_000_000;

fn node() -> DesiredState {
    let mut state = DesiredState::default();
    state.add(File::text(CONFIG, "kind: KubeletConfiguration\nmaxPods: 1\n"));
    state.add(File::text("/etc/chrony/chrony.conf", "pool x\n"));
    state.add(File::text(KEY, "key"));
    state.add(File::text(MANIFEST, POD));
    state.add(Unit::new("kubelet.service", TEXT).restarted_by_files([CONFIG]));
    state.add(Unit { enabled: false, ..Unit::new("kubelet.slice", "[Slice]\n") });
    state.add(Unit::existing("chrony.service").restarted_by_files(["/etc/chrony/chrony.conf"]));
    state
}

/// A Debian machine after a run of nodeup. All files have the time `MORNING`. The processes started ten seconds after
/// that.
struct Scene(Machine);

impl Scene {
    fn new() -> Scene {
        let scene = Scene(Machine::new());
        scene.write("/etc/os-release", "ID=debian\nVERSION_ID=\"12\"\n");
        for (_, resource) in node().iter() {
            match resource {
                Resource::File(File { path, content: Content::Text(text), .. }) => scene.write(path, text),
                Resource::Unit(Unit { name, text: Some(text), .. }) => {
                    scene.write(&format!("/lib/systemd/system/{name}"), text);
                }
                _ => {}
            }
        }
        scene.having(10, "")
    }

    /// Records that the processes started `started` seconds after the files were written. `unread` is appended to the
    /// recorded state of each unit. It says whether systemd has read the unit's file.
    fn having(self, started: i64, unread: &str) -> Scene {
        let started = 1_000_000 * (MORNING as i64 + started);
        let process = format!(r#""enabled": true, "running": true, "started": {started}"#);
        let state = format!(
            r#"{{"units": {{"kubelet.service": {{{process} {unread}}}, "chrony.service": {{{process} {unread}}},
                "kubelet.slice": {{"enabled": false, "running": true {unread}}}}},
                "pods": {{"kube-system/kube-scheduler": {started}}}}}"#
        );
        let path = "/var/lib/kops-agent/recorded/state.json";
        self.write(path, state);
        fs::set_permissions(self.0.path(path), fs::Permissions::from_mode(0o600)).unwrap();
        self
    }

    fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        fs::create_dir_all(self.0.path(path).parent().unwrap()).unwrap();
        fs::write(self.0.path(path), text).unwrap();
        self.was_written(path, 0);
    }

    /// Sets the modification time of a file to `after` seconds past `MORNING`.
    fn was_written(&self, path: &str, after: u64) {
        let file = fs::File::options().append(true).open(self.0.path(path)).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(MORNING + after)).unwrap();
    }

    fn host(&self) -> Host {
        let pause = Duration::from_millis(1);
        let timings = HealthTimings { pause, steady: pause, ..HealthTimings::default() };
        Host::scratch(self.0.root.path()).unwrap().with_health_timings(timings)
    }

    fn planned(&self) -> Vec<String> {
        let plan = self.0.plan(&self.host(), &node());
        assert!(plan.steps.iter().all(|step| step.restarts()), "{plan:?}");
        plan.steps.iter().map(|step| step.resource.name.clone()).collect()
    }

    /// Converges once, and checks that a second run would do nothing. Returns all requests.
    async fn asked(&self) -> Vec<String> {
        self.0.converge_with(&self.host(), &node()).await.unwrap();
        assert_eq!(self.planned(), [""; 0]);
        let path = self.0.path("/var/lib/kops-agent/recorded/requests.txt");
        fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
    }
}

const RESTART: [&str; 2] = ["systemd: daemon-reload", "systemd: restart kubelet.service"];

#[tokio::test]
async fn a_component_that_started_after_its_files_keeps_running() {
    let scene = Scene::new();
    assert_eq!(scene.planned(), [""; 0]);
    assert_eq!(scene.asked().await, [""; 0]);
}

#[tokio::test]
async fn a_component_that_is_older_than_its_files_is_restarted() {
    for path in [CONFIG, KUBELET_UNIT] {
        let scene = Scene::new();
        scene.was_written(path, 11);
        assert_eq!(scene.planned(), ["kubelet.service"], "{path}");
        assert_eq!(scene.asked().await, RESTART, "{path}");
    }
    let scene = Scene::new();
    scene.was_written(KEY, 11);
    assert_eq!(scene.planned(), [MANIFEST]);
    assert_eq!(scene.asked().await, ["containerd: end the containers of kube-system/kube-scheduler"]);
}

#[tokio::test]
async fn units_that_systemd_has_not_read_are_read_and_restarted() {
    let scene = Scene::new().having(10, r#", "unread": true"#);
    // kubelet.slice has no processes, and chrony's unit file does not belong to the agent. So only kubelet restarts.
    assert_eq!(scene.planned(), ["kubelet.service"]);
    assert_eq!(scene.asked().await.last().unwrap(), RESTART[1]);
    let scene = Scene::new();
    let state = "/var/lib/kops-agent/recorded/state.json";
    let text = scene.0.read(state).replace(r#""enabled": false"#, r#""enabled": false, "unread": true"#);
    fs::write(scene.0.path(state), text).unwrap();
    assert_eq!(scene.planned(), [""; 0]);
    assert_eq!(scene.asked().await, ["systemd: daemon-reload"]);
}

#[tokio::test]
async fn an_outdated_component_is_restarted_after_the_record_was_lost() {
    for is_spoilt in [true, false] {
        let scene = Scene::new();
        assert_eq!(scene.asked().await, [""; 0]);
        fs::remove_dir_all(scene.0.path("/var/lib/kops-agent/units")).unwrap();
        let record = scene.0.path("/var/lib/kops-agent/record.json");
        if is_spoilt {
            fs::write(record, "{").unwrap()
        } else {
            fs::remove_file(record).unwrap()
        }
        assert_eq!(scene.planned(), [""; 0]);
        scene.was_written(CONFIG, 11);
        assert_eq!(scene.planned(), ["kubelet.service"]);
        assert_eq!(scene.asked().await, RESTART);
    }
}

#[tokio::test]
async fn meaningless_times_restart_nothing() {
    // The machine's clock was ahead when the files were written.
    let scene = Scene::new();
    for path in [CONFIG, KUBELET_UNIT, KEY] {
        scene.was_written(path, 1_000_000_000);
    }
    assert_eq!(scene.asked().await, [""; 0]);
    // The processes started long after the files were written, or in the second in which the files were written.
    for started in [1_000_000, 0] {
        assert_eq!(Scene::new().having(started, "").asked().await, [""; 0]);
    }
}

#[tokio::test]
async fn after_an_interrupted_run_outdated_components_are_still_restarted() {
    let scene = Scene::new();
    scene.was_written(CONFIG, 11);
    let state = "/var/lib/kops-agent/recorded/state.json";
    let refusal = r#"{"refusals": [{"unit": "kubelet.service", "path": "/etc/os-release", "text": ""}], "#;
    let text = scene.0.read(state);
    fs::write(scene.0.path(state), text.replacen('{', refusal, 1)).unwrap();
    scene.0.converge_with(&scene.host(), &node()).await.unwrap_err();
    fs::write(scene.0.path(state), text).unwrap();
    assert_eq!(scene.planned(), ["kubelet.service"]);
}
