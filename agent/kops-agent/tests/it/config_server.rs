//! A worker that may not read the state store becomes a node with the answers of kops-controller. It accepts no answer
//! from an impostor.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use crate::example::Ended;
use crate::example::apart::apart;
use crate::example::kubelet::Kubelet;
use crate::example::worker::{
    CERTIFICATES, DOCKER_CONFIG, NODE, Worker, certificates, honest, kubernetes_ca, once, openssl,
};
use kops_agent_tests::autoscaling::Autoscaling;
use kops_agent_tests::example_keys::Keyset;
use kops_agent_tests::example_store::{CLUSTER, NODES};
use kops_agent_tests::imds;
use kops_agent_tests::kops_controller::{Asked, KopsController, Mood, server_name};
use kops_agent_tests::loopback::LoopbackServer;
use kops_agent_tests::name_server::{NameFault, NameServer};
use nix::mount::{MsFlags, mount};

#[test]
fn a_worker_becomes_a_node_with_nothing_but_kops_controller() {
    let worker = Worker::new();
    let server = worker.kops_controller();

    let plan = worker.run("plan", &server);
    plan.with(0, &[]);
    assert!(plan.stdout.contains("kubelet-server"), "{plan:#?}");
    assert_eq!(server.asked(), honest(&[]), "a plan asks for no certificates");
    worker.is_untouched();

    let converged = worker.run("converge", &server);
    converged.with(0, &[]);
    assert_eq!(server.asked(), honest(&CERTIFICATES));
    assert_eq!(server.problems(), [""; 0]);
    for said in [&plan.stdout, &plan.stderr, &converged.stdout, &converged.stderr] {
        assert!(!said.contains("PRIVATE KEY") && !said.contains("x-aws-sts"), "{said}");
    }

    let ca = worker.machine.folder().join("ca.pem");
    fs::write(&ca, &worker.served.authority.certificate).unwrap();
    let [kubelet, kubelet_key, trusted] = worker.kubeconfig("var/lib/kubelet/kubeconfig");
    let [proxy, proxy_key, _] = worker.kubeconfig("var/lib/kube-proxy/kubeconfig");
    let server_pair =
        ["crt", "key"].map(|suffix| worker.read(&format!("srv/kubernetes/kubelet-server.{suffix}")));
    let [serving, serving_key] = &server_pair;
    assert_eq!(trusted.trim(), worker.served.authority.certificate.trim());
    for (certificate, key) in [(&kubelet, &kubelet_key), (&proxy, &proxy_key), (serving, serving_key)] {
        openssl(&["verify", "-CAfile", ca.to_str().unwrap()], certificate);
        assert_eq!(openssl(&["x509", "-noout", "-pubkey"], certificate), openssl(&["pkey", "-pubout"], key));
    }
    let subject = openssl(&["x509", "-noout", "-subject", "-nameopt", "RFC2253"], &kubelet);
    assert_eq!(subject.trim(), format!("subject=CN=system:node:{NODE},O=system:nodes"));
    let key = worker.machine.root().join("srv/kubernetes/kubelet-server.key");
    assert_eq!(fs::metadata(key).unwrap().permissions().mode() & 0o777, 0o400);
    assert_eq!(worker.read("root/.docker/config.json"), DOCKER_CONFIG);

    let again = worker.run("converge", &server);
    again.with(0, &[]);
    assert!(again.stdout.contains("Nothing to do"), "{again:#?}");
    assert_eq!(server.asked(), honest(&[]), "what is good is kept");
}

#[test]
fn a_server_that_refuses_is_asked_again_with_another_proof() {
    let worker = Worker::new();
    let server = worker.kops_controller();
    let refusing = Mood::Refusing(403, "failed to verify token\n");
    server.answer_next(&[refusing.clone(), Mood::Honest, refusing.clone()]);
    let converged = Ended::from_command(
        worker.agent("converge", &[server.url()], &worker.served.authority).args(["--store-timeout", "30"]),
    );
    converged.with(0, &["403 (failed to verify token)", "trying again"]);
    let expected = [
        Asked::Configuration(refusing.clone()),
        Asked::Configuration(Mood::Honest),
        certificates(refusing, &CERTIFICATES),
        certificates(Mood::Honest, &CERTIFICATES),
    ];
    assert_eq!(server.asked(), expected);
    // The server would report a token that was used twice.
    assert_eq!(server.problems(), [""; 0]);
}

