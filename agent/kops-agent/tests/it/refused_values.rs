//! Values that a component of the node's own release refuses or ignores. `config check` without a machine, `config check` of a machine
//! and `plan` find them alike.

#![allow(clippy::unwrap_used)]

use std::fs;

use kops_agent_tests::example_store::{CONTROL_PLANE, NODES, releases};
use kops_agent_tests::stand_ins::Releases;

use crate::config::{check_group, edit_role};
use crate::example::{Ended, Machine};

const CONFIGURATION: i32 = 3;

/// Asserts that all commands report `problem`: as a warning if `exit` is 0, otherwise as an error.
#[track_caller]
fn assert_found(machine: &Machine, group: &'static str, exit: i32, problem: &str) {
    let kind = if exit == 0 { "warning" } else { "error" };
    let of_machine = Ended::from_command(&mut machine.agent_without_root("config check"));
    for checked in [check_group(machine, group), of_machine] {
        checked.with(exit, &[]);
        assert!(checked.stdout.contains(&format!("{kind}: {problem}")), "{problem:?} is not in {checked:#?}");
    }
    machine.run("plan", &[]).with(exit, &[problem]);
}

#[track_caller]
fn assert_nothing_found(machine: &Machine, group: &'static str) {
    let checked = check_group(machine, group);
    checked.with(0, &[]);
    assert!(checked.stdout.ends_with("\n0 errors, 0 warnings\n"), "{checked:#?}");
    machine.run("plan", &[]).with(0, &[]);
}

/// A machine of `group` that downloads the releases in `wanted`.
fn with_releases(group: &'static str, wanted: &Releases) -> Machine {
    let machine = Machine::new(group);
    for (path, content) in wanted.stand_ins().unwrap() {
        machine.downloads().publish(&path, &content);
    }
    machine
}

/// A worker of the Kubernetes version `version`. The kOps that wrote its store does not know this version.
fn of_kubernetes(version: &str, cni_plugins: &str) -> Machine {
    let (kubernetes, cni_plugins) = (version.to_owned(), cni_plugins.to_owned());
    let machine = with_releases(NODES, &Releases { kubernetes, cni_plugins, ..releases() });
    let (old, new) = ("kubernetesVersion: 1.34.2", format!("kubernetesVersion: {version}"));
    machine.cluster.edit("cluster-completed.spec", old, &new).unwrap();
    fs::write(machine.cluster.store.cluster_folder().join("kops-version.txt"), "1.35.2").unwrap();
    machine
}

fn edit_group(machine: &Machine, group: &str, more: &str) {
    let file = machine.cluster.store.cluster_folder().join("instancegroup").join(group);
    edit_role(&file, more);
}

#[test]
fn a_feature_gate_of_another_release_is_refused_on_older_releases_too() {
    for (version, cni_plugins, gate, problem) in [
        (
            "1.29.9",
            "1.3.0",
            "AppArmorFields: 'true'",
            "AppArmorFields: is no feature gate of Kubernetes 1.29",
        ),
        (
            "1.29.9",
            "1.3.0",
            "CSINodeExpandSecret: 'false'",
            "CSINodeExpandSecret: is false, but Kubernetes 1.29",
        ),
        ("1.30.4", "1.4.1", "NoSuchGate: 'true'", "NoSuchGate: is no feature gate of Kubernetes 1.30"),
        ("1.31.4", "1.5.1", "CSINodeExpandSecret: 'true'", "CSINodeExpandSecret: is no feature gate of"),
    ] {
        let machine = of_kubernetes(version, cni_plugins);
        edit_group(&machine, NODES, &format!("kubelet: {{featureGates: {{{gate}}}}}"));
        assert_found(&machine, NODES, CONFIGURATION, &format!("KubeletConfig.featureGates.{problem}"));
    }
    let machine = of_kubernetes("1.30.4", "1.4.1");
    edit_group(&machine, NODES, "kubelet: {featureGates: {AppArmorFields: 'false', NodeSwap: 'true'}}");
    assert_nothing_found(&machine, NODES);
    // With an unknown gate, kube-proxy's pod exits, but the node works, so the finding is a warning.
    let proxy = "  kubeProxy:\n    featureGates: {NoSuchGate: 'true'}\n";
    machine.cluster.edit("cluster-completed.spec", "  kubeProxy:\n", proxy).unwrap();
    assert_found(&machine, NODES, 0, "KubeProxy.featureGates.NoSuchGate: is no feature gate of");
}

