//! Tests each cloud that lists machines against the cloud's stand-in.

#![allow(clippy::unwrap_used)]

mod freshness;
mod predecessors;
mod provider_ids;

use std::time::Duration;

use futures_util::future::join_all;
use kops_agent_cluster::identity::digital_ocean::Droplet;
use kops_agent_cluster::identity::hetzner::HetznerServer;
use kops_agent_cluster::identity::linode::LinodeInstance;
use kops_agent_cluster::identity::openstack::OpenstackServer;
use kops_agent_cluster::identity::scaleway::ScalewayServer;
use kops_agent_cluster::labels::ObservedNode;
use kops_agent_cluster::machine_id::MachineId;
use kops_agent_net::retry::{self, Retries};
use kops_agent_tests::digital_ocean::Droplet as KnownDroplet;
use kops_agent_tests::hetzner::Server as KnownServer;
use kops_agent_tests::linode::Instance as KnownInstance;
use kops_agent_tests::listed::{ListApi as StandIn, ListedMachine, Mood};
use kops_agent_tests::openstack::{self as known_openstack, Server as KnownOpenstack};
use kops_agent_tests::scaleway::{PROJECT, Server as KnownScaleway, ZONE};
use tokio::time::Instant;

use super::*;
use crate::api::LONGEST_PAUSE;
use crate::calls::Outcome;
use crate::control_plane::{ControlPlane as _, NotIdentified};
use crate::verify::{
    Examined, Origin, OwnAddresses as _, Presented, Refusal as Refused, VerifiedNode, Verifier as _,
};
use freshness::*;
use predecessors::*;

const CLUSTER: &str = "c.example.com";

/// A cloud's machine, as the stand-in knows it.
trait Known: ListedMachine {
    type Machine: Listed;
    /// The reason with which a machine without an address is refused.
    const NO_ADDRESS: &str = "NoPrivateAddress";
    /// An additional address of each machine, which is not for the call-back.
    const OTHER_ADDRESS: Option<IpAddr> = Some(IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7)));

    /// The provider id in the Node of the machine with this number.
    fn provider_id(number: u64) -> String {
        format!("{}{}", Self::Machine::PROVIDER_IDS.prefix, Self::id(number))
    }

    fn scope() -> Scope {
        Scope::from(CLUSTER)
    }

    fn of_cluster(cluster: &str, name: &str, private_ips: &[[u8; 4]]) -> Self;
    fn off(self) -> Self;

    fn inventory(api: &StandIn<Self>, calls: CloudCalls) -> Inventory<Self::Machine> {
        Inventory::at(&api.url(), Self::API.token, Self::scope(), calls).unwrap()
    }
}

impl Known for KnownServer {
    type Machine = HetznerServer;

    fn of_cluster(cluster: &str, name: &str, private_ips: &[[u8; 4]]) -> KnownServer {
        let private_ips = private_ips.iter().map(|ip| IpAddr::from(*ip)).collect();
        KnownServer { private_ips, ..KnownServer::of_group(cluster, "nodes", name, [0; 4].into()) }
    }

    fn off(self) -> KnownServer {
        KnownServer { status: "off".into(), ..self }
    }
}

impl Known for KnownDroplet {
    type Machine = Droplet;

    fn of_cluster(cluster: &str, name: &str, private_ips: &[[u8; 4]]) -> KnownDroplet {
        let private_ips = private_ips.iter().map(|ip| IpAddr::from(*ip)).collect();
        KnownDroplet { private_ips, ..KnownDroplet::of_group(cluster, "nodes", name, [0; 4].into()) }
    }

    fn off(self) -> KnownDroplet {
        KnownDroplet { status: "off".into(), ..self }
    }
}

impl Known for KnownInstance {
    type Machine = LinodeInstance;

    fn of_cluster(cluster: &str, name: &str, private_ips: &[[u8; 4]]) -> KnownInstance {
        let private_ips = private_ips.iter().map(|ip| IpAddr::from(*ip)).collect();
        KnownInstance { private_ips, ..KnownInstance::of_group(cluster, "nodes", name, [0; 4].into()) }
    }

    fn off(self) -> KnownInstance {
        KnownInstance { status: "offline".into(), ..self }
    }
}

/// An additional address of each Scaleway machine, which is not for the call-back.
const IPV6: IpAddr = IpAddr::V6(std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7));

impl Known for KnownScaleway {
    type Machine = ScalewayServer;
    const NO_ADDRESS: &str = "NoAddress";
    const OTHER_ADDRESS: Option<IpAddr> = Some(IPV6);

