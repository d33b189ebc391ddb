//! Operations on a working node: changes that fail and are rolled back, changes of static pods, `verify`, `status` and
//! `reset`.

use std::collections::BTreeSet;
use std::path::Path;

use kops_agent_tests::stand_ins::{OWN_ARCHITECTURE, Releases};
use serde_json::Value;

use crate::cluster::{AGENT, CONTROL_PLANE_NAME, Cluster, NODE_NAME};
use kops_agent_machines::assets::assets;
use kops_agent_machines::containers::containers;
use kops_agent_machines::machine::{Ended, Machine};

use crate::{CONFIGURED, CONFIGURED_REASON, READY, converge, node_has, restarted, running_since};

/// The health timeout in seconds. It is long enough for the start of kubelet. It is short, because tests in which kubelet fails wait until
/// this timeout.
const TIMEOUT: &str = "8";
/// The exit code of `status` and `verify` if they find drift.
const DIFFERENT: Option<i32> = Some(4);
/// The seconds for which a component must stay healthy before the run changes the next one.
const STEADY: f64 = 3.0;

/// Runs a command of the agent that does not need the state store.
fn agent(machine: &Machine, arguments: &[&str]) -> Ended {
    machine.try_run(&[&[AGENT], arguments].concat())
}

#[track_caller]
fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
}

/// A setting that kubelet rejects is rolled back and not applied again. A later good setting is applied.
pub fn a_setting_that_kubelet_refuses_is_rolled_back(cluster: &Cluster, node: &Machine) {
    // The agent cannot reject this setting, because only kubelet compares it with the size of the disk.
    const BAD: &str = "\n  kubelet:\n    kubeReserved:\n      ephemeral-storage: 100000Gi\n";
    const ITS_WORDS: &str = "invalid Node Allocatable configuration";
    const GOOD: &str = "\n  kubelet:\n    maxParallelImagePulls: 3\n    serializeImagePulls: false\n";
    let config = "/var/lib/kubelet/kubelet.conf";
    let (files, before) = (node.read(config), running_since(node));
    cluster.edit_spec("\n  kubelet:\n", BAD);
    let ended = cluster.agent(node, "converge", &["--health-timeout", TIMEOUT]);
    assert_eq!(ended.code, Some(1), "{}", node.explain(&ended));
    has(
        &ended.stderr,
        &[
            "unit kubelet.service did not become healthy",
            ITS_WORDS,
            "rolled back to the previous configuration",
        ],
    );
    assert_eq!(node.read(config), files);
    node.run(&["test", "!", "-e", "/var/lib/kops-agent/rollback"]);
    node_has(cluster, NODE_NAME, READY, "True");
    let after = running_since(node);
    assert_eq!(restarted(&before, &after), ["kubelet.service"]);

    let status = agent(node, &["status"]);
    assert_eq!(status.code, DIFFERENT, "{status:?}");
    has(
        &status.stdout,
        &["ROLLED BACK", "because unit kubelet.service did not become healthy", "--retry-failed"],
    );
    let metrics = agent(node, &["status", "--output", "prometheus"]);
    has(
        &metrics.stdout,
        &["kops_agent_rolled_back 1\n", "kops_agent_unit_running{unit=\"kubelet.service\"} 1\n"],
    );
    node_has(cluster, NODE_NAME, CONFIGURED, "False");
    node_has(cluster, NODE_NAME, CONFIGURED_REASON, "RolledBack");
    let again = cluster.agent(node, "converge", &[]);
    assert_eq!(again.code, Some(1), "{}", node.explain(&again));
    has(&again.stderr, &["is not tried again", ITS_WORDS]);
    assert_eq!(running_since(node), after, "the rejected change was tried again");

    cluster.edit_spec(BAD, GOOD);
    converge(cluster, node);
    has(&node.read(config), &["maxParallelImagePulls: 3"]);
    node_has(cluster, NODE_NAME, READY, "True");
    node_has(cluster, NODE_NAME, CONFIGURED, "True");
    is_healthy(node);
}

