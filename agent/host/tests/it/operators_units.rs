//! Overrides of units by an operator: a mask, or another unit. An override stays, and a plan reports it.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::symlink;

use crate::support::Machine;
use kops_agent_host::{Host, Resetting};
use kops_agent_plan::diff::text;
use kops_agent_plan::resource::*;

const UNIT: &str = "[Service]\nExecStart=/usr/local/bin/kubelet\n";
const THEIRS: &str = "[Service]\nExecStart=/usr/local/bin/kubelet --v=9\n";
const LIB: &str = "/lib/systemd/system/kubelet.service";
const ETC: &str = "/etc/systemd/system/kubelet.service";

fn node() -> DesiredState {
    let mut state = DesiredState::default();
    state.add(File::text("/etc/a", "a"));
    state.add(Unit::new("kubelet.service", UNIT));
    state.add(Unit::new("hook.service", "[Service]\nExecStart=/bin/true\n").restarted_by_files(["/etc/a"]));
    state.add(Unit::existing("chrony.service"));
    state
}

fn machine(distribution: &str) -> Machine {
    let machine = Machine::new();
    write(&machine, "/etc/os-release", &format!("ID={distribution}\n"));
    fs::create_dir_all(machine.path("/etc/systemd/system")).unwrap();
    machine
}

fn write(machine: &Machine, path: &str, text: &str) {
    fs::create_dir_all(machine.path(path).parent().unwrap()).unwrap();
    fs::write(machine.path(path), text).unwrap();
}

fn mask(machine: &Machine, unit: &str) {
    symlink("/dev/null", machine.path(&format!("/etc/systemd/system/{unit}"))).unwrap();
}

fn is_masked(machine: &Machine, unit: &str) -> bool {
    fs::read_link(machine.path(&format!("/etc/systemd/system/{unit}")))
        .is_ok_and(|to| to.ends_with("dev/null"))
}

fn told(machine: &Machine, desired: &DesiredState) -> String {
    text::plan(&machine.plan(&machine.host(), desired), text::Style { colour: false, diffs: true })
}

struct Deaf;

impl Resetting for Deaf {
    fn doing(&self, _: &str) {}
}

fn reset(machine: &Machine) {
    let host: Host = machine.host();
    host.reset(&host.plan_reset(&[], &[], &[]).unwrap(), &Deaf).unwrap();
}

#[tokio::test]
async fn a_mask_stays_and_is_reported() {
    for distribution in ["debian", "flatcar"] {
        let machine = machine(distribution);
        mask(&machine, "chrony.service");
        mask(&machine, "hook.service");
        let plan = told(&machine, &node());
        for unit in ["chrony.service", "hook.service"] {
            let said = format!("unit {unit} is left as it is: it is masked (/etc/systemd/system/{unit})");
            assert!(plan.contains(&said), "{plan}");
        }
        machine.converge(&node()).await.unwrap();
        assert!(is_masked(&machine, "chrony.service") && is_masked(&machine, "hook.service"));
        let asked = machine.requests().join("\n");
        assert!(asked.contains("start kubelet.service"), "{asked}");
        assert!(!asked.contains("chrony.service") && !asked.contains("hook.service"), "{asked}");
        assert!(machine.plan(&machine.host(), &node()).is_empty());
        // The mask remains when the agent removes unwanted resources, and after a reset.
        machine.converge(&DesiredState::default()).await.unwrap();
        reset(&machine);
        assert!(is_masked(&machine, "chrony.service") && is_masked(&machine, "hook.service"));
    }
}

#[tokio::test]
async fn a_reset_removes_a_masked_unit_and_keeps_the_mask() {
    let machine = machine("debian");
    machine.converge(&node()).await.unwrap();
    mask(&machine, "hook.service");
    let mut changed = node();
    changed.add(File::text("/etc/b", "b"));
    machine.converge(&changed).await.unwrap();
    reset(&machine);
    assert!(is_masked(&machine, "hook.service"));
    assert!(!machine.path("/lib/systemd/system/hook.service").exists());
}

#[tokio::test]
async fn a_masked_kubelet_is_an_error_with_a_remedy() {
    let machine = machine("debian");
    mask(&machine, "kubelet.service");
    assert!(told(&machine, &node()).contains("unit kubelet.service CANNOT BE REPAIRED: it is masked"));
    let error = machine.error(&node()).await;
    assert!(
        error.contains("kubelet.service") && error.contains("`systemctl unmask kubelet.service`"),
        "{error}"
    );
    assert!(is_masked(&machine, "kubelet.service"));
    assert_eq!(machine.read("/etc/a"), "a", "the run did everything else");
    fs::remove_file(machine.path(ETC)).unwrap();
    machine.converge(&node()).await.unwrap();
    assert_eq!(machine.read(LIB), UNIT);
}

#[tokio::test]
async fn an_operators_overriding_unit_stays_and_is_reported() {
    let machine = machine("debian");
    write(&machine, ETC, THEIRS);
    write(&machine, "/opt/hook.service", THEIRS);
    symlink("/opt/hook.service", machine.path("/etc/systemd/system/hook.service")).unwrap();
    let plan = told(&machine, &node());
    assert!(plan.contains(&format!("unit kubelet.service is left as it is: {ETC} overrides")), "{plan}");
    assert!(plan.contains("unit hook.service is left as it is"), "{plan}");
    let theirs = || assert_eq!(machine.read(ETC), THEIRS);
    machine.converge(&node()).await.unwrap();
    theirs();
    assert_eq!(machine.read(LIB), UNIT, "the agent writes the unit where upstream does");
    assert!(machine.plan(&machine.host(), &node()).is_empty());
    machine.converge(&node()).await.unwrap();
    theirs();
    reset(&machine);
    theirs();
    assert!(machine.path("/etc/systemd/system/hook.service").is_symlink() && !machine.path(LIB).exists());
}

#[tokio::test]
async fn an_operators_copy_of_a_unit_of_ours_stays() {
    // The operator's file replaces the whole unit, as a file of `systemctl edit --full` does.
    let machine = machine("debian");
    machine.converge(&node()).await.unwrap();
    write(&machine, ETC, THEIRS);
    for _ in 0..2 {
        let mut changed = node();
        changed.add(File::text("/etc/b", "b"));
        machine.converge(&changed).await.unwrap();
        assert_eq!(machine.read(ETC), THEIRS);
    }
    assert_eq!(machine.host().drift().unwrap(), []);
    machine.converge(&DesiredState::default()).await.unwrap();
    assert_eq!(machine.read(ETC), THEIRS);
    assert!(!machine.path(LIB).exists());
}

#[tokio::test]
async fn without_another_folder_the_operators_unit_is_backed_up_and_restored() {
    let machine = machine("flatcar");
    write(&machine, ETC, THEIRS);
    machine.converge(&node()).await.unwrap();
    assert_eq!(machine.read(ETC), UNIT);
    reset(&machine);
    assert_eq!(machine.read(ETC), THEIRS);
}

#[tokio::test]
async fn a_volume_whose_unit_is_masked_is_left_to_the_operator() {
    let machine = machine("debian");
    mask(&machine, "data.mount");
    let mut state = DesiredState::default();
    state.add(Mount {
        device: "/dev/xvdb".into(),
        path: "/data".into(),
        filesystem: "ext4".into(),
        format_options: vec![],
        mount_options: vec![],
        at_boot: true,
    });
    machine.converge(&state).await.unwrap();
    assert!(is_masked(&machine, "data.mount"));
    assert!(machine.plan(&machine.host(), &state).is_empty());
    reset(&machine);
    assert!(is_masked(&machine, "data.mount"));
}
