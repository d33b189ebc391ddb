//! Volumes and bind mounts: never mounted over others, and unmounted when they are no longer wanted.
#![allow(clippy::unwrap_used)]

use crate::support::{Machine, state};
use kops_agent_host::{Resetting, Scope, Silent};
use kops_agent_plan::diff::{Action, ObservedState, Stage, diff};
use kops_agent_plan::resource::*;

fn volume(device: &str, path: &str) -> Resource {
    let (device, path) = (device.to_owned(), path.to_owned());
    let (format_options, mount_options) = (vec![], vec![]);
    Mount { device, path, filesystem: "ext4".into(), format_options, mount_options, at_boot: true }.into()
}

#[tokio::test]
async fn a_device_is_not_mounted_over_another() {
    let machine = Machine::new();
    machine.converge(&state([volume("/dev/xvdd", "/data")])).await.unwrap();
    let before = machine.requests();
    assert_eq!(
        before,
        [
            "mounts: mount /dev/xvdd at /data (ext4; formatted if it is blank)",
            "systemd: enable data.mount",
            "systemd: daemon-reload"
        ]
    );
    let error = machine.error(&state([volume("/dev/xvde", "/data")])).await;
    assert!(error.contains("/dev/xvde: /dev/xvdd is mounted at /data already"), "{error}");
    assert_eq!(machine.requests(), before);
}

const UNIT: &str = "/etc/systemd/system/data.mount";

/// Unmounts everything, as a reboot does.
fn reboot(machine: &Machine) {
    let path = machine.path("/var/lib/kops-agent/recorded/state.json");
    let mut state: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    state["mounts"] = serde_json::json!({});
    std::fs::write(&path, serde_json::to_vec(&state).unwrap()).unwrap();
}

#[tokio::test]
async fn a_volume_is_mounted_at_every_boot_before_its_users_start() {
    let machine = Machine::new();
    let node = state([volume("/dev/xvdd", "/data")]);
    machine.converge(&node).await.unwrap();
    let unit = machine.read(UNIT);
    assert!(
        unit.contains("Before=containerd.service kubelet.service\n") && unit.contains("Where=/data\n"),
        "{unit}"
    );

    // The unit is missing: an earlier version of the agent mounted the volume without a unit, or the unit was lost.
    std::fs::remove_file(machine.path(UNIT)).unwrap();
    let plan = machine.plan(&machine.host(), &node);
    assert_eq!(plan.steps.len(), 1, "{plan:?}");
    let before = machine.requests().len();
    machine.converge(&node).await.unwrap();
    assert_eq!(news(&machine, before), ["systemd: enable data.mount", "systemd: daemon-reload"]);
    assert_eq!(machine.read(UNIT), unit);
    reboot(&machine);
    machine.converge(&node).await.unwrap();
    assert!(machine.plan(&machine.host(), &node).is_empty());
}

#[tokio::test]
async fn a_volume_that_an_operator_mounts_at_boot_gets_no_unit() {
    for (path, text) in [
        ("/etc/fstab", "# /dev/x /data\nLABEL=data /data/ ext4 defaults 0 2\n"),
        (UNIT, "[Mount]\nWhat=LABEL=data\nWhere=/data\n"),
    ] {
        let machine = Machine::new();
        let at = machine.path(path);
        std::fs::create_dir_all(at.parent().unwrap()).unwrap();
        std::fs::write(&at, text).unwrap();
        let node = state([volume("/dev/xvdd", "/data")]);
        machine.converge(&node).await.unwrap();
        assert!(machine.plan(&machine.host(), &node).is_empty());
        machine.converge(&state([] as [Resource; 0])).await.unwrap();
        assert_eq!(machine.read(path), text);
        assert!(!machine.requests().iter().any(|request| request.contains("data.mount")));
    }
}

fn bind(source: &str, path: &str) -> Resource {
    let (source, path) = (source.to_owned(), path.to_owned());
    BindMount { source, path, options: vec![], recursive: false }.into()
}

/// All requests except the first `before` ones.
fn news(machine: &Machine, before: usize) -> Vec<String> {
    machine.requests()[before..].to_vec()
}

#[tokio::test]
async fn mounts_that_are_no_longer_wanted_are_unmounted() {
    let machine = Machine::new();
    let wanted =
        state([volume("/dev/xvdd", "/data"), bind("/mnt/opt", "/opt"), bind("/mnt/bin", "/opt/bin")]);
    machine.converge(&wanted).await.unwrap();
    assert!(machine.plan(&machine.host(), &wanted).is_empty());
    assert_eq!(machine.host().drift().unwrap(), []);
    let before = machine.requests().len();
    std::fs::write(machine.path("/data/theirs"), "data").unwrap();
    machine.converge(&state([bind("/mnt/opt", "/opt")])).await.unwrap();
    assert_eq!(
        news(&machine, before),
        [
            "mounts: unmount /opt/bin",
            "systemd: disable data.mount",
            "systemd: daemon-reload",
            "mounts: unmount /data"
        ]
    );
    assert!(!machine.path(UNIT).exists());
    assert!(machine.path("/data/theirs").exists());
    machine.converge(&state([bind("/mnt/opt", "/opt")])).await.unwrap();
    assert_eq!(news(&machine, before).len(), 4);
}

/// Mounts a volume as an operator does, so the agent has no record of it.
async fn mount_before_us(machine: &Machine, theirs: &DesiredState) {
    let plan = diff(theirs, &ObservedState::new());
    let (store, downloads) = (&machine.store, &machine.downloads);
    machine.host().apply(&plan, theirs, store, downloads, &Silent, Scope::Part).await.unwrap();
}

#[tokio::test]
async fn earlier_mounts_stay() {
    let machine = Machine::new();
    let theirs = state([volume("/dev/xvdd", "/data")]);
    mount_before_us(&machine, &theirs).await;
    machine.converge(&theirs).await.unwrap();
    let plan = machine.plan(&machine.host(), &state([] as [Resource; 0]));
    assert!(plan.is_empty(), "{plan:?}");
    assert_eq!(plan.kept[0].why, "it was there before kops-agent");
}

struct Deaf;

impl Resetting for Deaf {
    fn doing(&self, _: &str) {}
}

#[tokio::test]
async fn a_reset_unmounts_only_the_agents_mounts() {
    let machine = Machine::new();
    let theirs = volume("/dev/xvde", "/theirs");
    mount_before_us(&machine, &state([theirs.clone()])).await;
    let mut node = state([volume("/dev/xvdd", "/data"), bind("/mnt/bin", "/opt/bin"), theirs]);
    node.add(File::text("/data/ours", "ours"));
    node.add(Directory::new("/opt"));
    machine.converge(&node).await.unwrap();
    std::fs::write(machine.path("/data/theirs"), "data").unwrap();
    let host = machine.host();
    let reset = host.plan_reset(&[], &[], &[]).unwrap();
    assert_eq!(reset.mounts, ["/opt/bin", "/data"]);
    host.reset(&reset, &Deaf).unwrap();
    let units = std::fs::read_dir(machine.path("/etc/systemd/system")).unwrap();
    assert_eq!(units.count(), 0, "no mount unit is left for the next boot");
    let plan = machine.plan(&host, &node);
    let gone = plan.stage(Stage::Mounts).filter(|step| step.action == Action::Create);
    let mounts = gone.map(|step| step.resource.name.clone());
    assert_eq!(mounts.collect::<Vec<_>>(), ["/data", "/opt/bin"], "a reset unmounts only the agent's mounts");
    assert!(!machine.path("/data/ours").exists() && machine.path("/data/theirs").exists());
}