/// If containerd does not start with a new setting, a rollback restores the old setting and starts containerd. The
/// containers keep running.
pub fn a_setting_that_containerd_refuses_is_rolled_back(cluster: &Cluster, node: &Machine) {
    const BAD: &str = "    logLevel: debug\n    root: /proc/containerd\n    runc:";
    const GOOD: &str = "    logLevel: debug\n    runc:";
    let (units, pods) = (running_since(node), containers(node));
    cluster.edit_spec(GOOD, BAD);
    let ended = cluster.agent(node, "converge", &["--health-timeout", TIMEOUT]);
    assert_eq!(ended.code, Some(1), "{}", node.explain(&ended));
    has(
        &ended.stderr,
        &[
            "unit containerd.service did not become healthy: cannot restart containerd.service",
            "and everything is healthy again",
        ],
    );
    assert_eq!(restarted(&units, &running_since(node)), ["containerd.service"]);
    assert_eq!(containers(node), pods);
    node_has(cluster, NODE_NAME, READY, "True");
    cluster.edit_spec(BAD, GOOD);
    converge(cluster, node);
    is_healthy(node);
}

/// An update has programs that the machine's loader or kernel cannot start. The run reports the program, the reason, and the field of the
/// spec that must be changed. It changes nothing.
pub fn a_program_that_does_not_start_is_refused(cluster: &Cluster, node: &Machine) {
    const CONFIGURATION: Option<i32> = Some(3);
    const NEWER: &str =
        "it needs GLIBC_2.99 of the C library, and this machine's C library is older; set spec.";
    const OTHER: &str = "the kernel cannot run it: it was built for another processor architecture, or is no program; set spec.";
    let releases = &assets().releases;
    let next = Releases {
        kubernetes: format!("{}9", releases.kubernetes),
        containerd: format!("{}9", releases.containerd),
        runc: format!("{}9", releases.runc),
        ..releases.clone()
    };
    let other_processor = b"\x7fELF\x02\x01\x01 of another machine".to_vec();
    let (before, pods) = (running_since(node), containers(node));
    for (program, path, versions, bytes, why) in [
        (
            "kubelet",
            "/usr/local/bin/kubelet",
            (&releases.kubernetes, &next.kubernetes),
            of_newer_glibc(),
            NEWER,
        ),
        (
            "containerd-shim-runc-v2",
            "/usr/bin/containerd-shim-runc-v2",
            (&releases.containerd, &next.containerd),
            of_newer_glibc(),
            NEWER,
        ),
        ("runc", "/usr/sbin/runc", (&releases.runc, &next.runc), other_processor, OTHER),
    ] {
        for (path, content) in next.stand_ins_with(OWN_ARCHITECTURE, program, &bytes).unwrap() {
            cluster.downloads.publish(&path, &content);
        }
        let [old, new] = [versions.0, versions.1].map(|version| format!("ersion: {version}\n"));
        cluster.edit_spec(&old, &new);
        let was = node.run(&["sha256sum", path]);
        let ended = cluster.agent(node, "converge", &[]);
        assert_eq!(ended.code, CONFIGURATION, "{program}: {}", node.explain(&ended));
        has(&ended.stderr, &[&format!("file {path}: this download does not start on this machine: {why}")]);
        assert_eq!(node.run(&["sha256sum", path]), was);
        cluster.edit_spec(&new, &old);
    }
    assert_eq!((running_since(node), containers(node)), (before, pods));
    let plan = cluster.agent(node, "plan", &["--exit-code"]);
    assert_eq!(plan.code, Some(0), "{}", node.explain(&plan));
}

/// A dynamically linked program that needs a newer glibc than the machine has. The program is /bin/true, in which GLIBC_2.99
/// replaces the version GLIBC_2.34. Every program that was linked against glibc 2.34 or newer contains GLIBC_2.34.
fn of_newer_glibc() -> Vec<u8> {
    const NEEDED: &[u8] = b"GLIBC_2.34\0";
    let mut bytes = std::fs::read("/bin/true").unwrap();
    let found: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(NEEDED)).collect();
    assert!(!found.is_empty(), "/bin/true does not need GLIBC_2.34");
    found.iter().for_each(|at| bytes[*at..*at + NEEDED.len()].copy_from_slice(b"GLIBC_2.99\0"));
    bytes
}

