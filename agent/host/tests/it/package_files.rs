//! Files that packages installed. The agent overwrites the files that the node needs, and deletes none.
#![allow(clippy::unwrap_used)]

use crate::support;

use std::fs;

use crate::support::Machine;
use kops_agent_host::{Host, Resetting, Silent};
use kops_agent_plan::diff::diff_with_owned;
use kops_agent_plan::resource::*;

const CONFIG: &str = "/etc/containerd/config.toml";
const OTHER: &str = "/etc/nodeups";
const LIB: &str = "/lib/systemd/system/containerd.service";
const UNIT: &str = "[Service]\nExecStart=/usr/bin/containerd\n";

fn node() -> DesiredState {
    let mut state = DesiredState::default();
    state.add(File::text(CONFIG, "version = 3\n"));
    state.add(File::text(OTHER, "x"));
    state.add(Unit::new("containerd.service", UNIT));
    state
}

fn write(machine: &Machine, path: &str, text: &str) {
    fs::create_dir_all(machine.path(path).parent().unwrap()).unwrap();
    fs::write(machine.path(path), text).unwrap();
}

fn debian() -> Machine {
    let machine = Machine::new();
    write(&machine, "/etc/os-release", "ID=debian\n");
    machine
}

/// A machine on which nodeup overwrote files of the package containerd.
fn made_by_nodeup() -> Machine {
    let machine = debian();
    write(&machine, CONFIG, "version = 3\n");
    write(&machine, OTHER, "x");
    write(&machine, LIB, UNIT);
    machine
}

/// Adds the package to dpkg's database, with the paths of a merged `/usr`.
fn install(machine: &Machine) {
    let list = "/.\n/etc\n/etc/containerd\n/etc/containerd/config.toml\n/usr/lib/systemd/system/containerd.service\n";
    write(machine, "/var/lib/dpkg/info/containerd.io.list", list);
}

async fn adopt(machine: &Machine) -> Vec<String> {
    let host: Host = machine.host().adopting(true);
    let observed = host.observe(&node(), &machine.store).unwrap();
    let plan = diff_with_owned(&node(), &observed, &host.owned_beside(&node()).unwrap())
        .adopting(host.adoptable(&node()).unwrap());
    host.apply(&plan, &node(), &machine.store, &machine.downloads, &Silent, support::SCOPE).await.unwrap();
    plan.adopted.iter().map(|id| id.name.clone()).collect()
}

struct Deaf;

impl Resetting for Deaf {
    fn doing(&self, _: &str) {}
}

fn reset(machine: &Machine) {
    let host = machine.host();
    host.reset(&host.plan_reset(&[], &[], &[]).unwrap(), &Deaf).unwrap();
}

#[tokio::test]
async fn files_of_packages_are_not_adopted() {
    let machine = made_by_nodeup();
    install(&machine);
    assert_eq!(adopt(&machine).await, [OTHER]);
    reset(&machine);
    assert!(machine.path(CONFIG).exists() && machine.path(LIB).exists() && !machine.path(OTHER).exists());
}

#[tokio::test]
async fn a_package_file_that_an_earlier_version_adopted_stays() {
    for is_reset in [false, true] {
        let machine = made_by_nodeup();
        assert_eq!(adopt(&machine).await.len(), 3);
        install(&machine);
        match is_reset {
            true => reset(&machine),
            false => drop(machine.converge(&DesiredState::default()).await.unwrap()),
        }
        assert!(machine.path(CONFIG).exists() && machine.path(LIB).exists(), "{is_reset}");
        assert!(!machine.path(OTHER).exists(), "{is_reset}");
    }
}

#[tokio::test]
async fn the_current_text_of_the_package_is_restored() {
    // The package was upgraded while the agent's unit replaced the package's unit.
    let machine = debian();
    install(&machine);
    write(&machine, LIB, "1.0");
    machine.converge(&node()).await.unwrap();
    write(&machine, LIB, "2.0");
    machine.converge(&node()).await.unwrap();
    assert_eq!(machine.read(LIB), UNIT);
    // Without dpkg's file list, a manual change does not count as the package's content.
    fs::remove_file(machine.path("/var/lib/dpkg/info/containerd.io.list")).unwrap();
    write(&machine, LIB, "by hand");
    machine.converge(&node()).await.unwrap();
    reset(&machine);
    assert_eq!(machine.read(LIB), "2.0");

    // The package was removed while the agent's unit existed. It was installed again after the agent's unit was
    // removed.
    let machine = debian();
    write(&machine, LIB, "1.0");
    machine.converge(&node()).await.unwrap();
    fs::remove_file(machine.path(LIB)).unwrap();
    machine.converge(&DesiredState::default()).await.unwrap();
    write(&machine, LIB, "2.0");
    machine.converge(&node()).await.unwrap();
    reset(&machine);
    assert_eq!(machine.read(LIB), "2.0");
}
