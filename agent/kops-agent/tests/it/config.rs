//! Configurations: proven against the user-data, dumped, checked, explained.

#![allow(clippy::unwrap_used)]

use crate::example;

use std::fs;

use crate::example::{Ended, Machine};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kops_agent_tests::example_cluster::edit;
use kops_agent_tests::example_keys::TOKENS;
use kops_agent_tests::example_store::{CONFIG_BASE, CONTROL_PLANE, NODES};
use sha2::{Digest, Sha256};

const CONFIGURATION: i32 = 3;
/// The image of the example cluster's workers.
const UBUNTU: &str = "099720109477/ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-arm64-server-20261014";
/// The output of `config check` for the example cluster.
const CLEAN: &str =
    "written by kOps 1.37.0-alpha.1, told by kops-version.txt of the state store\n0 errors, 0 warnings\n";

/// The nodeupconfig that kOps would write for `group` now.
fn derived(machine: &Machine, group: &str) -> String {
    let mut agent = std::process::Command::new(example::agent());
    agent.env_clear().envs(machine.cluster.environment()).args(["config", "derive"]);
    let ended = Ended::from_command(agent.args(["--config-base", CONFIG_BASE, "--instance-group", group]));
    ended.with(0, &[]);
    ended.stdout
}

/// Makes the machine's user-data pin the configuration `text`, and removes the group's nodeupconfig.yaml from the
/// store.
fn pin(machine: &Machine, group: &str, text: &str) {
    let role = if group == CONTROL_PLANE { "control-plane" } else { "node" };
    let igconfig = machine.cluster.store.cluster_folder().join("igconfig").join(role).join(group);
    fs::remove_file(igconfig.join("nodeupconfig.yaml")).unwrap();
    let hash = STANDARD.encode(Sha256::digest(text.as_bytes()));
    let file = machine.cluster.store.kube_env(group);
    fs::write(&file, format!("{}NodeupConfigHash: {hash}\n", fs::read_to_string(&file).unwrap())).unwrap();
}

fn set_max_pods(machine: &Machine) {
    machine
        .cluster
        .edit("instancegroup/nodes", "  role: Node\n", "  kubelet: {maxPods: 42}\n  role: Node\n")
        .unwrap();
}

#[test]
fn a_derivation_that_has_the_pinned_hash_is_proven() {
    for group in [CONTROL_PLANE, NODES] {
        let machine = Machine::new(group);
        pin(&machine, group, &derived(&machine, group));
        let ended = machine.run("plan", &["--on-hash-mismatch", "refuse", "-v", "2"]);
        ended.with(0, &["is the one that the user-data pins"]);
    }
}

#[test]
fn a_derivation_with_another_hash_is_refused_or_gives_a_warning() {
    let machine = Machine::new(NODES);
    pin(&machine, NODES, &derived(&machine, NODES));
    set_max_pods(&machine);
    let said = ["(NodeupConfigHash)", "perhaps kOps held this group", "perhaps another release"];
    let refused = machine.run("converge", &["--on-hash-mismatch", "refuse"]);
    refused.with(CONFIGURATION, &said);
    assert_eq!(machine.files(), [""; 0], "something was written");

    let warned = machine.run("plan", &[]);
    warned.with(0, &said);
    assert!(warned.stdout.contains("maxPods: 42"), "{}", warned.stdout);
}

#[test]
fn a_pinned_configuration_wins_and_its_differences_are_reported() {
    let machine = Machine::new(NODES);
    let pinned = derived(&machine, NODES);
    pin(&machine, NODES, &pinned);
    let file = machine.cluster.store.cluster_folder().join("igconfig/node/nodes/nodeupconfig.yaml");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, &pinned).unwrap();
    machine.run("plan", &["-v", "2"]).with(0, &["gives the pinned nodeupconfig, byte for byte"]);

    set_max_pods(&machine);
    let ended = machine.run("plan", &[]);
    ended.with(
        0,
        &[
            "KubeletConfig.maxPods: derived is 42, kOps wrote absent",
            "kops-agent uses the pinned configuration",
        ],
    );
    assert!(!ended.stdout.contains("maxPods: 42"), "{}", ended.stdout);
    let ended = machine.run("plan", &["--config-from", "cluster-spec"]);
    ended.with(0, &["KubeletConfig.maxPods: derived is 42, kOps wrote absent"]);
    assert!(ended.stdout.contains("maxPods: 42"), "{}", ended.stdout);
}

