//! Volumes and bind mounts of a machine: mounted over nothing, and unmounted when they are no longer wanted.
#![allow(clippy::unwrap_used)]

mod support;

use kops_agent_host::{Resetting, Scope, Silent};
use kops_agent_plan::diff::{ObservedState, Stage, diff};
use kops_agent_plan::resource::*;
use support::{Machine, state};

fn volume(device: &str, path: &str) -> Resource {
    let (device, path) = (device.to_owned(), path.to_owned());
    let (format_options, mount_options) = (vec![], vec![]);
    Mount { device, path, filesystem: "ext4".into(), format_options, mount_options }.into()
}

#[tokio::test]
async fn a_device_is_not_mounted_over_another() {
    let machine = Machine::new();
    machine.converge(&state([volume("/dev/xvdd", "/data")])).await.unwrap();
    let before = machine.requests();
    assert_eq!(before, ["mounts: mount /dev/xvdd at /data (ext4; formatted if it is blank)"]);
    let error = machine.error(&state([volume("/dev/xvde", "/data")])).await;
    assert!(error.contains("/dev/xvde: /dev/xvdd is mounted at /data already"), "{error}");
    assert_eq!(machine.requests(), before);
}

fn bind(source: &str, path: &str) -> Resource {
    let (source, path) = (source.to_owned(), path.to_owned());
    BindMount { source, path, options: vec![], recursive: false }.into()
}

/// What was asked after these requests.
fn news(machine: &Machine, before: usize) -> Vec<String> {
    machine.requests()[before..].to_vec()
}

#[tokio::test]
async fn what_was_mounted_and_is_no_longer_wanted_is_unmounted() {
    let machine = Machine::new();
    let wanted =
        state([volume("/dev/xvdd", "/data"), bind("/mnt/opt", "/opt"), bind("/mnt/bin", "/opt/bin")]);
    machine.converge(&wanted).await.unwrap();
    assert!(machine.plan(&machine.host(), &wanted).is_empty());
    assert_eq!(machine.host().drift().unwrap(), []);
    let before = machine.requests().len();
    std::fs::write(machine.path("/data/theirs"), "data").unwrap();
    machine.converge(&state([bind("/mnt/opt", "/opt")])).await.unwrap();
    assert_eq!(news(&machine, before), ["mounts: unmount /opt/bin", "mounts: unmount /data"]);
    assert!(machine.path("/data/theirs").exists());
    machine.converge(&state([bind("/mnt/opt", "/opt")])).await.unwrap();
    assert_eq!(news(&machine, before).len(), 2);
}

/// Mounts a volume as somebody else does, who records nothing.
async fn mount_before_us(machine: &Machine, theirs: &DesiredState) {
    let plan = diff(theirs, &ObservedState::new());
    let (store, downloads) = (&machine.store, &machine.downloads);
    machine.host().apply(&plan, theirs, store, downloads, &Silent, Scope::Part).await.unwrap();
}

#[tokio::test]
async fn what_was_mounted_before_stays() {
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
async fn a_reset_unmounts_what_was_mounted_and_nothing_else() {
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
    let plan = machine.plan(&host, &node);
    let mounts = plan.stage(Stage::Mounts).map(|step| step.resource.name.clone());
    assert_eq!(mounts.collect::<Vec<_>>(), ["/data", "/opt/bin"], "of all, these are not mounted any more");
    assert!(!machine.path("/data/ours").exists() && machine.path("/data/theirs").exists());
}
