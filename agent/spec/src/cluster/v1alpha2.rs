//! How a Cluster in v1alpha2, the API version of the state store, differs from the internal version
//! (upstream: `pkg/apis/kops/v1alpha2/conversion.go`, and the JSON names of both packages).

use serde_json::{Value, json};

use crate::cloud_provider::CloudProvider;
use crate::error::SpecError;
use crate::respell::{
    Move, Respelling, dropped, inverted, moved, pairs_to_mapping, split_at_commas, true_means,
};

/// Converts a v1alpha2 Cluster to the internal version.
pub(super) fn respell(cluster: &mut Respelling<'_>) -> Result<(), SpecError> {
    let provider = place_cloud_provider(cluster)?;
    for (path, owner) in FOR_ONE_CLOUD {
        if provider != Some(*owner) && cluster.get(path).is_some_and(|value| *value != "") {
            return cluster.refuse(path, format!("it is for clusters on {owner} only; remove it"));
        }
    }
    if let Some(provider) = provider {
        cluster.apply(moves_of_cloud(provider))?;
    }
    cluster.apply(MOVES)
}

/// `cloudProvider: aws` becomes `cloudProvider: {aws: {}}`.
fn place_cloud_provider(cluster: &mut Respelling<'_>) -> Result<Option<CloudProvider>, SpecError> {
    const PATH: &str = "spec.cloudProvider";
    let id = match cluster.get(PATH) {
        None => return Ok(None),
        Some(Value::String(id)) if id.is_empty() => {
            cluster.set(PATH, Value::Null);
            return Ok(None);
        }
        Some(Value::String(id)) => id.clone(),
        Some(_) => return cluster.refuse(PATH, "it should be the name of a cloud, such as aws"),
    };
    let Some((provider, key)) =
        CloudProvider::from_id(&id).and_then(|provider| Some((provider, key_of(provider)?)))
    else {
        let known: Vec<&str> = CloudProvider::ALL
            .into_iter()
            .filter(|provider| key_of(*provider).is_some())
            .map(CloudProvider::id)
            .collect();
        return cluster.refuse(PATH, format!("there is no cloud {id:?}; write one of {}", known.join(", ")));
    };
    cluster.set(PATH, json!({ key: {} }));
    Ok(Some(provider))
}

/// The cloud's key below `spec.cloudProvider` in kOps' internal API. `None` if the internal API has no such key.
fn key_of(provider: CloudProvider) -> Option<&'static str> {
    match provider {
        CloudProvider::DigitalOcean => Some("do"),
        CloudProvider::Metal => None,
        other => Some(other.id()),
    }
}

/// Fields for one cloud. kOps refuses them on any other cloud.
const FOR_ONE_CLOUD: &[(&str, CloudProvider)] = &[
    ("spec.cloudConfig.awsEBSCSIDriver", CloudProvider::Aws),
    ("spec.cloudConfig.disableSecurityGroupIngress", CloudProvider::Aws),
    ("spec.cloudConfig.elbSecurityGroup", CloudProvider::Aws),
    ("spec.cloudConfig.nlbSecurityGroupMode", CloudProvider::Aws),
    ("spec.cloudConfig.nodeIPFamilies", CloudProvider::Aws),
    ("spec.cloudConfig.spotinstOrientation", CloudProvider::Aws),
    ("spec.cloudConfig.spotinstProduct", CloudProvider::Aws),
    ("spec.cloudConfig.useIPBasedNodeNames", CloudProvider::Aws),
    ("spec.nodeTerminationHandler", CloudProvider::Aws),
    ("spec.awsLoadBalancerController", CloudProvider::Aws),
    ("spec.warmPool", CloudProvider::Aws),
    ("spec.podIdentityWebhook", CloudProvider::Aws),
    ("spec.cloudConfig.gceServiceAccount", CloudProvider::Gce),
    ("spec.cloudConfig.gceUseStartupScript", CloudProvider::Gce),
    ("spec.cloudConfig.gcpPDCSIDriver", CloudProvider::Gce),
    ("spec.cloudConfig.multizone", CloudProvider::Gce),
    ("spec.cloudConfig.nodeTags", CloudProvider::Gce),
    ("spec.cloudConfig.nodeInstancePrefix", CloudProvider::Gce),
];

fn moves_of_cloud(provider: CloudProvider) -> &'static [Move] {
    match provider {
        CloudProvider::Aws => AWS,
        CloudProvider::Azure => AZURE,
        CloudProvider::Gce => GCE,
        CloudProvider::Openstack => OPENSTACK,
        _ => &[],
    }
}

