//! The specification of an instance group, with the field names of kOps' internal API.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_with::apply;

use crate::cluster::aws::WarmPoolSpec;
use crate::cluster::cluster_spec::RollingUpdate;
use crate::containerd::ContainerdConfig;
use crate::customization::{FileAssetSpec, HookSpec, VolumeMountSpec};
use crate::duration::Duration;
use crate::go_yaml::is_zero;
use crate::kubelet::KubeletConfigSpec;
use crate::role::InstanceGroupRole;
use crate::scalars::Quantity;

/// The desired state of a group's machines, with the field names of kOps' internal API.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct InstanceGroupSpec {
    /// The manager that starts and terminates the machines: `CloudGroup` or `Karpenter`.
    pub manager: String,
    #[serde_with(skip_apply)]
    pub role: InstanceGroupRole,
    pub image: String,
    pub min_size: Option<i32>,
    pub max_size: Option<i32>,
    /// Whether the cluster autoscaler may change the number of machines.
    pub autoscale: Option<bool>,
    pub autoscale_priority: i16,
    /// Types of the machines, separated by commas.
    pub machine_type: String,
    pub root_volume: Option<InstanceRootVolumeSpec>,
    pub volumes: Vec<VolumeSpec>,
    /// Volumes that the machines format and mount.
    pub volume_mounts: Vec<VolumeMountSpec>,
    /// Names of the subnets that the machines are in.
    pub subnets: Vec<String>,
    /// Zones of the machines. Needed only if the subnets span a region.
    pub zones: Vec<String>,
    /// Units that the user adds to the machines.
    pub hooks: Vec<HookSpec>,
    /// Maximum price of a spot machine. If set, the machines are spot machines.
    pub max_price: Option<String>,
    /// Number of minutes for which AWS reserves spot machines.
    pub spot_duration_in_minutes: Option<i64>,
    /// How AWS charges bursts of CPU: `standard` or `unlimited`.
    pub cpu_credits: Option<String>,
    #[serde(rename = "associatePublicIP")]
    pub associate_public_ip: Option<bool>,
    pub additional_security_groups: Vec<String>,
    /// Additional tags of the machines in the cloud.
    pub cloud_labels: BTreeMap<String, String>,
    pub node_labels: BTreeMap<String, String>,
    /// Files that the user adds to the machines.
    pub file_assets: Vec<FileAssetSpec>,
    /// Whether the machines share hardware with other accounts: `default` or `dedicated` (AWS).
    pub tenancy: String,
    /// Kubelet settings that override the cluster's kubelet settings.
    pub kubelet: Option<KubeletConfigSpec>,
    pub taints: Vec<String>,
    /// Settings for a group with several machine types (AWS).
    pub mixed_instances_policy: Option<MixedInstancesPolicySpec>,
    /// Whether AWS replaces spot machines early if they are at risk of interruption.
    pub capacity_rebalance: Option<bool>,
    pub additional_user_data: Vec<UserData>,
    /// Processes of the auto scaling group to suspend.
    pub suspend_processes: Vec<String>,
    /// Load balancers that the user created, in front of the machines.
    pub external_load_balancers: Vec<LoadBalancerSpec>,
    /// Whether AWS collects metrics of the machines every minute.
    pub detailed_instance_monitoring: Option<bool>,
    pub iam: Option<IAMProfileSpec>,
    /// Security group in place of the group that kOps creates (AWS).
    pub security_group_override: Option<String>,
    /// Whether new machines are protected from scale-in.
    pub instance_protection: Option<bool>,
    /// Kernel parameters, each as `name=value`.
    pub sysctl_parameters: Vec<String>,
    pub rolling_update: Option<RollingUpdate>,
    /// What AWS does with an interrupted spot machine: `terminate`, `stop` or `hibernate`.
    pub instance_interruption_behavior: Option<String>,
    /// Whether parts of the machines' user-data are gzipped.
    pub compress_user_data: Option<bool>,
    /// Options of the metadata service (AWS).
    pub instance_metadata: Option<InstanceMetadataOptions>,
    /// Whether machines install operating system updates: `automatic` or `external` (they do not). Overrides the cluster's setting.
    pub update_policy: Option<String>,
    /// Machines that AWS starts in advance, before the group needs them.
    pub warm_pool: Option<WarmPoolSpec>,
    /// containerd settings that override the cluster's containerd settings.
    pub containerd: Option<ContainerdConfig>,
    pub packages: Vec<String>,
    pub guest_accelerators: Vec<AcceleratorConfig>,
    /// Age at which AWS replaces a machine.
    pub max_instance_lifetime: Option<Duration>,
    /// Provisioning model of the machines: `STANDARD` or `SPOT` (GCE).
    pub gcp_provisioning_model: Option<String>,
}

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct InstanceRootVolumeSpec {
    /// Size of the volume, in GB.
    pub size: Option<i32>,
    pub r#type: Option<String>,
    /// Provisioned I/O operations per second (AWS).
    pub iops: Option<i32>,
    /// Provisioned throughput, in MB/s (AWS).
    pub throughput: Option<i32>,
    /// Whether the machine has dedicated bandwidth to its EBS volumes.
    pub optimization: Option<bool>,
    pub encryption: Option<bool>,
    pub encryption_key: Option<String>,
}

