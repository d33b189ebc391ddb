//! Machines on Hetzner Cloud. Their requests name the server's number, and kops-agent's server calls them back. Tests
//! kops-agent's client against its server.

use std::sync::atomic::{AtomicU8, Ordering};

use kops_agent_cluster::bootstrap::challenge::PORT;
use kops_agent_spec::facts::{Facts, HetznerFacts};
use kops_agent_tests::hetzner::{CLUSTER_LABEL, INSTANCE_GROUP_LABEL, Mood, Server as Known};

use super::*;
use kops_agent_cloud::verify::Peers;

/// A loopback address that no other test and no other test process uses. Machines need different addresses, because all use one call-back
/// port.
pub(super) fn address() -> IpAddr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    assert!(number < 128, "the next one's address would be another process's");
    let [.., high, low] = (std::process::id() & 0xffff).to_be_bytes();
    IpAddr::from([127, 128 | high >> 1, high << 7 | low >> 1, low << 7 | number])
}

pub(super) fn known(name: &str, address: IpAddr) -> Known {
    Known::of_group(CLUSTER, "nodes", name, address)
}

/// The client on the Hetzner server with the number `id`, or on a server that claims this number.
pub(super) fn machine(world: &World, id: u64, address: IpAddr) -> KopsController {
    let mut facts = Facts { hostname: "nodes-1a2b".into(), ..Facts::default() };
    facts.cloud.hetzner = Some(HetznerFacts { instance_id: id.to_string(), ..HetznerFacts::default() });
    machine_of(world, "hetzner", &facts, address)
}

/// The client on a machine with these facts.
pub(super) fn machine_of(world: &World, cloud: &str, facts: &Facts, address: IpAddr) -> KopsController {
    KopsController::new(&world.boot_config(cloud), None, facts, Duration::ZERO)
        .called_back_at(SocketAddr::new(address, PORT))
}

/// Asserts that a certificate is for a subject, and for these addresses.
pub(super) fn assert_is_for(pem: &str, subject: &str, addresses: &[IpAddr]) {
    let (_, pem) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).unwrap();
    let certificate = pem.parse_x509().unwrap();
    assert_eq!(certificate.subject().to_string(), subject);
    let names = certificate.subject_alternative_name().unwrap();
    let names: Vec<String> =
        names.iter().flat_map(|names| &names.value.general_names).map(ToString::to_string).collect();
    let as_shown = |address: &IpAddr| {
        let IpAddr::V4(address) = address else { panic!("{address}") };
        let [a, b, c, d] = address.octets();
        format!("IPAddress({a:02x}:{b:02x}:{c:02x}:{d:02x})")
    };
    assert_eq!(names, addresses.iter().map(as_shown).collect::<Vec<_>>());
}

pub(super) fn assert_not_proven(world: &World, asked: Result<BTreeMap<String, String>, BootstrapError>) {
    let error = asked.unwrap_err().to_string();
    assert!(error.contains("400 (callback failed)"), "{error}");
    assert!(world.counted("CallbackFailed") && !world.counted("Granted"));
}

#[tokio::test]
async fn a_machine_that_answers_its_call_back_becomes_a_node() {
    let world = World::new().await;
    let address = address();
    world.hetzner.put(4711, known("nodes-1a2b", address));
    let machine = machine(&world, 4711, address);
    let (_, config) = machine.node_config().await.unwrap();
    assert_eq!(config.nodeup_config, NODEUP_CONFIG);
    let certificates = certificates(&machine).await.unwrap();
    for (name, subject) in
        [("kubelet", "O=system:nodes, CN=system:node:nodes-1a2b"), ("kubelet-server", "CN=nodes-1a2b")]
    {
        let addresses = if name == "kubelet-server" { vec![[192, 0, 2, 7].into(), address] } else { vec![] };
        assert_is_for(&certificates[name], subject, &addresses);
    }
    assert_eq!(world.hetzner.calls(), 1);
    world.ready.lock().insert("nodes-1a2b".into());
    let error = machine.node_config().await.unwrap_err();
    assert!(error.to_string().contains("it answers with 409"), "{error}");
}