/// Only the nodeupconfig.yaml that kOps wrote has the addresses of the API server's load balancer. So a derivation
/// takes the addresses from this file.
#[test]
fn a_derivation_has_the_addresses_that_kops_got_from_the_cloud() {
    const ADDRESSES: &str = "ApiserverAdditionalIPs:\n- 10.20.0.9\n- 203.0.113.20\n";
    let machine = Machine::new(CONTROL_PLANE);
    let without = derived(&machine, CONTROL_PLANE);
    let written = without.replacen("Assets:\n", &format!("{ADDRESSES}Assets:\n"), 1);
    assert_ne!(written, without);
    pin(&machine, CONTROL_PLANE, &written);
    let folder = machine.cluster.store.cluster_folder().join("igconfig/control-plane").join(CONTROL_PLANE);
    let file = folder.join("nodeupconfig.yaml");
    fs::write(&file, &written).unwrap();
    assert_eq!(derived(&machine, CONTROL_PLANE), written);
    let ended =
        machine.run("plan", &["--config-from", "cluster-spec", "--on-hash-mismatch", "refuse", "-v", "2"]);
    ended.with(0, &["is the one that the user-data pins"]);

    // `config derive` prints a replacement for this file, so it must work if the file is unreadable.
    fs::write(&file, "[]").unwrap();
    let mut agent = std::process::Command::new(example::agent());
    agent.env_clear().envs(machine.cluster.environment()).args(["config", "derive"]);
    let ended =
        Ended::from_command(agent.args(["--config-base", CONFIG_BASE, "--instance-group", CONTROL_PLANE]));
    ended.with(0, &["the addresses of the API's load balancer are left out"]);
    assert_eq!(ended.stdout, without);
}

#[test]
fn hashes_that_no_publisher_tells_prove_nothing() {
    let machine = Machine::new(NODES);
    pin(&machine, NODES, &derived(&machine, NODES));
    // `render` requests no hashes from the publishers.
    let mut render = machine.agent_without_root("render");
    let ended = Ended::from_command(render.args(["--on-hash-mismatch", "refuse"]));
    ended.with(CONFIGURATION, &["--asset-hashes", "/kubelet"]);
}

#[test]
fn a_dump_has_everything_but_secrets() {
    let machine = Machine::new(CONTROL_PLANE);
    for flags in [&[][..], &["-o", "json"]] {
        let ended = Ended::from_command(machine.agent_without_root("config dump").args(flags));
        ended.with(0, &[]);
        let document: serde_json::Value = serde_yaml::from_str(&ended.stdout).unwrap();
        assert_eq!(document["kubernetesVersion"], "1.34.2");
        assert_eq!(document["keysets"]["kubernetes-ca"]["name"], "kubernetes-ca");
        assert!(document["secretNames"].as_array().unwrap().iter().any(|name| name == TOKENS[0]));
        for keyset in example::keysets() {
            // The first and last lines are equal in all keys, so the test searches for a middle line.
            let lines: Vec<_> = keyset.private_key.lines().collect();
            assert!(!ended.stdout.contains(lines[lines.len() / 2]), "the key of {} was dumped", keyset.name);
        }
    }
}

