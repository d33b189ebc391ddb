//! Runs under special conditions: a boot script that must not block, a concurrent run, a killed run, a store that denies
//! secrets. Also a configuration that is only for new machines.

use std::fs;
use std::thread;

use kops_agent_tests::example_store::NODES;

use crate::cluster::{AGENT, BOOT_CONFIG, Cluster};
use kops_agent_machines::containers::containers;
use kops_agent_machines::machine::Machine;

use crate::running_since;

const UNIT: &str = "kops-configuration.service";
const WAITING: &str = "/run/systemd/system/kops-configuration.service.d/waiting.conf";
const CONTAINERD: &str = "/etc/containerd/config.toml";

/// The boot script calls the agent, which installs a unit. The call waits for a concurrent run. It does not wait for the
/// unit's run, because that run may wait for other parts of cloud-init.
pub fn the_boot_scripts_call_returns_at_once(cluster: &Cluster, machine: &Machine) {
    machine.run(&["mkdir", "-p", "/var/lib/kops-agent"]);
    let hold =
        ["flock", "/var/lib/kops-agent/lock", "sh", "-c", "touch /root/holds-lock; exec sleep infinity"];
    machine.run(&[&["systemd-run", "--quiet", "--unit=holds-lock"][..], &hold].concat());
    let is_there = |path: &str| machine.try_run(&["test", "-e", path]).code == Some(0);
    machine.until("the lock is taken", || is_there("/root/holds-lock").then_some(()));
    let started = thread::scope(|scope| {
        let starting = scope.spawn(|| cluster.start_as_user_data_does(machine, "/root/said"));
        machine.until("the call waits for the lock", || {
            let waits = machine.try_run(&["grep", "-q", "waiting for another run", "/root/said"]);
            (waits.code == Some(0)).then_some(())
        });
        assert!(
            !is_there("/etc/systemd/system/kops-configuration.service"),
            "the call did not wait for the lock"
        );
        machine.run(&["systemctl", "stop", "holds-lock.service"]);
        starting.join().unwrap()
    });
    assert_eq!(started.code, Some(0), "{}", machine.explain(&started));
    // The unit's run is still active, because this run takes longer than the call.
    assert_eq!(machine.show(UNIT, "ActiveState"), "activating", "{}", machine.explain(&started));
    machine.run(&["rm", "/root/holds-lock", "/root/said"]);
    machine.until("the unit has come to its end", || {
        (machine.show(UNIT, "ActiveState") != "activating").then_some(())
    });
    assert_eq!(
        (machine.show(UNIT, "ActiveState"), machine.show(UNIT, "Result")),
        ("inactive".to_owned(), "success".to_owned()),
        "{}",
        machine.run(&["journalctl", "--no-pager", "--unit", UNIT])
    );
}

/// If the kernel kills a run at boot, for example because memory is short, systemd restarts the run.
pub fn a_killed_run_is_started_again(machine: &Machine) {
    const NEVER: &str = "/root/never-written-to";
    machine.run(&["mkfifo", NEVER]);
    let waiting = format!(
        "[Service]\nRestartSec=1s\nTimeoutStopSec=1s\nExecStart=\nExecStart={AGENT} converge --conf {NEVER}\n"
    );
    machine.write(WAITING, &waiting);
    machine.run(&["systemctl", "daemon-reload"]);
    machine.run(&["systemctl", "restart", "--no-block", UNIT]);
    let waits = || {
        let waits = machine.show(UNIT, "StatusText") == "reading what the cluster wants of this node";
        Some(machine.show(UNIT, "MainPID")).filter(|process| waits && process != "0")
    };
    let process = machine.until("the run waits for its boot config", waits);
    machine.run(&["kill", "-KILL", &process]);
    machine.until("another run waits for it", || waits().filter(|other| *other != process));
    machine.run(&["systemctl", "stop", UNIT]);
    machine.run(&["rm", WAITING, NEVER]);
    machine.run(&["systemctl", "daemon-reload"]);
    machine.run(&["systemctl", "start", UNIT]);
    assert_eq!(machine.show(UNIT, "Result"), "success");
}

