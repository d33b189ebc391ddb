//! Droplets. Their requests name the droplet's number, and the server calls them back. Tests kops-agent's client, from the
//! metadata service on, against its server.

use kops_agent_spec::facts::Facts;
use kops_agent_tests::digital_ocean::{Droplet, Mood};

use super::hetzner::{address, assert_is_for, assert_not_proven, machine_of};
use super::*;
use kops_agent_cloud::digital_ocean::facts::observe_at;

pub(super) async fn metadata(id: u64, private: IpAddr) -> TestServer {
    TestServer::start(move |request| async move {
        Ok(match request.uri().path() {
            "/metadata/v1/id" => text(200, &id.to_string()),
            "/metadata/v1/interfaces/private/0/ipv4/address" => text(200, &private.to_string()),
            _ => text(404, ""),
        })
    })
    .await
}

/// The client on the droplet that this metadata service describes.
pub(super) async fn machine(world: &World, metadata: &TestServer) -> KopsController {
    let mut facts = Facts::default();
    let observed = observe_at(&metadata.url).await.unwrap();
    let address = observed.private_ipv4.parse().unwrap();
    facts.cloud.digital_ocean = Some(observed);
    machine_of(world, "digitalocean", &facts, address)
}

pub(super) fn known(name: &str, address: IpAddr) -> Droplet {
    Droplet::of_group(CLUSTER, "nodes", name, address)
}

#[tokio::test]
async fn a_droplet_that_answers_its_call_back_becomes_a_node() {
    let world = World::new().await;
    let address = address();
    world.digital_ocean.put(4711, known("nodes.c.example.com", address));
    let machine = machine(&world, &metadata(4711, address).await).await;
    let (_, config) = machine.node_config().await.unwrap();
    assert_eq!(config.nodeup_config, NODEUP_CONFIG);
    let given = certificates(&machine).await.unwrap();
    let kubelet = format!("O=system:nodes, CN=system:node:{address}");
    assert_is_for(&given["kubelet"], &kubelet, &[]);
    assert_is_for(&given["kubelet-server"], &format!("CN={address}"), &[address]);
    assert_eq!(world.digital_ocean.calls(), 1);
    world.ready.lock().insert(address.to_string());
    let error = machine.node_config().await.unwrap_err();
    assert!(error.to_string().contains("it answers with 409"), "{error}");
}

#[tokio::test]
async fn a_droplet_that_names_anothers_number_gets_nothing() {
    let world = World::new().await;
    let (own, others) = (address(), address());
    world.digital_ocean.put(1, known("nodes.c.example.com", own));
    world.digital_ocean.put(2, known("nodes.c.example.com", others));
    let liar = machine(&world, &metadata(2, own).await).await;
    assert_not_proven(&world, certificates(&liar).await);
}

#[tokio::test]
async fn a_droplet_of_a_cluster_with_the_same_tag_is_not_called_back() {
    let world = World::new().await;
    let (own, others) = (address(), address());
    world.digital_ocean.put(1, known("nodes.c-example.com", others));
    world.digital_ocean.put(2, known("nodes.c.example.com", own));
    let other = machine(&world, &metadata(1, others).await).await;
    let error = certificates(&other).await.unwrap_err().to_string();
    assert!(error.contains("403 (failed to verify token)"), "{error}");
    assert!(world.counted("InstanceOfOtherCluster") && !world.counted("Granted"));
    let honest = machine(&world, &metadata(2, own).await).await;
    assert_eq!(certificates(&honest).await.unwrap().len(), 2);
}

#[tokio::test]
async fn while_digital_ocean_does_not_answer_no_droplet_is_let_in() {
    let world = World::new().await;
    let address = address();
    world.digital_ocean.put(1, known("nodes.c.example.com", address));
    world.digital_ocean.set_mood(Mood::Forbidding);
    let machine = machine(&world, &metadata(1, address).await).await;
    let error = certificates(&machine).await.unwrap_err().to_string();
    assert!(error.contains("500 (internal error)"), "{error}");
    assert!(world.counted("DigitalOceanUnavailable") && !world.counted("InstanceNotFound"));
}

#[tokio::test]
async fn a_droplet_of_a_group_of_control_planes_gets_nothing() {
    let world = World::with_control_planes().await;
    let address = address();
    world.digital_ocean.put(4711, known("nodes.c.example.com", address));
    let machine = machine(&world, &metadata(4711, address).await).await;
    world.assert_refuses_control_planes(certificates(&machine).await);
}