#[test]
fn a_check_tells_everything_at_once() {
    let machine = Machine::new(NODES);
    let check = || Ended::from_command(&mut machine.agent_without_root("config check"));
    let clean = check();
    clean.with(0, &[]);
    assert_eq!(clean.stdout, CLEAN);

    machine
        .cluster
        .edit(
            "config",
            "  kubelet:\n",
            "  gossipConfig: {}\n  kubelet:\n    cgroupDriver: systemd\n    podInfraContainerImage: p\n",
        )
        .unwrap();
    machine.cluster.edit("instancegroup/nodes", "  maxSize: 3\n", "  maxSizes: 3\n").unwrap();
    let warned = check();
    warned.with(0, &[]);
    for part in [
        &*format!("warning: {CONFIG_BASE}/config: spec.gossipConfig: has no effect with kOps 1.37 and newer"),
        &format!("warning: {CONFIG_BASE}/config: spec.kubelet.cgroupDriver: is deprecated"),
        &format!(
            "warning: {CONFIG_BASE}/config: spec.kubelet.podInfraContainerImage: has no effect with kOps 1.35 and newer"
        ),
        "kOps 1.34 gives an instance group's image to kubelet and containerd",
        &format!("warning: {CONFIG_BASE}/instancegroup/nodes: spec.maxSizes: is not read"),
        "0 errors, 4 warnings",
    ] {
        assert!(warned.stdout.contains(part), "{part:?} is not in {warned:#?}");
    }

    let group = machine.cluster.store.cluster_folder().join("instancegroup/nodes");
    edit(&group, "  role: Node\n", "  role: Node\n  kubelet: {maxPods: many}\n").unwrap();
    machine
        .cluster
        .edit("cluster-completed.spec", "  sshAccess:", "  sshAccess: none\n  sshAccesses:")
        .unwrap();
    let both = check();
    both.with(CONFIGURATION, &[]);
    for part in ["instancegroup/nodes: spec.kubelet.maxPods: ", "cluster-completed.spec: spec.sshAccess: "] {
        assert!(both.stdout.contains(part), "{part:?} is not in {both:#?}");
    }
}

#[test]
fn errors_of_the_cluster_spec_and_of_the_node_are_reported_together() {
    let machine = Machine::new(NODES);
    machine
        .cluster
        .edit("cluster-completed.spec", "kubernetesVersion: 1.34.2", "kubernetesVersion: 1.9.0")
        .unwrap();
    let group = machine.cluster.store.cluster_folder().join("instancegroup/nodes");
    edit(&group, "  role: Node\n", "  role: Node\n  volumeMounts: [{device: sdb, path: relative}]\n")
        .unwrap();
    let ended = Ended::from_command(machine.agent_without_root("config check").args(["-o", "json"]));
    ended.with(CONFIGURATION, &[]);
    let findings: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    let fields: Vec<&str> = findings["errors"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|finding| finding["field"].as_str())
        .collect();
    for field in ["KubernetesVersion", "VolumeMounts[0].path"] {
        assert!(fields.iter().any(|found| found.starts_with(field)), "{field} is not in {ended:#?}");
    }
}

#[test]
fn a_group_is_checked_without_a_machine() {
    let machine = Machine::new(NODES);
    check_group(&machine, NODES).with(0, &[]);
    let missing = check_group(&machine, "none");
    missing.with(CONFIGURATION, &[]);
    assert!(
        missing.stdout.contains("the cluster has no instance group none; it has: control-plane"),
        "{missing:#?}"
    );
}

/// Runs `config check` for a group, without the boot config of a machine.
pub(crate) fn check_group(machine: &Machine, group: &str) -> Ended {
    let mut agent = std::process::Command::new(example::agent());
    agent.env_clear().envs(machine.cluster.environment()).args(["config", "check"]);
    Ended::from_command(agent.args(["--config-base", CONFIG_BASE, "--instance-group", group]))
}