#[test]
fn settings_that_the_chosen_containerd_refuses_or_ignores_are_reported() {
    const OF_1: &str = "plugins.\"io.containerd.grpc.v1.cri\".containerd.snapshotter";
    const OF_2: &str = "plugins.\"io.containerd.cri.v1.runtime\".enable_cdi";
    let additions = "containerdConfig.configAdditions: plugins.";
    for (version, read, value, ignored, why) in [
        ("1.7.29", OF_1, "native", OF_2, "io.containerd.cri.v1.runtime.enable_cdi: is not read: "),
        (
            "2.1.4",
            OF_2,
            "'true'",
            OF_1,
            "io.containerd.grpc.v1.cri.containerd.snapshotter: is not read: since containerd 2",
        ),
        (
            "2.3.4",
            OF_2,
            "'true'",
            OF_1,
            "io.containerd.grpc.v1.cri.containerd.snapshotter: is not read: since containerd 2",
        ),
    ] {
        let containerd = |more: &str| {
            let machine = with_releases(NODES, &Releases { containerd: version.to_owned(), ..releases() });
            edit_group(&machine, NODES, &format!("containerd: {{version: {version}, {more}}}"));
            machine
        };
        let set = |path: &str, value: &str| containerd(&format!("configAdditions: {{'{path}': {value}}}"));
        // The test checks one machine here, because a check of the whole group also considers distributions that bring
        // their own containerd.
        let checked = Ended::from_command(&mut set(read, value).agent_without_root("config check"));
        assert!(checked.code == 0 && checked.stdout.contains("\n0 errors, 0 warnings\n"), "{checked:#?}");
        assert_found(&set(ignored, value), NODES, 0, &format!("{additions}{why}"));
        let misspelled = format!("{read}s");
        let (_, key) = read.rsplit_once('.').unwrap();
        let unknown = format!("{key}s: is not read: this containerd has no such key; write {key}");
        let checked = Ended::from_command(&mut set(&misspelled, value).agent_without_root("config check"));
        assert!(checked.code == 0 && checked.stdout.contains(&unknown), "{checked:#?}");
        let problem = "is a whole number, but containerd refuses everything except";
        let checked = check_group(&set(read, "5"), NODES);
        checked.with(CONFIGURATION, &[]);
        assert!(checked.stdout.contains(problem), "{checked:#?}");
        set(read, "5").run("plan", &[]).with(CONFIGURATION, &[problem]);
        let machine = containerd("configOverride: \"version = 2\\n[plugins\"");
        let problem = "containerdConfig.configOverride: has invalid TOML in line 2";
        assert_found(&machine, NODES, CONFIGURATION, problem);
    }
}

/// kOps and nodeup accept these taints, so `render` still prints the node.
#[test]
fn a_taint_with_which_no_machine_becomes_a_node_is_refused() {
    for (taint, effect) in [("dedicated=gpu:Noschedule", "Noschedule"), ("dedicated", ""), ("a=b:c", "c")] {
        let machine = Machine::new(NODES);
        edit_group(&machine, NODES, &format!("kubelet: {{taints: ['{taint}']}}"));
        let problem = format!("KubeletConfig.taints[0]: the effect {effect:?} of the taint {taint:?}");
        assert_found(&machine, NODES, CONFIGURATION, &problem);
        machine.run("converge", &[]).with(CONFIGURATION, &[&problem]);
        assert_eq!(machine.files(), [""; 0]);
        Ended::from_command(&mut machine.agent_without_root("render")).with(0, &[&problem]);
    }
}

