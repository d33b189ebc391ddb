//! Clusters whose store a released kOps wrote.
//!
//! kOps derives the configuration of each group, and the boot configs pin it, as after `kops update cluster --yes`. The worker gets its
//! certificates from a stand-in for kops-controller. With kOps 1.34 and 1.35, it gets its configuration there, too, and learns the kOps
//! version from its user-data. The cluster of kOps 1.36 uses gossip: its worker reads its configuration from the store, and only protokube,
//! also a stand-in, tells it the address of kops-controller.

use std::thread;

use kops_agent_machines::containers::static_pod_runs;
use kops_agent_machines::machine::Machine;
use kops_agent_machines::network::HOST;
use kops_agent_machines::step;
use kops_agent_tests::digest::sha256_hex;
use kops_agent_tests::downloads::Downloads;
use kops_agent_tests::example_store::{CLUSTER, CONFIG_BASE, CONTROL_PLANE, NODES};
use kops_agent_tests::kops_controller::{Asked, Mood, server_name};
use kops_agent_tests::released_store;

use crate::cluster::{
    AGENT, BOOT_CONFIG, CONTROL_PLANE_ADDRESS, CONTROL_PLANE_NAME, Cluster, NODE_NAME, Written,
};
use crate::{READY, STATIC_PODS, a_pod_runs_on_the_node, a_second_run_does_nothing, converge, node_has};

const PROTOKUBE: &str = "protokube.service";
/// The path at which cloud-init stores user-data.
const USER_DATA: &str = "/var/lib/cloud/instance/user-data.txt";
/// The names that the stand-in for protokube learns by gossip, in the format of `/etc/hosts`.
const GOSSIP: &str = "/root/gossip";
/// The part of the store that a worker's role may not read in a gossip cluster (`ReadableStatePaths` in pkg/model/iam/iam_builder.go).
const FORBIDDEN_WITH_GOSSIP: &[&str] = &[
    "config",
    "igconfig/control-plane/",
    "instancegroup/",
    "kops-version.txt",
    "manifests/",
    "pki/",
    "secrets/",
];
/// The static pod that replaces protokube from kOps 1.36 on.
const KOPS_CHANNELS: &str = "kops-channels";

pub fn become_a_cluster(suite: &str, written: &Written) {
    let kops = written.kops.unwrap();
    step(&format!("kOps {kops}, {suite}: boot"));
    let mut cluster = Cluster::boot_written(suite, written);
    let uses_gossip = kops >= "1.36";
    let [of_control_plane, mut of_node] = [(&cluster.control_plane, CONTROL_PLANE), (&cluster.node, NODES)]
        .map(|(machine, group)| {
            let config = cluster.derive(machine, group);
            if uses_gossip { with_gossip(&config, &cluster.downloads, kops) } else { config }
        });
    let kops_controller = format!("{HOST} {}\n", server_name());
    if uses_gossip {
        let gossip = format!("{kops_controller}{CONTROL_PLANE_ADDRESS} api.internal.{CLUSTER}\n");
        for machine in [&cluster.control_plane, &cluster.node] {
            machine.write(GOSSIP, &gossip);
        }
        knows_only_itself(&cluster.node);
        of_node = reads_the_store(&cluster.node, &of_node);
    } else {
        let hosts = cluster.node.read("/etc/hosts");
        cluster.node.write("/etc/hosts", &format!("{hosts}{kops_controller}"));
    }
    pin(&cluster, &cluster.control_plane, CONTROL_PLANE, &of_control_plane);
    pin(&cluster, &cluster.node, NODES, &of_node);
    user_data_is_of(&cluster.node, kops);
    cluster.restrict_the_worker(of_node, if uses_gossip { FORBIDDEN_WITH_GOSSIP } else { &[""] });
    let machines = [&cluster.control_plane, &cluster.node];
    step("nodes converge");
    thread::scope(|scope| {
        for machine in machines {
            let cluster = &cluster;
            scope.spawn(move || converge(cluster, machine));
        }
    });
    for machine in machines {
        is_written_by(machine, kops);
    }
    let configuration = (!uses_gossip).then_some(Asked::Configuration(Mood::Honest));
    let certificates = Asked::Certificates(vec!["kubelet".into(), "kubelet-server".into()], Mood::Honest);
    assert_eq!(
        cluster.kops_controller().asked(),
        configuration.into_iter().chain([certificates]).collect::<Vec<_>>()
    );
    assert_eq!(cluster.kops_controller().problems(), [""; 0]);
    step("nodes are Ready");
    let releases = &written.programs.releases;
    for name in [CONTROL_PLANE_NAME, NODE_NAME] {
        node_has(&cluster, name, READY, "True");
        let info = |field: &str| format!("{{.status.nodeInfo.{field}}}");
        node_has(&cluster, name, &info("kubeletVersion"), &format!("v{}", releases.kubernetes));
        let containerd = format!("containerd://{}", releases.containerd);
        let found = cluster.kubectl(&[
            "get",
            "node",
            name,
            "-o",
            &format!("jsonpath={}", info("containerRuntimeVersion")),
        ]);
        // Debian appends its own suffix to containerd's version.
        assert!(found.as_ref().is_some_and(|found| found.starts_with(&containerd)), "{name}: {found:?}");
    }
    step("what applies add-ons runs");
    let has_protokube = kops < "1.36";
    for component in STATIC_PODS.iter().filter(|component| **component != KOPS_CHANNELS || !has_protokube) {
        static_pod_runs(&cluster.control_plane, &format!("{component}-{CONTROL_PLANE_NAME}"));
    }
    if has_protokube {
        protokube_has_done_its_work(&cluster);
        assert_eq!(cluster.node.show(PROTOKUBE, "LoadState"), "not-found");
    }
    if uses_gossip {
        for machine in machines {
            assert_eq!(machine.show(PROTOKUBE, "ActiveState"), "active");
            assert_eq!(machine.show(PROTOKUBE, "UnitFileState"), "enabled");
            let line = kops_controller.replace(' ', "\t");
            machine.until("protokube has written the names", || {
                machine.read("/etc/hosts").contains(&line).then_some(())
            });
        }
    }
    step("a pod runs");
    a_pod_runs_on_the_node(&cluster);
    step("a second run");
    for machine in machines {
        a_second_run_does_nothing(&cluster, machine);
    }
}