#[test]
fn errors_that_every_node_of_a_group_has_are_found_without_a_machine() {
    for group in [CONTROL_PLANE, NODES] {
        let clean = check_group(&Machine::new(group), group);
        clean.with(0, &[]);
        assert_eq!(clean.stdout, CLEAN);
    }
    for (edit, problem) in [
        ("kubelet: {evictionHard: memory.available=100Mi}", "KubeletConfig.evictionHard: "),
        ("kubelet: {maxPods: -5}", "KubeletConfig.maxPods: -5 is refused by kubelet"),
        (
            "kubelet: {kubeReserved: {cpu: lots}}",
            "KubeletConfig.kubeReserved.cpu: \"lots\" is not a quantity",
        ),
        ("taints: ['a=b c:NoSchedule']", "KubeletConfig.taints[0]: \"b c\" is no value"),
        ("nodeLabels: {'a b': c}", "KubeletConfig.nodeLabels: \"a b\" is no key"),
        ("hooks: [{name: x}]", "Hooks[0][0]"),
        ("volumeMounts: [{device: /dev/sdb, path: /x, filesystem: zfs}]", "VolumeMounts[0]"),
        (
            "volumeMounts: [{device: /dev/sdb, path: /, filesystem: ext4}]",
            "VolumeMounts[0].path: is the root",
        ),
        (
            "volumeMounts: [{device: /dev/sdb, path: /usr/, filesystem: ext4}]",
            "VolumeMounts[0].path: /usr has",
        ),
        (
            "volumeMounts: [{device: /dev/sdb, path: /etc, filesystem: ext4}]",
            "VolumeMounts[0].path: /etc has",
        ),
        (
            "volumeMounts: [{device: /dev/sdb, path: /var, filesystem: ext4}]",
            "VolumeMounts[0].path: /var has",
        ),
        (
            "fileAssets: [{name: x, path: /etc/containerd/config.toml, content: x}]",
            "/etc/containerd/config.toml",
        ),
    ] {
        let machine = Machine::new(NODES);
        let file = machine.cluster.store.cluster_folder().join("instancegroup/nodes");
        edit_role(&file, edit);
        let ended = check_group(&machine, NODES);
        ended.with(CONFIGURATION, &[]);
        assert!(ended.stdout.contains(problem), "{problem:?} is not in {ended:#?}");
        assert_eq!(ended.stdout.matches("error: ").count(), 1, "{ended:#?}");
        // On a machine of the group, `plan` reports the mistake, too.
        let ended = machine.run("plan", &[]);
        ended.with(CONFIGURATION, &[problem]);
    }
}

pub(crate) fn edit_role(file: &std::path::Path, more: &str) {
    edit(file, "  role: Node\n", &format!("  role: Node\n  {more}\n")).unwrap();
}

#[test]
fn a_role_of_no_machine_gives_a_warning_without_a_machine_and_in_plan() {
    let machine = Machine::new(NODES);
    let file = machine.cluster.store.cluster_folder().join("instancegroup/nodes");
    edit_role(&file, "fileAssets: [{name: mine, roles: [Master], content: x}]");
    let warning = "spec.fileAssets[0].roles: \"Master\" in the instance group is not the role of any machine";
    let ended = check_group(&machine, NODES);
    ended.with(0, &[]);
    assert!(ended.stdout.contains(&format!("warning: {warning}")), "{ended:#?}");
    machine.run("plan", &[]).with(0, &[warning]);
}

#[test]
fn a_containerd_that_does_not_start_on_the_machine_is_warned_of() {
    let machine = Machine::new(NODES);
    let facts = machine.cluster.store.facts(NODES);
    let (old, new) = ("id: ubuntu\n  versionID: \"24.04\"", "id: rocky\n  versionID: \"8.10\"");
    edit(&facts, old, new).unwrap();
    let ended = Ended::from_command(&mut machine.agent_without_root("config check"));
    ended.with(0, &[]);
    let warning = "containerdConfig.version: containerd 2.3.4 from containerd-2.3.4-linux-arm64.tar.gz needs glibc 2.34";
    assert!(ended.stdout.contains(&format!("warning: {warning}")), "{ended:#?}");
    let advice = "set spec.containerd.packages to the release's containerd-static-";
    machine.run("plan", &[]).with(0, &[warning, advice]);
    assert_eq!(machine.files(), [""; 0]);
}

