//! Another version of kops-agent reaches all machines by one command of an operator. The earlier version comes back in the same way.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use kops_agent_machines::containers::containers;
use kops_agent_spec::digest::sha256_hex;
use kops_agent_tests::stand_ins::OWN_ARCHITECTURE;
use serde_json::Value;

use crate::agent;
use crate::cluster::{AGENT, Cluster, Member, has_condition};
use crate::disturbed::CONTROLLER;
use crate::ordered;
use crate::requests::Requests;
use crate::upgrade::{next_patch, renamed, write};
use crate::witness::Witness;
use crate::workload;
use crate::world::MIRROR;

const ADDONS: &str = "kops-agent-addons.service";
pub const FOLLOW: &str = "kops-agent-follow.service";
/// The program file, which describes a version of kops-agent. The path is below the cluster's folder in the state store.
const PROGRAM_FILE: &str = "kops-agent/program.yaml";
/// The operator's copy of the program file, on the control plane.
const OPERATORS: &str = "/root/program.yaml";
/// The annotation in which a Node reports the version of its kops-agent.
const VERSION: &str = "kops-agent/version";
/// The annotation in which a Node reports its kops-agent program, with the SHA-256 of the program.
pub const PROGRAM: &str = "kops-agent/program";

/// A version of kops-agent in the mirror.
pub struct Version {
    /// The output of `--version`: the number and the commit.
    pub text: String,
    pub sha256: String,
}

impl Version {
    /// The number of the version, without the commit.
    pub fn number(&self) -> &str {
        self.text.split(' ').next().unwrap()
    }

    /// The path of the program in the mirror.
    pub fn path(&self) -> String {
        format!("/kops-agent/{}/kops-agent-linux-{OWN_ARCHITECTURE}", self.number())
    }
}

/// A rollout changes all machines to the next version of kops-agent, and a second rollout changes them back. Only kops-agent's own services
/// restart: kubelet, containerd and all containers keep running. No Node is cordoned, takes a slot or is lost, and no request to the
/// workload fails.
pub fn an_agent_is_upgraded_and_downgraded(cluster: &Cluster) {
    let old = published_present(cluster);
    let new = published_next(cluster, &old);
    let (before, uids) = (processes(cluster), cluster.uids());
    let witness = Witness::begins(cluster);
    let requests = Requests::begin(&cluster.workers()[0], cluster, workload::OWN);

    for (version, previous) in [(&new, &old), (&old, &new)] {
        reaches_all_machines(cluster, version);
        for member in &cluster.members {
            runs(cluster, member, version);
            let kept = member.machine.run(&["sha256sum", &format!("{AGENT}.previous")]);
            assert!(kept.starts_with(&previous.sha256), "{}: {kept}", member.id);
        }
        assert_eq!(processes(cluster), before, "version {} of kops-agent has ended a process", version.text);
    }

    requests.were_all_answered();
    assert_eq!(cluster.uids(), uids, "Nodes were lost");
    let states = witness.states(0);
    assert!(states.turns.is_empty(), "nodes took slots: {:#?}", states.turns);
    assert!(states.cordoned().is_empty(), "{:?} are cordoned", states.cordoned());
    witness.ends();
    workload::logs_are_read(cluster);
}

/// Changes all machines to this version by a rollout, and waits until the rollout is done.
pub fn reaches_all_machines(cluster: &Cluster, version: &Version) {
    order(cluster, version);
    ordered::until_phase(cluster, "done");
}

/// Writes the version's program file into the state store, and starts the rollout.
pub fn order(cluster: &Cluster, version: &Version) {
    let (number, sha256) = (version.number(), &version.sha256);
    let url = format!("http://{MIRROR}{}", version.path());
    let file =
        format!("version: {number}\nprograms:\n  {OWN_ARCHITECTURE}: {{url: {url}, sha256: {sha256}}}\n");
    let stored = cluster.store.path(PROGRAM_FILE);
    fs::create_dir_all(stored.parent().unwrap()).unwrap();
    fs::write(stored, &file).unwrap();
    cluster.control_plane().write(OPERATORS, &file);
    let upgrade = ["upgrade", "--program", OPERATORS, "--canary", "1", "--observe", "5"];
    let ended = ordered::fleet(cluster, &upgrade);
    let expected = format!("{} nodes change to version {number} of kops-agent", cluster.members.len());
    assert!(ended.code == Some(0) && ended.stdout.contains(&expected), "{ended:#?}");
    assert!(!ended.stdout.contains("left out"), "{ended:#?}");
}

