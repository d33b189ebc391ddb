//! The answers to honest machines.

use x509_parser::pem::Pem;

use super::*;

#[tokio::test]
async fn a_machine_gets_certificates_with_the_names_from_the_cloud() {
    let world = World::new().await;
    let machine = world.machine(ID);
    let key = KeyPair::generate().unwrap();
    let names = ["kubelet", "kubelet-server", "kube-proxy", "etcd-client-cilium"];
    for version in [1, 2] {
        let body = for_certificates(&names, &key);
        let token = match version {
            1 => world.v1(&machine, &body),
            _ => machine.token_v2(&world.sts.host(), REGION, &body, seconds(SystemTime::now())),
        };
        let (status, answer) = world.ask(&token, body).await;
        assert_eq!(status, 200, "{answer}");
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert!(answer.get("nodeConfig").is_none());
        assert_eq!(answer["Certs"].as_object().unwrap().len(), 4);

        let (_, authority) = x509_parser::pem::parse_x509_pem(world.authority.pem.as_bytes()).unwrap();
        let authority = authority.parse_x509().unwrap();
        for (name, subject) in [
            ("kubelet", format!("O=system:nodes, CN=system:node:{ID}")),
            ("kubelet-server", format!("CN={ID}")),
            ("kube-proxy", "CN=system:kube-proxy".into()),
        ] {
            let pem = answer["Certs"][name].as_str().unwrap();
            let blocks: Vec<Pem> = Pem::iter_from_buffer(pem.as_bytes()).map(Result::unwrap).collect();
            assert_eq!(blocks.len(), 1, "the leaf only");
            let certificate = blocks[0].parse_x509().unwrap();
            certificate.verify_signature(Some(authority.public_key())).unwrap();
            assert_eq!(certificate.subject().to_string(), subject);
            assert_eq!(certificate.public_key().raw, key.subject_public_key_info());
            let usage = certificate.extended_key_usage().unwrap().unwrap().value;
            assert_eq!(
                (usage.server_auth, usage.client_auth),
                (name == "kubelet-server", name != "kubelet-server")
            );
            let names = certificate.subject_alternative_name().unwrap();
            let names: Vec<String> = names
                .map(|names| names.value.general_names.iter().map(ToString::to_string).collect())
                .unwrap_or_default();
            match name {
                "kubelet-server" => assert_eq!(
                    names,
                    [format!("DNSName({ID})"), "DNSName(ip-10-0-0-1.us-test-1.compute.internal)".into()]
                ),
                _ => assert!(names.is_empty(), "{names:?}"),
            }
            // The certificate is valid from 48 hours ago to 11069 hours from now. The end depends on the FNV-1 hash of the Node's name.
            let validity = certificate.validity();
            let hours = (validity.not_after.timestamp() - validity.not_before.timestamp()) / 3600;
            assert_eq!(hours, 11_069 + 48);
            assert!(!certificate.is_ca());
        }
    }
    assert!(world.counted("Granted"));
}

#[tokio::test]
async fn a_machine_gets_the_configuration_of_its_group_and_its_secrets() {
    let world = World::new().await;
    let machine = world.machine(ID);
    let body = request(Value::Null, Value::Null, true);
    let (status, answer) = world.ask(&world.v1(&machine, &body), body).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(
        answer,
        "{\"nodeConfig\":{\"nodeupConfig\":\"Networking: {}\\n\",\"nodeSecrets\":{\"dockerconfig\":\"e30=\"}}}\n"
    );
}

#[tokio::test]
async fn a_machine_hears_which_kops_wrote_its_configuration() {
    let world = World::new().await;
    fs::write(world.folder.path().join("store/kops-version.txt"), "1.35.2\n").unwrap();
    let machine = world.machine(ID);
    let body = request(Value::Null, Value::Null, true);
    let (status, answer) = world.ask(&world.v1(&machine, &body), body).await;
    assert_eq!(status, 200, "{answer}");
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["nodeConfig"]["kopsVersion"], "1.35.2", "{answer}");
}

#[tokio::test]
async fn a_machine_of_a_group_without_configuration_hears_so() {
    for (group, expected) in
        [("more", (400, "failed to build node config")), ("../../pki", (403, "failed to verify token"))]
    {
        let world = World::new().await;
        let saved = world.folder.path().join("store/instancegroup");
        fs::create_dir_all(&saved).unwrap();
        // After `kops edit ig` and before `kops update cluster --yes`, a group is saved but has no configuration.
        fs::write(saved.join("more"), "{spec: {role: Node}}").unwrap();
        let machine = world.machine(ID);
        world.ec2.put(ID, Instance::of_group(CLUSTER, group));
        let body = request(Value::Null, Value::Null, true);
        let (status, answer) = world.ask(&world.v1(&machine, &body), body).await;
        assert_eq!((status, answer.trim_end()), expected, "{group}");
    }
}