#[tokio::test]
async fn a_node_that_is_ready_shows_its_present_certificate_and_gets_others() {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    let world = World::new().await;
    let address = address();
    world.hetzner.put(4711, known("nodes-1a2b", address));
    world.ready.lock().insert("nodes-1a2b".into());
    world.provider_ids.lock().insert("nodes-1a2b".into(), "hcloud://4711".into());
    let root = tempfile::tempdir().unwrap();
    let machine = machine(&world, 4711, address).for_node_at(root.path());
    let is_not_proven = |asked: Result<BTreeMap<String, String>, BootstrapError>, why: &str| {
        let error = asked.unwrap_err().to_string();
        assert!(error.contains("it answers with 409") && error.contains(why), "{error}");
    };
    is_not_proven(certificates(&machine).await, "there is no /var/lib/kubelet/kubeconfig");

    let kubelet_folder = root.path().join("var/lib/kubelet");
    fs::create_dir_all(&kubelet_folder).unwrap();
    let has = |pair: &super::renewal::Pair| {
        let (certificate, key) = (STANDARD.encode(&pair.certificate), STANDARD.encode(&pair.key));
        let user = format!("client-certificate-data: {certificate}\n    client-key-data: {key}\n");
        let text = format!("users:\n- name: kubelet\n  user:\n    {user}");
        fs::write(kubelet_folder.join("kubeconfig"), text).unwrap();
    };
    has(&super::renewal::kubelet(&world, "another"));
    is_not_proven(certificates(&machine).await, "is of the node another, and this machine is nodes-1a2b");
    assert!(!world.counted("Granted"));

    has(&super::renewal::kubelet(&world, "nodes-1a2b"));
    assert_eq!(certificates(&machine).await.unwrap().len(), 2);
    assert_eq!(machine.node_config().await.unwrap().1.nodeup_config, NODEUP_CONFIG);
    assert!(world.counted("Granted"));
}

#[tokio::test]
async fn a_machine_that_names_anothers_number_gets_nothing() {
    let world = World::new().await;
    let (own, others) = (address(), address());
    world.hetzner.put(1, known("liar", own));
    world.hetzner.put(2, known("honest", others));
    let liar = machine(&world, 2, own);
    // First, nothing listens at the honest machine's address. Later the honest machine listens, but waits for its own challenge.
    assert_not_proven(&world, certificates(&liar).await);
    let at_work = kops_agent_cloud::callback::CallbackServer::start(
        CLUSTER,
        &world.authority.pem,
        SocketAddr::new(others, PORT),
    );
    let at_work = at_work.await.unwrap();
    let _challenge = at_work.challenge().unwrap();
    assert_not_proven(&world, certificates(&liar).await);
    // The answer does not tell the liar whether the claimed machine is already a node.
    world.ready.lock().insert("honest".into());
    assert_not_proven(&world, certificates(&liar).await);
}

/// nodeup of kOps 1.34.0 and 1.34.1 answers each challenge with a constant.
#[tokio::test]
async fn a_constant_proof_counts_only_in_clusters_of_the_releases_that_make_it() {
    for (version, answered) in [("1.34.1\n", 200), ("1.34.2", 400), ("", 400)] {
        let world = World::new().await;
        let file = world.folder.path().join("store/kops-version.txt");
        if !version.is_empty() {
            fs::write(file, version).unwrap();
        }
        let address = address();
        world.hetzner.put(1, known("a", address));
        let nodeup = kops_agent_cloud::callback::CallbackServer::start(
            CLUSTER,
            &world.authority.pem,
            SocketAddr::new(address, PORT),
        );
        let nodeup = nodeup.await.unwrap();
        let asks = async || {
            let mut body: Value = serde_json::from_slice(&request(json!({}), json!({}), false)).unwrap();
            body["challenge"] = serde_json::to_value(nodeup.challenge().unwrap()).unwrap();
            world.ask("x-hetzner-id 1", body.to_string().into_bytes()).await.0
        };
        assert_eq!(asks().await, 200);
        // After the call `refused`, this nodeup answers each challenge with the constant of kOps 1.34.0 and 1.34.1.
        nodeup.refused();
        assert_eq!(asks().await, answered, "{version}");
    }
}

