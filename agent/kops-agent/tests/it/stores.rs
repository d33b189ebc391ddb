//! State stores of other schemes, through the front door: the example cluster where its cloud would keep it.

use crate::example::{Ended, Machine};
use kops_agent_tests::azure_blob::{ACCOUNT, AzureBlob, TOKEN};
use kops_agent_tests::example_store::{CONFIG_BASE, NODES};
use kops_agent_tests::openstack::swift::{Mood, Swift};
use kops_agent_tests::openstack::{SECRET, TOKEN as OPENSTACK_TOKEN};

/// The example's store, by this scheme.
fn config_base(scheme: &str) -> String {
    CONFIG_BASE.replace("s3://", &format!("{scheme}://"))
}

#[test]
fn a_store_that_speaks_s3_makes_a_node() {
    for scheme in ["do", "hos", "linode", "scw"] {
        let node = Machine::of(NODES);
        let ended = Ended::of(&mut node.agent_with_store("converge", &config_base(scheme)));
        ended.with(0, &[]);
        assert!(node.files().contains(&"usr/local/bin/kubelet".to_owned()), "{:?}", node.files());
        assert!(!ended.stderr.contains(node.cluster.s3.secret_access_key()), "{ended:#?}");
    }
}

#[test]
fn a_container_of_azure_makes_a_node() {
    let base = CONFIG_BASE.replace("s3://", &format!("azureblob://{ACCOUNT}/"));
    let older = CONFIG_BASE.replace("s3://", "azureblob://");
    for (base, account) in [(base, None), (older, Some(ACCOUNT))] {
        let node = Machine::of(NODES);
        let azure = AzureBlob::start(&node.cluster.store.buckets()).unwrap();
        let mut agent = node.agent_with_store("converge", &base);
        agent.envs(azure.environment()).envs(account.map(|account| ("AZURE_STORAGE_ACCOUNT", account)));
        let ended = Ended::of(&mut agent);
        ended.with(0, &[]);
        assert!(node.files().contains(&"usr/local/bin/kubelet".to_owned()), "{:?}", node.files());
        assert!(!ended.stderr.contains(TOKEN), "{ended:#?}");
    }
}

#[test]
fn a_container_of_openstack_makes_a_node() {
    let node = Machine::of(NODES);
    let swift = Swift::start(&node.cluster.store.buckets()).unwrap();
    let run = |login: Vec<(&str, String)>| {
        let mut agent = node.agent_with_store("converge", &config_base("swift"));
        agent.envs(login);
        let ended = Ended::of(&mut agent);
        assert!(!ended.stderr.contains(SECRET) && !ended.stderr.contains(OPENSTACK_TOKEN), "{ended:#?}");
        ended
    };
    run(Vec::new()).with(3, &["OS_AUTH_URL is not set: give this process a login to OpenStack"]);
    swift.set_mood(Mood::Forbidding);
    run(swift.environment()).with(1, &["access denied (403)", "a role in the project of the container"]);
    assert_eq!(node.files(), [""; 0]);

    swift.set_mood(Mood::Revoking);
    run(swift.environment()).with(0, &[]);
    assert!(node.files().contains(&"usr/local/bin/kubelet".to_owned()), "{:?}", node.files());
}

#[test]
fn what_is_missing_to_reach_it_is_said() {
    let node = Machine::of(NODES);
    let without = |variables: &[&str]| {
        let mut agent = node.agent_with_store("converge", &config_base("do"));
        for variable in variables {
            agent.env_remove(variable);
        }
        Ended::of(&mut agent)
    };
    without(&["S3_ENDPOINT"])
        .with(3, &["S3_ENDPOINT is not set, and names the server of do:// stores; set it"]);
    without(&["S3_SECRET_ACCESS_KEY"])
        .with(3, &["S3_ENDPOINT is set, but S3_SECRET_ACCESS_KEY is not; set it"]);
    assert_eq!(node.files(), [""; 0]);
}
