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

/// `NetworkingSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NetworkingSpec {
    /// Network ID.
    #[serde(rename = "networkID", skip_serializing_if = "is_zero")]
    pub network_id: String,
    /// Network CIDR.
    #[serde(rename = "networkCIDR", skip_serializing_if = "is_zero")]
    pub network_cidr: String,
    /// Additional network cidrs.
    #[serde(rename = "additionalNetworkCIDRs", skip_serializing_if = "is_zero")]
    pub additional_network_cidrs: Vec<String>,
    /// Subnets.
    #[serde(skip_serializing_if = "is_zero")]
    pub subnets: Vec<ClusterSubnetSpec>,
    /// Tag subnets.
    #[serde(skip_serializing_if = "is_zero")]
    pub tag_subnets: Option<bool>,
    /// Topology.
    #[serde(skip_serializing_if = "is_zero")]
    pub topology: Option<TopologySpec>,
    /// Egress proxy.
    #[serde(skip_serializing_if = "is_zero")]
    pub egress_proxy: Option<EgressProxySpec>,
    /// Non masquerade CIDR.
    #[serde(rename = "nonMasqueradeCIDR", skip_serializing_if = "is_zero")]
    pub non_masquerade_cidr: String,
    /// Pod CIDR.
    #[serde(rename = "podCIDR", skip_serializing_if = "is_zero")]
    pub pod_cidr: String,
    /// Service cluster IP range.
    #[serde(rename = "serviceClusterIPRange", skip_serializing_if = "is_zero")]
    pub service_cluster_ip_range: String,
    /// Isolate control plane.
    #[serde(skip_serializing_if = "is_zero")]
    pub isolate_control_plane: Option<bool>,
    /// Classic.
    #[serde(skip_serializing_if = "is_zero")]
    pub classic: Option<ClassicNetworkingSpec>,
    /// Kubenet.
    #[serde(skip_serializing_if = "is_zero")]
    pub kubenet: Option<KubenetNetworkingSpec>,
    /// External.
    #[serde(skip_serializing_if = "is_zero")]
    pub external: Option<ExternalNetworkingSpec>,
    /// Cni.
    #[serde(skip_serializing_if = "is_zero")]
    pub cni: Option<CNINetworkingSpec>,
    /// Kopeio.
    #[serde(skip_serializing_if = "is_zero")]
    pub kopeio: Option<KopeioNetworkingSpec>,
    /// Weave.
    #[serde(skip_serializing_if = "is_zero")]
    pub weave: Option<WeaveNetworkingSpec>,
    /// Flannel.
    #[serde(skip_serializing_if = "is_zero")]
    pub flannel: Option<FlannelNetworkingSpec>,
    /// Calico.
    #[serde(skip_serializing_if = "is_zero")]
    pub calico: Option<CalicoNetworkingSpec>,
    /// Canal.
    #[serde(skip_serializing_if = "is_zero")]
    pub canal: Option<CanalNetworkingSpec>,
    /// Kube router.
    #[serde(skip_serializing_if = "is_zero")]
    pub kube_router: Option<KuberouterNetworkingSpec>,
    /// Romana.
    #[serde(skip_serializing_if = "is_zero")]
    pub romana: Option<RomanaNetworkingSpec>,
    /// Amazon VPC.
    #[serde(rename = "amazonVPC", skip_serializing_if = "is_zero")]
    pub amazon_vpc: Option<AmazonVPCNetworkingSpec>,
    /// Cilium.
    #[serde(skip_serializing_if = "is_zero")]
    pub cilium: Option<CiliumNetworkingSpec>,
    /// Lyftvpc.
    #[serde(skip_serializing_if = "is_zero")]
    pub lyftvpc: Option<LyftVPCNetworkingSpec>,
    /// Gcp.
    #[serde(skip_serializing_if = "is_zero")]
    pub gcp: Option<GCPNetworkingSpec>,
    /// Kindnet.
    #[serde(skip_serializing_if = "is_zero")]
    pub kindnet: Option<KindnetNetworkingSpec>,
}

/// `ClusterSubnetSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClusterSubnetSpec {
    /// Name.
    #[serde(skip_serializing_if = "is_zero")]
    pub name: String,
    /// Cidr.
    #[serde(skip_serializing_if = "is_zero")]
    pub cidr: String,
    /// Ipv6 CIDR.
    #[serde(rename = "ipv6CIDR", skip_serializing_if = "is_zero")]
    pub ipv6_cidr: String,
    /// Zone.
    #[serde(skip_serializing_if = "is_zero")]
    pub zone: String,
    /// Region.
    #[serde(skip_serializing_if = "is_zero")]
    pub region: String,
    /// Id.
    #[serde(skip_serializing_if = "is_zero")]
    pub id: String,
    /// Egress.
    #[serde(skip_serializing_if = "is_zero")]
    pub egress: String,
    /// Type.
    #[serde(skip_serializing_if = "is_zero")]
    pub r#type: String,
    /// Public IP.
    #[serde(rename = "publicIP", skip_serializing_if = "is_zero")]
    pub public_ip: String,
    /// Additional routes.
    #[serde(skip_serializing_if = "is_zero")]
    pub additional_routes: Vec<RouteSpec>,
}

/// `RouteSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RouteSpec {
    /// Cidr.
    #[serde(skip_serializing_if = "is_zero")]
    pub cidr: String,
    /// Target.
    #[serde(skip_serializing_if = "is_zero")]
    pub target: String,
}

/// `TopologySpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct TopologySpec {
    /// Bastion.
    #[serde(skip_serializing_if = "is_zero")]
    pub bastion: Option<BastionSpec>,
    /// Dns.
    #[serde(skip_serializing_if = "is_zero")]
    pub dns: String,
}

/// `BastionSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct BastionSpec {
    /// Public name.
    #[serde(skip_serializing_if = "is_zero")]
    pub public_name: String,
    /// Load balancer.
    #[serde(skip_serializing_if = "is_zero")]
    pub load_balancer: Option<BastionLoadBalancerSpec>,
}

/// `BastionLoadBalancerSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct BastionLoadBalancerSpec {
    /// Additional security groups.
    #[serde(skip_serializing_if = "is_zero")]
    pub additional_security_groups: Vec<String>,
    /// Type.
    #[serde(skip_serializing_if = "is_zero")]
    pub r#type: String,
}

/// `EgressProxySpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EgressProxySpec {
    /// Http proxy.
    pub http_proxy: HTTPProxy,
    /// Excludes.
    #[serde(skip_serializing_if = "is_zero")]
    pub excludes: String,
}

/// `HTTPProxy`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HTTPProxy {
    /// Host.
    #[serde(skip_serializing_if = "is_zero")]
    pub host: String,
    /// Port.
    #[serde(skip_serializing_if = "is_zero")]
    pub port: i64,
}