/// Checks each output format of `status` on a converged node.
pub fn is_healthy(machine: &Machine) {
    let status = agent(machine, &["status"]);
    assert_eq!(status.code, Some(0), "{status:?}");
    has(&status.stdout, &["converged    since ", "changed      nothing since"]);
    let json = agent(machine, &["status", "--output", "json"]);
    let json: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!((&json["converged"], &json["rolledBack"]), (&Value::Bool(true), &Value::Null));
    let metrics = agent(machine, &["status", "--output", "prometheus"]);
    has(&metrics.stdout, &["\nkops_agent_rolled_back 0\n", "\nkops_agent_last_run_failed 0\n"]);
}

/// `verify` finds and reports drift, and `verify --repair` repairs it.
pub fn drift_is_verified_and_repaired(cluster: &Cluster, machine: &Machine) {
    let verify = |flags: &[&str]| cluster.agent(machine, "verify", flags);
    let clean = verify(&[]);
    assert_eq!(clean.code, Some(0), "{}", machine.explain(&clean));
    machine.run(&["rm", "/usr/sbin/runc"]);
    machine.run(&["chmod", "600", "/usr/local/bin/kubelet"]);
    let found = verify(&["--color", "never"]);
    assert_eq!(found.code, DIFFERENT, "{}", machine.explain(&found));
    has(&found.stdout, &["file /usr/sbin/runc: gone", "file /usr/local/bin/kubelet: mode"]);
    let before = running_since(machine);
    let repaired = verify(&["--repair"]);
    assert_eq!(repaired.code, Some(0), "{}", machine.explain(&repaired));
    assert_eq!(running_since(machine), before, "no running component reads these files");
    let clean = verify(&["--deep"]);
    assert_eq!(clean.code, Some(0), "{}", machine.explain(&clean));
}

/// A run changes static pods one after another. Containers of unchanged static pods keep running.
pub fn static_pods_change_one_after_another(cluster: &Cluster) {
    let machine = &cluster.control_plane;
    let (units, before) = (running_since(machine), pods(machine));
    for component in ["Scheduler", "ControllerManager"] {
        let section = format!("\n  kube{component}:\n");
        cluster.edit_spec(&section, &format!("{section}    enableProfiling: false\n"));
    }
    converge(cluster, machine);
    assert_eq!(running_since(machine), units, "a static pod restarts no unit");
    let after = pods(machine);
    let kept: Vec<_> = before.iter().filter(|pod| after.contains(pod)).collect();
    assert_eq!(kept.len(), before.len() - 2, "before: {before:#?}\nafter: {after:#?}");
    let started = |name: &str| {
        let pod = format!("{name}-{CONTROL_PLANE_NAME}");
        after.iter().find(|(found, ..)| *found == pod).unwrap_or_else(|| panic!("no {pod} in {after:#?}")).2
    };
    let between = started("kube-scheduler") - started("kube-controller-manager");
    assert!(between >= STEADY, "the scheduler was changed {between} s after the controller manager");
}

/// If the agent issues a new kubeconfig for a static pod, kubelet starts a new container of this pod, which reads the
/// kubeconfig. The containers of all other pods keep running.
pub fn a_static_pod_reads_its_new_kubeconfig(cluster: &Cluster) {
    let machine = &cluster.control_plane;
    let (units, before) = (running_since(machine), pods(machine));
    machine.run(&["rm", "/var/lib/kube-scheduler/kubeconfig"]);
    converge(cluster, machine);
    assert_eq!(running_since(machine), units, "a static pod restarts no unit");
    let after = pods(machine);
    let scheduler = format!("kube-scheduler-{CONTROL_PLANE_NAME}");
    let others = |pods: &[(String, String, f64)]| -> Vec<(String, String, f64)> {
        pods.iter().filter(|(pod, ..)| *pod != scheduler).cloned().collect()
    };
    assert_eq!(others(&before), others(&after), "only the scheduler got another kubeconfig");
    assert_eq!(before.len(), after.len(), "before: {before:#?}\nafter: {after:#?}");
    assert!(before.iter().all(|pod| pod.0 != scheduler || !after.contains(pod)), "{after:#?}");
    let again = cluster.agent(machine, "plan", &["--exit-code"]);
    assert_eq!(again.code, Some(0), "{}", machine.explain(&again));
}