#[test]
fn a_cgroup_that_cannot_be_made_is_refused() {
    let machine = Machine::new(NODES);
    let kubelet =
        "kubelet: {enforceNodeAllocatable: 'pods,kube-reserved', kubeReservedCgroup: '/kube reserved'}";
    edit_group(&machine, NODES, kubelet);
    let problem = "KubeletConfig.kubeReservedCgroup: is \"/kube reserved\", but kops-agent cannot make";
    assert_found(&machine, NODES, CONFIGURATION, problem);
}

#[test]
fn settings_with_which_kubelet_or_containerd_do_not_start_are_refused() {
    for (setting, problem) in [
        ("kubelet: {cloudProvider: aws}", "KubeletConfig.cloudProvider: \"aws\" is refused by kubelet"),
        (
            "kubelet: {enforceNodeAllocatable: 'pods,kube-reserved', kubeReservedCgroup: /kube}",
            "KubeletConfig.enforceNodeAllocatable: has kube-reserved, which needs kubeReserved, which is not set",
        ),
        ("kubelet: {podManifestPath: manifests}", "KubeletConfig.podManifestPath: \"manifests\" is relative"),
        (
            "containerd: {root: /mnt/c, state: /mnt/c}",
            "containerdConfig.state: is the same directory as root",
        ),
    ] {
        let machine = Machine::new(NODES);
        edit_group(&machine, NODES, setting);
        assert_found(&machine, NODES, CONFIGURATION, problem);
    }
    for (setting, problem) in [
        ("kubelet: {cgroupRoot: /mine}", "KubeletConfig.cgroupRoot: is \"/mine\", but kOps does not create"),
        (
            "containerd: {registryMirrors: {docker.io: ['mirror example']}}",
            "containerdConfig.registryMirrors.docker.io: \"mirror example\" is not the URL of a mirror",
        ),
        (
            "hooks: [{name: x, manifest: ExecStart=/bin/true, before: [kubelet]}]",
            "Hooks[0][0].before: \"kubelet\" is no name of a unit, so systemd ignores it; write kubelet.service",
        ),
    ] {
        let machine = Machine::new(NODES);
        edit_group(&machine, NODES, setting);
        assert_found(&machine, NODES, 0, problem);
    }
}

#[test]
fn no_more_is_kept_from_pods_than_the_machine_has() {
    let machine = Machine::new(NODES);
    edit_group(&machine, NODES, "kubelet: {kubeReserved: {cpu: '3'}, systemReserved: {memory: 4Gi}}");
    assert_nothing_found(&machine, NODES);
    let facts = machine.cluster.store.facts(NODES);
    let text = fs::read_to_string(&facts).unwrap();
    fs::write(&facts, format!("processors: 2\nmemoryBytes: 4294967296\n{text}")).unwrap();
    let problems = [
        "KubeletConfig.kubeReserved.cpu: reserves 3 CPUs together with systemReserved.cpu, but this machine \
         has only 2",
        "KubeletConfig.kubeReserved.memory: reserves 4196 MiB together with",
    ];
    machine.run("plan", &[]).with(CONFIGURATION, &problems);
}

#[test]
fn a_file_without_an_origin_is_reported_for_each_component() {
    let machine = Machine::new(NODES);
    edit_group(&machine, NODES, "kubelet: {resolvConf: /etc/kubelet/resolv.conf}");
    let problem = "KubeletConfig.resolvConf: names /etc/kubelet/resolv.conf, but neither fileAssets nor kOps";
    assert_found(&machine, NODES, 0, problem);

    let with = |component: &str, path: &str| {
        let machine = Machine::new(CONTROL_PLANE);
        let (old, new) = (format!("  {component}:\n"), format!("  {component}:\n    tlsCertFile: {path}\n"));
        machine.cluster.edit("cluster-completed.spec", &old, &new).unwrap();
        machine
    };
    let machine = with("kubeControllerManager", "/etc/ssl/mine.crt");
    let problem =
        "ControlPlaneConfig.KubeControllerManager.tlsCertFile: names /etc/ssl/mine.crt, but neither";
    assert_found(&machine, CONTROL_PLANE, 0, problem);
    let machine = with("kubeScheduler", "/etc/ssl/mine.crt");
    let problem =
        "ControlPlaneConfig.KubeScheduler.tlsCertFile: names /etc/ssl/mine.crt, which is not mounted";
    assert_found(&machine, CONTROL_PLANE, CONFIGURATION, problem);
}

