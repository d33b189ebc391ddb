//! The cluster's network: addresses, subnets, topology, proxy, and the network plugin.

use serde::{Deserialize, Serialize};
use serde_with::apply;

use super::calico::{CalicoNetworkingSpec, CanalNetworkingSpec};
use super::cilium::CiliumNetworkingSpec;
use super::go_yaml::is_zero;
use super::network_plugins::{
    AmazonVPCNetworkingSpec, CNINetworkingSpec, ClassicNetworkingSpec, ExternalNetworkingSpec,
    FlannelNetworkingSpec, GCPNetworkingSpec, KindnetNetworkingSpec, KopeioNetworkingSpec,
    KubenetNetworkingSpec, KuberouterNetworkingSpec, LyftVPCNetworkingSpec, RomanaNetworkingSpec,
    WeaveNetworkingSpec,
};

/// The cluster's network. A Cluster sets exactly one of the fields marked `Plugin`. In a `nodeupconfig.yaml`, kOps sets only the plugins
/// that nodes must know.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NetworkingSpec {
    /// The cloud's id of an existing network. Empty if kOps creates the network.
    #[serde(rename = "networkID")]
    pub network_id: String,
    /// Range of IPv4 addresses of the network.
    #[serde(rename = "networkCIDR")]
    pub network_cidr: String,
    #[serde(rename = "additionalNetworkCIDRs")]
    pub additional_network_cidrs: Vec<String>,
    pub subnets: Vec<ClusterSubnetSpec>,
    /// Whether kOps tags subnets for load balancers (AWS).
    pub tag_subnets: Option<bool>,
    /// How users reach the machines, and where the cluster's names are published.
    pub topology: Option<TopologySpec>,
    /// The proxy for requests from machines to destinations outside of the cluster.
    pub egress_proxy: Option<EgressProxySpec>,
    /// Range that contains the addresses of all pods and Services. Traffic to these addresses is not masqueraded.
    #[serde(rename = "nonMasqueradeCIDR")]
    pub non_masquerade_cidr: String,
    #[serde(rename = "podCIDR")]
    pub pod_cidr: String,
    #[serde(rename = "serviceClusterIPRange")]
    pub service_cluster_ip_range: String,
    /// Whether control plane nodes stay outside of the pod network and run no kube-proxy.
    pub isolate_control_plane: Option<bool>,
    /// Plugin: the classic network of Kubernetes before 1.4.
    pub classic: Option<ClassicNetworkingSpec>,
    pub kubenet: Option<KubenetNetworkingSpec>,
    /// Plugin: a network that the user installs on top of kubenet.
    pub external: Option<ExternalNetworkingSpec>,
    /// Plugin: a CNI plugin that the user installs.
    pub cni: Option<CNINetworkingSpec>,
    pub kopeio: Option<KopeioNetworkingSpec>,
    pub weave: Option<WeaveNetworkingSpec>,
    pub flannel: Option<FlannelNetworkingSpec>,
    pub calico: Option<CalicoNetworkingSpec>,
    pub canal: Option<CanalNetworkingSpec>,
    pub kube_router: Option<KuberouterNetworkingSpec>,
    pub romana: Option<RomanaNetworkingSpec>,
    /// Plugin: the Amazon VPC CNI.
    #[serde(rename = "amazonVPC")]
    pub amazon_vpc: Option<AmazonVPCNetworkingSpec>,
    pub cilium: Option<CiliumNetworkingSpec>,
    /// Plugin: Lyft's CNI for VPCs.
    pub lyftvpc: Option<LyftVPCNetworkingSpec>,
    /// Plugin: alias IPs of Google Cloud.
    pub gcp: Option<GCPNetworkingSpec>,
    pub kindnet: Option<KindnetNetworkingSpec>,
}

/// A subnet that the cluster uses.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClusterSubnetSpec {
    /// The subnet's name, by which instance groups refer to it.
    pub name: String,
    /// Range of IPv4 addresses of the subnet.
    pub cidr: String,
    /// Range of IPv6 addresses of the subnet.
    #[serde(rename = "ipv6CIDR")]
    pub ipv6_cidr: String,
    /// The subnet's zone, on clouds whose subnets belong to one zone.
    pub zone: String,
    /// The subnet's region, on clouds whose subnets span a region.
    pub region: String,
    /// The cloud's id of an existing subnet.
    pub id: String,
    /// How packets leave the subnet: the id of a gateway or NAT instance, or `External`.
    pub egress: String,
    /// The type of the subnet: `Public`, `Private`, `DualStack` or `Utility`.
    pub r#type: String,
    /// The address of the subnet's NAT gateway.
    #[serde(rename = "publicIP")]
    pub public_ip: String,
    pub additional_routes: Vec<RouteSpec>,
}

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RouteSpec {
    /// The destination range of the route.
    pub cidr: String,
    pub target: String,
}

/// How users reach the machines, and where the cluster's names are published.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct TopologySpec {
    /// The machine through which users connect to a private network.
    pub bastion: Option<BastionSpec>,
    /// Where the cluster's names are published: `Public`, `Private` or `None`.
    pub dns: String,
}

/// The machine through which users connect to a private network.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct BastionSpec {
    pub public_name: String,
    pub load_balancer: Option<BastionLoadBalancerSpec>,
}

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct BastionLoadBalancerSpec {
    pub additional_security_groups: Vec<String>,
    /// The type of the load balancer: `Public` or `Internal`.
    pub r#type: String,
}

/// The proxy for requests from machines to destinations outside of the cluster.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EgressProxySpec {
    /// Host and port of the proxy.
    #[serde_with(skip_apply)]
    pub http_proxy: HTTPProxy,
    /// Hosts that machines reach without the proxy, separated by commas.
    pub excludes: String,
}

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HTTPProxy {
    /// The proxy's host, with or without a scheme.
    pub host: String,
    /// The proxy's port. 0 means that no port is set.
    pub port: i64,
}
