//! Control-plane mode as a service on a control-plane machine that kops-agent made. Checks its state in systemd, its work
//! inside the sandbox, and the failures that it survives.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Instant, SystemTime};

use kops_agent_tests::ec2::Instance;
use kops_agent_tests::example_store::{CLUSTER, NODES, REGION};
use kops_agent_tests::sts::Principal;

use crate::cluster::{CONTROL_PLANE_ADDRESS, CONTROL_PLANE_NAME, Cluster, NODE_NAME};
use crate::service;
use kops_agent_machines::bootstrap::{self, Answer, certificate_request};
use kops_agent_machines::machine::Machine;

pub const UNIT: &str = "kops-agent-controller.service";
/// The unit that converges at boot on a machine that kOps' boot script has set up.
pub const AT_BOOT: &str = "kops-configuration.service";
const CONFIG: &str = "/etc/kubernetes/kops-controller/config.yaml";
const DROP_IN: &str = "/run/systemd/system/kops-agent-controller.service.d/test.conf";
/// The id of the service's user. Source: kOps' pkg/wellknownusers.
pub const UID: &str = "10011";
/// The maximum exposure level of `systemd-analyze security`, on a scale from 0 to 10.
const MOST_EXPOSED: f32 = 2.0;
/// The instance id of a machine that joins in a test.
const NEW: &str = "i-0d3a0c0ffee000003";
/// Checks that a run at boot installs, enables and starts the service, and that the service becomes the leader.
pub fn is_set_up_by_a_run_at_boot(cluster: &Cluster) {
    let machine = &cluster.control_plane;
    let rbac = fs::read_to_string(kops_agent_machines::path_of("../packaging/kubernetes/rbac.yaml")).unwrap();
    machine.write("/root/rbac.yaml", &rbac);
    machine.until("the rights are taken", || cluster.kubectl(&["apply", "--filename", "/root/rbac.yaml"]));
    let mut cloud = cluster.ec2.environment().to_vec();
    cloud.push(("AWS_ENDPOINT_URL_STS", cluster.sts.url()));
    let cloud: String = cloud.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
    machine.write("/etc/sysconfig/kops-agent-controller", &cloud);
    machine.run(&["chmod", "600", "/etc/sysconfig/kops-agent-controller"]);
    // The controller does not run yet, so no server can give a disruption slot for the restart of the API server.
    // With KOPS_AGENT_MAX_UNAVAILABLE=0, the run takes no slot.
    machine.write("/etc/environment", "KOPS_AGENT_CONTROLLER=true\nKOPS_AGENT_MAX_UNAVAILABLE=0\n");
    let ended = machine.try_run(&["systemctl", "restart", AT_BOOT]);
    assert_eq!(ended.code, Some(0), "{}", machine.explain(&ended));
    assert_eq!(machine.show(UNIT, "ActiveState"), "active");
    assert_eq!(machine.show(UNIT, "UnitFileState"), "enabled");
    service::is_clean(machine, UNIT);
    leads(cluster);
}

/// When systemd reports that the service has started, the ports for machines (3988) and probes (3985) already accept
/// connections.
pub fn has_started_when_it_serves(machine: &Machine) {
    let connect = format!(
        "systemctl restart {UNIT} && exec python3 -c 'import socket\nfor port in (3988, 3985): socket.create_connection((\"127.0.0.1\", port)).close()'"
    );
    machine.run(&["sh", "-c", &connect]);
    assert_eq!(machine.show(UNIT, "Type"), "notify");
}

