//! A machine with nothing that proves that it is a node, while a Ready Node has its name. kops-controller answers 409 until
//! the cluster notices that the machine before it is gone.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::process::Command;

use crate::example::kubelet::Kubelet;
use crate::example::worker::{CERTIFICATES, NODE, Worker, honest};
use crate::example::{self, Ended, Machine};
use kops_agent_tests::digest::sha256_hex;
use kops_agent_tests::example_store::NODES;
use kops_agent_tests::kops_controller::{Asked, Mood};
use time::Duration;

/// A managed group has replaced a machine by a machine with the same name. The cluster still has the old Node.
#[test]
fn a_machine_that_never_was_a_node_waits_until_its_name_is_free() {
    let worker = Worker::new();
    let server = worker.kops_controller();
    let registered = Mood::Refusing(409, "");
    let never_a_node = "it answers with 409: a Node of this machine's name is registered and Ready. Nothing proves that this machine is that node: \
                        there is no /var/lib/kubelet/kubeconfig";
    for verb in ["converge", "plan"] {
        server.answer_next(&vec![registered.clone(); 9]);
        worker.run(verb, &server).with(1, &[never_a_node, "kubectl delete node NAME"]);
    }
    server.answer_next(&[&[Mood::Honest][..], &vec![registered.clone(); 9]].concat());
    worker.run("converge", &server).with(1, &["getting this node's certificates", never_a_node]);
    worker.is_untouched();

    server.asked();
    let moods = [&registered, &registered, &Mood::Honest, &registered, &Mood::Honest].map(Clone::clone);
    server.answer_next(&moods);
    let mut agent = worker.agent("converge", &[server.url()], &worker.served.authority);
    Ended::from_command(agent.args(["--store-timeout", "60"])).with(0, &[never_a_node, "trying again"]);
    let answers = server.asked().into_iter().map(|asked| match asked {
        Asked::Configuration(mood) | Asked::Certificates(_, mood) => mood,
        other => panic!("{other:?}"),
    });
    assert_eq!(answers.collect::<Vec<_>>(), moods);
    assert!(worker.machine.root().join("var/lib/kubelet/kubeconfig").is_file());
}

/// With `--store-timeout 0`, a try sends each request only once. So the 409 ends the first try, and a run at boot
/// (`--retries -1`) then starts another try.
#[test]
fn a_first_boot_never_ends_well_with_a_409() {
    let worker = Worker::new();
    let server = worker.kops_controller();
    server.answer_next(&[Mood::Refusing(409, "")]);
    let mut agent = worker.agent("converge", &[server.url()], &worker.served.authority);
    let at_boot = Ended::from_command(agent.args(["--store-timeout", "0", "--retries", "-1"]));
    at_boot.with(0, &["there is no /var/lib/kubelet/kubeconfig", "trying again in"]);
    let refused = Asked::Configuration(Mood::Refusing(409, ""));
    assert_eq!(server.asked(), [vec![refused], honest(&CERTIFICATES)].concat());
}

/// An image may be a copy of a node's disk. The files of that node do not make this machine a node.
#[test]
fn a_machine_with_files_of_another_waits_until_its_name_is_free() {
    let worker = Worker::new();
    let server = worker.kops_controller();
    worker.run("converge", &server).with(0, &[]);
    let facts = worker.machine.cluster.store.facts(NODES);
    let text = fs::read_to_string(&facts).unwrap();
    assert!(text.contains(NODE), "{text}");
    fs::write(&facts, text.replace(NODE, "i-0d3a0c0ffee00000f")).unwrap();
    server.answer_next(&vec![Mood::Refusing(409, ""); 9]);
    worker.run("converge", &server).with(1, &["the files of earlier runs are from another machine"]);
}

