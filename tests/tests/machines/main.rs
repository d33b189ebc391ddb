//! Real Debian machines, under a real systemd, become a control plane and a node of a real cluster.
//!
//! They need root, systemd-nspawn and programs that take minutes to build the first time, so they are only run where
//! somebody asks for them: `tests/machines/run` does, and so does `tests/run`.

#![allow(clippy::unwrap_used, unreachable_pub)]

mod assets;
mod cluster;
mod machine;
mod metadata;
mod network;
mod registry;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Instant;

use cluster::{CONTROL_PLANE_NAME, Cluster, NODE_NAME};
use machine::Machine;

/// The static pods that kOps has on a control plane without kube-proxy.
const CONTROL_PLANE_PODS: [&str; 6] = [
    "etcd-manager-events",
    "etcd-manager-main",
    "kops-channels",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
];

/// A script of `tests/`.
fn path_of(script: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(script)
}

/// Runs a script of `tests/`, which must succeed, and returns what it printed.
#[track_caller]
fn script(path: &str, arguments: &[&str]) -> String {
    let output = Command::new(path_of(path)).args(arguments).stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "tests/{path} {arguments:?}: {}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// The agent that is tested.
fn agent() -> PathBuf {
    match std::env::var_os("KOPS_AGENT") {
        Some(agent) => agent.into(),
        None => Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("debug/kops-agent"),
    }
}

/// Says what comes next, and when: what a slow run was slow at shows with `--nocapture`.
#[allow(clippy::print_stderr)]
fn step(what: &str) {
    static START: OnceLock<Instant> = OnceLock::new();
    eprintln!("{:7.1} s  {what}", START.get_or_init(Instant::now).elapsed().as_secs_f32());
}

/// What must not change by itself: since when each of these units has been running.
fn running_since(machine: &Machine) -> Vec<(&'static str, String)> {
    let units = ["containerd.service", "kubelet.service", "chrony.service"];
    units.map(|unit| (unit, machine.show(unit, "ExecMainStartTimestampMonotonic"))).into()
}

fn converge(cluster: &Cluster, machine: &Machine) {
    let ended = cluster.agent(machine, "converge", &[]);
    assert_eq!(ended.code, Some(0), "{}: {}", machine.name(), machine.explain(&ended));
}

fn packages_are_debians_own(cluster: &Cluster, machine: &Machine) {
    for package in ["chrony", "iptables", "logrotate"] {
        let status = machine.run(&["dpkg-query", "--show", "--showformat=${db:Status-Abbrev}", package]);
        assert_eq!(status.trim(), "ii", "{package} on {}", machine.name());
        let asked = format!("GET /./{package}_");
        assert!(cluster.packages.requests().iter().any(|request| request.starts_with(&asked)), "{package}");
    }
}

fn programs_run_from_our_units(machine: &Machine) {
    for (unit, program) in
        [("containerd.service", "/usr/bin/containerd"), ("kubelet.service", "/usr/local/bin/kubelet")]
    {
        assert_eq!(machine.show(unit, "FragmentPath"), format!("/etc/systemd/system/{unit}"));
        assert_eq!(machine.show(unit, "UnitFileState"), "enabled");
        let process = machine.show(unit, "MainPID");
        let running = machine.run(&["readlink", &format!("/proc/{process}/exe")]);
        assert_eq!(running.trim(), program, "{unit} on {}", machine.name());
    }
}

fn node_is_ready(cluster: &Cluster, name: &str) {
    let ready = "jsonpath={.status.conditions[?(@.type==\"Ready\")].status}";
    cluster.control_plane.until(&format!("{name} is Ready"), || {
        cluster.kubectl(&["get", "node", name, "-o", ready]).filter(|ready| ready == "True")
    });
}

fn pod_runs(cluster: &Cluster, name: &str) {
    let ready = "jsonpath={.status.phase} {.status.containerStatuses[*].ready}";
    cluster.control_plane.until(&format!("the pod {name} runs"), || {
        let status = cluster.kubectl(&["-n", "kube-system", "get", "pod", name, "-o", ready])?;
        (status.starts_with("Running true") && !status.contains("false")).then_some(())
    });
}

fn a_second_run_does_nothing(cluster: &Cluster, machine: &Machine) {
    let before = running_since(machine);
    let again = cluster.agent(machine, "converge", &[]);
    assert_eq!(
        (again.code, again.stdout.as_str()),
        (Some(0), "Nothing to do: this node is as it should be.\n"),
        "{}",
        machine.explain(&again)
    );
    assert_eq!(running_since(machine), before, "a second run restarted something on {}", machine.name());
}

/// Boots a control plane and a node of this suite of Debian, and has them live through what machines live through.
fn becomes_a_cluster(suite: &str) {
    step(&format!("{suite}: boot"));
    let cluster = Cluster::boot(suite);
    let (control_plane, node) = (&cluster.control_plane, &cluster.node);

    step("the boot script's call, on the control plane");
    let started = cluster.start_as_user_data_does(control_plane);
    assert_eq!(started.code, Some(0), "{}", control_plane.explain(&started));
    step("converge, on the node");
    converge(&cluster, node);
    for machine in [control_plane, node] {
        packages_are_debians_own(&cluster, machine);
        programs_run_from_our_units(machine);
    }
    step("nodes are Ready");
    node_is_ready(&cluster, CONTROL_PLANE_NAME);
    node_is_ready(&cluster, NODE_NAME);
    step("pods run");
    for component in CONTROL_PLANE_PODS {
        pod_runs(&cluster, &format!("{component}-{CONTROL_PLANE_NAME}"));
    }
    step("a second run");
    for machine in [control_plane, node] {
        a_second_run_does_nothing(&cluster, machine);
    }
    step("the end");
}

#[test]
#[ignore = "boots machines: tests/machines/run"]
fn debian_12_becomes_a_cluster() {
    becomes_a_cluster("bookworm");
}

#[test]
#[ignore = "boots machines: tests/machines/run"]
fn debian_13_becomes_a_cluster() {
    becomes_a_cluster("trixie");
}