/// Checks the service's sandbox: systemd's exposure level, the privileges of the process, and that folders of the machine
/// are not writable.
pub fn is_confined(machine: &Machine, unit: &str, uid: &str) {
    let said = machine.run(&["systemd-analyze", "security", "--no-pager", "--threshold=20", unit]);
    let exposure = said
        .lines()
        .find_map(|line| line.split_once("Overall exposure level for "))
        .and_then(|(_, level)| level.split_whitespace().nth(1))
        .and_then(|level| level.parse::<f32>().ok());
    assert!(exposure.is_some_and(|exposure| exposure <= MOST_EXPOSED), "{said}");

    let process = machine.show(unit, "MainPID");
    let status = machine.read(&format!("/proc/{process}/status"));
    for (field, value) in [
        ("Uid", [uid; 4].join("\t")),
        ("CapBnd", "0".repeat(16)),
        ("NoNewPrivs", "1".into()),
        ("Seccomp", "2".into()),
    ] {
        assert!(status.lines().any(|line| line == format!("{field}:\t{value}")), "{field} of {status}");
    }
    // In the service's mount namespace, not even root can write to these folders.
    for place in ["/etc/kubernetes/kops-controller", "/usr/bin", "/var/lib", "/run", "/root"] {
        let file = format!("{place}/written");
        let written = machine.try_run(&["nsenter", "--target", &process, "--mount", "touch", &file]);
        assert_ne!(written.code, Some(0), "{place} can be written");
    }
    let limit = machine.run(&["sh", "-c", &format!("grep '^Max core file size' /proc/{process}/limits")]);
    assert_eq!(limit.split_whitespace().nth(4), Some("0"), "keys would be in a core: {limit}");
}

/// Nodes get the labels of their instance groups. If a label is changed, the controller restores it.
pub fn labels_nodes(cluster: &Cluster) {
    is_labelled(cluster, CONTROL_PLANE_NAME, "\"node-role.kubernetes.io/control-plane\":\"\"");
    is_labelled(cluster, NODE_NAME, "\"node-role.kubernetes.io/node\":\"\"");
    is_labelled(cluster, NODE_NAME, "\"example.com/pool\":\"general\"");
    cluster.control_plane.until("a label is changed", || {
        cluster.kubectl(&["label", "node", NODE_NAME, "example.com/pool=stolen", "--overwrite"])
    });
    is_labelled(cluster, NODE_NAME, "\"example.com/pool\":\"general\"");
}

fn is_labelled(cluster: &Cluster, node: &str, label: &str) {
    cluster.control_plane.until(&format!("the node {node} has the label {label}"), || {
        cluster
            .kubectl(&["get", "node", node, "-o", "jsonpath={.metadata.labels}"])
            .filter(|labels| labels.contains(label))
    });
}

/// The service has written no files: its user owns only the files that node mode has written.
pub fn writes_nothing(machine: &Machine) {
    let found = machine.run(&["find", "/", "-xdev", "-user", "kops-controller", "-printf", "%P\n"]);
    let found: BTreeSet<&str> = found.lines().collect();
    let expected = [
        "etc/kubernetes/kops-controller/config.yaml",
        "etc/kubernetes/kops-controller/keypair-ids.yaml",
        "etc/kubernetes/kops-controller/kops-controller.crt",
        "etc/kubernetes/kops-controller/kops-controller.key",
        "etc/kubernetes/kops-controller/kubeconfig",
        "etc/kubernetes/kops-controller/kubernetes-ca-trusted.crt",
        "etc/kubernetes/kops-controller/kubernetes-ca.crt",
        "etc/kubernetes/kops-controller/kubernetes-ca.key",
    ];
    assert_eq!(found, expected.into());
}

fn ask(cluster: &Cluster, token: &str, body: &str) -> Answer {
    bootstrap::ask(&cluster.node, CONTROL_PLANE_ADDRESS, token, body)
}

/// Checks that the server rejects a request without a token. Returns the digest of the server's certificate.
fn refuses_strangers(cluster: &Cluster) -> String {
    let answer = ask(cluster, "", "{}");
    assert_eq!(answer.status, 403, "{}", answer.body);
    answer.certificate
}