/// For each running container: the pod's name, the container's id, and the Unix time at which the container was created.
fn pods(machine: &Machine) -> Vec<(String, String, f64)> {
    let script = r#"
import datetime, json, subprocess
def ctr(*words):
    return subprocess.check_output(("ctr", "-n", "k8s.io") + words, text=True)
running = {line.split()[0] for line in ctr("tasks", "list").splitlines() if line.rstrip().endswith("RUNNING")}
found = []
for id in ctr("containers", "list", "-q", 'labels."io.cri-containerd.kind"==container').split():
    if id in running:
        info = json.loads(ctr("containers", "info", id))
        whole, _, rest = info["CreatedAt"].partition(".")
        at = datetime.datetime.fromisoformat(whole.rstrip("Z") + "+00:00").timestamp() + float("0." + (rest.rstrip("Z") or "0"))
        found.append((info["Labels"]["io.kubernetes.pod.name"], id, at))
print(json.dumps(sorted(found)))
"#;
    serde_json::from_str(&machine.run(&["python3", "-c", script])).unwrap()
}

/// The paths, folders, units, mounts and processes of a machine. A test compares them before the first run of the agent and
/// after a reset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traces {
    paths: BTreeSet<String>,
    folders: BTreeSet<String>,
    units: BTreeSet<String>,
    mounts: BTreeSet<String>,
    processes: BTreeSet<String>,
}

impl Traces {
    pub fn new(machine: &Machine) -> Traces {
        let lines = |command: &str| -> BTreeSet<String> {
            machine.run(&["sh", "-c", command]).lines().map(str::to_owned).collect()
        };
        Traces {
            // `-xdev` skips the mounted folders /var/lib/containerd and /var/lib/kubelet, so the command names them.
            paths: lines("find / /var/lib/containerd /var/lib/kubelet -xdev 2>/dev/null | sort -u"),
            folders: lines("find / /var/lib/containerd /var/lib/kubelet -xdev -type d 2>/dev/null | sort -u"),
            units: lines("systemctl list-unit-files --plain --no-legend | cut -d ' ' -f 1"),
            mounts: lines("cut -d ' ' -f 5 /proc/self/mountinfo"),
            processes: lines(
                "for exe in /proc/[0-9]*/exe; do readlink $exe || true; done | sed 's/ (deleted)//'",
            ),
        }
    }
}

/// The paths that may stay after a reset, each with the reason.
const STAYS: [(&str, &str); 18] = [
    ("/root/apt-is-locked", "the test's"),
    ("/root/apt-may-go-on", "the test's"),
    ("/etc/systemd/system/kops-agent.service.d/cluster.conf", "the test's"),
    ("/etc/sysconfig/kops-agent-controller", "the test's"),
    ("/root/rbac.yaml", "the test's"),
    ("/etc/apparmor.d/local/usr.sbin.chronyd", "made by chrony's scripts"),
    ("/etc/apt/apt.conf.d/20auto-upgrades", "made by the scripts of unattended-upgrades"),
    ("/etc/apt/apt.conf.d/50unattended-upgrades", "made by the scripts of unattended-upgrades"),
    ("/etc/chrony/chrony.conf", "made by chrony's scripts"),
    ("/etc/chrony/chrony.keys", "made by chrony's scripts"),
    ("/etc/default/chrony.dpkg-dist", "made by chrony's scripts"),
    ("/etc/default/chrony.dpkg-new", "made by chrony's scripts"),
    ("/etc/networks", "made by netbase's scripts"),
    ("/etc/subgid-", "what accounts were before, by useradd"),
    ("/etc/subuid-", "what accounts were before, by useradd"),
    ("/etc/systemd/system/chronyd.service", "chrony is enabled"),
    ("/etc/systemd/system/multi-user.target.wants/chrony.service", "chrony is enabled"),
    ("/etc/systemd/system/multi-user.target.wants/unattended-upgrades.service", "it is enabled"),
];
/// Folders that the test mounts or creates. If such a folder is a mount point, a reset empties it. Otherwise, a reset
/// removes it.
const TAKEN: [&str; 3] = ["/etc/cni", "/var/lib/containerd", "/var/lib/kubelet"];

