//! Real Debian machines, under a real systemd, become a control plane and a node of a real cluster.
//!
//! These tests need root, systemd-nspawn, and programs whose first build takes minutes. So only `tests/machines/run` and
//! `tests/run` run them.

#![allow(clippy::unwrap_used, unreachable_pub)]

mod addons;
mod boot;
mod cluster;
mod controller;
mod pacing;
mod releases;
mod service;
mod systemd;
mod timing;
mod units;
mod upkeep;

use std::path::{Path, PathBuf};
use std::thread;

use kops_agent_machines::assets::Programs;
use kops_agent_machines::containers::{containers, static_pod_runs};
use kops_agent_machines::step;
use kops_agent_tests::program::kops_agent;

use cluster::{CONTROL_PLANE_NAME, Cluster, NODE_NAME, Written};
use kops_agent_machines::machine::Machine;
use upkeep::Traces;

/// The static pods that kOps has on a control plane without kube-proxy.
const STATIC_PODS: [&str; 6] = [
    "etcd-manager-events",
    "etcd-manager-main",
    "kops-channels",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
];

fn agent() -> PathBuf {
    kops_agent(Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("debug/kops-agent"))
}

/// A Python script that holds apt's locks until `/root/apt-may-go-on` exists, like the daily apt jobs of a new machine.
const HOLD_APT_LOCKS: &str = r#"
import fcntl, os, time
files = [open(path, "w") for path in ("/var/lib/apt/lists/lock", "/var/cache/apt/archives/lock")]
for file in files:
    fcntl.lockf(file, fcntl.LOCK_EX)
open("/root/apt-is-locked", "w").close()
while not os.path.exists("/root/apt-may-go-on"):
    time.sleep(0.005)
"#;

/// Brings a machine into a state that occurs in practice: dpkg was interrupted, and a process holds apt's locks.
fn disturb_apt(machine: &Machine) {
    machine.run(&["touch", "/var/lib/dpkg/updates/0001"]);
    machine.run(&["systemd-run", "--quiet", "--unit=apt-locks", "python3", "-c", HOLD_APT_LOCKS]);
    machine.until("apt's locks are taken", || {
        (machine.try_run(&["test", "-e", "/root/apt-is-locked"]).code == Some(0)).then_some(())
    });
}

/// An administrator's settings of apt: dpkg gets no terminal, and a hook prints text. If the hook cannot print, apt fails.
/// The settings are written before the test records the state to which a reset must return.
const ADMINISTRATORS_APT: &str = r#"Dpkg::Use-Pty "0";
DPkg::Post-Invoke { "echo dpkg has run && echo it has >>/root/apt-hook"; };
"#;

fn set_apt_as_an_administrator(machine: &Machine) {
    machine.write("/etc/apt/apt.conf.d/99-administrator", ADMINISTRATORS_APT);
    machine.write("/root/apt-hook", "");
}

