//! The cluster's network: addresses, subnets, topology, proxy, and which plugin carries the pods.

use serde::{Deserialize, Serialize};

use super::calico::{CalicoNetworkingSpec, CanalNetworkingSpec};
use super::cilium::CiliumNetworkingSpec;
use super::network_plugins::{
    AmazonVPCNetworkingSpec, CNINetworkingSpec, ClassicNetworkingSpec, ExternalNetworkingSpec,
    FlannelNetworkingSpec, GCPNetworkingSpec, KindnetNetworkingSpec, KopeioNetworkingSpec,
    KubenetNetworkingSpec, KuberouterNetworkingSpec, LyftVPCNetworkingSpec, RomanaNetworkingSpec,
    WeaveNetworkingSpec,
};
use super::omit::is_zero;

/// The cluster's network. One plugin is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NetworkingSpec {
    /// The cloud's id of an existing network; empty where kOps makes one.
    #[serde(rename = "networkID", skip_serializing_if = "is_zero")]
    pub network_id: String,
    /// IPv4 addresses of the network.
    #[serde(rename = "networkCIDR", skip_serializing_if = "is_zero")]
    pub network_cidr: String,
    /// More IPv4 addresses of the network.
    #[serde(rename = "additionalNetworkCIDRs", skip_serializing_if = "is_zero")]
    pub additional_network_cidrs: Vec<String>,
    /// Subnets of the network.
    #[serde(skip_serializing_if = "is_zero")]
    pub subnets: Vec<ClusterSubnetSpec>,
    /// Whether kOps tags subnets for load balancers (AWS).
    #[serde(skip_serializing_if = "is_zero")]
    pub tag_subnets: Option<bool>,
    /// How machines and names are reached from outside.
    #[serde(skip_serializing_if = "is_zero")]
    pub topology: Option<TopologySpec>,
    /// The proxy that machines reach the world through.
    #[serde(skip_serializing_if = "is_zero")]
    pub egress_proxy: Option<EgressProxySpec>,
    /// Addresses of pods and Services together; traffic to them is not masqueraded.
    #[serde(rename = "nonMasqueradeCIDR", skip_serializing_if = "is_zero")]
    pub non_masquerade_cidr: String,
    /// Addresses of pods.
    #[serde(rename = "podCIDR", skip_serializing_if = "is_zero")]
    pub pod_cidr: String,
    /// Addresses of Services.
    #[serde(rename = "serviceClusterIPRange", skip_serializing_if = "is_zero")]
    pub service_cluster_ip_range: String,
    /// Whether control plane nodes stay off the pod network, without kube-proxy.
    #[serde(skip_serializing_if = "is_zero")]
    pub isolate_control_plane: Option<bool>,
    /// Plugin: the classic one of Kubernetes before 1.4.
    #[serde(skip_serializing_if = "is_zero")]
    pub classic: Option<ClassicNetworkingSpec>,
    /// Plugin: kubenet.
    #[serde(skip_serializing_if = "is_zero")]
    pub kubenet: Option<KubenetNetworkingSpec>,
    /// Plugin: one of the user's, on top of kubenet.
    #[serde(skip_serializing_if = "is_zero")]
    pub external: Option<ExternalNetworkingSpec>,
    /// Plugin: one of the user's, by CNI.
    #[serde(skip_serializing_if = "is_zero")]
    pub cni: Option<CNINetworkingSpec>,
    /// Plugin: Kopeio.
    #[serde(skip_serializing_if = "is_zero")]
    pub kopeio: Option<KopeioNetworkingSpec>,
    /// Plugin: Weave.
    #[serde(skip_serializing_if = "is_zero")]
    pub weave: Option<WeaveNetworkingSpec>,
    /// Plugin: Flannel.
    #[serde(skip_serializing_if = "is_zero")]
    pub flannel: Option<FlannelNetworkingSpec>,
    /// Plugin: Calico.
    #[serde(skip_serializing_if = "is_zero")]
    pub calico: Option<CalicoNetworkingSpec>,
    /// Plugin: Canal.
    #[serde(skip_serializing_if = "is_zero")]
    pub canal: Option<CanalNetworkingSpec>,
    /// Plugin: kube-router.
    #[serde(skip_serializing_if = "is_zero")]
    pub kube_router: Option<KuberouterNetworkingSpec>,
    /// Plugin: Romana.
    #[serde(skip_serializing_if = "is_zero")]
    pub romana: Option<RomanaNetworkingSpec>,
    /// Plugin: the Amazon VPC CNI.
    #[serde(rename = "amazonVPC", skip_serializing_if = "is_zero")]
    pub amazon_vpc: Option<AmazonVPCNetworkingSpec>,
    /// Plugin: Cilium.
    #[serde(skip_serializing_if = "is_zero")]
    pub cilium: Option<CiliumNetworkingSpec>,
    /// Plugin: Lyft's CNI for VPCs.
    #[serde(skip_serializing_if = "is_zero")]
    pub lyftvpc: Option<LyftVPCNetworkingSpec>,
    /// Plugin: alias IPs of Google Cloud.
    #[serde(skip_serializing_if = "is_zero")]
    pub gcp: Option<GCPNetworkingSpec>,
    /// Plugin: kindnet.
    #[serde(skip_serializing_if = "is_zero")]
    pub kindnet: Option<KindnetNetworkingSpec>,
}