    fn provider_id(number: u64) -> String {
        format!("scaleway://instance/{ZONE}/{}", Self::id(number))
    }

    fn scope() -> Scope {
        Scope { zone: ZONE.into(), project: PROJECT.into(), ..Scope::from(CLUSTER) }
    }

    fn of_cluster(cluster: &str, name: &str, public_ips: &[[u8; 4]]) -> KnownScaleway {
        let public_ips = [IPV6].into_iter().chain(public_ips.iter().map(|ip| IpAddr::from(*ip))).collect();
        KnownScaleway { public_ips, ..KnownScaleway::of_group(cluster, "nodes", name, [0; 4].into()) }
    }

    fn off(self) -> KnownScaleway {
        KnownScaleway { state: "stopped".into(), ..self }
    }
}

impl Known for KnownOpenstack {
    type Machine = OpenstackServer;
    /// A server without addresses is refused, because the request's source address is not one of the server's addresses.
    const NO_ADDRESS: &str = "OtherAddress";

    fn provider_id(number: u64) -> String {
        format!("openstack:///{}", Self::id(number))
    }

    fn of_cluster(cluster: &str, name: &str, fixed: &[[u8; 4]]) -> KnownOpenstack {
        let fixed = fixed.iter().map(|ip| IpAddr::from(*ip)).collect();
        let floating = Self::OTHER_ADDRESS.into_iter().collect();
        KnownOpenstack { fixed, floating, ..KnownOpenstack::of_group(cluster, "nodes", name, [0; 4].into()) }
    }

    fn off(self) -> KnownOpenstack {
        KnownOpenstack { status: "SHUTOFF".into(), ..self }
    }

    fn inventory(api: &StandIn<Self>, calls: CloudCalls) -> Inventory<OpenstackServer> {
        Inventory::with_login(&known_openstack::login(&api.origin()), CLUSTER, calls).unwrap()
    }
}

fn id<K: Known>(number: u64) -> MachineId {
    K::Machine::BOOTSTRAP.token.form.parse(&K::id(number)).unwrap()
}

fn own<K: Known>(number: u8) -> K {
    K::of_cluster(CLUSTER, &format!("nodes-{number}"), &[[10, 0, 0, number]])
}

fn inventory<K: Known>(api: &StandIn<K>, calls: CloudCalls) -> Arc<Inventory<K::Machine>> {
    kops_agent_net::tls::install_provider();
    let mut machines = K::inventory(api, calls);
    machines.questions.retries = Retries { deadline: Duration::ZERO, ..retry::FAST };
    Arc::new(machines)
}

/// A stand-in with one machine of the cluster, and an inventory that asks the stand-in.
fn with_one<K: Known>() -> (StandIn<K>, Arc<Inventory<K::Machine>>) {
    let api = StandIn::start().unwrap();
    api.put(1, own::<K>(1));
    let machines = inventory(&api, CloudCalls::default());
    (api, machines)
}