/// The service signs the certificate of a new machine. Only the service's user and root can read the signing key.
pub fn serves_machines(cluster: &Cluster) {
    refuses_strangers(cluster);
    let machine = Principal::instance(&format!("nodes.{CLUSTER}"), NEW);
    cluster.sts.put(&machine);
    cluster.ec2.put(NEW, Instance::of_group(CLUSTER, NODES));
    let request = certificate_request();
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs().try_into().unwrap();
    let token = machine.token_v1(&cluster.sts.host(), REGION, request.as_bytes(), now);
    let answer = ask(cluster, &token, &request);
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(answer.body.contains("-----BEGIN CERTIFICATE-----"), "{}", answer.body);
}

/// When systemd stops the service, the service releases the Lease and exits with 0 within 25 s.
pub fn stops(cluster: &Cluster) {
    let machine = &cluster.control_plane;
    leads(cluster);
    let asked = Instant::now();
    machine.run(&["systemctl", "stop", UNIT]);
    let taken = asked.elapsed().as_secs_f32();
    // The unit has `TimeoutStopSec=30s`, so systemd would kill the service after 30 s.
    assert!(taken < 25.0, "stopping took {taken} s");
    assert_eq!(machine.show(UNIT, "Result"), "success");
    assert_eq!(machine.show(UNIT, "ExecMainStatus"), "0");
    assert_eq!(holder(cluster), "", "the Lease was not released");
    machine.run(&["systemctl", "start", UNIT]);
    leads(cluster);
}

/// systemd restarts a killed service and a stuck service. The watchdog ends a stuck service with SIGKILL, because SIGKILL
/// writes no core dump. The restarted service becomes the leader, although the old process did not release the Lease.
pub fn is_started_again(cluster: &Cluster) {
    let machine = &cluster.control_plane;
    let before = holder(cluster);
    machine.run(&["kill", "-KILL", &machine.show(UNIT, "MainPID")]);
    let is_started_again = || {
        let is_active = machine.show(UNIT, "ActiveState") == "active";
        (is_active && machine.show(UNIT, "NRestarts") == "1").then_some(())
    };
    machine.until("systemd has started it again", is_started_again);

    machine.write(DROP_IN, "[Service]\nWatchdogSec=4s\n");
    machine.run(&["systemctl", "daemon-reload"]);
    machine.run(&["systemctl", "restart", UNIT]);
    machine.run(&["kill", "-STOP", &machine.show(UNIT, "MainPID")]);
    machine.until("systemd has ended it, and started it again", is_started_again);
    said_by_systemd(machine, "Watchdog timeout");
    said_by_systemd(machine, "status=9/KILL");
    machine.run(&["rm", DROP_IN]);
    machine.run(&["systemctl", "daemon-reload"]);
    leads_as_another(cluster, &before);
}

/// If node mode issues a new certificate, the running service serves it without a restart.
pub fn uses_a_new_certificate(cluster: &Cluster) {
    let machine = &cluster.control_plane;
    let before = (refuses_strangers(cluster), machine.show(UNIT, "InvocationID"));
    let files =
        ["crt", "key"].map(|suffix| format!("/etc/kubernetes/kops-controller/kops-controller.{suffix}"));
    machine.run(&["rm", &files[0], &files[1]]);
    converge(cluster);
    machine.until("the new certificate is shown", || (refuses_strangers(cluster) != before.0).then_some(()));
    assert_eq!(machine.show(UNIT, "InvocationID"), before.1, "it was restarted");
}

/// If the configuration becomes invalid, a running controller keeps its valid configuration. If a controller starts with an
/// invalid configuration, it reports the error and fails, and systemd does not restart it. The next run in
/// node mode restores the valid configuration.
pub fn reports_an_invalid_configuration(cluster: &Cluster) {
    let machine = &cluster.control_plane;
    let (right, runs) = (machine.read(CONFIG), machine.show(UNIT, "InvocationID"));
    machine.write(CONFIG, "{\"clusterName\": \"c\", \"cloud\": \"moon\"}");
    said(machine, "has changed, but cannot be used; the version read at the start stays in use");
    assert_eq!(machine.show(UNIT, "InvocationID"), runs);
    assert_ne!(machine.try_run(&["systemctl", "restart", UNIT]).code, Some(0));
    assert_eq!(machine.show(UNIT, "ActiveState"), "failed", "systemd would restart it repeatedly");
    assert_eq!(machine.show(UNIT, "ExecMainStatus"), "3");
    said(machine, "moon");
    converge(cluster);
    assert_eq!(machine.read(CONFIG), right);
    assert_eq!(machine.show(UNIT, "ActiveState"), "active");
    leads(cluster);
}