/// kOps and nodeup accept these values, so `render` still prints the node.
#[test]
fn values_with_which_a_component_does_not_start_are_refused() {
    let with = |component: &str, setting: &str| {
        let machine = Machine::new(CONTROL_PLANE);
        let (old, new) = (format!("  {component}:\n"), format!("  {component}:\n    {setting}\n"));
        machine.cluster.edit("cluster-completed.spec", &old, &new).unwrap();
        machine
    };
    let release = "of Kubernetes 1.34.2";
    for (component, setting, problem) in [
        (
            "kubeAPIServer",
            "goawayChance: '0.5'",
            format!(
                "APIServerConfig.KubeAPIServer.goawayChance: \"0.5\" is refused by kube-apiserver {release}; use a"
            ),
        ),
        (
            "kubeControllerManager",
            "minResyncPeriod: often",
            "ControlPlaneConfig.KubeControllerManager.minResyncPeriod: \"often\" is refused by".to_owned(),
        ),
        (
            "kubeScheduler",
            "logFormat: xml",
            "ControlPlaneConfig.KubeScheduler.logFormat: \"xml\" is refused by kube-scheduler".to_owned(),
        ),
        (
            "kubeProxy",
            "proxyMode: userspace",
            "KubeProxy.proxyMode: \"userspace\" is refused by kube-proxy".to_owned(),
        ),
    ] {
        let machine = with(component, setting);
        assert_found(&machine, CONTROL_PLANE, CONFIGURATION, &problem);
        Ended::from_command(&mut machine.agent_without_root("render")).with(0, &[&problem]);
    }
    let machine = with("kubeAPIServer", "insecurePort: 8080");
    let problem = format!(
        "APIServerConfig.KubeAPIServer.insecurePort: becomes a flag that kube-apiserver {release} does"
    );
    assert_found(&machine, CONTROL_PLANE, 0, &problem);
    // The user's own build of kube-scheduler may accept the value, so the finding is only a warning.
    let machine = with("kubeScheduler", "logFormat: xml");
    let (old, new) = ("kube-scheduler:v1.34.2", "kube-scheduler:mine");
    machine.cluster.edit("cluster-completed.spec", old, new).unwrap();
    let problem = "ControlPlaneConfig.KubeScheduler.logFormat: \"xml\" is refused by kube-scheduler";
    assert_found(&machine, CONTROL_PLANE, 0, problem);
}

#[test]
fn every_command_reports_that_prefixes_allow_more_pods() {
    let machine = Machine::new(NODES);
    let cni = "    amazonvpc: {env: [{name: ENABLE_PREFIX_DELEGATION, value: 'true'}]}\n";
    machine.cluster.edit("cluster-completed.spec", "    cni: {}\n", cni).unwrap();
    let problem = "spec.kubelet.maxPods: is not set, but ENABLE_PREFIX_DELEGATION is true";
    assert_found(&machine, NODES, 0, problem);
    let number = "Amazon recommends 110 for m7g.large; set spec.kubelet.maxPods: 110 in the instance group";
    assert!(check_group(&machine, NODES).stdout.contains(number));
    machine.run("converge", &[]).with(0, &[problem, number]);
    edit_group(&machine, NODES, "kubelet: {maxPods: 250}");
    assert_nothing_found(&machine, NODES);
}
