//! Instances of Linode. Their requests name the instance's number, and the server calls them back. Tests kops-agent's client,
//! from the metadata service on, against its server.

use kops_agent_spec::facts::Facts;
use kops_agent_tests::linode::{Instance as Known, Mood};

use super::hetzner::{address, assert_is_for, assert_not_proven, machine_of};
use super::*;
use kops_agent_cloud::linode::facts::observe_at;

pub(super) async fn metadata(id: u64, label: &'static str) -> TestServer {
    TestServer::start(move |request| async move {
        Ok(match (request.method().as_str(), request.uri().path()) {
            ("PUT", "/v1/token") => text(200, "a-token"),
            ("GET", "/v1/instance") => text(200, &format!("id: {id}\nlabel: {label}\nregion: de-fra-2\n")),
            _ => text(404, ""),
        })
    })
    .await
}

/// The client on the instance that this metadata service describes. The client waits for its call-back at `address`.
pub(super) async fn machine(world: &World, metadata: &TestServer, address: IpAddr) -> KopsController {
    let mut facts = Facts::default();
    facts.cloud.linode = Some(observe_at(&metadata.url).await.unwrap());
    machine_of(world, "linode", &facts, address)
}

pub(super) fn known(label: &str, address: IpAddr) -> Known {
    Known::of_group(CLUSTER, "nodes", label, address)
}

#[tokio::test]
async fn an_instance_that_answers_its_call_back_becomes_a_node() {
    let world = World::new().await;
    let address = address();
    world.linode.put(4711, known("nodes-1a2b", address));
    let machine = machine(&world, &metadata(4711, "nodes-1a2b").await, address).await;
    let (_, config) = machine.node_config().await.unwrap();
    assert_eq!(config.nodeup_config, NODEUP_CONFIG);
    let given = certificates(&machine).await.unwrap();
    assert_is_for(&given["kubelet"], "O=system:nodes, CN=system:node:nodes-1a2b", &[]);
    assert_is_for(&given["kubelet-server"], "CN=nodes-1a2b", &[[192, 0, 2, 7].into(), address]);
    assert_eq!(world.linode.calls(), 1);
    world.ready.lock().insert("nodes-1a2b".into());
    let error = machine.node_config().await.unwrap_err();
    assert!(error.to_string().contains("it answers with 409"), "{error}");
}

#[tokio::test]
async fn an_instance_that_names_anothers_number_gets_nothing() {
    let world = World::new().await;
    let (own, others) = (address(), address());
    world.linode.put(1, known("nodes-1", own));
    world.linode.put(2, known("nodes-2", others));
    let liar = machine(&world, &metadata(2, "nodes-2").await, own).await;
    assert_not_proven(&world, certificates(&liar).await);
}

#[tokio::test]
async fn an_instance_of_a_cluster_whose_name_begins_alike_is_not_called_back() {
    let world = World::new().await;
    let (own, others) = (address(), address());
    world.linode.put(1, Known::of_group("c.example.com.au", "nodes", "nodes-1", others));
    world.linode.put(2, known("nodes-2", own));
    let other = machine(&world, &metadata(1, "nodes-1").await, others).await;
    let error = certificates(&other).await.unwrap_err().to_string();
    assert!(error.contains("403 (failed to verify token)"), "{error}");
    assert!(world.counted("InstanceOfOtherCluster") && !world.counted("Granted"));
    let honest = machine(&world, &metadata(2, "nodes-2").await, own).await;
    assert_eq!(certificates(&honest).await.unwrap().len(), 2);
}

#[tokio::test]
async fn while_linode_does_not_answer_no_instance_is_let_in() {
    let world = World::new().await;
    let address = address();
    world.linode.put(1, known("nodes-1", address));
    world.linode.set_mood(Mood::Forbidding);
    let machine = machine(&world, &metadata(1, "nodes-1").await, address).await;
    let error = certificates(&machine).await.unwrap_err().to_string();
    assert!(error.contains("500 (internal error)"), "{error}");
    assert!(world.counted("LinodeUnavailable") && !world.counted("InstanceNotFound"));
}

#[tokio::test]
async fn an_instance_of_a_group_of_control_planes_gets_nothing() {
    let world = World::with_control_planes().await;
    let address = address();
    world.linode.put(4711, known("nodes-1a2b", address));
    let machine = machine(&world, &metadata(4711, "nodes-1a2b").await, address).await;
    world.assert_refuses_control_planes(certificates(&machine).await);
}