#[test]
fn each_server_is_as_good_as_the_others() {
    let worker = Worker::new();
    let (foreign, good) =
        (KopsController::start_as("other.example.com", worker.served.clone()), worker.kops_controller());
    let servers = ["https://127.0.0.1:1/".to_owned(), foreign.unwrap().url(), good.url()];
    once(&mut worker.agent("converge", &servers, &worker.served.authority)).with(0, &[]);
    assert_eq!(good.asked(), honest(&CERTIFICATES));
}

/// A name may have several servers. The node must find the one server that works, even if all others are silent or
/// return errors.
#[test]
fn each_address_of_a_name_is_asked_until_one_serves() {
    apart("nameserver 127.0.0.1\noptions timeout:5 attempts:3\n", || {
        let worker = Worker::new();
        let at = |last: u8, port: u16| SocketAddr::from((Ipv4Addr::new(127, 0, 0, last), port));
        // The kernel accepts connections to this socket, but no program answers them.
        let silent = TcpListener::bind(at(2, 0)).unwrap();
        let port = silent.local_addr().unwrap().port();
        let start = |last| KopsController::start_renewing_at(at(last, port), worker.served.clone()).unwrap();
        let (refusing, failing, healthy) = (start(3), start(4), start(5));
        refusing.answer_next(&[const { Mood::Refusing(403, "failed to verify token\n") }; 4]);
        failing.answer_next(&[const { Mood::Refusing(500, "internal error\n") }; 4]);
        let name = server_name();
        let hosts = worker.machine.folder().join("hosts");
        let lines: String = (2..=5).map(|last| format!("127.0.0.{last} {name}\n")).collect();
        fs::write(&hosts, format!("127.0.0.1 localhost\n{lines}")).unwrap();
        let mounted = Command::new("mount").arg("--bind").arg(&hosts).arg("/etc/hosts").status().unwrap();
        assert!(mounted.success());
        let url = format!("https://{name}:{port}/");
        once(&mut worker.agent("converge", &[url], &worker.served.authority)).with(0, &[]);
        assert_eq!(healthy.asked(), honest(&CERTIFICATES));
    });
}

#[test]
fn impostors_get_no_request() {
    let worker = Worker::new();
    let other = Keyset::make("kubernetes-ca", kubernetes_ca().id).unwrap();
    let server = worker.kops_controller();
    let foreign = once(&mut worker.agent("converge", &[server.url()], &other));
    foreign.with(1, &["invalid peer certificate", "ConfigServer.CACertificates"]);
    assert_eq!(server.asked(), []);

    let other_name = KopsController::start_as("other.example.com", worker.served.clone()).unwrap();
    worker.run("converge", &other_name).with(1, &["invalid peer certificate", "tlsServerName"]);
    assert_eq!(other_name.asked(), []);
    assert_eq!([server.problems(), other_name.problems()].concat(), [""; 0]);
    worker.is_untouched();
}

/// Upstream's nodeup made this node, so the agent has no record.
#[test]
fn a_machine_that_is_a_node_already_is_left_alone() {
    let worker = Worker::new();
    let server = worker.kops_controller();
    let registered = Mood::Refusing(409, "");
    Kubelet::of_worker().write_below(worker.machine.root());
    let files = worker.machine.files();
    server.answer_next(std::slice::from_ref(&registered));
    worker.run("converge", &server).with(0, &["registered and ready"]);
    server.answer_next(&[Mood::Honest, registered.clone()]);
    worker
        .run("converge", &server)
        .with(0, &["registered and ready", "it still needs kube-proxy, kubelet-server"]);
    // kops-controller refuses this node's request (409), so `plan` cannot know the changes. `plan` must fail, and not
    // report that there are no changes.
    server.answer_next(std::slice::from_ref(&registered));
    worker.run("plan", &server).with(1, &["registered and ready"]);
    assert_eq!(worker.machine.files(), files);

    server.answer_next(&[]);
    worker.run("converge", &server).with(0, &[]);
    server.answer_next(std::slice::from_ref(&registered));
    worker.run("verify", &server).with(0, &["registered and ready"]);
    fs::write(worker.machine.root().join("etc/containerd/config.toml"), "changed").unwrap();
    server.answer_next(&[registered]);
    worker.run("verify", &server).with(4, &["registered and ready"]);
}