#[test]
fn a_group_is_warned_of_the_machines_that_it_can_have_only() {
    let machine = Machine::new(NODES);
    let file = machine.cluster.store.cluster_folder().join("instancegroup/nodes");
    edit(&file, UBUNTU, "136693071363/debian-11-arm64-20240104-1616").unwrap();
    let warning = "warning: containerdConfig.version: containerd 2.3.4 from containerd-2.3.4-linux-arm64.tar.gz needs glibc 2.34, and this \
                   distribution";
    let of_debian = check_group(&machine, NODES);
    of_debian.with(0, &[]);
    let of_image = format!("{warning} (debian 11) has glibc 2.31");
    assert!(of_debian.stdout.contains(&of_image) && !of_debian.stdout.contains("(on "), "{of_debian:#?}");

    edit(&file, "136693071363/debian-11-arm64-20240104-1616", "ami-0123456789abcdef0").unwrap();
    let of_any = check_group(&machine, NODES);
    of_any.with(0, &[]);
    assert!(
        of_any.stdout.contains(warning) && of_any.stdout.contains("(on debian 11; arm64)"),
        "{of_any:#?}"
    );
}

#[test]
fn a_group_whose_gpus_get_no_driver_is_warned_of() {
    let machine = Machine::new(NODES);
    machine
        .cluster
        .edit(
            "cluster-completed.spec",
            "\n  containerd:\n",
            "\n  containerd:\n    nvidiaGPU: {enabled: true}\n",
        )
        .unwrap();
    let file = machine.cluster.store.cluster_folder().join("instancegroup/nodes");
    edit(&file, UBUNTU, "136693071363/debian-12-arm64-20260104-1616").unwrap();
    assert_eq!(check_group(&machine, NODES).stdout, CLEAN, "m7g.large has no GPU");
    edit(&file, "machineType: m7g.large", "machineType: g5g.xlarge").unwrap();
    let warning = "warning: NvidiaGPU: is enabled, but nothing installs NVIDIA's driver on this distribution";
    let of_debian = check_group(&machine, NODES);
    of_debian.with(0, &[]);
    for part in [&*format!("{warning} (debian 12)"), "use an image of Ubuntu", "nvidiaGPU.enabled: false"] {
        assert!(of_debian.stdout.contains(part), "{part:?} is not in {of_debian:#?}");
    }

    edit(&file, "136693071363/debian-12-arm64-20260104-1616", "ami-0123456789abcdef0").unwrap();
    let of_any = check_group(&machine, NODES);
    of_any.with(0, &[]);
    let line = of_any.stdout.lines().find(|line| line.starts_with(warning)).unwrap_or_default();
    assert!(
        line.contains("(on amzn, ") && line.contains("debian") && !line.contains("ubuntu"),
        "{of_any:#?}"
    );
}

#[test]
fn unread_fields_of_a_nodeupconfig_are_reported() {
    let machine = Machine::new(NODES);
    let pinned = format!("{}Mispelled: 1\n", derived(&machine, NODES));
    pin(&machine, NODES, &pinned);
    let file = machine.cluster.store.cluster_folder().join("igconfig/node/nodes/nodeupconfig.yaml");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, &pinned).unwrap();
    let mut check = machine.agent_without_root("config check");
    let ended = Ended::from_command(check.args(["--config-from", "nodeup-config"]));
    ended.with(0, &[]);
    assert!(ended.stdout.contains("nodeupconfig.yaml: Mispelled: is not read"), "{ended:#?}");
}

#[test]
fn a_value_is_explained_by_the_field_that_decides_it() {
    let machine = Machine::new(NODES);
    set_max_pods(&machine);
    let explain = |question: &str| {
        let mut agent = machine.agent_without_root("explain");
        Ended::from_command(agent.arg(question))
    };
    let ended = explain("--max-pods");
    ended.with(0, &[]);
    assert!(
        ended.stdout.contains(&format!(
            "    maxPods: 42\n        from {CONFIG_BASE}/instancegroup/nodes: spec.kubelet.maxPods\n"
        )),
        "{}",
        ended.stdout
    );
    let ended = explain("/etc/containerd/config.toml");
    ended.with(0, &[]);
    assert!(
        ended.stdout.contains("(default)") && ended.stdout.contains("spec.containerd."),
        "{}",
        ended.stdout
    );
    explain("/etc/nothing").with(1, &["this node has nothing with the name /etc/nothing"]);
}
