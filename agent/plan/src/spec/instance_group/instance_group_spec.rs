//! The specification of an instance group, in kOps' internal names.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::spec::cluster::aws::WarmPoolSpec;
use crate::spec::cluster::cluster_spec::RollingUpdate;
use crate::spec::containerd::ContainerdConfig;
use crate::spec::customization::{FileAssetSpec, HookSpec, VolumeMountSpec};
use crate::spec::duration::Duration;
use crate::spec::kubelet::KubeletConfigSpec;
use crate::spec::omit::is_zero;
use crate::spec::role::InstanceGroupRole;
use crate::spec::scalars::Quantity;

/// `InstanceGroupSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct InstanceGroupSpec {
    /// Manager.
    #[serde(skip_serializing_if = "is_zero")]
    pub manager: String,
    /// Role.
    #[serde(skip_serializing_if = "is_zero")]
    pub role: InstanceGroupRole,
    /// Image.
    #[serde(skip_serializing_if = "is_zero")]
    pub image: String,
    /// Min size.
    #[serde(skip_serializing_if = "is_zero")]
    pub min_size: Option<i32>,
    /// Max size.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_size: Option<i32>,
    /// Autoscale.
    #[serde(skip_serializing_if = "is_zero")]
    pub autoscale: Option<bool>,
    /// Autoscale priority.
    #[serde(skip_serializing_if = "is_zero")]
    pub autoscale_priority: i16,
    /// Machine type.
    #[serde(skip_serializing_if = "is_zero")]
    pub machine_type: String,
    /// Root volume.
    #[serde(skip_serializing_if = "is_zero")]
    pub root_volume: Option<InstanceRootVolumeSpec>,
    /// Volumes.
    #[serde(skip_serializing_if = "is_zero")]
    pub volumes: Vec<VolumeSpec>,
    /// Volume mounts.
    #[serde(skip_serializing_if = "is_zero")]
    pub volume_mounts: Vec<VolumeMountSpec>,
    /// Subnets.
    #[serde(skip_serializing_if = "is_zero")]
    pub subnets: Vec<String>,
    /// Zones.
    #[serde(skip_serializing_if = "is_zero")]
    pub zones: Vec<String>,
    /// Hooks.
    #[serde(skip_serializing_if = "is_zero")]
    pub hooks: Vec<HookSpec>,
    /// Max price.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_price: Option<String>,
    /// Spot duration in minutes.
    #[serde(skip_serializing_if = "is_zero")]
    pub spot_duration_in_minutes: Option<i64>,
    /// Cpu credits.
    #[serde(skip_serializing_if = "is_zero")]
    pub cpu_credits: Option<String>,
    /// Associate public IP.
    #[serde(rename = "associatePublicIP", skip_serializing_if = "is_zero")]
    pub associate_public_ip: Option<bool>,
    /// Additional security groups.
    #[serde(skip_serializing_if = "is_zero")]
    pub additional_security_groups: Vec<String>,
    /// Cloud labels.
    #[serde(skip_serializing_if = "is_zero")]
    pub cloud_labels: BTreeMap<String, String>,
    /// Node labels.
    #[serde(skip_serializing_if = "is_zero")]
    pub node_labels: BTreeMap<String, String>,
    /// File assets.
    #[serde(skip_serializing_if = "is_zero")]
    pub file_assets: Vec<FileAssetSpec>,
    /// Tenancy.
    #[serde(skip_serializing_if = "is_zero")]
    pub tenancy: String,
    /// Kubelet.
    #[serde(skip_serializing_if = "is_zero")]
    pub kubelet: Option<KubeletConfigSpec>,
    /// Taints.
    #[serde(skip_serializing_if = "is_zero")]
    pub taints: Vec<String>,
    /// Mixed instances policy.
    #[serde(skip_serializing_if = "is_zero")]
    pub mixed_instances_policy: Option<MixedInstancesPolicySpec>,
    /// Capacity rebalance.
    #[serde(skip_serializing_if = "is_zero")]
    pub capacity_rebalance: Option<bool>,
    /// Additional user data.
    #[serde(skip_serializing_if = "is_zero")]
    pub additional_user_data: Vec<UserData>,
    /// Suspend processes.
    #[serde(skip_serializing_if = "is_zero")]
    pub suspend_processes: Vec<String>,
    /// External load balancers.
    #[serde(skip_serializing_if = "is_zero")]
    pub external_load_balancers: Vec<LoadBalancerSpec>,
    /// Detailed instance monitoring.
    #[serde(skip_serializing_if = "is_zero")]
    pub detailed_instance_monitoring: Option<bool>,
    /// Iam.
    #[serde(skip_serializing_if = "is_zero")]
    pub iam: Option<IAMProfileSpec>,
    /// Security group override.
    #[serde(skip_serializing_if = "is_zero")]
    pub security_group_override: Option<String>,
    /// Instance protection.
    #[serde(skip_serializing_if = "is_zero")]
    pub instance_protection: Option<bool>,
    /// Sysctl parameters.
    #[serde(skip_serializing_if = "is_zero")]
    pub sysctl_parameters: Vec<String>,
    /// Rolling update.
    #[serde(skip_serializing_if = "is_zero")]
    pub rolling_update: Option<RollingUpdate>,
    /// Instance interruption behavior.
    #[serde(skip_serializing_if = "is_zero")]
    pub instance_interruption_behavior: Option<String>,
    /// Compress user data.
    #[serde(skip_serializing_if = "is_zero")]
    pub compress_user_data: Option<bool>,
    /// Instance metadata.
    #[serde(skip_serializing_if = "is_zero")]
    pub instance_metadata: Option<InstanceMetadataOptions>,
    /// Update policy.
    #[serde(skip_serializing_if = "is_zero")]
    pub update_policy: Option<String>,
    /// Warm pool.
    #[serde(skip_serializing_if = "is_zero")]
    pub warm_pool: Option<WarmPoolSpec>,
    /// Containerd.
    #[serde(skip_serializing_if = "is_zero")]
    pub containerd: Option<ContainerdConfig>,
    /// Packages.
    #[serde(skip_serializing_if = "is_zero")]
    pub packages: Vec<String>,
    /// Guest accelerators.
    #[serde(skip_serializing_if = "is_zero")]
    pub guest_accelerators: Vec<AcceleratorConfig>,
    /// Max instance lifetime.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_instance_lifetime: Option<Duration>,
    /// Gcp provisioning model.
    #[serde(skip_serializing_if = "is_zero")]
    pub gcp_provisioning_model: Option<String>,
}