#[tokio::test]
async fn a_request_without_a_challenge_is_refused_without_a_question() {
    let world = World::new().await;
    world.hetzner.put(1, known("a", address()));
    let body = request(json!({}), json!({}), false);
    assert_eq!(world.ask("x-hetzner-id 1", body.clone()).await, (400, "callback failed".to_owned()));
    for token in ["x-hetzner-id ", "x-hetzner-id 1/../2", "x-hetzner-id -1"] {
        assert_eq!(world.ask(token, body.clone()).await.0, 403);
    }
    assert!(world.counted("CallbackFailed") && world.counted("MalformedToken"));
    assert_eq!(world.hetzner.calls(), 0);
}

#[tokio::test]
async fn only_running_servers_of_the_cluster_are_called_back() {
    let world = World::new().await;
    let address = address();
    let with_label = |key: &str, value: &str| {
        let mut server = known("a", address);
        server.labels.insert(key.into(), value.into());
        server
    };
    let cases = [
        (2, Known { status: "off".into(), ..known("a", address) }, "InstanceNotRunning"),
        (3, with_label(CLUSTER_LABEL, "other.example.com"), "InstanceNotFound"),
        (4, with_label(INSTANCE_GROUP_LABEL, ""), "InstanceGroupUnknown"),
        (5, Known { private_ips: Vec::new(), ..known("a", address) }, "NoPrivateAddress"),
        (6, known("No_Name", address), "NoNodeName"),
    ];
    for (id, server, _) in &cases {
        world.hetzner.put(*id, server.clone());
    }
    for (id, reason) in cases.iter().map(|(id, _, reason)| (*id, *reason)).chain([(7, "InstanceNotFound")]) {
        let error = certificates(&machine(&world, id, address)).await.unwrap_err().to_string();
        assert!(error.contains("403 (failed to verify token)"), "{reason}: {error}");
        assert!(world.counted(reason), "{reason}");
    }
}

#[tokio::test]
async fn while_hetzner_does_not_answer_no_machine_is_let_in() {
    let world = World::new().await;
    let address = address();
    world.hetzner.put(1, known("a", address));
    world.hetzner.set_mood(Mood::Down);
    let error = certificates(&machine(&world, 1, address)).await.unwrap_err().to_string();
    assert!(error.contains("500 (internal error)") && world.counted("HetznerUnavailable"), "{error}");
}

#[tokio::test]
async fn machines_are_called_with_one_certificate_until_half_its_life_is_over() {
    let world = World::new().await;
    let call_back = CallBack::new(CLUSTER, world.keystore.clone());
    let now = Instant::now();
    let after = |minutes: u64| call_back.identity(now + Duration::from_secs(60 * minutes)).unwrap();
    let first = after(0);
    let (_, pem) = x509_parser::pem::parse_x509_pem(first.certificate.as_bytes()).unwrap();
    let certificate = pem.parse_x509().unwrap();
    assert_eq!(certificate.subject().to_string(), "CN=kops-controller.c.example.com");
    assert!(certificate.extended_key_usage().unwrap().unwrap().value.client_auth);
    let left = certificate.validity().time_to_expiration().unwrap();
    assert!(left > Duration::from_secs(3500) && left <= Duration::from_secs(3600), "{left:?}");
    assert!(Arc::ptr_eq(&first, &after(29)));
    let second = after(31);
    assert!(!Arc::ptr_eq(&first, &second));
    // A new authority signs a new certificate.
    write_authority(&new_authority("kubernetes-ca"), &world.pki(), "kubernetes-ca");
    world.keystore.refresh();
    assert!(!Arc::ptr_eq(&second, &after(32)));
}