#[tokio::test]
async fn a_node_that_is_ready_is_not_registered_again() {
    let world = World::new().await;
    let machine = world.machine(ID);
    world.ready.lock().insert(ID.into());
    let body = request(json!({}), json!({}), false);
    assert_eq!(world.ask(&world.v1(&machine, &body), body).await, (409, String::new()));
    assert!(world.counted("AlreadyRegistered"));
}

#[tokio::test]
async fn a_node_that_is_ready_and_was_last_heard_of_before_the_instance_was_started_is_no_reason_to_refuse_it()
 {
    let world = World::new().await;
    let machine = world.machine(ID);
    world.ready.lock().insert(ID.into());
    for (launch_time, status) in [("2026-02-01T09:59:59.000Z", 409), ("2026-02-01T10:00:01.000Z", 200)] {
        let instance = Instance { launch_time: launch_time.into(), ..Instance::of_group(CLUSTER, "nodes") };
        world.ec2.put(ID, instance);
        let body = for_certificates(&["kubelet"], &KeyPair::generate().unwrap());
        let (answered, text) = world.ask(&world.v1(&machine, &body), body).await;
        assert_eq!(answered, status, "{launch_time}: {text}");
    }
    assert!(world.counted("AlreadyRegistered") && world.counted("Granted"));
}

#[tokio::test]
async fn probes_are_answered() {
    let world = World::new().await;
    let client = world.client(Ipv4Addr::LOCALHOST);
    let answer = client.get(world.url().replace("/bootstrap", "/healthz")).send().await.unwrap();
    assert_eq!((answer.status().as_u16(), text_of(answer).await.as_str()), (200, "ok"));
}

#[tokio::test]
async fn a_new_certificate_and_a_new_authority_are_taken_up() {
    let mut world = World::new().await;
    let machine = world.machine(ID);
    world.promote(new_authority("kubernetes-ca"));
    let key = KeyPair::generate().unwrap();
    let body = for_certificates(&["kubelet"], &key);
    let (status, answer) = world.ask(&world.v1(&machine, &body), body).await;
    assert_eq!(status, 200, "{answer}");

    // If the files are invalid, the previous keys stay in use.
    fs::write(world.pki().join("kops-controller.key"), "no key").unwrap();
    world.keystore.refresh();
    let body = for_certificates(&["kubelet"], &key);
    assert_eq!(world.ask(&world.v1(&machine, &body), body).await.0, 200);
}

#[tokio::test]
async fn a_connected_machine_is_answered_while_the_server_stops() {
    let mut world = World::new().await;
    let machine = world.machine(ID);
    world.sts.set_mood(kops_agent_tests::sts::Mood::Late(Duration::from_millis(500)));
    let body = request(json!({}), json!({}), false);
    let token = world.v1(&machine, &body);
    let serving = world.serving.take().unwrap();
    let stop = async {
        while world.sts.calls() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        serving.drain().await;
    };
    let ((status, _), ()) = tokio::join!(world.ask(&token, body), stop);
    assert_eq!(status, 200);
    assert!(
        tokio::net::TcpStream::connect(world.address).await.is_err(),
        "no connection is accepted any more"
    );
}

/// During the outage, the machine uses more tokens than the server remembers for one machine.
#[tokio::test]
async fn an_outage_uses_nothing_up() {
    const TRIES: usize = 304;
    let world = World::new().await;
    let machine = world.machine(ID);
    let body = for_certificates(&["kubelet"], &KeyPair::generate().unwrap());
    let tokens: Vec<String> = (0..TRIES).map(|_| world.v1(&machine, &body)).collect();
    world.api_is_down.store(true, Ordering::Relaxed);
    for some in tokens.chunks(16) {
        let asked = some.iter().map(|token| world.ask(token, body.clone()));
        let answers = futures_util::future::join_all(asked).await;
        assert!(answers.iter().all(|(status, _)| *status == 500), "{answers:?}");
    }
    world.api_is_down.store(false, Ordering::Relaxed);
    // The server accepts even the last token, because it granted nothing for this token during the outage.
    assert_eq!(world.ask(&tokens[TRIES - 1], body.clone()).await.0, 200);
    assert_eq!(world.ask(&tokens[TRIES - 1], body).await.0, 403, "a token is good once");
}