/// Changes a machine's configuration so that its cluster is a gossip cluster. Adds the download of protokube if the configuration does not
/// have it. The configuration of every control plane of kOps 1.36 has this download.
fn with_gossip(config: &str, downloads: &Downloads, kops: &str) -> String {
    const WITHOUT: &str = "usesLegacyGossip: false";
    assert_eq!(config.matches(WITHOUT).count(), 1, "{config}");
    let config = config.replace(WITHOUT, "usesLegacyGossip: true");
    let path = format!("/binaries/kops/{kops}/linux/amd64/protokube");
    if config.contains(&path) {
        return config;
    }
    let program = &released_store::downloads(kops)[&path];
    let asset = format!("  amd64:\n  - {}@{}{path}\n", sha256_hex(program), downloads.url());
    assert_eq!(config.matches("  amd64:\n").count(), 1, "{config}");
    config.replace("  amd64:\n", &asset)
}

/// Removes the API server's name from the machine's `/etc/hosts`.
fn knows_only_itself(machine: &Machine) {
    machine.run(&["sed", "--in-place", "/ api\\.internal\\./d", "/etc/hosts"]);
}

/// Changes a worker's boot config, so that the worker reads its configuration from the store instead of kops-controller. kOps writes such
/// boot configs for gossip clusters without a load balancer for kops-controller. Adds the CA from the old boot config to `config`, and
/// returns the result.
///
/// Source: `UseKopsControllerForNodeConfig` in pkg/apis/kops/model/features.go, and pkg/nodemodel/nodeupconfigbuilder.go.
fn reads_the_store(machine: &Machine, config: &str) -> String {
    let boot_config = machine.read(BOOT_CONFIG);
    let (before, server) = boot_config.split_once("ConfigServer:\n  CACertificates: |\n").unwrap();
    let (authority, server) = server.split_once("  servers:\n").unwrap();
    let (_, after) = server.split_once("InstanceGroupName:").unwrap();
    machine.write(BOOT_CONFIG, &format!("{before}ConfigBase: {CONFIG_BASE}\nInstanceGroupName:{after}"));
    assert_eq!(config.matches("CAs: {}\n").count(), 1, "{config}");
    config.replace("CAs: {}\n", &format!("CAs:\n  kubernetes-ca: |\n{authority}"))
}

/// Writes the boot script of this kOps version to cloud-init's path for user-data. The script contains the machine's boot config.
fn user_data_is_of(machine: &Machine, kops: &str) {
    let boot_config = machine.read(BOOT_CONFIG);
    let script = format!(
        "#!/bin/bash\nNODEUP_URL_AMD64=https://artifacts.k8s.io/binaries/kops/{kops}/linux/amd64/nodeup\n\n\
         cat > conf/kube_env.yaml << '__EOF_KUBE_ENV'\n{boot_config}\n__EOF_KUBE_ENV\n"
    );
    machine.write(USER_DATA, &script);
}

/// Writes the group's configuration to the store, and adds its hash to the machine's boot config.
fn pin(cluster: &Cluster, machine: &Machine, group: &str, config: &str) {
    let hash = cluster.store.write_nodeup_config(group, config).unwrap();
    let boot_config = machine.read(BOOT_CONFIG);
    machine.write(BOOT_CONFIG, &format!("{boot_config}NodeupConfigHash: {hash}\n"));
}

fn is_written_by(machine: &Machine, kops: &str) {
    let status = machine.try_run(&[AGENT, "status"]);
    assert_eq!(status.code, Some(0), "{}", machine.explain(&status));
    assert!(status.stdout.contains(&format!("kOps {kops}, told by ")), "{status:?}");
}

/// Checks that protokube has accepted its flags, has read the store, and has labelled its Node through the API server.
fn protokube_has_done_its_work(cluster: &Cluster) {
    let machine = &cluster.control_plane;
    machine.until("protokube has done its work", || {
        let journal = machine.run(&["journalctl", "--no-pager", "--output=cat", "--unit", PROTOKUBE]);
        let applied = format!("applied {}/addons/bootstrap-channel.yaml", cluster.config_base());
        (journal.contains(&applied) && journal.contains("the Node is labelled")).then_some(())
    });
    let labelled =
        cluster.kubectl(&["get", "nodes", "-l", "node-role.kubernetes.io/control-plane", "-o", "name"]);
    assert_eq!(labelled.unwrap().trim(), format!("node/{CONTROL_PLANE_NAME}"));
    assert_eq!(machine.show(PROTOKUBE, "NRestarts"), "0");
    assert_eq!(machine.show(PROTOKUBE, "UnitFileState"), "enabled");
}