/// All machines share the load balancer's address. One machine floods the server with requests, and never answers the server's call-back.
#[tokio::test]
async fn a_machine_that_asks_without_end_waits_behind_itself() {
    let world = World::new().await;
    let (bad, honest) = (address(), address());
    world.hetzner.put(1, known("bad", bad));
    world.hetzner.put(2, known("honest", honest));
    // The machine `bad` accepts the call-back's connection, but sends nothing.
    let _silent = tokio::net::TcpListener::bind(SocketAddr::new(bad, PORT)).await.unwrap();
    let flood = futures_util::future::join_all((0..120).map(|number| {
        let ca = kops_agent_cluster::bootstrap::message::Bytes(world.authority.pem.clone().into_bytes());
        let challenge = json!({"endpoint": "x", "ca": ca, "challengeID": number.to_string(),
                               "challengeSecret": "eA=="});
        let mut body: Value = serde_json::from_slice(&request(json!({}), json!({}), false)).unwrap();
        body["challenge"] = challenge;
        world.ask("x-hetzner-id 1", body.to_string().into_bytes())
    }));
    let honest = machine(&world, 2, honest);
    let asked = async {
        // Wait until requests of the machine `bad` fill its queue.
        while world.metrics.waiting.get() < 64 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        certificates(&honest).await
    };
    tokio::select! {
        given = asked => assert_eq!(given.unwrap().len(), 2),
        answers = flood => panic!("the flood is over before the honest machine is answered: {answers:?}"),
    }
}

/// While a machine bootstraps, liars flood the server with requests in its name.
#[tokio::test]
async fn liars_that_claim_to_be_one_machine_do_not_crowd_it_out() {
    let world = World::behind_a_load_balancer().await;
    let victim = address();
    world.hetzner.put(1, known("victim", victim));
    let client = world.client(Ipv4Addr::LOCALHOST);
    let liar = |number: usize| {
        let (client, url) = (client.clone(), world.url());
        let ca = kops_agent_cluster::bootstrap::message::Bytes(world.authority.pem.clone().into_bytes());
        async move {
            for turn in 0.. {
                let challenge = json!({"endpoint": "x", "ca": ca, "challengeID": format!("{number}-{turn}"),
                                       "challengeSecret": "eA=="});
                let mut body: Value = serde_json::from_slice(&request(json!({}), json!({}), false)).unwrap();
                body["challenge"] = challenge;
                let asked =
                    client.post(&url).header("Authorization", "x-hetzner-id 1").body(body.to_string());
                // The liar retries after any answer.
                let _ = asked.send().await;
            }
        }
    };
    let liars = futures_util::future::join_all((0..48).map(liar));
    let honest = async {
        while !world.counted("CallbackFailed") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // Despite the liars, each request of the honest machine succeeds at the first try.
        for _ in 0..3 {
            assert_eq!(certificates(&machine(&world, 1, victim)).await.unwrap().len(), 2);
        }
    };
    tokio::select! {
        () = honest => assert!(!world.counted("QueueFull")),
        _ = liars => unreachable!("they have no end"),
    }
}

/// The bootstrap server does not know the load balancer's address, but knows the addresses of all Hetzner servers.
#[tokio::test]
async fn only_an_address_of_no_server_may_be_a_load_balancers() {
    let world = World::behind_a_load_balancer().await;
    let servers =
        Arc::new(HetznerServers::at(&world.hetzner.url(), TOKEN, CLUSTER, CloudCalls::default()).unwrap());
    let own: IpAddr = "10.0.0.9".parse().unwrap();
    world.hetzner.put(1, known("a", own));
    let balanced = LoadBalancing::Of(servers.clone());
    assert_eq!(balanced.peers_at(own), Peers::LoadBalancer, "they are not listed yet");
    servers.get(1.into()).await.unwrap();
    assert_eq!(balanced.peers_at(own), Peers::Machines);
    assert_eq!(balanced.peers_at("::ffff:10.0.0.9".parse().unwrap()), Peers::Machines);
    assert_eq!(balanced.peers_at("10.0.0.3".parse().unwrap()), Peers::LoadBalancer);
    // The last list of servers stays valid while Hetzner does not answer.
    world.hetzner.set_mood(Mood::Down);
    assert_eq!(balanced.peers_at(own), Peers::Machines);
}

#[tokio::test]
async fn a_server_of_a_group_of_control_planes_gets_nothing() {
    let world = World::with_control_planes().await;
    let address = address();
    world.hetzner.put(4711, known("nodes-1a2b", address));
    world.assert_refuses_control_planes(certificates(&machine(&world, 4711, address)).await);
}