/// After a reset, a machine has its state from before the first run of the agent, and the Debian packages that the agent
/// installed.
pub fn a_reset_leaves_no_trace(machine: &Machine, before: &Traces) {
    let asked = agent(machine, &["reset"]);
    assert_eq!(asked.code, Some(2), "{asked:?}");
    let ended = agent(machine, &["reset", "--yes"]);
    assert_eq!(ended.code, Some(0), "{}", machine.explain(&ended));
    let after = Traces::new(machine);
    let new = |after: &BTreeSet<String>, before: &BTreeSet<String>| -> Vec<String> {
        after.difference(before).cloned().collect()
    };
    let of_packages: BTreeSet<String> =
        machine.run(&["sh", "-c", "cat /var/lib/dpkg/info/*.list"]).lines().map(str::to_owned).collect();
    let alternatives: BTreeSet<String> = machine
        .run(&["find", "/usr", "-xdev", "-lname", "/etc/alternatives/*"])
        .lines()
        .map(str::to_owned)
        .collect();
    let is_explained = |path: &String| {
        of_packages.contains(path)
            // The file list of a package may contain paths in /lib, although /lib is now a link to /usr/lib.
            || path.strip_prefix("/usr").is_some_and(|path| of_packages.contains(path))
            || STAYS.iter().any(|(stays, _)| path == stays)
            || alternatives.contains(path)
            || is_of_others(path)
    };
    // A reset keeps the parent folders of recorded paths, because the agent does not record which parents it created. So new folders are
    // allowed. A new file in such a folder is an error.
    let mut traces = new(&after.paths, &before.paths);
    traces.retain(|path| !after.folders.contains(path) && !is_explained(path));
    assert!(traces.is_empty(), "left by a reset of {}: {traces:#?}", machine.name());
    let gone: Vec<String> = new(&before.paths, &after.paths)
        .into_iter()
        .filter(|path| !is_of_others(path) && !TAKEN.iter().any(|taken| Path::new(path).starts_with(taken)))
        .collect();
    assert!(gone.is_empty(), "taken by a reset of {}: {gone:#?}", machine.name());
    assert_eq!(new(&after.mounts, &before.mounts), [""; 0], "mounts of {}", machine.name());
    for folder in ["/var/lib/containerd", "/var/lib/kubelet"] {
        assert!(after.mounts.contains(folder), "{folder} is mounted by the operator of {}", machine.name());
    }
    let mut units = new(&after.units, &before.units);
    let places = ["/usr/lib/systemd/system", "/lib/systemd/system", "/etc/systemd/system"];
    units.retain(|unit| !places.iter().any(|place| is_explained(&format!("{place}/{unit}"))));
    assert_eq!(units, [""; 0], "units of {}", machine.name());
    let kubernetes = |program: &String| {
        ["containerd", "kube", "pause", "runc", "etcd"].iter().any(|name| program.contains(name))
    };
    let running: Vec<String> = after.processes.into_iter().filter(kubernetes).collect();
    assert_eq!(running, [""; 0], "runs on {}", machine.name());
}

/// Whether a path belongs to other programs. Debian's packages write files that they do not list, and systemd and other
/// programs keep state. kubectl, which the test calls, has a cache. The data of etcd belong to the cluster.
fn is_of_others(path: &str) -> bool {
    const FOLDERS: [&str; 17] = [
        "/var/lib/dpkg",
        "/var/lib/apt",
        "/var/cache",
        "/var/log",
        "/var/lib/systemd",
        "/etc/alternatives",
        "/etc/rc",
        "/var/lib/chrony",
        "/var/lib/logrotate",
        "/var/backups",
        "/usr/lib/python3",
        "/var/lib/ucf",
        "/var/lib/etcd-",
        "/.kube/cache",
        "/root/.kube/cache",
        "/tmp",
        "/var/tmp",
    ];
    FOLDERS.iter().any(|folder| path.starts_with(folder))
}