/// `InstanceRootVolumeSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct InstanceRootVolumeSpec {
    /// Size.
    #[serde(skip_serializing_if = "is_zero")]
    pub size: Option<i32>,
    /// Type.
    #[serde(skip_serializing_if = "is_zero")]
    pub r#type: Option<String>,
    /// Iops.
    #[serde(skip_serializing_if = "is_zero")]
    pub iops: Option<i32>,
    /// Throughput.
    #[serde(skip_serializing_if = "is_zero")]
    pub throughput: Option<i32>,
    /// Optimization.
    #[serde(skip_serializing_if = "is_zero")]
    pub optimization: Option<bool>,
    /// Encryption.
    #[serde(skip_serializing_if = "is_zero")]
    pub encryption: Option<bool>,
    /// Encryption key.
    #[serde(skip_serializing_if = "is_zero")]
    pub encryption_key: Option<String>,
}

/// `InstanceMetadataOptions`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct InstanceMetadataOptions {
    /// Http put response hop limit.
    #[serde(skip_serializing_if = "is_zero")]
    pub http_put_response_hop_limit: Option<i64>,
    /// Http tokens.
    #[serde(skip_serializing_if = "is_zero")]
    pub http_tokens: Option<String>,
}

/// `MixedInstancesPolicySpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MixedInstancesPolicySpec {
    /// Instances.
    #[serde(skip_serializing_if = "is_zero")]
    pub instances: Vec<String>,
    /// Instance requirements.
    #[serde(skip_serializing_if = "is_zero")]
    pub instance_requirements: Option<InstanceRequirementsSpec>,
    /// On demand allocation strategy.
    #[serde(skip_serializing_if = "is_zero")]
    pub on_demand_allocation_strategy: Option<String>,
    /// On demand base.
    #[serde(skip_serializing_if = "is_zero")]
    pub on_demand_base: Option<i64>,
    /// On demand above base.
    #[serde(skip_serializing_if = "is_zero")]
    pub on_demand_above_base: Option<i64>,
    /// Spot allocation strategy.
    #[serde(skip_serializing_if = "is_zero")]
    pub spot_allocation_strategy: Option<String>,
    /// Spot instance pools.
    #[serde(skip_serializing_if = "is_zero")]
    pub spot_instance_pools: Option<i64>,
}

