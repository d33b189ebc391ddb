//! A worker renews its certificates before they expire, with the certificates that it has.

#![allow(clippy::unwrap_used)]

use crate::example;

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use crate::example::Ended;
use crate::example::apart::apart;
use crate::example::worker::{CERTIFICATES, Worker, certificates, once};
use kops_agent_tests::kops_controller::{Asked, KopsController, Mood, server_name};

#[test]
fn a_node_that_gets_no_new_certificates_keeps_those_that_are_valid() {
    let worker = Worker::new();
    let server = worker.kops_controller();
    server.answer_next(&[Mood::Honest, Mood::ShortLived]);
    worker.run("converge", &server).with(0, &[]);
    let before = worker.read("var/lib/kubelet/kubeconfig");
    let config = worker.machine.root().join("etc/containerd/config.toml");
    let right = fs::read_to_string(&config).unwrap();
    fs::write(&config, "changed").unwrap();
    server.asked();

    let registered = Mood::Refusing(409, "");
    server.answer_next(&[Mood::Honest, registered.clone()]);
    let kept = worker.run("converge", &server);
    kept.with(0, &["due for renewal (kube-proxy, kubelet, kubelet-server) are not renewed"]);
    assert!(!kept.stderr.contains("answers with 404"), "{kept:#?}");
    let expected = [
        Asked::Configuration(Mood::Honest),
        certificates(registered, &CERTIFICATES),
        Asked::Elsewhere("/renew".into()),
    ];
    assert_eq!(server.asked(), expected, "upstream's kops-controller renews nothing");
    assert_eq!(server.problems(), [""; 0]);
    assert_eq!(worker.read("var/lib/kubelet/kubeconfig"), before);
    assert_eq!(fs::read_to_string(&config).unwrap(), right, "all else is put right");

    server.answer_next(&[]);
    worker.run("converge", &server).with(0, &[]);
    assert_ne!(worker.read("var/lib/kubelet/kubeconfig"), before, "another kops-controller renews them");
}

#[test]
fn a_ready_node_renews_due_certificates_with_its_present_one() {
    for command in [&["converge"][..], &["verify", "--repair"]] {
        let worker = Worker::new();
        let server = KopsController::start_renewing(worker.served.clone()).unwrap();
        server.answer_next(&[Mood::Honest, Mood::ShortLived]);
        worker.run("converge", &server).with(0, &[]);
        let before = worker.kubeconfig("var/lib/kubelet/kubeconfig");
        server.asked();

        let registered = Mood::Refusing(409, "");
        server.answer_next(&[registered.clone(), registered.clone()]);
        let mut agent = worker.agent(command[0], &[server.url()], &worker.served.authority);
        let renewed = once(agent.args(&command[1..]));
        renewed.with(0, &["with its current certificate"]);
        let expected = [
            Asked::Configuration(registered.clone()),
            Asked::ToRenew,
            Asked::Configuration(Mood::Honest),
            certificates(registered.clone(), &CERTIFICATES),
            Asked::ToRenew,
            certificates(Mood::Honest, &CERTIFICATES),
        ];
        assert_eq!(server.asked(), expected);
        assert_eq!(server.problems(), [""; 0]);
        let after = worker.kubeconfig("var/lib/kubelet/kubeconfig");
        assert!(after[0] != before[0] && after[1] != before[1], "another certificate, for another key");
        for said in [&renewed.stdout, &renewed.stderr] {
            assert!(!said.contains("PRIVATE KEY"), "{said}");
        }

        // No certificate is due. So none is renewed, and the node still gets its configuration.
        server.answer_next(std::slice::from_ref(&registered));
        let again = worker.run("converge", &server);
        again.with(0, &[]);
        assert!(again.stdout.contains("Nothing to do"), "{again:#?}");
        let expected = [Asked::Configuration(registered), Asked::ToRenew, Asked::Configuration(Mood::Honest)];
        assert_eq!(server.asked(), expected);
    }
}

