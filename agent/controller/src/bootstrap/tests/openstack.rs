//! Machines on OpenStack. Their requests name a UUID and come from the machine's own address. Tests kops-agent's client, from
//! the metadata on, against its server.

use kops_agent_spec::facts::{Facts, OpenstackFacts};
use kops_agent_tests::openstack::{Mood, Server as Known, uuid};

use super::hetzner::{assert_is_for, machine_of};
use super::*;
use kops_agent_cloud::openstack::facts::server_id_at;

/// The address of kops-agent's client.
pub(super) const ADDRESS: Ipv4Addr = Ipv4Addr::LOCALHOST;
pub(super) const NAME_OF_NODE: &str = "nodes-1a2b3c";

/// A bootstrap client on the OpenStack server with the UUID `uuid(number)`. A fake metadata service reports this UUID.
pub(super) async fn machine(world: &World, number: u64) -> KopsController {
    let metadata = TestServer::start(move |request| async move {
        let meta = json!({"uuid": uuid(number), "name": NAME_OF_NODE, "hostname": "nodes-1a2b3c.novalocal", "meta": {}});
        Ok(match request.uri().path() {
            "/openstack/latest/meta_data.json" => text(200, &meta.to_string()),
            _ => text(404, ""),
        })
    })
    .await;
    let root = tempfile::tempdir().unwrap();
    let server_id = server_id_at(root.path(), &metadata.url).await.unwrap();
    let mut facts = Facts::default();
    facts.cloud.openstack = Some(OpenstackFacts { server_id, ..OpenstackFacts::default() });
    machine_of(world, "openstack", &facts, ADDRESS.into())
}

pub(super) fn known(name: &str, address: impl Into<IpAddr>) -> Known {
    Known::of_group(CLUSTER, "nodes", name, address.into())
}

fn token(number: u64) -> String {
    format!("x-openstack-id {}", uuid(number))
}

/// The request of upstream's nodeup for its configuration. It has no challenge, and all such requests have the same bytes.
fn for_configuration() -> Vec<u8> {
    request(json!({}), json!({}), true)
}

#[tokio::test]
async fn a_server_that_asks_from_its_address_becomes_a_node() {
    let world = World::new().await;
    let floating: IpAddr = [192, 0, 2, 7].into();
    world.openstack.put(4711, Known { floating: vec![floating], ..known(NAME_OF_NODE, ADDRESS) });
    let machine = machine(&world, 4711).await;
    let (_, config) = machine.node_config().await.unwrap();
    assert_eq!(config.nodeup_config, NODEUP_CONFIG);
    let given = certificates(&machine).await.unwrap();
    let kubelet = format!("O=system:nodes, CN=system:node:{NAME_OF_NODE}");
    assert_is_for(&given["kubelet"], &kubelet, &[]);
    assert_is_for(&given["kubelet-server"], &format!("CN={NAME_OF_NODE}"), &[ADDRESS.into(), floating]);
    assert_eq!((world.openstack.logins(), world.openstack.calls()), (1, 1));
}

#[tokio::test]
async fn a_request_from_another_servers_address_gets_nothing() {
    let world = World::new().await;
    world.openstack.put(1, known("nodes-1a2b3c", [127, 0, 0, 2]));
    world.openstack.put(2, known("nodes-4d5e6f", ADDRESS));
    let ask = async |from: [u8; 4], number: u64| {
        let asked = world.client(from.into()).post(world.url()).header("Authorization", token(number));
        let answer = asked.body(for_configuration()).send().await.unwrap();
        answer.status().as_u16()
    };
    assert_eq!(ask([127, 0, 0, 1], 1).await, 403);
    assert!(world.counted("OtherAddress") && !world.counted("Granted"));
    assert_eq!(ask([127, 0, 0, 2], 2).await, 403);
    assert_eq!(ask([127, 0, 0, 3], 1).await, 403);
    // kops-agent's client claims the UUID of another server.
    let error = certificates(&machine(&world, 1).await).await.unwrap_err().to_string();
    assert!(error.contains("403"), "{error}");
    assert!(!world.counted("Granted"));
    for _ in 0..3 {
        assert_eq!(ask([127, 0, 0, 2], 1).await, 200, "the same request again is no stolen one");
    }
    assert!(world.counted("Granted") && !world.counted("TokenReplayed"));
}