/// If the store denies access to secrets, a converged control plane stays unchanged.
pub fn a_store_that_denies_secrets_changes_nothing(cluster: &Cluster) {
    const TOKENS: &str = "/srv/kubernetes/kube-apiserver/known_tokens.csv";
    let machine = &cluster.control_plane;
    let before = (machine.read(TOKENS), running_since(machine), containers(machine));
    cluster.s3.forbid_below(&["demo.example.com/secrets/"]);
    let ended = cluster.agent(machine, "converge", &[]);
    assert_eq!(ended.code, Some(0), "{}", machine.explain(&ended));
    assert!(ended.stdout.contains("known_tokens.csv stays as it is"), "{ended:?}");
    assert!(ended.stdout.contains("s3:GetObject on "), "{ended:?}");
    assert_eq!((machine.read(TOKENS), running_since(machine), containers(machine)), before);
    cluster.s3.permit_all();
    let again = cluster.agent(machine, "plan", &["--exit-code"]);
    assert_eq!(again.code, Some(0), "{}", machine.explain(&again));
}

/// Until the rolling update after `kops update cluster` reaches a node, the agent keeps the node at its last applied
/// configuration.
pub fn a_superseded_node_is_repaired(cluster: &Cluster, node: &Machine) {
    let file = cluster.store.cluster_folder().join(format!("igconfig/node/{NODES}/nodeupconfig.yaml"));
    let applied = fs::read(&file).unwrap();
    let config = cluster.derive(node, NODES);
    let hash = cluster.store.write_nodeup_config(NODES, &config).unwrap();
    let boot_config = node.read(BOOT_CONFIG);
    node.write(BOOT_CONFIG, &format!("{boot_config}NodeupConfigHash: {hash}\n"));
    crate::converge(cluster, node);

    fs::write(&file, format!("{config}# for the machines that come next\n")).unwrap();
    let (right, before) = (node.read(CONTAINERD), running_since(node));
    let looked = cluster.agent(node, "verify", &[]);
    assert_eq!(looked.code, Some(0), "{}", node.explain(&looked));
    assert!(looked.stdout.contains("Superseded: "), "{looked:?}");
    assert_eq!(running_since(node), before);
    node.write(CONTAINERD, &format!("{right}# changed\n"));
    let repaired = cluster.agent(node, "verify", &["--repair"]);
    assert_eq!(repaired.code, Some(0), "{}", node.explain(&repaired));
    assert_eq!(node.read(CONTAINERD), right);
    let status = node.try_run(&[AGENT, "status"]);
    assert_eq!(status.code, Some(0), "{status:?}");
    assert!(status.stdout.contains("superseded   since "), "{status:?}");

    // In addition, the store is unreachable, as after a reboot during an outage.
    let without_store = [
        "env",
        "S3_ENDPOINT=http://127.0.0.1:1",
        "S3_REGION=eu-west-1",
        "S3_ACCESS_KEY_ID=x",
        "S3_SECRET_ACCESS_KEY=x",
        AGENT,
        "converge",
        "--conf",
        BOOT_CONFIG,
        "--config-base",
        cluster.config_base(),
        "--store-timeout=0",
        "--max-unavailable=0",
    ];
    node.write(CONTAINERD, &format!("{right}# changed\n"));
    let ended = node.try_run(&without_store);
    assert_eq!(ended.code, Some(1), "{}", node.explain(&ended));
    assert!(ended.stderr.contains("cannot be reached"), "{ended:?}");
    assert_eq!(node.read(CONTAINERD), right);

    node.write(BOOT_CONFIG, &boot_config);
    fs::write(&file, applied).unwrap();
    crate::converge(cluster, node);
}