/// If the API server is stuck, the controller loses the Lease. After a restart of the API server, the controller is the
/// leader again. The controller's process runs all the time.
pub fn outlives_the_api_server(cluster: &Cluster) {
    let machine = &cluster.control_plane;
    let runs = machine.show(UNIT, "InvocationID");
    machine.run(&["pkill", "-STOP", "-x", "kube-apiserver"]);
    said(machine, "does not lead any more");
    machine.run(&["pkill", "-KILL", "-x", "kube-apiserver"]);
    machine.until("it leads again", || machine.show(UNIT, "StatusText").starts_with("leading").then_some(()));
    leads(cluster);
    labels_nodes(cluster);
    assert_eq!(machine.show(UNIT, "InvocationID"), runs, "it was restarted");
    assert_eq!(machine.show(UNIT, "NRestarts"), "0");
}

/// After a reboot of the machine, the service runs and is the leader.
pub fn outlives_a_reboot(cluster: &Cluster) {
    let machine = &cluster.control_plane;
    let before = holder(cluster);
    machine.reboot();
    leads_as_another(cluster, &before);
    labels_nodes(cluster);
    machine.until("what converges at boot has", || {
        (machine.show(AT_BOOT, "ActiveState") != "activating").then_some(())
    });
    assert_eq!(machine.show(AT_BOOT, "Result"), "success");
    assert_eq!(machine.show(UNIT, "ActiveState"), "active");
    refuses_strangers(cluster);
}

fn converge(cluster: &Cluster) {
    let machine = &cluster.control_plane;
    let ended = cluster.agent(machine, "converge", &["--controller"]);
    assert_eq!(ended.code, Some(0), "{}", machine.explain(&ended));
}

/// The holder of the Lease. Empty if the Lease has no holder.
fn holder(cluster: &Cluster) -> String {
    let lease = [
        "-n",
        "kube-system",
        "get",
        "lease",
        "kops-controller-leader",
        "-o",
        "jsonpath={.spec.holderIdentity}",
    ];
    cluster.control_plane.until("the Lease is told", || cluster.kubectl(&lease))
}

fn leads(cluster: &Cluster) {
    leads_as_another(cluster, "");
}

fn leads_as_another(cluster: &Cluster, before: &str) {
    let machine = &cluster.control_plane;
    machine.until("it leads", || {
        let leads = machine.show(UNIT, "StatusText").starts_with("leading");
        let holder = holder(cluster);
        (leads && !holder.is_empty() && holder != before).then_some(())
    });
}

/// Waits until the service's current process, or its last one, has written `what` to the journal.
fn said(machine: &Machine, what: &str) {
    let of_invocation = format!("_SYSTEMD_INVOCATION_ID={}", machine.show(UNIT, "InvocationID"));
    // If a process ends early, its journal entries may lack the invocation id. So the entries of its process id are read
    // too.
    let of_process = format!("_PID={}", machine.show(UNIT, "ExecMainPID"));
    is_in_the_journal(machine, &[&of_invocation, "+", &of_process], what);
}

fn said_by_systemd(machine: &Machine, what: &str) {
    is_in_the_journal(machine, &[&format!("UNIT={UNIT}")], what);
}

fn is_in_the_journal(machine: &Machine, lines: &[&str], what: &str) {
    machine.until(&format!("the journal has {what:?}"), || {
        let command = [&["journalctl", "--no-pager", "--output=cat"][..], lines].concat();
        machine.run(&command).contains(what).then_some(())
    });
}