/// `InstanceRequirementsSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct InstanceRequirementsSpec {
    /// Cpu.
    #[serde(skip_serializing_if = "is_zero")]
    pub cpu: Option<MinMaxSpec>,
    /// Memory.
    #[serde(skip_serializing_if = "is_zero")]
    pub memory: Option<MinMaxSpec>,
    /// Excluded instance types.
    #[serde(skip_serializing_if = "is_zero")]
    pub excluded_instance_types: Vec<String>,
}

/// `MinMaxSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MinMaxSpec {
    /// Max.
    #[serde(skip_serializing_if = "is_zero")]
    pub max: Option<Quantity>,
    /// Min.
    #[serde(skip_serializing_if = "is_zero")]
    pub min: Option<Quantity>,
}

/// `UserData`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct UserData {
    /// Name.
    #[serde(skip_serializing_if = "is_zero")]
    pub name: String,
    /// Type.
    #[serde(skip_serializing_if = "is_zero")]
    pub r#type: String,
    /// Content.
    #[serde(skip_serializing_if = "is_zero")]
    pub content: String,
}

/// `VolumeSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VolumeSpec {
    /// Delete on termination.
    #[serde(skip_serializing_if = "is_zero")]
    pub delete_on_termination: Option<bool>,
    /// Device.
    #[serde(skip_serializing_if = "is_zero")]
    pub device: String,
    /// Encrypted.
    #[serde(skip_serializing_if = "is_zero")]
    pub encrypted: Option<bool>,
    /// Iops.
    #[serde(skip_serializing_if = "is_zero")]
    pub iops: Option<i64>,
    /// Throughput.
    #[serde(skip_serializing_if = "is_zero")]
    pub throughput: Option<i64>,
    /// Key.
    #[serde(skip_serializing_if = "is_zero")]
    pub key: Option<String>,
    /// Size.
    #[serde(skip_serializing_if = "is_zero")]
    pub size: i64,
    /// Type.
    #[serde(skip_serializing_if = "is_zero")]
    pub r#type: String,
}

/// `IAMProfileSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct IAMProfileSpec {
    /// Profile.
    #[serde(skip_serializing_if = "is_zero")]
    pub profile: Option<String>,
}

/// `LoadBalancerSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LoadBalancerSpec {
    /// Load balancer name.
    #[serde(skip_serializing_if = "is_zero")]
    pub load_balancer_name: Option<String>,
    /// Target group ARN.
    #[serde(rename = "targetGroupARN", skip_serializing_if = "is_zero")]
    pub target_group_arn: Option<String>,
}

/// `AcceleratorConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AcceleratorConfig {
    /// Accelerator count.
    #[serde(skip_serializing_if = "is_zero")]
    pub accelerator_count: i64,
    /// Accelerator type.
    #[serde(skip_serializing_if = "is_zero")]
    pub accelerator_type: String,
}
