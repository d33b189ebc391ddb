//! The slots in use, from their Leases.

use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use kube::api::{Api, ListParams};

use kops_agent_cluster::pacing::{GROUP_LABEL, NAMESPACE};
use kops_agent_kube::api_error::{ApiError, answer};
use kops_agent_kube::lease::holder;
use kops_agent_kube::list_pages;

/// Lists the slots in use, one line each.
pub async fn held(client: Client) -> Result<Vec<String>, ApiError> {
    let leases: Api<Lease> = Api::namespaced(client, NAMESPACE);
    let ask = |page: ListParams| {
        let leases = leases.clone();
        async move { answer(leases.list(&page)).await }
    };
    let listed =
        list_pages::all(ListParams::default().labels(GROUP_LABEL), ask, |lease| line(&lease)).await?;
    Ok(listed.into_iter().flatten().collect())
}

/// The output line for a Lease; `None` if no node holds the Lease.
fn line(lease: &Lease) -> Option<String> {
    let node = Some(holder(lease)).filter(|holder| !holder.is_empty())?;
    let spec = lease.spec.as_ref()?;
    let [since, renewed] = [&spec.acquire_time, &spec.renew_time]
        .map(|time| time.as_ref().map_or_else(|| "-".to_owned(), |time| time.0.to_string()));
    let name = lease.metadata.name.as_deref().unwrap_or_default();
    Some(format!("{node} has the slot {name} since {since}, renewed {renewed}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn only_held_slots_are_listed() {
        let told = |holder: &str| {
            let lease = json!({"metadata": {"name": "kops-agent-disruption.nodes.0"}, "spec": {"holderIdentity": holder,
                "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:01:00.000000Z"}});
            line(&serde_json::from_value(lease).unwrap())
        };
        let expected = "i-1 has the slot kops-agent-disruption.nodes.0 since 2026-01-01T00:00:00Z, renewed 2026-01-01T00:01:00Z";
        assert_eq!(told("i-1").as_deref(), Some(expected));
        assert_eq!(told(""), None);
    }
}