/// An image may be a copy of the disk of a node that nodeup made. The disk then has that node's kubeconfig, and no
/// record of the agent. So the kubeconfig itself must prove that this machine is the node.
#[test]
fn no_kubeconfig_but_its_own_makes_a_machine_a_node() {
    let worker = Worker::new();
    let server = worker.kops_controller();
    let registered = Mood::Refusing(409, "");
    let own = Kubelet::of_worker;
    let year = Duration::days(365);
    let of_another = format!("is of the node i-0another, and this machine is {NODE}");
    for (kubelet, why) in [
        (Kubelet { user: "system:node:i-0another".into(), ..own() }, of_another.as_str()),
        (Kubelet { user: "system:kube-proxy".into(), ..own() }, "not for a node's kubelet"),
        (Kubelet { organization: "system:masters", ..own() }, "not for a node's kubelet"),
        (Kubelet { has_its_key: false, ..own() }, "has no certificate with a matching key"),
        (Kubelet { life: Duration::days(29), ..own() }, "has expired or is not valid yet"),
        (Kubelet { first_boot: Some(Duration::days(1)), ..own() }, "is older than this instance"),
        // kOps backdates certificates. So this certificate is valid from a time before the first boot, although it
        // was issued after that boot.
        (Kubelet { first_boot: Some(Duration::minutes(1)), age: Duration::ZERO, ..own() }, ""),
        // A renewed certificate is younger than the instance.
        (Kubelet { first_boot: Some(year), ..own() }, ""),
        (Kubelet { first_boot: None, age: year, ..own() }, ""),
    ] {
        let root = worker.machine.root();
        fs::remove_dir_all(root.join("var/lib")).unwrap_or_default();
        kubelet.write_below(root);
        let before = worker.machine.files();
        server.answer_next(&vec![registered.clone(); 9]);
        let ended = worker.run("converge", &server);
        match why {
            "" => ended.with(0, &["registered and ready"]),
            why => ended.with(1, &["Nothing proves that this machine is that node", why]),
        }
        assert_eq!(worker.machine.files(), before, "{why}");
    }
    fs::write(worker.machine.root().join("var/lib/kubelet/kubeconfig"), "apiVersion: v1\n").unwrap();
    server.answer_next(&vec![registered; 9]);
    worker.run("converge", &server).with(1, &["has no certificate with a matching key"]);
}

/// Files from the image do not change a first boot: the run asks kops-controller until the machine's name is free, and
/// then makes the node.
#[test]
fn a_machine_with_the_disk_of_another_becomes_a_node_at_its_first_boot() {
    let worker = Worker::new();
    let server = worker.kops_controller();
    Kubelet { user: "system:node:i-0another".into(), ..Kubelet::of_worker() }
        .write_below(worker.machine.root());
    server.answer_next(&[Mood::Refusing(409, "")]);
    let mut agent = worker.agent("converge", &[server.url()], &worker.served.authority);
    let at_boot = Ended::from_command(agent.args(["--store-timeout", "0", "--retries", "-1"]));
    at_boot.with(0, &["is of the node i-0another", "trying again in"]);
    let refused = Asked::Configuration(Mood::Refusing(409, ""));
    assert_eq!(server.asked(), [vec![refused], honest(&CERTIFICATES)].concat());
    assert_eq!(server.problems(), [""; 0]);
}

/// In a gossip cluster, kops-controller's name is unknown until protokube runs.
#[test]
fn a_worker_of_a_gossip_cluster_runs_protokube_before_it_asks_for_certificates() {
    const PROTOKUBE: &str = "#!/bin/sh\n";
    let machine = Machine::new(NODES);
    machine.cluster.edit("kops-version.txt", "1.37.0-alpha.1", "1.36.2").unwrap();
    let url = machine.downloads().put("/binaries/kops/1.36.2/linux/arm64/protokube", PROTOKUBE.as_bytes());
    machine.serve_downloads_before_1_37();
    let mut worker = Worker::on(machine);
    let asset = format!("  arm64:\n  - {}@{url}\n", sha256_hex(PROTOKUBE.as_bytes()));
    let config = worker.served.nodeup_config.replacen("  arm64:\n", &asset, 1);
    worker.served.nodeup_config = config.replacen("usesLegacyGossip: false", "usesLegacyGossip: true", 1);
    assert!(worker.served.nodeup_config.contains("usesLegacyGossip: true"));

    let server = worker.kops_controller();
    let refused = Mood::Refusing(403, "failed to verify token\n");
    server.answer_next(&[&[Mood::Honest][..], &vec![refused; 9]].concat());
    worker.run("converge", &server).with(1, &["getting this node's certificates"]);
    let files = ["etc/sysconfig/protokube", "etc/systemd/system/protokube.service", "opt/kops/bin/protokube"];
    assert_eq!(worker.machine.files(), files, "nothing else is there before the certificates are");

    server.answer_next(&[]);
    let converged = worker.run("converge", &server);
    converged.with(0, &[]);
    assert!(worker.machine.root().join("var/lib/kubelet/kubeconfig").is_file(), "{converged:#?}");
    assert_eq!(worker.read("opt/kops/bin/protokube"), PROTOKUBE);
    let again = worker.run("converge", &server);
    assert!(again.stdout.contains("Nothing to do"), "{again:#?}");

    // The units that the run started before it had certificates belong to the agent, like all files of the node. So a
    // reset removes them.
    let mut reset = Command::new(example::agent());
    reset.env_clear().args(["reset", "--yes", "--root"]).arg(worker.machine.root());
    Ended::from_command(&mut reset).with(0, &[]);
    for file in files {
        assert!(!worker.machine.root().join(file).exists(), "{file} stays");
    }
}