/// A subnet that the cluster uses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClusterSubnetSpec {
    /// Its name, by which instance groups refer to it.
    #[serde(skip_serializing_if = "is_zero")]
    pub name: String,
    /// Its IPv4 addresses.
    #[serde(skip_serializing_if = "is_zero")]
    pub cidr: String,
    /// Its IPv6 addresses.
    #[serde(rename = "ipv6CIDR", skip_serializing_if = "is_zero")]
    pub ipv6_cidr: String,
    /// Its zone, where subnets belong to one.
    #[serde(skip_serializing_if = "is_zero")]
    pub zone: String,
    /// Its region, where subnets span one.
    #[serde(skip_serializing_if = "is_zero")]
    pub region: String,
    /// The cloud's id of an existing subnet.
    #[serde(skip_serializing_if = "is_zero")]
    pub id: String,
    /// How it reaches the world: the id of a gateway or NAT instance, or `External`.
    #[serde(skip_serializing_if = "is_zero")]
    pub egress: String,
    /// `Public`, `Private`, `DualStack` or `Utility`.
    #[serde(skip_serializing_if = "is_zero")]
    pub r#type: String,
    /// The address of its NAT gateway.
    #[serde(rename = "publicIP", skip_serializing_if = "is_zero")]
    pub public_ip: String,
    /// More routes of its table.
    #[serde(skip_serializing_if = "is_zero")]
    pub additional_routes: Vec<RouteSpec>,
}

/// A route of a subnet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RouteSpec {
    /// Where the route leads.
    #[serde(skip_serializing_if = "is_zero")]
    pub cidr: String,
    /// What it leads through.
    #[serde(skip_serializing_if = "is_zero")]
    pub target: String,
}

/// How machines and names are reached from outside.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct TopologySpec {
    /// The machine to enter by.
    #[serde(skip_serializing_if = "is_zero")]
    pub bastion: Option<BastionSpec>,
    /// Where names of the cluster are published: `Public`, `Private` or `None`.
    #[serde(skip_serializing_if = "is_zero")]
    pub dns: String,
}

/// The machine to enter a private network by.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct BastionSpec {
    /// Its DNS name.
    #[serde(skip_serializing_if = "is_zero")]
    pub public_name: String,
    /// The load balancer before it.
    #[serde(skip_serializing_if = "is_zero")]
    pub load_balancer: Option<BastionLoadBalancerSpec>,
}

/// The load balancer before the bastion.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct BastionLoadBalancerSpec {
    /// More security groups of it.
    #[serde(skip_serializing_if = "is_zero")]
    pub additional_security_groups: Vec<String>,
    /// `Public` or `Internal`.
    #[serde(skip_serializing_if = "is_zero")]
    pub r#type: String,
}

/// The proxy that machines reach the world through.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EgressProxySpec {
    /// Where it is.
    pub http_proxy: HTTPProxy,
    /// What is reached without it, separated by commas.
    #[serde(skip_serializing_if = "is_zero")]
    pub excludes: String,
}

/// An HTTP proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HTTPProxy {
    /// Its host, with or without a scheme.
    #[serde(skip_serializing_if = "is_zero")]
    pub host: String,
    /// Its port; 0 for none said.
    #[serde(skip_serializing_if = "is_zero")]
    pub port: i64,
}