/// The last start of some units: the invocation id, and the start time of the main process. A run must not restart a unit
/// without a reason.
fn running_since(machine: &Machine) -> Vec<(&'static str, String)> {
    let units = ["containerd.service", "kubelet.service", "chrony.service"];
    let start =
        |unit| ["InvocationID", "ExecMainStartTimestampMonotonic"].map(|of| machine.show(unit, of)).join(" ");
    units.map(|unit| (unit, start(unit))).into()
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

/// Checks that the journal of `unit` contains `when`, the message about the time of the packages' download. The agent normally downloads
/// the packages before their installation. If a different apt process holds apt's locks, the installation itself downloads them.
fn packages_were_fetched(machine: &Machine, unit: &str, when: &str) {
    let said = machine.run(&["journalctl", "--no-pager", "--unit", unit]);
    assert!(said.contains(when), "{said}");
}

fn programs_run_from_our_units(machine: &Machine) {
    for (unit, program) in
        [("containerd.service", "/usr/bin/containerd"), ("kubelet.service", "/usr/local/bin/kubelet")]
    {
        // kOps writes the unit to /lib/systemd/system. If /lib is a link to /usr/lib, systemd may report the path in
        // /usr/lib.
        let file = machine.show(unit, "FragmentPath");
        assert!(
            [format!("/lib/systemd/system/{unit}"), format!("/usr/lib/systemd/system/{unit}")]
                .contains(&file),
            "{file}"
        );
        assert_eq!(machine.show(unit, "UnitFileState"), "enabled");
        // If the container runtime is not ready yet, kubelet exits, and systemd starts it again.
        machine.until(&format!("{unit} runs {program}"), || {
            let exe = format!("/proc/{}/exe", machine.show(unit, "MainPID"));
            (machine.try_run(&["readlink", &exe]).stdout.trim() == program).then_some(())
        });
    }
}

const READY: &str = "{.status.conditions[?(@.type==\"Ready\")].status}";
const CONFIGURED: &str = "{.status.conditions[?(@.type==\"KopsConfigured\")].status}";
const CONFIGURED_REASON: &str = "{.status.conditions[?(@.type==\"KopsConfigured\")].reason}";
const EXPIRES_SOON: &str = "{.status.conditions[?(@.type==\"KopsAgentCertificateExpiresSoon\")].status}";

fn node_has(cluster: &Cluster, name: &str, path: &str, value: &str) {
    let output = format!("jsonpath={path}");
    cluster.control_plane.until(&format!("the node {name} has {path} {value}"), || {
        cluster.kubectl(&["get", "node", name, "-o", &output]).filter(|found| found == value)
    });
}

fn pod_is_ready(cluster: &Cluster, namespace: &str, name: &str) {
    let ready = "jsonpath={.status.containerStatuses[*].ready}";
    cluster.control_plane.until(&format!("the pod {name} is ready"), || {
        let ready = cluster.kubectl(&["-n", namespace, "get", "pod", name, "-o", ready])?;
        (ready.contains("true") && !ready.contains("false")).then_some(())
    });
}

/// Runs a pod. The pod needs the scheduler, the controllers, kubelet and the pod network.
fn a_pod_runs_on_the_node(cluster: &Cluster) {
    cluster
        .control_plane
        .until("the pod is taken", || cluster.kubectl(&["apply", "--filename", cluster::POD]));
    pod_is_ready(cluster, "default", "example");
    let address = cluster.kubectl(&["get", "pod", "example", "-o", "jsonpath={.status.podIP}"]).unwrap();
    assert!(address.starts_with("100.96.11."), "{address} is not of the node's range");
}

fn a_second_run_does_nothing(cluster: &Cluster, machine: &Machine) {
    let downloaded = || cluster.downloads.requests().iter().filter(|path| !path.ends_with(".sha256")).count();
    let before = (running_since(machine), downloaded());
    let again = cluster.agent(machine, "converge", &[]);
    assert_eq!(
        (again.code, again.stdout.as_str()),
        (Some(0), "Nothing to do: this node is as it should be.\n"),
        "{}",
        machine.explain(&again)
    );
    let after = (running_since(machine), downloaded());
    assert_eq!(after, before, "a second run restarted or downloaded something on {}", machine.name());
}

/// Converges a machine, and returns the restarted units. Checks that all containers keep running, and that the output of `plan`
/// shows no changes after the run.
fn restarted_by_converging(cluster: &Cluster, machine: &Machine) -> Vec<&'static str> {
    let before = running_since(machine);
    let containers = containers(machine);
    converge(cluster, machine);
    let plan = cluster.agent(machine, "plan", &["--exit-code"]);
    assert_eq!(plan.code, Some(0), "left to do on {}: {}", machine.name(), machine.explain(&plan));
    assert_eq!(
        kops_agent_machines::containers::containers(machine),
        containers,
        "containers ended during the restart"
    );
    restarted(&before, &running_since(machine))
}

/// The units whose start differs between `before` and `after`.
fn restarted(before: &[(&'static str, String)], after: &[(&'static str, String)]) -> Vec<&'static str> {
    before.iter().zip(after).filter(|(before, after)| before != after).map(|(_, (unit, _))| *unit).collect()
}