/// Options of EC2's metadata service.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct InstanceMetadataOptions {
    /// Maximum number of network hops that a response of the metadata service may travel.
    pub http_put_response_hop_limit: Option<i64>,
    /// Whether requests to the metadata service need a session token: `required` or `optional`.
    pub http_tokens: Option<String>,
}

/// Several types of machines in one group (AWS).
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MixedInstancesPolicySpec {
    pub instances: Vec<String>,
    /// Requirements that all machine types of the group meet.
    pub instance_requirements: Option<InstanceRequirementsSpec>,
    /// The strategy for choosing the types of on-demand machines.
    pub on_demand_allocation_strategy: Option<String>,
    /// Minimum number of on-demand machines.
    pub on_demand_base: Option<i64>,
    /// Percentage of on-demand machines among the machines above `on_demand_base`.
    pub on_demand_above_base: Option<i64>,
    /// The strategy for choosing the types of spot machines.
    pub spot_allocation_strategy: Option<String>,
    /// Number of machine types that the spot strategy `lowest-price` uses.
    pub spot_instance_pools: Option<i64>,
}

/// Requirements that all machine types of the group meet.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct InstanceRequirementsSpec {
    pub cpu: Option<MinMaxSpec>,
    pub memory: Option<MinMaxSpec>,
    pub excluded_instance_types: Vec<String>,
}

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MinMaxSpec {
    pub max: Option<Quantity>,
    pub min: Option<Quantity>,
}

/// A part that the user adds to the machines' user-data.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct UserData {
    pub name: String,
    pub r#type: String,
    pub content: String,
}

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VolumeSpec {
    pub delete_on_termination: Option<bool>,
    pub device: String,
    pub encrypted: Option<bool>,
    /// Provisioned I/O operations per second.
    pub iops: Option<i64>,
    /// Provisioned throughput, in MB/s.
    pub throughput: Option<i64>,
    pub key: Option<String>,
    /// Size of the volume, in GB.
    pub size: i64,
    pub r#type: String,
}

/// The IAM instance profile of the machines.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct IAMProfileSpec {
    pub profile: Option<String>,
}

/// A load balancer that the user created.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LoadBalancerSpec {
    /// Name of a classic load balancer.
    pub load_balancer_name: Option<String>,
    #[serde(rename = "targetGroupARN")]
    pub target_group_arn: Option<String>,
}

/// Accelerators of a machine (GCE).
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AcceleratorConfig {
    pub accelerator_count: i64,
    pub accelerator_type: String,
}
