//! The specification of an instance group, in kOps' internal names.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::cluster::aws::WarmPoolSpec;
use crate::cluster::cluster_spec::RollingUpdate;
use crate::containerd::ContainerdConfig;
use crate::customization::{FileAssetSpec, HookSpec, VolumeMountSpec};
use crate::duration::Duration;
use crate::kubelet::KubeletConfigSpec;
use crate::omit::is_zero;
use crate::role::InstanceGroupRole;
use crate::scalars::Quantity;

/// What the machines of a group shall be, in kOps' internal names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct InstanceGroupSpec {
    /// Who starts and ends them: `CloudGroup` or `Karpenter`.
    #[serde(skip_serializing_if = "is_zero")]
    pub manager: String,
    /// What they are for.
    pub role: InstanceGroupRole,
    /// Image of their disk.
    #[serde(skip_serializing_if = "is_zero")]
    pub image: String,
    /// Least number of machines.
    #[serde(skip_serializing_if = "is_zero")]
    pub min_size: Option<i32>,
    /// Most machines.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_size: Option<i32>,
    /// Whether the cluster autoscaler changes their number.
    #[serde(skip_serializing_if = "is_zero")]
    pub autoscale: Option<bool>,
    /// Priority of the group for the cluster autoscaler.
    #[serde(skip_serializing_if = "is_zero")]
    pub autoscale_priority: i16,
    /// Type of machine; several with commas between them.
    #[serde(skip_serializing_if = "is_zero")]
    pub machine_type: String,
    /// Their root volume.
    #[serde(skip_serializing_if = "is_zero")]
    pub root_volume: Option<InstanceRootVolumeSpec>,
    /// More volumes.
    #[serde(skip_serializing_if = "is_zero")]
    pub volumes: Vec<VolumeSpec>,
    /// Volumes that are formatted and mounted.
    #[serde(skip_serializing_if = "is_zero")]
    pub volume_mounts: Vec<VolumeMountSpec>,
    /// Names of the subnets they are in.
    #[serde(skip_serializing_if = "is_zero")]
    pub subnets: Vec<String>,
    /// Zones they are in, where subnets span a region.
    #[serde(skip_serializing_if = "is_zero")]
    pub zones: Vec<String>,
    /// Units that the user adds to them.
    #[serde(skip_serializing_if = "is_zero")]
    pub hooks: Vec<HookSpec>,
    /// Highest bid for spot machines; set makes them such.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_price: Option<String>,
    /// Time for which spot machines are reserved.
    #[serde(skip_serializing_if = "is_zero")]
    pub spot_duration_in_minutes: Option<i64>,
    /// How bursts of CPU are paid: `standard` or `unlimited` (AWS).
    #[serde(skip_serializing_if = "is_zero")]
    pub cpu_credits: Option<String>,
    /// Whether they have public addresses.
    #[serde(rename = "associatePublicIP", skip_serializing_if = "is_zero")]
    pub associate_public_ip: Option<bool>,
    /// More security groups.
    #[serde(skip_serializing_if = "is_zero")]
    pub additional_security_groups: Vec<String>,
    /// More tags in the cloud.
    #[serde(skip_serializing_if = "is_zero")]
    pub cloud_labels: BTreeMap<String, String>,
    /// Labels of the nodes.
    #[serde(skip_serializing_if = "is_zero")]
    pub node_labels: BTreeMap<String, String>,
    /// Files that the user adds to them.
    #[serde(skip_serializing_if = "is_zero")]
    pub file_assets: Vec<FileAssetSpec>,
    /// Whether hardware is shared: `default` or `dedicated` (AWS).
    #[serde(skip_serializing_if = "is_zero")]
    pub tenancy: String,
    /// Changes to the cluster's kubelet settings.
    #[serde(skip_serializing_if = "is_zero")]
    pub kubelet: Option<KubeletConfigSpec>,
    /// Taints of the nodes.
    #[serde(skip_serializing_if = "is_zero")]
    pub taints: Vec<String>,
    /// Several types in one group (AWS).
    #[serde(skip_serializing_if = "is_zero")]
    pub mixed_instances_policy: Option<MixedInstancesPolicySpec>,
    /// Whether spot machines at risk are replaced early (AWS).
    #[serde(skip_serializing_if = "is_zero")]
    pub capacity_rebalance: Option<bool>,
    /// More parts of their user-data.
    #[serde(skip_serializing_if = "is_zero")]
    pub additional_user_data: Vec<UserData>,
    /// Processes of the auto scaling group that stand still.
    #[serde(skip_serializing_if = "is_zero")]
    pub suspend_processes: Vec<String>,
    /// Load balancers of the user's before them.
    #[serde(skip_serializing_if = "is_zero")]
    pub external_load_balancers: Vec<LoadBalancerSpec>,
    /// Whether they are monitored by the minute (AWS).
    #[serde(skip_serializing_if = "is_zero")]
    pub detailed_instance_monitoring: Option<bool>,
    /// Their IAM profile (AWS).
    #[serde(skip_serializing_if = "is_zero")]
    pub iam: Option<IAMProfileSpec>,
    /// Security group in place of the one that kOps makes (AWS).
    #[serde(skip_serializing_if = "is_zero")]
    pub security_group_override: Option<String>,
    /// Whether new machines are not scaled in.
    #[serde(skip_serializing_if = "is_zero")]
    pub instance_protection: Option<bool>,
    /// Kernel parameters, each as `name=value`.
    #[serde(skip_serializing_if = "is_zero")]
    pub sysctl_parameters: Vec<String>,
    /// How they are replaced.
    #[serde(skip_serializing_if = "is_zero")]
    pub rolling_update: Option<RollingUpdate>,
    /// What becomes of an interrupted spot machine: `terminate`, `stop` or `hibernate`.
    #[serde(skip_serializing_if = "is_zero")]
    pub instance_interruption_behavior: Option<String>,
    /// Whether parts of their user-data are gzipped.
    #[serde(skip_serializing_if = "is_zero")]
    pub compress_user_data: Option<bool>,
    /// Options of the metadata service (AWS).
    #[serde(skip_serializing_if = "is_zero")]
    pub instance_metadata: Option<InstanceMetadataOptions>,
    /// Whether they update themselves: `automatic` or `external`; goes before the cluster's.
    #[serde(skip_serializing_if = "is_zero")]
    pub update_policy: Option<String>,
    /// Machines that are started ahead of need (AWS).
    #[serde(skip_serializing_if = "is_zero")]
    pub warm_pool: Option<WarmPoolSpec>,
    /// Changes to the cluster's containerd settings.
    #[serde(skip_serializing_if = "is_zero")]
    pub containerd: Option<ContainerdConfig>,
    /// More packages.
    #[serde(skip_serializing_if = "is_zero")]
    pub packages: Vec<String>,
    /// Accelerators (GCE).
    #[serde(skip_serializing_if = "is_zero")]
    pub guest_accelerators: Vec<AcceleratorConfig>,
    /// Age at which a machine is replaced (AWS).
    #[serde(skip_serializing_if = "is_zero")]
    pub max_instance_lifetime: Option<Duration>,
    /// `STANDARD` or `SPOT` (GCE).
    #[serde(skip_serializing_if = "is_zero")]
    pub gcp_provisioning_model: Option<String>,
}

