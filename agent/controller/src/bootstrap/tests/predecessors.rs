//! A Node belongs to an earlier machine if it is Ready, but was last heard of before the machine of its name was
//! created. [`super::honest`] tests that on AWS, and [`super::gce`] on GCE.

use kops_agent_tests::{digital_ocean as ocean, hetzner as hcloud, linode as akamai};

use super::*;

/// Creation times of machines, just before and after [`HEARTBEAT`]. The bool says whether the machine gets certificates.
const CREATED: [(&str, bool); 3] =
    [("2026-02-01T09:59:59", false), ("2026-02-01T10:00:00", false), ("2026-02-01T10:00:01", true)];

/// Adds a Ready Node of this name, which an earlier machine registered.
fn left_behind(world: &World, node: &str) {
    world.ready.lock().insert(node.into());
    world.provider_ids.lock().insert(node.into(), "cloud://an-earlier-machine".into());
}

#[track_caller]
fn is_let_in(asked: Result<BTreeMap<String, String>, BootstrapError>, expected: bool) {
    match asked {
        Ok(given) => assert!(expected && given.len() == 2),
        Err(error) => assert!(!expected && error.to_string().contains("it answers with 409"), "{error}"),
    }
}

#[tokio::test]
async fn on_hetzner() {
    for (created, expected) in CREATED {
        let world = World::new().await;
        let address = hetzner::address();
        let created = format!("{created}+00:00");
        world.hetzner.put(1, hcloud::Server { created, ..hetzner::known("nodes-1", address) });
        left_behind(&world, "nodes-1");
        is_let_in(certificates(&hetzner::machine(&world, 1, address)).await, expected);
    }
}

#[tokio::test]
async fn on_digital_ocean() {
    for (created, expected) in CREATED {
        let world = World::new().await;
        let address = hetzner::address();
        let created = format!("{created}Z");
        let droplet = digital_ocean::known("nodes.c.example.com", address);
        world.digital_ocean.put(1, ocean::Droplet { created, ..droplet });
        left_behind(&world, &address.to_string());
        let metadata = digital_ocean::metadata(1, address).await;
        is_let_in(certificates(&digital_ocean::machine(&world, &metadata).await).await, expected);
    }
}

#[tokio::test]
async fn on_linode() {
    for (created, expected) in CREATED {
        let world = World::new().await;
        let address = hetzner::address();
        let created = created.to_owned();
        world.linode.put(1, akamai::Instance { created, ..linode::known("nodes-1", address) });
        left_behind(&world, "nodes-1");
        let metadata = linode::metadata(1, "nodes-1").await;
        is_let_in(certificates(&linode::machine(&world, &metadata, address).await).await, expected);
    }
}

#[tokio::test]
async fn on_scaleway() {
    for (created, expected) in CREATED {
        let world = World::new().await;
        let address = hetzner::address();
        let created = format!("{created}.345084+00:00");
        world.scaleway.put(1, scw::Server { created, ..scaleway::known("nodes-1", address) });
        left_behind(&world, "nodes-1");
        let metadata = scaleway::metadata(1).await;
        is_let_in(certificates(&scaleway::machine(&world, &metadata, address).await).await, expected);
    }
}

/// On other clouds, a Node of the machine's name is a reason to reject the machine only if the Node is Ready. On OpenStack, the Node need
/// not be Ready. On every cloud, a Node that belongs to an earlier machine is no reason.
#[tokio::test]
async fn on_openstack() {
    for ((created, expected), is_ready) in CREATED.into_iter().flat_map(|case| [(case, true), (case, false)])
    {
        let world = World::new().await;
        let created = format!("{created}Z");
        let server = openstack::known(openstack::NAME_OF_NODE, openstack::ADDRESS);
        world.openstack.put(1, stack::Server { created, ..server });
        left_behind(&world, openstack::NAME_OF_NODE);
        if !is_ready {
            world.ready.lock().clear();
        }
        is_let_in(certificates(&openstack::machine(&world, 1).await).await, expected);
    }
}

#[tokio::test]
async fn on_azure() {
    for (created, expected) in CREATED {
        let world = World::new().await;
        let mut worker = azure::Worker::new(&world, 0).await;
        worker.machine.created = format!("{created}.3138469+00:00");
        world.azure.put(azure::NODES, 0, worker.machine.clone());
        left_behind(&world, "nodes000000");
        let body = worker.body();
        let (status, answer) = world.ask(&worker.token(&body), body).await;
        assert_eq!(status, if expected { 200 } else { 409 }, "{created}: {answer}");
    }
}

/// The Node may belong to the older server of the same name. The older server may still run, even if its kubelet sent no heartbeat after
/// the younger server was created.
#[tokio::test]
async fn a_younger_machine_does_not_get_the_name_of_another() {
    for is_alone in [false, true] {
        let world = World::new().await;
        let created = "2026-03-01T00:00:00Z".to_owned();
        let server = openstack::known(openstack::NAME_OF_NODE, openstack::ADDRESS);
        world.openstack.put(1, stack::Server { created, ..server });
        if !is_alone {
            world.openstack.put(2, openstack::known(openstack::NAME_OF_NODE, [127, 0, 0, 2]));
        }
        left_behind(&world, openstack::NAME_OF_NODE);
        is_let_in(certificates(&openstack::machine(&world, 1).await).await, is_alone);
    }
}