/// On OpenStack, any pod on a node can send the node's proof. So the server rejects a machine with a registered Node, Ready or not.
#[tokio::test]
async fn a_node_that_is_there_gets_nothing_ready_or_not() {
    let world = World::new().await;
    world.openstack.put(1, known(NAME_OF_NODE, ADDRESS));
    let machine = machine(&world, 1).await;
    machine.node_config().await.unwrap();
    world.provider_ids.lock().insert(NAME_OF_NODE.into(), format!("openstack:///{}", uuid(1)));
    let error = machine.node_config().await.unwrap_err();
    assert!(error.to_string().contains("it answers with 409"), "{error}");
    world.provider_ids.lock().clear();
    machine.node_config().await.unwrap();
    world.api_is_down.store(true, Ordering::Relaxed);
    let error = machine.node_config().await.unwrap_err().to_string();
    assert!(error.contains("500 (internal error)") && world.counted("ApiServerUnavailable"), "{error}");
}

#[tokio::test]
async fn a_request_that_names_no_server_is_refused_without_a_question() {
    let world = World::new().await;
    for id in ["", "4711", "5C89F7B6-01a0-4eaa-ac03-85cd43d82eeb", "../5c89f7b6-01a0-4eaa-ac03-85cd43d82eeb"]
    {
        let token = format!("x-openstack-id {id}");
        assert_eq!(world.ask(&token, for_configuration()).await.0, 403, "{id}");
    }
    assert!(world.counted("MalformedToken"));
    assert_eq!((world.openstack.logins(), world.openstack.calls()), (0, 0));
    assert_eq!(world.ask(&token(9), for_configuration()).await.0, 403);
    assert!(world.counted("InstanceNotFound"));
}

#[tokio::test]
async fn a_server_of_another_cluster_or_that_does_not_run_is_no_node() {
    let world = World::new().await;
    let own = || known(NAME_OF_NODE, ADDRESS);
    let mut of_another = own();
    of_another.metadata.insert("KubernetesCluster".into(), "other.example.com".into());
    world.openstack.put(1, of_another);
    world.openstack.put(2, Known { status: "RESCUE".into(), ..own() });
    let mut of_no_group = own();
    of_no_group.metadata.remove("KopsInstanceGroup");
    world.openstack.put(3, of_no_group);
    for (number, reason) in [(1, "InstanceNotFound"), (2, "InstanceNotRunning"), (3, "InstanceGroupUnknown")]
    {
        assert_eq!(world.ask(&token(number), for_configuration()).await.0, 403, "{reason}");
        assert!(world.counted(reason), "{reason}");
    }
    assert!(!world.counted("Granted"));
}

#[tokio::test]
async fn while_openstack_does_not_answer_no_server_is_let_in() {
    for mood in [Mood::Forbidding, Mood::Distrusting, Mood::Down, Mood::Truncating, Mood::Throttling] {
        let world = World::new().await;
        world.openstack.put(1, known(NAME_OF_NODE, ADDRESS));
        world.openstack.set_mood(mood);
        let error = certificates(&machine(&world, 1).await).await.unwrap_err().to_string();
        assert!(error.contains("500 (internal error)"), "{mood:?}: {error}");
        assert!(world.counted("OpenStackUnavailable") && !world.counted("InstanceNotFound"), "{mood:?}");
    }
}

#[tokio::test]
async fn a_server_of_a_group_of_control_planes_gets_nothing() {
    let world = World::with_control_planes().await;
    world.openstack.put(4711, known(NAME_OF_NODE, ADDRESS));
    let machine = machine(&world, 4711).await;
    world.assert_refuses_control_planes(certificates(&machine).await);
}