/// The flags of `verify` in the unit of the packages' timer.
fn flags_of_timer() -> Vec<String> {
    let unit = include_str!("../../../../units/kops-agent-verify.service");
    let command = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let mut words = command.split_whitespace().skip_while(|word| *word != "verify").skip(1);
    let mut flags = Vec::new();
    while let Some(word) = words.next() {
        match word {
            "--conf" => drop(words.next()),
            "$ARGUMENTS" => {}
            flag => flags.push(flag.to_owned()),
        }
    }
    assert!(unit.contains("\nEnvironment=ARGUMENTS=\n"), "nothing is added to them by default");
    flags
}

/// Every file of a worker with its content. This includes the agent's record and its last applied state.
fn contents(worker: &Worker) -> BTreeMap<String, Vec<u8>> {
    let files = worker.machine.files().into_iter();
    let own = ["record.json", "applied.json"].map(|name| format!("var/lib/kops-agent/{name}"));
    files
        .chain(own)
        .filter_map(|file| {
            let bytes = fs::read(worker.machine.root().join(&file)).ok()?;
            Some((file, bytes))
        })
        .collect()
}

/// Makes a node whose certificates are due for renewal. One of its files is changed, and one is removed.
fn due_and_changed(server: &KopsController, worker: &Worker) {
    server.answer_next(&[Mood::Honest, Mood::ShortLived]);
    worker.run("converge", server).with(0, &[]);
    fs::write(worker.machine.root().join("etc/containerd/config.toml"), "changed").unwrap();
    fs::remove_file(worker.machine.root().join("etc/sysctl.d/99-k8s-general.conf")).unwrap();
    server.asked();
}

#[test]
fn the_timer_renews_due_certificates_and_changes_nothing_else() {
    let worker = Worker::new();
    let server = KopsController::start_renewing(worker.served.clone()).unwrap();
    due_and_changed(&server, &worker);
    let before = contents(&worker);
    let requests = worker.machine.root().join("var/lib/kops-agent/recorded/requests.txt");
    let asked_before = fs::read_to_string(&requests).unwrap();

    let registered = Mood::Refusing(409, "");
    server.answer_next(&[registered.clone(), registered.clone()]);
    let mut agent = worker.agent("verify", &[server.url()], &worker.served.authority);
    let renewed = once(agent.args(flags_of_timer()));
    renewed.with(4, &["with its current certificate"]);
    assert_eq!(server.problems(), [""; 0]);
    let after = contents(&worker);
    let is_other = |file: &&String| before.get(*file) != after.get(*file);
    let others: Vec<&str> = after.keys().filter(is_other).map(String::as_str).collect();
    assert_eq!(
        others,
        [
            "srv/kubernetes/kubelet-server.crt",
            "srv/kubernetes/kubelet-server.key",
            "var/lib/kops-agent/record.json",
            "var/lib/kube-proxy/kubeconfig",
            "var/lib/kubelet/kubeconfig",
        ]
    );
    assert!(!after.contains_key("etc/sysctl.d/99-k8s-general.conf"));
    let asked = fs::read_to_string(&requests).unwrap();
    let asked: Vec<&str> = asked[asked_before.len()..].lines().collect();
    let restarted: Vec<&&str> = asked.iter().filter(|line| line.contains("restart")).collect();
    assert!(matches!(restarted.as_slice(), [line] if line.contains("kubelet.service")), "{asked:?}");

    // The renewed files are no drift, and the drift of other files is still reported.
    server.answer_next(&[registered.clone(), registered.clone()]);
    let mut agent = worker.agent("verify", &[server.url()], &worker.served.authority);
    let again = once(agent.args(flags_of_timer()));
    again.with(4, &[]);
    assert!(again.stdout.contains("file /etc/containerd/config.toml: content"), "{again:#?}");
    assert!(!again.stdout.contains("kubeconfig"), "{again:#?}");
    assert_eq!(contents(&worker), after, "nothing was due");

    server.answer_next(std::slice::from_ref(&registered));
    worker.run("converge", &server).with(0, &[]);
    server.answer_next(&[registered]);
    let mut agent = worker.agent("verify", &[server.url()], &worker.served.authority);
    once(agent.args(flags_of_timer())).with(0, &[]);
}