fn only_what_reads_a_changed_setting_is_restarted(cluster: &Cluster) {
    let (control_plane, node) = (&cluster.control_plane, &cluster.node);
    // `spec.kubelet` is for workers only. Control planes have `spec.masterKubelet`.
    cluster.edit_spec("\n  kubelet:\n", "\n  kubelet:\n    maxPods: 42\n");
    let plan = cluster.agent(node, "plan", &["--exit-code", "--color", "never"]);
    assert_eq!(plan.code, Some(4), "{}", node.explain(&plan));
    for line in
        ["+maxPods: 42", "unit kubelet.service: restart, because of file /var/lib/kubelet/kubelet.conf"]
    {
        assert!(plan.stdout.contains(line), "no {line:?} in {}", plan.stdout);
    }
    assert_eq!(restarted_by_converging(cluster, node), ["kubelet.service"]);
    node_has(cluster, NODE_NAME, "{.status.capacity.pods}", "42");
    assert_eq!(restarted_by_converging(cluster, control_plane), [""; 0]);

    cluster.edit_spec("    logLevel: info\n    runc:", "    logLevel: debug\n    runc:");
    for machine in [control_plane, node] {
        assert_eq!(restarted_by_converging(cluster, machine), ["containerd.service"]);
    }
    node_has(cluster, CONTROL_PLANE_NAME, READY, "True");
}

fn damage_is_found_and_repaired(cluster: &Cluster, machine: &Machine) {
    let unit = "/lib/systemd/system/kubelet.service";
    let right = machine.read(unit);
    machine.run(&["sed", "-i", "s/^Restart=always/Restart=no/", unit]);
    machine.run(&["rm", "/usr/sbin/runc"]);
    machine.run(&["systemctl", "disable", "--now", "chrony.service"]);

    let plan = cluster.agent(machine, "plan", &["--exit-code", "--color", "never"]);
    assert_eq!(plan.code, Some(4), "{}", machine.explain(&plan));
    for line in ["-Restart=no", "+Restart=always", "file /usr/sbin/runc", "unit chrony.service"] {
        assert!(plan.stdout.contains(line), "no {line:?} in {}", plan.stdout);
    }
    assert_eq!(restarted_by_converging(cluster, machine), ["kubelet.service", "chrony.service"]);
    assert_eq!(machine.read(unit), right);
    assert_eq!(machine.show("kubelet.service", "Restart"), "always", "systemd has not read the unit's file");
    assert_eq!(machine.show("chrony.service", "UnitFileState"), "enabled");
    machine.run(&["runc", "--version"]);
}