macro_rules! for_each_cloud {
    ($($test:ident)*) => {
        mod hetzner {
            $(#[tokio::test] async fn $test() { super::$test::<super::KnownServer>().await })*
        }
        mod digital_ocean {
            $(#[tokio::test] async fn $test() { super::$test::<super::KnownDroplet>().await })*
        }
        mod linode {
            $(#[tokio::test] async fn $test() { super::$test::<super::KnownInstance>().await })*
        }
        mod openstack {
            $(#[tokio::test] async fn $test() { super::$test::<super::KnownOpenstack>().await })*
        }
        mod scaleway {
            $(#[tokio::test] async fn $test() { super::$test::<super::KnownScaleway>().await })*
        }
    };
}

for_each_cloud! {
    machines_of_the_cluster_are_found_by_id
    a_thousand_made_up_ids_cost_one_list
    a_machine_newer_than_a_long_list_is_found_in_time
    a_machine_that_moves_between_pages_is_requested_by_id
    a_failed_page_is_retried_and_the_list_completes
    known_machines_stay_known_during_a_short_outage
    a_failing_api_is_asked_again_after_a_pause
    retry_after_is_honoured_up_to_a_maximum
    a_machine_removed_after_the_list_is_rejected
    a_failing_api_does_not_make_machines_absent
    a_machine_of_the_cluster_is_verified_at_its_private_address
    other_machines_are_rejected
    a_node_is_identified_only_as_its_own_machine
    the_age_of_a_machine_comes_from_its_cloud
    a_machine_with_a_namesake_has_no_known_age
}

/// This test covers the clouds that take a token from the environment.
#[tokio::test]
async fn a_wrong_token_is_reported_and_a_valid_one_is_hidden() {
    wrong_token_of::<KnownServer>().await;
    wrong_token_of::<KnownDroplet>().await;
    wrong_token_of::<KnownInstance>().await;
    wrong_token_of::<KnownScaleway>().await;
}

async fn wrong_token_of<K: Known>() {
    let (api, right) = with_one::<K>();
    let ListApi { token_variable, endpoint: usual, .. } = K::Machine::API;
    let at = |endpoint: &str, token: &str| {
        Inventory::<K::Machine>::at(endpoint, token, K::scope(), CloudCalls::default())
    };
    let error = Arc::new(at(&api.url(), "guessed").unwrap()).get(id::<K>(1)).await.unwrap_err();
    assert!(error.is_forbidden());
    let expected = format!("401 unauthorized; is {token_variable} a token of this");
    assert!(error.to_string().contains(&expected), "{error}");
    assert!(!format!("{right:?}").contains(K::API.token));
    let host = usual.trim_start_matches("https://");
    for endpoint in [host.to_owned(), format!("ftp://{host}"), format!("{usual}?x")] {
        let error = at(&endpoint, "token").unwrap_err();
        assert!(error.is_configuration() && error.to_string().contains(&endpoint), "{error}");
    }
    assert!(at(usual, "to\nken").unwrap_err().is_configuration());
}

async fn a_failing_api_does_not_make_machines_absent<K: Known>() {
    for mood in [
        Mood::Throttling,
        Mood::Down,
        Mood::Forbidding,
        Mood::NotFound,
        Mood::Babbling,
        Mood::Truncating,
        Mood::Endless,
        Mood::Redirecting,
    ] {
        let (api, machines) = with_one::<K>();
        api.set_mood(mood);
        let error = machines.get(id::<K>(1)).await.unwrap_err();
        assert!(!error.is_absent(), "{mood:?}");
        assert_eq!(error.is_forbidden(), mood == Mood::Forbidding, "{mood:?}");
        let refused = verified(machines.clone(), &K::id(1)).await.unwrap_err();
        assert_eq!(refused.reason, K::Machine::BOOTSTRAP.unavailable, "{mood:?}");
        assert!(!refused.message.contains(K::API.token));
        let asked = identified::<K>(machines, "nodes-1", 1).await;
        assert!(matches!(asked, Err(NotIdentified::Unavailable(_))), "{mood:?}: {asked:?}");
    }
}

async fn verified<M: Listed>(machines: Arc<Inventory<M>>, id: &str) -> Result<VerifiedNode, Refused> {
    let verifier = ListedVerifier { machines };
    let token = format!("{}{id}", M::BOOTSTRAP.token.prefix);
    let origin = Origin::from_address([10, 0, 0, 1].into());
    let presented = Presented { token: &token, body: b"{}", origin, now: 0 };
    verifier.examine(&presented).unwrap()?.verification.await
}

/// Verifies a request from this address. The machine at this address also answers the call-back.
async fn confirmed<M: Listed>(
    machines: &Arc<Inventory<M>>,
    id: &str,
    address: [u8; 4],
) -> Result<VerifiedNode, Refused> {
    let verifier = ListedVerifier { machines: machines.clone() };
    let token = format!("{}{id}", M::BOOTSTRAP.token.prefix);
    let presented =
        Presented { token: &token, body: b"{}", origin: Origin::from_address(address.into()), now: 0 };
    let Examined { verification, confirmation, .. } = verifier.examine(&presented).unwrap()?;
    let node = verification.await?;
    match confirmation {
        Some(confirmation) => confirmation.await,
        None => Ok(node),
    }
}

async fn a_machine_removed_after_the_list_is_rejected<K: Known>() {
    let api = StandIn::<K>::start().unwrap();
    for number in [1, 2, 3] {
        api.put(number.into(), own::<K>(number));
    }
    let mut machines = inventory(&api, CloudCalls::default());
    Arc::get_mut(&mut machines).unwrap().fresh_for = Duration::ZERO;
    let first = confirmed(&machines, &K::id(1), [10, 0, 0, 1]).await.unwrap();
    assert!(first.addresses.contains(&[10, 0, 0, 1].into()));
    let elsewhere = confirmed(&machines, &K::id(1), [10, 0, 9, 9]).await;
    match K::Machine::PROVEN_BY {
        ProvenBy::CallBack => assert!(!elsewhere.unwrap().addresses.contains(&[10, 0, 9, 9].into())),
        ProvenBy::Address => assert_eq!(elsewhere.unwrap_err().reason, "OtherAddress"),
    }
    // The machine is removed. A new machine may get the removed machine's address, and could answer the call-back.
    api.remove(1);
    assert!(machines.get(id::<K>(1)).await.unwrap().is_some(), "by the list");
    let refusal = confirmed(&machines, &K::id(1), [10, 0, 0, 1]).await.unwrap_err();
    assert_eq!(refusal.reason, "InstanceNotFound");
    api.put(2, own::<K>(2).off());
    let refusal = confirmed(&machines, &K::id(2), [10, 0, 0, 2]).await.unwrap_err();
    assert_eq!(refusal.reason, "InstanceNotRunning");
    api.put(3, K::of_cluster("other.example.com", "nodes-3", &[[10, 0, 0, 3]]));
    let refusal = confirmed(&machines, &K::id(3), [10, 0, 0, 3]).await.unwrap_err();
    assert_eq!(refusal.reason, "InstanceNotFound");
    // A failed request to the cloud does not prove that the machine is absent.
    api.put(3, own::<K>(3));
    api.set_mood(Mood::Down);
    let refusal = confirmed(&machines, &K::id(3), [10, 0, 0, 3]).await.unwrap_err();
    assert_eq!(refusal.reason, K::Machine::BOOTSTRAP.unavailable);
}

async fn identified<K: Known>(
    machines: Arc<Inventory<K::Machine>>,
    name: &str,
    number: u64,
) -> Result<String, NotIdentified> {
    identified_as(machines, name, K::provider_id(number)).await
}

async fn identified_as<M: Listed>(
    machines: Arc<Inventory<M>>,
    name: &str,
    provider_id: String,
) -> Result<String, NotIdentified> {
    let node = ObservedNode { name: name.into(), provider_id, ..ObservedNode::default() };
    let control_plane = ListedControlPlane { machines };
    Ok(control_plane.identify(&node, Instant::now()).await?.instance_group)
}

async fn a_machine_of_the_cluster_is_verified_at_its_private_address<K: Known>() {
    let (_api, machines) = with_one::<K>();
    let machine = machines.get(id::<K>(1)).await.unwrap().unwrap();
    let expected = VerifiedNode {
        instance: K::provider_id(1),
        node_name: machine.node_name(),
        certificate_names: machine.certificate_names(),
        instance_group: "nodes".into(),
        challenge_endpoint: "10.0.0.1:3987".into(),
        addresses: machine.addresses(),
        // The stand-ins report 2026-01-30T23:55:00 as the creation time, each in its cloud's form.
        launched: Some(1_769_817_300),
    };
    assert_eq!(verified(machines.clone(), &K::id(1)).await.unwrap(), expected);
    assert!(expected.certificate_names.contains(&"10.0.0.1".to_owned()));
    let origin = Origin::from_address([1; 4].into());
    let presented = Presented { token: "x-aws-sts 1", body: b"", origin, now: 0 };
    assert!(ListedVerifier { machines }.examine(&presented).is_none());
}

async fn other_machines_are_rejected<K: Known>() {
    let api = StandIn::<K>::start().unwrap();
    api.put(1, K::of_cluster("other.example.com", "nodes-1", &[[10, 0, 0, 1]]));
    api.put(2, own::<K>(2).off());
    api.put(3, K::of_cluster(CLUSTER, "nodes-3", &[]));
    let machines = inventory(&api, CloudCalls::default());
    for (id, reason) in [
        (K::id(1), "InstanceNotFound"),
        (K::id(2), "InstanceNotRunning"),
        (K::id(3), K::NO_ADDRESS),
        (K::id(5), "InstanceNotFound"),
        (format!("0{}", K::id(5)), "MalformedToken"),
        (format!("{} ", K::id(5)), "MalformedToken"),
        (String::new(), "MalformedToken"),
    ] {
        let refusal = verified(machines.clone(), &id).await.unwrap_err();
        assert_eq!(refusal.reason, reason, "{id}");
    }
    assert_eq!(api.calls(), 1);
}

async fn a_node_is_identified_only_as_its_own_machine<K: Known>() {
    let api = StandIn::<K>::start().unwrap();
    for number in [1, 2] {
        api.put(number.into(), own::<K>(number));
    }
    let machines = inventory(&api, CloudCalls::default());
    let name = machines.get(id::<K>(1)).await.unwrap().unwrap().node_name();
    assert_eq!(identified::<K>(machines.clone(), &name, 1).await.unwrap(), "nodes");
    for (name, id, reason, is_definite) in [
        (name.as_str(), 2, "InstanceOfOtherNode", true),
        ("another", 2, "InstanceOfOtherNode", false),
        ("another", 3, "InstanceNotFound", false),
    ] {
        match identified::<K>(machines.clone(), name, id).await {
            Err(NotIdentified::Refused(refusal)) => {
                assert_eq!((refusal.reason(), refusal.is_definite()), (reason, is_definite), "{name}");
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Thousands of Nodes may wait for one list, so each waiting call must be small.
#[tokio::test]
async fn waiting_for_the_list_takes_little_memory() {
    let (_api, machines) = with_one::<KnownDroplet>();
    let (control_plane, node) = (ListedControlPlane { machines }, ObservedNode::default());
    let waiting = size_of_val(&*control_plane.identify(&node, Instant::now()));
    assert!(waiting <= 2048, "{waiting} bytes");
}

/// Two clusters with an equal tag may use equal addresses in their networks, and Nodes are named after addresses.
#[tokio::test]
async fn a_droplet_of_a_cluster_with_the_same_tag_makes_no_node_an_impostor() {
    let api = StandIn::<KnownDroplet>::start().unwrap();
    let same_address = |name: &str| KnownDroplet::of_cluster(CLUSTER, name, &[[10, 0, 0, 1]]);
    api.put(1, same_address("nodes.c-example.com"));
    api.put(2, same_address("nodes.c.example.com"));
    let machines = inventory(&api, CloudCalls::default());
    assert_eq!(identified::<KnownDroplet>(machines.clone(), "10.0.0.1", 2).await.unwrap(), "nodes");
    match identified::<KnownDroplet>(machines, "10.0.0.1", 1).await {
        Err(NotIdentified::Refused(refusal)) => assert!(refusal.is_definite(), "{refusal}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_droplet_with_tags_of_two_clusters_is_rejected() {
    let api = StandIn::<KnownDroplet>::start().unwrap();
    let mut both: KnownDroplet = own(1);
    both.tags.push("KubernetesCluster:other-example-com".into());
    api.put(1, both);
    let machines = inventory(&api, CloudCalls::default());
    assert_eq!(verified(machines, &KnownDroplet::id(1)).await.unwrap_err().reason, "InstanceOfOtherCluster");
}

/// Linode's API selects instances by a part of a tag. Therefore the list also contains instances of clusters whose names begin with this
/// cluster's name.
#[tokio::test]
async fn an_instance_of_a_cluster_with_a_longer_name_belongs_to_that_cluster() {
    let api = StandIn::<KnownInstance>::start().unwrap();
    api.put(1, KnownInstance::of_cluster("c.example.com.au", "nodes-1", &[[10, 0, 0, 1]]));
    api.put(2, own(1));
    let machines = inventory(&api, CloudCalls::default());
    let refused = verified(machines.clone(), &KnownInstance::id(1)).await.unwrap_err();
    assert_eq!(refused.reason, "InstanceOfOtherCluster");
    assert_eq!(identified::<KnownInstance>(machines.clone(), "nodes-1", 2).await.unwrap(), "nodes");
    match identified::<KnownInstance>(machines, "nodes-1", 1).await {
        Err(NotIdentified::Refused(refusal)) => assert!(refusal.is_definite(), "{refusal}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_server_of_another_project_is_not_found() {
    let api = StandIn::<KnownScaleway>::start().unwrap();
    api.put(1, KnownScaleway { project: "another".into(), ..own(1) });
    let machines = inventory(&api, CloudCalls::default());
    let refused = verified(machines, &KnownScaleway::id(1)).await.unwrap_err();
    assert_eq!(refused.reason, "InstanceNotFound");
}

#[tokio::test]
async fn a_provider_id_with_another_zone_names_no_server() {
    let (_api, machines) = with_one::<KnownScaleway>();
    let own = KnownScaleway::provider_id(1);
    assert_eq!(identified_as(machines.clone(), "nodes-1", own.clone()).await.unwrap(), "nodes");
    for (provider_id, reason) in [
        (own.replace(ZONE, "nl-ams-1"), "InstanceNotFound"),
        (own.replace("instance", "baremetal"), "InvalidProviderID"),
        (own.replace(ZONE, "fr-par"), "InvalidProviderID"),
    ] {
        match identified_as(machines.clone(), "nodes-1", provider_id.clone()).await {
            Err(NotIdentified::Refused(refusal)) => {
                assert_eq!((refusal.reason(), refusal.is_definite()), (reason, false), "{provider_id}");
            }
            other => panic!("{other:?}"),
        }
    }
}
