//! The ways in which a Node may name its machine.

use super::*;

/// Upstream's kops-controller accepts these provider ids, whichever cloud controller wrote them.
#[tokio::test]
async fn other_valid_forms_of_provider_ids_are_accepted() {
    let (_api, instances) = with_one::<KnownInstance>();
    for (provider_id, expected) in [
        ("linode://1", Ok("nodes")),
        ("linode:///1", Ok("nodes")),
        ("linode://de-fra-2/1", Ok("nodes")),
        ("linode://us-ord/1", Err("InstanceNotFound")),
        ("linode://de-fra-2//1", Err("InvalidProviderID")),
    ] {
        assert_identified(instances.clone(), provider_id, expected).await;
    }
    let (_api, servers) = with_one::<KnownOpenstack>();
    let id = KnownOpenstack::id(1);
    for (provider_id, expected) in [
        (format!("openstack:///{id}"), Ok("nodes")),
        (format!("openstack://{id}"), Ok("nodes")),
        (format!("openstack://RegionOne/{id}"), Err("InvalidProviderID")),
    ] {
        assert_identified(servers.clone(), &provider_id, expected).await;
    }
}

async fn assert_identified<M: Listed>(
    machines: Arc<Inventory<M>>,
    provider_id: &str,
    expected: Result<&str, &str>,
) {
    match (identified_as(machines, "nodes-1", provider_id.to_owned()).await, expected) {
        (Ok(group), Ok(expected)) => assert_eq!(group, expected, "{provider_id}"),
        (Err(NotIdentified::Refused(refusal)), Err(reason)) => {
            assert_eq!((refusal.reason(), refusal.is_definite()), (reason, false), "{provider_id}");
        }
        (other, _) => panic!("{provider_id}: {other:?}"),
    }
}