/// Boots a control plane and a worker of this Debian suite, and runs all cases of this test on them.
fn becomes_a_cluster(suite: &str) {
    step(&format!("{suite}: boot"));
    let cluster = Cluster::boot(suite);
    let (control_plane, node) = (&cluster.control_plane, &cluster.node);
    for machine in [control_plane, node] {
        set_apt_as_an_administrator(machine);
    }
    let [bare_control_plane, bare_node] = [control_plane, node].map(Traces::new);

    step("the boot script's call on the control plane, and the packages' service on the node");
    thread::scope(|scope| {
        scope.spawn(|| {
            disturb_apt(node);
            service::converges(&cluster, node);
            assert_eq!(
                node.show("apt-locks.service", "ActiveState"),
                "inactive",
                "no run has waited for apt's locks"
            );
        });
        boot::the_boot_scripts_call_returns_at_once(&cluster, control_plane);
    });
    service::is_clean(control_plane, "kops-configuration.service");
    service::is_clean(node, "kops-agent.service");
    service::is_clean(node, "kops-agent-verify.service");
    packages_were_fetched(control_plane, "kops-configuration.service", "the packages are fetched");
    packages_were_fetched(
        node,
        "kops-agent.service",
        "cannot fetch packages in advance, so the installation fetches them",
    );
    for machine in [control_plane, node] {
        packages_are_debians_own(&cluster, machine);
        assert_ne!(machine.read("/root/apt-hook"), "", "apt's hook has not run on {}", machine.name());
        programs_run_from_our_units(machine);
    }
    step("nodes are Ready");
    node_has(&cluster, CONTROL_PLANE_NAME, READY, "True");
    node_has(&cluster, NODE_NAME, READY, "True");
    step("nodes tell that they are configured, though they had no Node when their runs ended");
    node_has(&cluster, CONTROL_PLANE_NAME, CONFIGURED, "True");
    node_has(&cluster, NODE_NAME, CONFIGURED, "True");
    node_has(&cluster, NODE_NAME, EXPIRES_SOON, "False");
    step("static pods run");
    for component in STATIC_PODS {
        static_pod_runs(control_plane, &format!("{component}-{CONTROL_PLANE_NAME}"));
    }
    for component in ["kube-controller-manager", "kube-scheduler"] {
        pod_is_ready(&cluster, "kube-system", &format!("{component}-{CONTROL_PLANE_NAME}"));
    }
    step("a pod runs");
    a_pod_runs_on_the_node(&cluster);
    step("a second run");
    for machine in [control_plane, node] {
        a_second_run_does_nothing(&cluster, machine);
    }
    step("a changed spec");
    only_what_reads_a_changed_setting_is_restarted(&cluster);
    step("damage");
    damage_is_found_and_repaired(&cluster, node);
    step("a stuck run");
    service::a_stuck_run_is_ended(node);
    step("a killed run");
    boot::a_killed_run_is_started_again(control_plane);
    step("panics");
    service::a_panic_reaches_the_journal(node);
    step("a store that denies secrets, and a superseded node");
    boot::a_store_that_denies_secrets_changes_nothing(&cluster);
    boot::a_superseded_node_is_repaired(&cluster, node);
    step("verify");
    upkeep::drift_is_verified_and_repaired(&cluster, node);
    step("static pods change");
    upkeep::static_pods_change_one_after_another(&cluster);
    upkeep::a_static_pod_reads_its_new_kubeconfig(&cluster);
    step("programs that do not start");
    upkeep::a_program_that_does_not_start_is_refused(&cluster, node);
    step("a spec that kubelet refuses");
    upkeep::a_setting_that_kubelet_refuses_is_rolled_back(&cluster, node);
    step("a spec that containerd refuses");
    upkeep::a_setting_that_containerd_refuses_is_rolled_back(&cluster, node);
    control_plane_mode_is_a_service(&cluster);
    step("reset");
    upkeep::a_reset_leaves_no_trace(node, &bare_node);
    node_has(&cluster, NODE_NAME, EXPIRES_SOON, "");
    upkeep::a_reset_leaves_no_trace(control_plane, &bare_control_plane);
    step("the end");
}

/// Tests control-plane mode from its installation to a reboot.
fn control_plane_mode_is_a_service(cluster: &Cluster) {
    let machine = &cluster.control_plane;
    step("control-plane mode as a service");
    controller::is_set_up_by_a_run_at_boot(cluster);
    controller::has_started_when_it_serves(machine);
    controller::is_confined(machine, controller::UNIT, controller::UID);
    controller::labels_nodes(cluster);
    controller::serves_machines(cluster);
    controller::writes_nothing(machine);
    step("a node is changed in its turn, and drained");
    pacing::a_node_is_drained_and_changed_when_it_has_the_slot(cluster);
    step("the service stops");
    controller::stops(cluster);
    step("the service is killed, and is stuck");
    controller::is_started_again(cluster);
    step("its certificate is issued anew");
    controller::uses_a_new_certificate(cluster);
    step("its configuration is wrong");
    controller::reports_an_invalid_configuration(cluster);
    step("the API server is gone");
    controller::outlives_the_api_server(cluster);
    step("the control plane reboots");
    controller::outlives_a_reboot(cluster);
    step("add-ons as a service");
    addons::are_applied_by_a_service_in_the_pods_place(cluster);
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

#[test]
#[ignore = "boots machines: tests/machines/run"]
fn debian_13_becomes_a_cluster_of_kops_1_34_with_kubernetes_1_34() {
    let programs = Programs::newest().with_kubelet_1_34().with_containerd_1();
    releases::become_a_cluster("trixie", &Written::by("1.34.3", programs));
}

#[test]
#[ignore = "boots machines: tests/machines/run"]
fn debian_12_becomes_a_cluster_of_kops_1_35_with_kubernetes_1_34() {
    releases::become_a_cluster("bookworm", &Written::by("1.35.2", Programs::newest().with_kubelet_1_34()));
}

#[test]
#[ignore = "boots machines: tests/machines/run"]
fn debian_13_becomes_a_cluster_of_kops_1_36_with_kubernetes_1_36() {
    releases::become_a_cluster("trixie", &Written::by("1.36.2", Programs::newest()));
}
