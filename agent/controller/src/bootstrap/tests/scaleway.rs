//! Machines on Scaleway. Their requests name a UUID, and kops-agent's server calls them back. Tests kops-agent's client, from
//! the metadata service on, against its server.

use kops_agent_spec::facts::Facts;
use kops_agent_tests::scaleway::{Mood, Server as Known, uuid};

use super::hetzner::{address, assert_is_for, assert_not_proven, machine_of};
use super::*;
use kops_agent_cloud::scaleway::facts::observe_at;

/// The metadata service of the server with this number. It reports the server's UUID.
pub(super) async fn metadata(number: u64) -> TestServer {
    TestServer::start(move |request| async move {
        let server = json!({"id": uuid(number), "location": {"zone_id": "fr-par-1"}, "ssh_public_keys": []});
        Ok(match request.uri().path() {
            "/conf" => text(200, &server.to_string()),
            _ => text(404, ""),
        })
    })
    .await
}

/// A bootstrap client on the Scaleway server that this metadata service describes. At `address`, the client waits for the call-back of the
/// bootstrap server.
pub(super) async fn machine(world: &World, metadata: &TestServer, address: IpAddr) -> KopsController {
    let mut facts = Facts::default();
    facts.cloud.scaleway = Some(observe_at(&metadata.url).await.unwrap());
    machine_of(world, "scaleway", &facts, address)
}

pub(super) fn known(name: &str, address: IpAddr) -> Known {
    Known::of_group(CLUSTER, "nodes", name, address)
}

#[tokio::test]
async fn a_server_that_answers_its_call_back_becomes_a_node() {
    let world = World::new().await;
    let address = address();
    world.scaleway.put(4711, known("nodes-0", address));
    let machine = machine(&world, &metadata(4711).await, address).await;
    let (_, config) = machine.node_config().await.unwrap();
    assert_eq!(config.nodeup_config, NODEUP_CONFIG);
    let given = certificates(&machine).await.unwrap();
    assert_is_for(&given["kubelet"], "O=system:nodes, CN=system:node:nodes-0", &[]);
    assert_is_for(&given["kubelet-server"], "CN=nodes-0", &[address]);
    assert_eq!(world.scaleway.calls(), 1);
    world.ready.lock().insert("nodes-0".into());
    let error = machine.node_config().await.unwrap_err();
    assert!(error.to_string().contains("it answers with 409"), "{error}");
}

#[tokio::test]
async fn a_server_that_names_anothers_uuid_gets_nothing() {
    let world = World::new().await;
    let (own, others) = (address(), address());
    world.scaleway.put(1, known("nodes-0", own));
    world.scaleway.put(2, known("nodes-1", others));
    let liar = machine(&world, &metadata(2).await, own).await;
    assert_not_proven(&world, certificates(&liar).await);
}

#[tokio::test]
async fn a_request_that_names_no_server_is_refused_without_a_question() {
    let world = World::new().await;
    let body = request(json!({}), json!({}), false);
    for id in
        ["", "4711", "5C89F7B6-01a0-4eaa-ac03-85cd43d82eeb", "fr-par-1/5c89f7b6-01a0-4eaa-ac03-85cd43d82eeb"]
    {
        let token = format!("x-scaleway-instance-server-id {id}");
        assert_eq!(world.ask(&token, body.clone()).await.0, 403, "{id}");
    }
    let token = format!("x-scaleway-instance-server-id {}", uuid(1));
    assert_eq!(world.ask(&token, body).await, (400, "callback failed".to_owned()));
    assert!(world.counted("MalformedToken") && world.counted("CallbackFailed"));
    assert_eq!(world.scaleway.calls(), 0);
}

#[tokio::test]
async fn while_scaleway_does_not_answer_no_server_is_let_in() {
    let world = World::new().await;
    let address = address();
    world.scaleway.put(1, known("nodes-0", address));
    world.scaleway.set_mood(Mood::Forbidding);
    let machine = machine(&world, &metadata(1).await, address).await;
    let error = certificates(&machine).await.unwrap_err().to_string();
    assert!(error.contains("500 (internal error)"), "{error}");
    assert!(world.counted("ScalewayUnavailable") && !world.counted("InstanceNotFound"));
}

#[tokio::test]
async fn a_server_of_a_group_of_control_planes_gets_nothing() {
    let world = World::with_control_planes().await;
    let address = address();
    world.scaleway.put(4711, known("nodes-0", address));
    let machine = machine(&world, &metadata(4711).await, address).await;
    world.assert_refuses_control_planes(certificates(&machine).await);
}