/// Checks that all kops-agent services of the machine run this version, that the Node reports the version, and that `verify` finds no
/// drift.
pub fn runs(cluster: &Cluster, member: &Member, version: &Version) {
    let machine = &member.machine;
    let said = machine.run(&[cluster.program, "--version"]);
    assert!(said.contains(&version.text), "{}: {said}", member.id);
    let services: &[&str] = if member.is_control_plane() { &[CONTROLLER, ADDONS, FOLLOW] } else { &[FOLLOW] };
    for service in services {
        assert_eq!(machine.show(service, "ActiveState"), "active", "{service} of {}", member.id);
        let program = machine.run(&["sha256sum", &format!("/proc/{}/exe", machine.show(service, "MainPID"))]);
        assert!(program.starts_with(&version.sha256), "{service} of {} runs another program", member.id);
    }
    let node = cluster.get("node", member.id).unwrap();
    assert!(has_condition(&node, "Ready"), "{:#}", node["status"]["conditions"]);
    let annotations = &node["metadata"]["annotations"];
    assert_eq!(annotations[VERSION], version.text.as_str(), "{}", member.id);
    let program: Value = serde_json::from_str(annotations[PROGRAM].as_str().unwrap()).unwrap();
    assert_eq!(program["sha256"], version.sha256.as_str(), "{}", member.id);
    let verified = machine.try_run(&[cluster.program, "verify"]);
    assert_eq!(verified.code, Some(0), "{}", machine.explain(&verified));
}

/// The processes that an upgrade of kops-agent must not end: kubelet, containerd and the containers of each machine.
pub fn processes(cluster: &Cluster) -> Vec<String> {
    let of = |member: &Member| {
        let mut processes: Vec<String> = containers(&member.machine).into_iter().collect();
        let units = ["kubelet.service", "containerd.service"];
        processes.extend(units.map(|unit| format!("{unit} {}", member.machine.show(unit, "MainPID"))));
        format!("{}: {processes:#?}", member.id)
    };
    cluster.members.iter().map(of).collect()
}

/// Publishes the version that the machines run now.
fn published_present(cluster: &Cluster) -> Version {
    let version = version_of(&agent());
    let file = cluster.later_downloads().join(&version.path()[1..]);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    symlink(agent(), file).unwrap();
    for member in &cluster.members {
        let program = member.machine.run(&["sha256sum", AGENT]);
        assert!(program.starts_with(&version.sha256), "{} has another program: {program}", member.id);
    }
    version
}

/// Publishes the next version. Its program is the current program with a different version number.
fn published_next(cluster: &Cluster, present: &Version) -> Version {
    let (version, program) = next(&agent(), present);
    write(&cluster.later_downloads().join(&version.path()[1..]), &program);
    version
}

/// Starts a program to read its version.
pub fn version_of(program: &Path) -> Version {
    let said = Command::new(program).arg("--version").output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    let text = said.trim().split_once(' ').unwrap().1.to_owned();
    Version { text, sha256: sha256_hex(&fs::read(program).unwrap()) }
}

/// Returns the version after `present`, and its program: a copy of `program`, in which the next version's text replaces the text of
/// `present`.
pub fn next(program: &Path, present: &Version) -> (Version, Vec<u8>) {
    let (now, commit) = present.text.split_once(' ').unwrap();
    let text = format!("{} {commit}", next_patch(now));
    let renamed = renamed(program, &present.text, &text);
    (Version { sha256: sha256_hex(&renamed), text }, renamed)
}