const AWS: &[Move] = &[
    // The only valid value of this field is true. So the field has no effect, and the conversion drops it.
    dropped("spec.cloudConfig.awsEBSCSIDriver.enabled"),
    moved("spec.cloudConfig.awsEBSCSIDriver", "spec.cloudProvider.aws.ebsCSIDriver"),
    moved(
        "spec.cloudConfig.disableSecurityGroupIngress",
        "spec.cloudProvider.aws.disableSecurityGroupIngress",
    ),
    moved("spec.cloudConfig.elbSecurityGroup", "spec.cloudProvider.aws.elbSecurityGroup"),
    moved("spec.cloudConfig.nlbSecurityGroupMode", "spec.cloudProvider.aws.nlbSecurityGroupMode"),
    moved("spec.cloudConfig.nodeIPFamilies", "spec.cloudProvider.aws.nodeIPFamilies"),
    moved("spec.cloudConfig.spotinstOrientation", "spec.cloudProvider.aws.spotinstOrientation"),
    moved("spec.cloudConfig.spotinstProduct", "spec.cloudProvider.aws.spotinstProduct"),
    moved("spec.cloudConfig.useIPBasedNodeNames", "spec.cloudProvider.aws.useIPBasedNodeNames"),
    moved("spec.nodeTerminationHandler", "spec.cloudProvider.aws.nodeTerminationHandler"),
    moved("spec.awsLoadBalancerController", "spec.cloudProvider.aws.loadBalancerController"),
    moved("spec.warmPool", "spec.cloudProvider.aws.warmPool"),
    moved("spec.podIdentityWebhook", "spec.cloudProvider.aws.podIdentityWebhook"),
];

const AZURE: &[Move] = &[
    moved("spec.cloudConfig.azure", "spec.cloudProvider.azure"),
    moved("spec.cloudProvider.azure.subscriptionId", "spec.cloudProvider.azure.subscriptionID"),
    moved("spec.cloudProvider.azure.tenantId", "spec.cloudProvider.azure.tenantID"),
];

const GCE: &[Move] = &[
    moved("spec.project", "spec.cloudProvider.gce.project"),
    moved("spec.cloudConfig.gceServiceAccount", "spec.cloudProvider.gce.serviceAccount"),
    moved("spec.cloudConfig.gceUseStartupScript", "spec.cloudProvider.gce.useStartupScript"),
    moved("spec.cloudConfig.gcpPDCSIDriver", "spec.cloudProvider.gce.pdCSIDriver"),
    moved("spec.cloudConfig.multizone", "spec.cloudProvider.gce.multizone"),
    moved("spec.cloudConfig.nodeTags", "spec.cloudProvider.gce.nodeTags"),
    moved("spec.cloudConfig.nodeInstancePrefix", "spec.cloudProvider.gce.nodeInstancePrefix"),
];

const OPENSTACK: &[Move] = &[moved("spec.cloudConfig.openstack", "spec.cloudProvider.openstack")];