#[test]
fn verify_renews_nothing() {
    let worker = Worker::new();
    let server = KopsController::start_renewing(worker.served.clone()).unwrap();
    due_and_changed(&server, &worker);
    let before = contents(&worker);
    server.answer_next(&[Mood::Refusing(409, "")]);
    let look = worker.run("verify", &server);
    look.with(4, &[]);
    assert!(look.stdout.contains("less than a third of its life is left"), "{look:#?}");
    let is_for_certificates = |asked: &Asked| matches!(asked, Asked::Certificates(..));
    assert!(!server.asked().iter().any(is_for_certificates));
    assert_eq!(contents(&worker), before);
}

#[test]
fn without_a_renewal_the_timer_changes_nothing_and_lists_due_certificates() {
    let worker = Worker::new();
    let server = worker.kops_controller();
    due_and_changed(&server, &worker);
    let before = contents(&worker);
    let registered = Mood::Refusing(409, "");
    server.answer_next(&[Mood::Honest, registered.clone()]);
    let mut agent = worker.agent("verify", &[server.url()], &worker.served.authority);
    once(agent.args(flags_of_timer()))
        .with(4, &["due for renewal (kube-proxy, kubelet, kubelet-server) are not renewed"]);
    // If kops-controller fails, `verify` changes nothing except its record.
    server.answer_next(&[Mood::Honest, Mood::Refusing(500, "internal error")]);
    let mut agent = worker.agent("verify", &[server.url()], &worker.served.authority);
    assert_eq!(contents(&worker), before);
    once(agent.args(flags_of_timer())).with(1, &["renewing this node's certificates", "500"]);
    let but_the_record = |mut contents: BTreeMap<String, Vec<u8>>| {
        contents.remove("var/lib/kops-agent/record.json").unwrap();
        contents
    };
    assert_eq!(but_the_record(contents(&worker)), but_the_record(before));
    // The output of the timer's run is only in the journal. So `status` must show the failure, too.
    let status = || {
        let mut status = Command::new(example::agent());
        Ended::from_command(status.env_clear().args(["status", "--root"]).arg(worker.machine.root())).stdout
    };
    assert!(status().contains("renewing this node's certificates"), "{}", status());
    server.answer_next(&[]);
    let mut agent = worker.agent("verify", &[server.url()], &worker.served.authority);
    once(agent.args(flags_of_timer())).with(4, &[]);
    assert!(!status().contains("renewing this node's certificates"), "{}", status());
}

/// During a takeover, one control plane after another replaces kOps' kops-controller by kops-agent. So the name of
/// kops-controller may lead to both servers.
#[test]
fn one_name_with_upstreams_server_and_ours_behind_it_renews() {
    let renews = || {
        let worker = Worker::new();
        let upstreams = worker.kops_controller();
        upstreams.answer_next(&[Mood::Honest, Mood::ShortLived]);
        worker.run("converge", &upstreams).with(0, &[]);
        let before = worker.read("var/lib/kubelet/kubeconfig");
        let port = upstreams.url().rsplit_once(':').unwrap().1.trim_end_matches('/').parse().unwrap();
        let ours =
            KopsController::start_renewing_at(([127, 0, 0, 2], port).into(), worker.served.clone()).unwrap();
        let name = server_name();
        let hosts = worker.machine.folder().join("hosts");
        fs::write(&hosts, format!("127.0.0.1 localhost\n127.0.0.1 {name}\n127.0.0.2 {name}\n")).unwrap();
        let mounted = Command::new("mount").arg("--bind").arg(&hosts).arg("/etc/hosts").status().unwrap();
        assert!(mounted.success());

        let registered = Mood::Refusing(409, "");
        for server in [&upstreams, &ours] {
            server.answer_next(&[registered.clone(), registered.clone()]);
        }
        let url = upstreams.url().replace("127.0.0.1", &name);
        let renewed = once(&mut worker.agent("converge", &[url], &worker.served.authority));
        assert!(Command::new("umount").arg("/etc/hosts").status().unwrap().success());
        renewed.with(0, &["with its current certificate"]);
        let is_upstreams_asked_first = upstreams.asked().contains(&Asked::Elsewhere("/renew".into()));
        assert_eq!(ours.problems(), [""; 0]);
        assert_ne!(worker.read("var/lib/kubelet/kubeconfig"), before);
        is_upstreams_asked_first
    };
    apart("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n", || {
        // The order of the addresses is random. So the test runs until upstream's server is asked first, at most 20
        // times.
        assert!((0..20).any(|_| renews()), "upstream's server was never asked first");
    });
}
