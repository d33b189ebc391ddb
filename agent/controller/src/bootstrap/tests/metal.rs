//! Machines that were enrolled with a key of their own. Tests kops-agent's client against its server. The API server's list
//! of `Host` objects is a stand-in.

use std::path::PathBuf;

use kops_agent_cluster::bootstrap::host_token::KEY_FILE;
use kops_agent_cluster::identity::host::Host;
use kops_agent_spec::facts::Facts;
use rcgen::PKCS_ECDSA_P256_SHA256;

use super::renewal::{kubelet, renew};
use super::*;
use kops_agent_cloud::authenticate::Authenticator as _;
use kops_agent_cloud::hosts::HostsUnavailable;
use kops_agent_cloud::metal::authenticate::HostAuthenticator;

const NODE: &str = "vm1";

/// A machine with a key, and its enrolled `Host`.
struct Metal {
    root: tempfile::TempDir,
    host: Host,
}

impl Metal {
    fn new(name: &str) -> Metal {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let root = tempfile::tempdir().unwrap();
        let file: PathBuf = root.path().join(KEY_FILE.trim_start_matches('/'));
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, key.serialize_pem()).unwrap();
        let host = Host {
            name: name.into(),
            public_key: key.public_key_pem(),
            instance_group: "nodes".into(),
            pod_cidrs: Vec::new(),
        };
        Metal { root, host }
    }

    fn client(&self, world: &World) -> KopsController {
        let facts = Facts { hostname: self.host.name.clone(), ..Facts::default() };
        KopsController::new(&world.boot_config("metal"), None, &facts, Duration::ZERO)
            .for_node_at(self.root.path())
    }

    async fn token(&self, body: &[u8]) -> String {
        let authenticator = HostAuthenticator::new(self.root.path(), &self.host.name).unwrap();
        authenticator.token(body).await.unwrap().to_str().unwrap().to_owned()
    }
}

#[tokio::test]
async fn an_enrolled_machine_becomes_a_node() {
    let (world, metal) = (World::new().await, Metal::new(NODE));
    world.hosts.set(Ok(vec![metal.host.clone()]));
    let machine = metal.client(&world);
    let (_, config) = machine.node_config().await.unwrap();
    assert_eq!(config.nodeup_config, NODEUP_CONFIG);
    assert_eq!(config.node_secrets["dockerconfig"].0, b"{}");
    let issued = certificates(&machine).await.unwrap();
    for (name, subject) in [("kubelet", "O=system:nodes, CN=system:node:vm1"), ("kubelet-server", "CN=vm1")] {
        let (_, pem) = x509_parser::pem::parse_x509_pem(issued[name].as_bytes()).unwrap();
        assert_eq!(pem.parse_x509().unwrap().subject().to_string(), subject);
    }
    world.ready.lock().insert(NODE.into());
    let error = certificates(&machine).await.unwrap_err();
    assert!(error.to_string().contains("it answers with 409"), "{error}");
}

#[tokio::test]
async fn a_machine_with_another_key_or_not_enrolled_gets_nothing() {
    let (world, honest, liar, stranger) =
        (World::new().await, Metal::new(NODE), Metal::new(NODE), Metal::new("vm2"));
    world.hosts.set(Ok(vec![honest.host.clone()]));
    for (machine, reason) in [(&liar, "WrongSignature"), (&stranger, "HostNotFound")] {
        let error = certificates(&machine.client(&world)).await.unwrap_err().to_string();
        assert!(error.contains("403 (failed to verify token)"), "{error}");
        assert!(world.counted(reason) && !world.counted("Granted"));
    }
    certificates(&honest.client(&world)).await.unwrap();
}

#[tokio::test]
async fn a_token_is_taken_once() {
    let (world, metal) = (World::new().await, Metal::new(NODE));
    world.hosts.set(Ok(vec![metal.host.clone()]));
    let body = request(Value::Null, Value::Null, true);
    let token = metal.token(&body).await;
    assert_eq!(world.ask(&token, body.clone()).await.0, 200);
    assert_eq!(world.ask(&token, body).await.0, 403);
    assert!(world.counted("TokenReplayed"));
}

#[tokio::test]
async fn while_hosts_are_not_listed_no_machine_is_let_in_and_none_is_unknown() {
    let (world, metal) = (World::new().await, Metal::new(NODE));
    world.hosts.set(Err(HostsUnavailable("forbidden".into())));
    let error = certificates(&metal.client(&world)).await.unwrap_err().to_string();
    assert!(error.contains("500 (internal error)"), "{error}");
    assert!(world.counted("HostsUnavailable") && !world.counted("HostNotFound"));
}

#[tokio::test]
async fn the_node_of_an_enrolled_machine_renews_and_no_clouds_node_of_its_name_does() {
    let (world, metal) = (World::new().await, Metal::new(NODE));
    world.hosts.set(Ok(vec![metal.host.clone()]));
    world.ready.lock().insert(NODE.into());
    let shown = kubelet(&world, NODE);
    for (provider_id, expected) in [("", 200), ("gce://my-project/us-test1-a/vm1", 403)] {
        world.provider_ids.lock().insert(NODE.into(), provider_id.into());
        let body = for_certificates(&["kubelet"], &KeyPair::generate().unwrap());
        let token = metal.token(&body).await;
        let (status, answer) = renew(&world, Some(&shown), &token, body).await;
        assert_eq!(status, expected, "{provider_id}: {answer}");
    }
}

#[tokio::test]
async fn a_machine_of_a_group_of_control_planes_gets_nothing() {
    let world = World::with_control_planes().await;
    let metal = Metal::new(NODE);
    world.hosts.set(Ok(vec![metal.host.clone()]));
    world.assert_refuses_control_planes(certificates(&metal.client(&world)).await);
}