/// How often the scratch machine reported to its group that the machine is ready.
fn lifecycle_actions(worker: &Worker) -> usize {
    let requests = worker.machine.root().join("var/lib/kops-agent/recorded/requests.txt");
    let requests = fs::read_to_string(requests).unwrap_or_default();
    requests.lines().filter(|line| *line == format!("cloud: {NODE} of nodes.{CLUSTER} is ready")).count()
}

/// The metadata service of the worker's instance.
pub(crate) fn metadata_of_node() -> LoopbackServer {
    let item = |(path, answer): (&str, &str)| (path.to_owned(), answer.to_owned());
    let metadata = imds::Instance::from(
        [
            ("instance-id", NODE),
            ("instance-type", "m5.large"),
            ("placement/region", "eu-west-1"),
            ("placement/availability-zone", "eu-west-1a"),
            ("mac", "02:00:0a:14:20:14"),
        ]
        .map(item),
    );
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    imds::start(socket, BTreeMap::from([(IpAddr::from(Ipv4Addr::LOCALHOST), metadata)])).unwrap()
}

#[test]
fn auto_scaling_lets_go_of_a_node_which_is_registered_already() {
    apart("", || {
        let worker = Worker::new();
        let server = worker.kops_controller();
        let autoscaling = Autoscaling::start(&format!("nodes.{CLUSTER}"), &[NODE, "i-another"]).unwrap();
        let (var_lib, imds) = (worker.machine.folder().join("own/var/lib"), metadata_of_node());
        let state = var_lib.join("kops-agent");
        fs::create_dir_all(&state).unwrap();
        Kubelet::of_worker().write_below(&worker.machine.folder().join("own"));
        let action = format!(
            r#"{{"region": "eu-west-1", "group": "{}", "instanceID": "{NODE}"}}"#,
            autoscaling.group()
        );
        fs::write(state.join("facts.json"), format!(r#"{{"lifecycleAction": {action}}}"#)).unwrap();
        // With a scratch root, the agent makes no requests to a cloud. So the test uses the root `/`. This is safe,
        // because a run that kops-controller refuses with 409 only reads `/var/lib`.
        let nothing = None::<&Path>;
        mount(Some(&var_lib), "/var/lib", nothing, MsFlags::MS_BIND, nothing).unwrap();
        let run = |verb: &str, flags: &[&str]| {
            server.answer_next(&[Mood::Refusing(409, ""), Mood::Refusing(409, "")]);
            let authority = &worker.served.authority;
            let mut agent = worker.agent_of(Path::new("/"), verb, &[server.url()], authority);
            agent.envs([autoscaling.environment()]).args(flags);
            once(agent.env("AWS_EC2_METADATA_SERVICE_ENDPOINT", imds.url()))
        };
        let told = ["registered and ready", "told nodes.demo.example.com that this machine is ready"];
        let another = BTreeSet::from(["i-another".to_owned()]);
        autoscaling.refuse_next(1);
        run("converge", &[]).with(1, &["its group does not know this yet", "InvalidClientTokenId"]);
        // The report to the Auto Scaling group failed. The next run of any verb repeats the report.
        run("verify", &["--repair"]).with(0, &told);
        assert_eq!(autoscaling.held(), another);
        autoscaling.asked();
        run("converge", &[]).with(0, &["registered and ready"]);
        assert_eq!(autoscaling.asked(), 0, "it is told already");

        fs::write(state.join("facts.json"), format!(r#"{{"lifecycleAction": {action}}}"#)).unwrap();
        run("converge", &[]).with(
            0,
            &["registered and ready", "no lifecycle hook of nodes.demo.example.com holds this machine"],
        );
        fs::write(state.join("facts.json"), format!(r#"{{"lifecycleAction": {action}}}"#)).unwrap();
        autoscaling.refuse_next(1);
        let at_boot = run("converge", &["--retries", "-1"]);
        at_boot.with(0, &["its group does not know this yet", "trying again", "no lifecycle hook of"]);
    });
}

#[test]
fn a_group_that_holds_a_node_which_is_registered_already_hears_that_it_is_ready() {
    let mut worker = Worker::new();
    worker.served.nodeup_config.push_str("EnableLifecycleHook: true\n");
    let (server, imds) = (worker.kops_controller(), metadata_of_node());
    let registered = Mood::Refusing(409, "");
    server.answer_next(&vec![registered.clone(); 9]);
    worker.run_on(&imds, "converge", &server).with(1, &["Nothing proves that this machine is that node"]);
    assert_eq!(lifecycle_actions(&worker), 0, "another machine is ready");
    Kubelet::of_worker().write_below(worker.machine.root());
    server.answer_next(&[Mood::Honest, registered.clone()]);
    worker.run_on(&imds, "converge", &server).with(0, &["registered and ready"]);
    assert_eq!(lifecycle_actions(&worker), 1);
    server.answer_next(&[]);
    worker.run_on(&imds, "plan", &server).with(0, &[]);
    assert_eq!(lifecycle_actions(&worker), 1, "a plan tells nothing");

    // If kops-controller serves no configuration, the run uses the lifecycle action that an earlier run saved.
    let remembered = worker.machine.root().join("var/lib/kops-agent/facts.json");
    for (instance, told) in [("i-0000000000000000f", 1), (NODE, 2)] {
        let action =
            format!(r#"{{"region": "eu-west-1", "group": "nodes.{CLUSTER}", "instanceID": "{instance}"}}"#);
        fs::write(&remembered, format!(r#"{{"lifecycleAction": {action}}}"#)).unwrap();
        server.answer_next(std::slice::from_ref(&registered));
        let mut agent = worker.agent("converge", &[server.url()], &worker.served.authority);
        once(agent.env("AWS_EC2_METADATA_SERVICE_ENDPOINT", imds.url())).with(0, &["registered and ready"]);
        assert_eq!(lifecycle_actions(&worker), told, "of {instance}");
    }
}

#[test]
fn facts_from_a_file_complete_no_lifecycle_action() {
    let mut worker = Worker::new();
    worker.served.nodeup_config.push_str("EnableLifecycleHook: true\n");
    worker.run("converge", &worker.kops_controller()).with(0, &[]);
    assert_eq!(lifecycle_actions(&worker), 0);
}

#[test]
fn a_group_hears_of_a_node_of_which_a_unit_failed_that_no_pod_waits_for() {
    let mut worker = Worker::new();
    worker.served.nodeup_config.push_str("EnableLifecycleHook: true\n");
    let recorded = worker.machine.root().join("var/lib/kops-agent/recorded");
    let refusal = |unit: &str| serde_json::json!({"unit": unit, "path": "/etc/hostname", "text": ""});
    let refusals = ["chrony.service", "chronyd.service", "systemd-timesyncd.service"].map(refusal);
    fs::create_dir_all(&recorded).unwrap();
    fs::write(recorded.join("state.json"), serde_json::json!({ "refusals": refusals }).to_string()).unwrap();
    let (server, imds) = (worker.kops_controller(), metadata_of_node());
    worker.run_on(&imds, "converge", &server).with(1, &["is refused"]);
    assert_eq!(lifecycle_actions(&worker), 1);
}

#[test]
fn lies_are_refused_before_anything_is_written() {
    let worker = Worker::new();
    let server = worker.kops_controller();
    for (lie, code, expected) in [
        (Mood::OtherConfiguration, 3, "NodeupConfigHash"),
        (Mood::Babbling, 1, "JSON object"),
        (Mood::Empty, 1, "has no configuration in it"),
        (Mood::Endless, 1, "longer than 4 MiB"),
        (Mood::Refusing(500, "internal error\nsecret\n"), 1, "500 (internal error)"),
        (Mood::Refusing(307, ""), 1, "307"),
        (Mood::Refusing(204, ""), 1, "204"),
    ] {
        server.answer_next(&vec![lie.clone(); 9]);
        let refused = worker.run("converge", &server);
        refused.with(code, &[expected]);
        assert!(!refused.stderr.contains("secret"), "{refused:#?}");
        worker.is_untouched();
    }
    for (lie, expected) in [
        (Mood::Empty, "no certificate kube"),
        (Mood::Without("kubelet"), "no certificate kubelet in it"),
        (Mood::OtherKey, "its key does not belong to it"),
        (Mood::OtherAuthority, "not signed by a trusted kubernetes-ca"),
        (Mood::OtherNode, "its subject is wrong"),
        (Mood::Endless, "longer than 4 MiB"),
    ] {
        let moods = std::iter::once(Mood::Honest).chain(vec![lie; 9]).collect::<Vec<_>>();
        server.answer_next(&moods);
        worker.run("converge", &server).with(1, &[expected, "getting this node's certificates"]);
        worker.is_untouched();
    }
    assert_eq!(server.problems(), [""; 0]);
}

#[test]
fn a_server_that_says_nothing_is_given_up() {
    let worker = Worker::new();
    let server = worker.kops_controller();
    server.answer_next(&[Mood::Silent]);
    worker.run("converge", &server).with(1, &["the request takes longer than 15 seconds", "in 1 tries"]);
    worker.is_untouched();
}

#[test]
fn a_kops_controller_that_is_not_in_dns_yet_is_waited_for() {
    apart("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n", || {
        for (fault, reason) in [
            (NameFault::NoSuchName, "the name server says that there is no such name; trying again"),
            (NameFault::Placeholder, "its address is 203.0.113.123, the placeholder that kOps writes"),
        ] {
            let worker = Worker::new();
            let server = worker.kops_controller();
            let name = server_name();
            let names = NameServer::start(fault, &[(&name, 4)]).unwrap();
            let url = server.url().replace("127.0.0.1", &name);
            let mut agent = worker.agent("converge", &[url], &worker.served.authority);
            let converged = Ended::from_command(agent.args(["--store-timeout", "60"]));
            converged.with(0, &["it is not in DNS yet", reason]);
            assert!(names.asked(&name) > 4);
            assert_eq!(server.asked(), honest(&CERTIFICATES));
        }
    });
}

/// The agent asks no name server for a name in the hosts file, because getaddrinfo reads this file. Upstream's nodeup
/// does not ask either, because Go's resolver also reads this file.
#[test]
fn a_name_in_the_hosts_file_needs_no_name_server_though_it_has_one_family_only() {
    apart("nameserver 127.0.0.1\noptions timeout:5 attempts:3\n", || {
        let worker = Worker::new();
        let server = worker.kops_controller();
        let name = server_name();
        let hosts = worker.machine.folder().join("hosts");
        fs::write(&hosts, format!("127.0.0.1 localhost\n127.0.0.1 {name}\n")).unwrap();
        let mounted = Command::new("mount").arg("--bind").arg(&hosts).arg("/etc/hosts").status().unwrap();
        assert!(mounted.success());
        let names = NameServer::start(NameFault::Silent, &[(&name, usize::MAX)]).unwrap();
        let url = server.url().replace("127.0.0.1", &name);
        once(&mut worker.agent("converge", &[url], &worker.served.authority)).with(0, &[]);
        assert_eq!(names.asked(&name), 0);
        assert_eq!(server.asked(), honest(&CERTIFICATES));
    });
}

/// If upstream's kops-controller builds the configuration itself, it serves JSON, in which Go escapes `<`, `>`
/// and `&`.
#[test]
fn a_configuration_in_json_makes_the_same_node_as_in_yaml() {
    let files = |as_json: bool| {
        let mut worker = Worker::new();
        if as_json {
            let config: serde_yaml::Value = serde_yaml::from_str(&worker.served.nodeup_config).unwrap();
            let json = serde_json::to_string(&config).unwrap();
            worker.served.nodeup_config =
                json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
        }
        let server = worker.kops_controller();
        worker.run("converge", &server).with(0, &[]);
        assert_eq!(server.problems(), [""; 0]);
        assert_eq!(worker.read("root/.docker/config.json"), DOCKER_CONFIG);
        let is_made_of_a_key = |file: &String| file.contains("kubeconfig") || file.contains("kubelet-server");
        let files = worker.machine.files().into_iter().filter(|file| !is_made_of_a_key(file));
        files.map(|file| (file.clone(), fs::read(worker.machine.root().join(file)).ok())).collect::<Vec<_>>()
    };
    let (of_yaml, of_json) = (files(false), files(true));
    assert!(of_yaml.len() > 10, "{}", of_yaml.len());
    for (yaml, json) in of_yaml.iter().zip(&of_json) {
        assert_eq!(yaml, json);
    }
    assert_eq!(of_yaml.len(), of_json.len());
}

/// `kops toolbox enroll` writes the store folder of a control plane into every boot config. A worker with such a boot
/// config must still use kops-controller.
#[test]
fn kops_controller_comes_before_a_folder_that_the_boot_config_names_too() {
    let worker = Worker::new();
    let server = worker.kops_controller();
    let mut agent = worker.agent("converge", &[server.url()], &worker.served.authority);
    let conf = worker.machine.folder().join("kube_env.yaml");
    let text = fs::read_to_string(&conf).unwrap();
    fs::write(&conf, format!("ConfigBase: file:///etc/kubernetes/kops/config\n{text}")).unwrap();
    once(&mut agent).with(0, &[]);
    assert_eq!(server.asked(), honest(&CERTIFICATES));
}

#[test]
fn a_machine_of_no_cloud_without_a_key_fails_and_sends_no_request() {
    let worker = Worker::new();
    let server = worker.kops_controller();
    let mut agent = worker.agent("converge", &[server.url()], &worker.served.authority);
    let conf = worker.machine.folder().join("kube_env.yaml");
    let text = fs::read_to_string(&conf).unwrap().replace("CloudProvider: aws", "CloudProvider: metal");
    fs::write(&conf, text).unwrap();
    once(&mut agent).with(1, &["etc/kubernetes/kops/pki/machine/private.pem", "kops toolbox enroll"]);
    assert_eq!(server.asked(), []);
    worker.is_untouched();
}

/// Unlike other tests, this test uses no software TPM. The machine that runs the test has no TPM, or a TPM that is not
/// Google's.
#[test]
fn a_worker_on_gce_without_googles_tpm_fails_and_sends_no_request() {
    let worker = Worker::new();
    let server = worker.kops_controller();
    let mut agent = worker.agent("converge", &[server.url()], &worker.served.authority);
    let conf = worker.machine.folder().join("kube_env.yaml");
    let on_gce = fs::read_to_string(&conf).unwrap().replace("CloudProvider: aws", "CloudProvider: gce");
    fs::write(&conf, on_gce).unwrap();
    let facts = worker.machine.cluster.store.facts(NODES);
    let mut observed: serde_yaml::Value = serde_yaml::from_slice(&fs::read(&facts).unwrap()).unwrap();
    let gce = "{gce: {hostname: nodes-x1y2.us-test1-a.c.my-project.internal, project: my-project, zone: us-test1-a, name: nodes-x1y2}}";
    observed["cloud"] = serde_yaml::from_str(gce).unwrap();
    fs::write(&facts, serde_yaml::to_string(&observed).unwrap()).unwrap();
    once(&mut agent).with(1, &["cannot prove this machine's identity: ", "vTPM"]);

    observed["cloud"]["gce"]["zone"] = "".into();
    fs::write(&facts, serde_yaml::to_string(&observed).unwrap()).unwrap();
    let mut agent = worker.agent("converge", &[server.url()], &worker.served.authority);
    fs::write(&conf, fs::read_to_string(&conf).unwrap().replace("CloudProvider: aws", "CloudProvider: gce"))
        .unwrap();
    once(&mut agent).with(1, &["cloud.gce", "the zone \"\""]);
    assert_eq!(server.asked(), []);
    worker.is_untouched();
}
