//! How machines find the API server and kops-controller: by DNS, by gossip, or by the addresses of a load balancer (upstream:
//! `UsesLegacyGossip` and `UsesLoadBalancerForKopsController` in pkg/apis/kops/cluster.go, `UseKopsControllerForNodeConfig` in
//! pkg/apis/kops/model/features.go, at v1.34.3, v1.35.2 and v1.36.2).

use super::Inputs;
use kops_agent_spec::{CloudProvider, is_gossip_name};

/// Whether the cluster has no DNS, so that its names are only in `/etc/hosts`.
pub(super) fn uses_none_dns(inputs: &Inputs<'_>) -> bool {
    inputs.cluster.spec.networking.topology.as_ref().is_some_and(|topology| topology.dns == "None")
}

/// Whether gossip publishes the cluster's names.
pub(super) fn uses_gossip(inputs: &Inputs<'_>) -> bool {
    let has_name = is_gossip_name(&inputs.cluster.metadata.name);
    inputs.release.has_gossip() && has_name && !uses_none_dns(inputs)
}

/// Whether machines reach kops-controller through a load balancer.
pub(super) fn uses_load_balancer(inputs: &Inputs<'_>) -> bool {
    if uses_none_dns(inputs) {
        return true;
    }
    let cloud = inputs.cluster.cloud_provider();
    let Some(balancer) = inputs.cluster.spec.api.load_balancer.as_ref().filter(|_| uses_gossip(inputs))
    else {
        return false;
    };
    match cloud {
        Some(CloudProvider::Gce) => true,
        _ if !inputs.release.gossip_clusters_use_load_balancers() => false,
        Some(CloudProvider::Aws) => balancer.class == "Network",
        _ => true,
    }
}

/// Whether machines without an API server ask kops-controller for their configuration. Otherwise they read the state store.
pub(super) fn asks_kops_controller(inputs: &Inputs<'_>) -> bool {
    let has_addresses = matches!(
        inputs.cluster.cloud_provider(),
        Some(CloudProvider::Hetzner | CloudProvider::Scaleway | CloudProvider::DigitalOcean)
    );
    !uses_gossip(inputs)
        || uses_load_balancer(inputs)
        || has_addresses && !inputs.release.gossip_clusters_use_load_balancers()
}