/// The order matters: some moves need a path that an earlier move creates.
const MOVES: &[Move] = &[
    // Fields whose old name contains the word master.
    moved("spec.masterKubelet", "spec.controlPlaneKubelet"),
    moved("spec.isolateMasters", "spec.networking.isolateControlPlane"),
    moved("spec.masterPublicName", "spec.api.publicName"),
    moved("spec.additionalPolicies.master", "spec.additionalPolicies.control-plane"),
    moved("spec.externalPolicies.master", "spec.externalPolicies.control-plane"),
    // Fields of the state store. The old field `configStore` was a string, and kOps no longer reads it.
    moved("spec.configStore", "unused.configStore"),
    moved("spec.configBase", "spec.configStore.base"),
    moved("spec.keyStore", "spec.configStore.keypairs"),
    moved("spec.secretStore", "spec.configStore.secrets"),
    // Fields of the API.
    moved("spec.additionalSans", "spec.api.additionalSANs"),
    moved("spec.kubernetesApiAccess", "spec.api.access"),
    moved("spec.api.loadBalancer.useForInternalApi", "spec.api.loadBalancer.useForInternalAPI"),
    moved("spec.api.loadBalancer.subnets[].allocationId", "spec.api.loadBalancer.subnets[].allocationID"),
    // Fields of networking.
    moved("spec.networkID", "spec.networking.networkID"),
    moved("spec.networkCIDR", "spec.networking.networkCIDR"),
    moved("spec.additionalNetworkCIDRs", "spec.networking.additionalNetworkCIDRs"),
    moved("spec.subnets", "spec.networking.subnets"),
    inverted("spec.DisableSubnetTags", "spec.networking.tagSubnets"),
    moved("spec.nonMasqueradeCIDR", "spec.networking.nonMasqueradeCIDR"),
    moved("spec.podCIDR", "spec.networking.podCIDR"),
    moved("spec.serviceClusterIPRange", "spec.networking.serviceClusterIPRange"),
    moved("spec.egressProxy", "spec.networking.egressProxy"),
    moved("spec.topology.dns.type", "spec.networking.topology.dns"),
    moved("spec.topology.bastion", "spec.networking.topology.bastion"),
    moved(
        "spec.networking.topology.bastion.bastionPublicName",
        "spec.networking.topology.bastion.publicName",
    ),
    moved("spec.networking.kuberouter", "spec.networking.kubeRouter"),
    moved("spec.networking.gce", "spec.networking.gcp"),
    moved("spec.networking.amazonvpc", "spec.networking.amazonVPC"),
    moved("spec.networking.amazonVPC.imageName", "spec.networking.amazonVPC.image"),
    moved("spec.networking.amazonVPC.initImageName", "spec.networking.amazonVPC.initImage"),
    inverted(
        "spec.networking.canal.disableFlannelForwardRules",
        "spec.networking.canal.flanneldIptablesForwardRules",
    ),
    inverted("spec.networking.cilium.disableMasquerade", "spec.networking.cilium.masquerade"),
    inverted("spec.networking.cilium.IPTablesRulesNoinstall", "spec.networking.cilium.installIptablesRules"),
    moved(
        "spec.networking.cilium.toFqdnsDnsRejectResponseCode",
        "spec.networking.cilium.toFQDNsDNSRejectResponseCode",
    ),
    moved("spec.networking.cilium.toFqdnsEnablePoller", "spec.networking.cilium.toFQDNsEnablePoller"),
    // Fields of kubelet, kube-proxy and the components of the control plane.
    moved("spec.kubelet.clientCaFile", "spec.kubelet.clientCAFile"),
    moved(
        "spec.kubelet.authenticationTokenWebhookCacheTtl",
        "spec.kubelet.authenticationTokenWebhookCacheTTL",
    ),
    moved("spec.controlPlaneKubelet.clientCaFile", "spec.controlPlaneKubelet.clientCAFile"),
    moved(
        "spec.controlPlaneKubelet.authenticationTokenWebhookCacheTtl",
        "spec.controlPlaneKubelet.authenticationTokenWebhookCacheTTL",
    ),
    moved("spec.kubeProxy.ipvsExcludeCidrs", "spec.kubeProxy.ipvsExcludeCIDRs"),
    moved("spec.kubeControllerManager.concurrentRcSyncs", "spec.kubeControllerManager.concurrentRCSyncs"),
    moved("spec.kubeAPIServer.etcdCaFile", "spec.kubeAPIServer.etcdCAFile"),
    moved(
        "spec.kubeAPIServer.authorizationWebhookCacheAuthorizedTtl",
        "spec.kubeAPIServer.authorizationWebhookCacheAuthorizedTTL",
    ),
    moved(
        "spec.kubeAPIServer.authorizationWebhookCacheUnauthorizedTtl",
        "spec.kubeAPIServer.authorizationWebhookCacheUnauthorizedTTL",
    ),
    moved("spec.kubeAPIServer.authorizationRbacSuperUser", "spec.kubeAPIServer.authorizationRBACSuperUser"),
    moved("spec.kubeAPIServer.oidcClientID", "spec.authentication.oidc.clientID"),
    moved("spec.kubeAPIServer.oidcIssuerURL", "spec.authentication.oidc.issuerURL"),
    moved("spec.kubeAPIServer.oidcUsernameClaim", "spec.authentication.oidc.usernameClaim"),
    moved("spec.kubeAPIServer.oidcUsernamePrefix", "spec.authentication.oidc.usernamePrefix"),
    moved("spec.kubeAPIServer.oidcGroupsPrefix", "spec.authentication.oidc.groupsPrefix"),
    split_at_commas("spec.kubeAPIServer.oidcGroupsClaim", "spec.authentication.oidc.groupsClaims"),
    pairs_to_mapping("spec.kubeAPIServer.oidcRequiredClaim", "spec.authentication.oidc.requiredClaims"),
    // Fields of etcd, DNS, hooks and Karpenter.
    moved("spec.etcdClusters[].etcdMembers[].volumeIops", "spec.etcdClusters[].etcdMembers[].volumeIOPS"),
    moved("spec.etcdClusters[].etcdMembers[].kmsKeyId", "spec.etcdClusters[].etcdMembers[].kmsKeyID"),
    moved("spec.externalDns", "spec.externalDNS"),
    true_means("spec.externalDNS.disable", "spec.externalDNS.provider", "none"),
    inverted("spec.hooks[].disabled", "spec.hooks[].enabled"),
    moved("spec.karpenter.logEncoding", "spec.karpenter.logFormat"),
];