/// The root volume of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct InstanceRootVolumeSpec {
    /// Its size, in GB.
    #[serde(skip_serializing_if = "is_zero")]
    pub size: Option<i32>,
    /// Its kind.
    #[serde(skip_serializing_if = "is_zero")]
    pub r#type: Option<String>,
    /// Its provisioned operations a second (AWS).
    #[serde(skip_serializing_if = "is_zero")]
    pub iops: Option<i32>,
    /// Its provisioned throughput, in MB/s (AWS).
    #[serde(skip_serializing_if = "is_zero")]
    pub throughput: Option<i32>,
    /// Whether the machine is optimized for EBS.
    #[serde(skip_serializing_if = "is_zero")]
    pub optimization: Option<bool>,
    /// Whether it is encrypted.
    #[serde(skip_serializing_if = "is_zero")]
    pub encryption: Option<bool>,
    /// Key that encrypts it.
    #[serde(skip_serializing_if = "is_zero")]
    pub encryption_key: Option<String>,
}

/// Options of EC2's metadata service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct InstanceMetadataOptions {
    /// Most hops that an answer takes.
    #[serde(skip_serializing_if = "is_zero")]
    pub http_put_response_hop_limit: Option<i64>,
    /// Whether a session token is needed: `required` or `optional`.
    #[serde(skip_serializing_if = "is_zero")]
    pub http_tokens: Option<String>,
}

/// Several types of machines in one group (AWS).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MixedInstancesPolicySpec {
    /// Their types.
    #[serde(skip_serializing_if = "is_zero")]
    pub instances: Vec<String>,
    /// What any type must have.
    #[serde(skip_serializing_if = "is_zero")]
    pub instance_requirements: Option<InstanceRequirementsSpec>,
    /// How types are chosen for machines on demand.
    #[serde(skip_serializing_if = "is_zero")]
    pub on_demand_allocation_strategy: Option<String>,
    /// Machines that are on demand in any case.
    #[serde(skip_serializing_if = "is_zero")]
    pub on_demand_base: Option<i64>,
    /// Percentage of all further machines that are on demand.
    #[serde(skip_serializing_if = "is_zero")]
    pub on_demand_above_base: Option<i64>,
    /// How types are chosen for spot machines.
    #[serde(skip_serializing_if = "is_zero")]
    pub spot_allocation_strategy: Option<String>,
    /// Number of types for the strategy `lowest-price`.
    #[serde(skip_serializing_if = "is_zero")]
    pub spot_instance_pools: Option<i64>,
}

/// What any type of machine must have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct InstanceRequirementsSpec {
    /// Number of CPUs.
    #[serde(skip_serializing_if = "is_zero")]
    pub cpu: Option<MinMaxSpec>,
    /// Memory.
    #[serde(skip_serializing_if = "is_zero")]
    pub memory: Option<MinMaxSpec>,
    /// Types that are not wanted.
    #[serde(skip_serializing_if = "is_zero")]
    pub excluded_instance_types: Vec<String>,
}

/// A range.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MinMaxSpec {
    /// Its end.
    #[serde(skip_serializing_if = "is_zero")]
    pub max: Option<Quantity>,
    /// Its start.
    #[serde(skip_serializing_if = "is_zero")]
    pub min: Option<Quantity>,
}

/// A part of the user-data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct UserData {
    /// Its name.
    #[serde(skip_serializing_if = "is_zero")]
    pub name: String,
    /// Its MIME type.
    #[serde(skip_serializing_if = "is_zero")]
    pub r#type: String,
    /// Its content.
    #[serde(skip_serializing_if = "is_zero")]
    pub content: String,
}

/// A volume of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VolumeSpec {
    /// Whether it goes with the machine.
    #[serde(skip_serializing_if = "is_zero")]
    pub delete_on_termination: Option<bool>,
    /// Its device.
    #[serde(skip_serializing_if = "is_zero")]
    pub device: String,
    /// Whether it is encrypted.
    #[serde(skip_serializing_if = "is_zero")]
    pub encrypted: Option<bool>,
    /// Its provisioned operations a second.
    #[serde(skip_serializing_if = "is_zero")]
    pub iops: Option<i64>,
    /// Its provisioned throughput, in MB/s.
    #[serde(skip_serializing_if = "is_zero")]
    pub throughput: Option<i64>,
    /// Key that encrypts it.
    #[serde(skip_serializing_if = "is_zero")]
    pub key: Option<String>,
    /// Its size, in GB.
    #[serde(skip_serializing_if = "is_zero")]
    pub size: i64,
    /// Its kind.
    #[serde(skip_serializing_if = "is_zero")]
    pub r#type: String,
}

/// The IAM profile of machines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct IAMProfileSpec {
    /// Its ARN.
    #[serde(skip_serializing_if = "is_zero")]
    pub profile: Option<String>,
}

/// A load balancer of the user's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LoadBalancerSpec {
    /// Name of a classic one.
    #[serde(skip_serializing_if = "is_zero")]
    pub load_balancer_name: Option<String>,
    /// ARN of a target group.
    #[serde(rename = "targetGroupARN", skip_serializing_if = "is_zero")]
    pub target_group_arn: Option<String>,
}

/// Accelerators of a machine (GCE).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AcceleratorConfig {
    /// How many.
    #[serde(skip_serializing_if = "is_zero")]
    pub accelerator_count: i64,
    /// Which kind.
    #[serde(skip_serializing_if = "is_zero")]
    pub accelerator_type: String,
}
