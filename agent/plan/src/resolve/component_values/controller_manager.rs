//! Checks values of kube-controller-manager.

use kops_agent_spec::{Duration, KubeControllerManagerConfig};

use super::resources::Resources;
use super::{Component, controllers, leader_election, removed_flags, text};

/// The newest minor version with more than one value of `cidrAllocatorType`, which selects how nodes get their address ranges.
const LAST_WITH_CLOUD_RANGES: u64 = 31;
const SECOND: Duration = Duration::from_seconds(1);
const DEFAULT_NODE_PREFIX: [i32; 2] = [24, 64];
/// The maximum difference, in bits, between the prefix length of a node's IPv6 range and the prefix length of
/// the cluster's range.
const MOST_IPV6_BITS: i32 = 16;

pub(super) fn check(mut component: Component<'_>, config: &KubeControllerManagerConfig) {
    let component = &mut component;
    removed_flags::check_controller_manager(component, config);
    component.logging(&config.log_format, config.log_level);
    component.tls(&config.tls_min_version, &config.tls_cipher_suites);
    component.always_allow_paths(&config.authorization_always_allow_paths);
    controllers::check(component, &config.controllers);
    leader_election::check(component, config.leader_election.as_ref());
    check_clouds(component, config);
    check_node_ranges(component, config);
    check_requests(component, config);
    check_times(component, config);
    component.numbers(
        1..=i64::MAX,
        &[
            (
                "concurrentHorizontalPodAustoscalerSyncs",
                config.concurrent_horizontal_pod_austoscaler_syncs.map(i64::from),
            ),
            ("concurrentJobSyncs", config.concurrent_job_syncs.map(i64::from)),
        ],
    );
    warn_of_no_workers(component, config);
    let resources = Resources {
        cpu_request: config.cpu_request.as_ref(),
        usual_cpu_request: "100m",
        cpu_limit: config.cpu_limit.as_ref(),
        memory_request: config.memory_request.as_ref(),
        memory_limit: config.memory_limit.as_ref(),
    };
    resources.check(component);
}

fn check_clouds(component: &mut Component<'_>, config: &KubeControllerManagerConfig) {
    let has_cloud_ranges = component.version.minor() <= LAST_WITH_CLOUD_RANGES;
    let (clouds, allocators): (&[&str], &[&str]) = match has_cloud_ranges {
        true => (
            &["azure", "external", "gce", "vsphere"],
            &["CloudAllocator", "IPAMFromCloud", "IPAMFromCluster", "RangeAllocator"],
        ),
        false => (&["external"], &["RangeAllocator"]),
    };
    component.word("cloudProvider", &config.cloud_provider, clouds);
    let allocator = config.cidr_allocator_type.as_deref().unwrap_or_default();
    // kube-controller-manager up to 1.31 checks the allocator only if allocateNodeCIDRs is true. Newer versions always check it.
    if !has_cloud_ranges || config.allocate_node_cidrs == Some(true) {
        component.word("cidrAllocatorType", allocator, allocators);
    }
}

/// Checks the address ranges that kube-controller-manager divides among the nodes.
fn check_node_ranges(component: &mut Component<'_>, config: &KubeControllerManagerConfig) {
    let allocator = config.cidr_allocator_type.as_deref().unwrap_or_default();
    let is_divided =
        config.allocate_node_cidrs == Some(true) && controllers::runs_node_ipam(&config.controllers);
    if !is_divided || allocator == "CloudAllocator" {
        return;
    }
    if config.cluster_cidr.is_empty() {
        component.refuse("clusterCIDR", "is not set, which allocateNodeCIDRs needs; set it");
        return;
    }
    const FIELD: &str = "nodeCIDRMaskSize";
    let size = config.node_cidr_mask_size.filter(|size| *size != 0);
    let ranges = component.ranges("clusterCIDR", &config.cluster_cidr);
    if let ([_, _], Some(size)) = (ranges.as_slice(), size) {
        component.refuse_value(
            FIELD,
            size,
            "remove it: with two ranges in clusterCIDR, each has its own size",
        );
        return;
    }
    for range in ranges {
        let is_ipv6 = range.addr().is_ipv6();
        let length = i32::from(range.prefix_len());
        let size_of_node = size.unwrap_or(DEFAULT_NODE_PREFIX[usize::from(is_ipv6)]);
        let problem = match size_of_node - length {
            ..0 => format!("use a prefix length of {length} or more, as clusterCIDR is {range}"),
            more if is_ipv6 && more > MOST_IPV6_BITS => {
                format!(
                    "use a prefix length of {} or less, as clusterCIDR is {range}",
                    length + MOST_IPV6_BITS
                )
            }
            _ => continue,
        };
        component.refuse_value(FIELD, size_of_node, problem);
    }
}

fn check_requests(component: &mut Component<'_>, config: &KubeControllerManagerConfig) {
    let rate = config.kube_api_qps.as_ref();
    let is_limited = rate.and_then(|rate| rate.as_f64()).is_none_or(|rate| rate > 0.0);
    let burst = config.kube_api_burst.map(i64::from).filter(|_| is_limited);
    component.numbers(1..=i64::MAX, &[("kubeAPIBurst", burst)]);
}

fn check_times(component: &mut Component<'_>, config: &KubeControllerManagerConfig) {
    if let Some(period) = config.attach_detach_reconcile_sync_period.filter(|period| *period < SECOND) {
        component.refuse_value("attachDetachReconcileSyncPeriod", period, "use 1s or more");
    }
    let resync = config.min_resync_period.as_str();
    if !resync.is_empty() && resync.parse::<Duration>().is_err() {
        component.refuse_value("minResyncPeriod", format!("{resync:?}"), "write a duration, such as 12h");
    }
    component.warn_of_negative(&[
        ("ClusterSigningDuration", text(config.cluster_signing_duration)),
        ("endpointSliceUpdatesBatchPeriod", text(config.endpoint_slice_updates_batch_period)),
        ("endpointUpdatesBatchPeriod", text(config.endpoint_updates_batch_period)),
        (
            "horizontalPodAutoscalerCpuInitializationPeriod",
            text(config.horizontal_pod_autoscaler_cpu_initialization_period),
        ),
        (
            "horizontalPodAutoscalerDownscaleStabilization",
            text(config.horizontal_pod_autoscaler_downscale_stabilization),
        ),
        (
            "horizontalPodAutoscalerInitialReadinessDelay",
            text(config.horizontal_pod_autoscaler_initial_readiness_delay),
        ),
        ("horizontalPodAutoscalerSyncPeriod", text(config.horizontal_pod_autoscaler_sync_period)),
        ("horizontalPodAutoscalerTolerance", text(config.horizontal_pod_autoscaler_tolerance.as_ref())),
        ("minResyncPeriod", resync.parse::<Duration>().ok().map(|period| period.to_string())),
        ("nodeMonitorGracePeriod", text(config.node_monitor_grace_period)),
        ("nodeMonitorPeriod", text(config.node_monitor_period)),
    ]);
}

/// Warns of controllers without a worker, because such controllers do nothing.
fn warn_of_no_workers(component: &mut Component<'_>, config: &KubeControllerManagerConfig) {
    for (field, workers) in [
        ("concurrentDeploymentSyncs", config.concurrent_deployment_syncs),
        ("concurrentEndpointSyncs", config.concurrent_endpoint_syncs),
        ("concurrentNamespaceSyncs", config.concurrent_namespace_syncs),
        ("concurrentRCSyncs", config.concurrent_rc_syncs),
        ("concurrentReplicasetSyncs", config.concurrent_replicaset_syncs),
        ("concurrentResourceQuotaSyncs", config.concurrent_resource_quota_syncs),
        ("concurrentServiceSyncs", config.concurrent_service_syncs),
        ("concurrentServiceaccountTokenSyncs", config.concurrent_serviceaccount_token_syncs),
    ] {
        if let Some(workers) = workers.filter(|workers| *workers < 1) {
            component.warn(field, format!("is {workers}, so this controller does nothing; use 1 or more"));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::resolve::component_values::testing::{
        CONTROLLER_MANAGER, assert_accepted, assert_refused, assert_warned,
    };

    #[test]
    fn values_that_kube_controller_manager_rejects_are_refused() {
        assert_refused(
            "1.34.0",
            CONTROLLER_MANAGER,
            &[
                ("logFormat: xml", "logFormat"),
                ("tlsMinVersion: '1.2'", "tlsMinVersion"),
                ("cloudProvider: aws", "cloudProvider"),
                ("cidrAllocatorType: CloudAllocator", "cidrAllocatorType"),
                ("{allocateNodeCIDRs: true}", "clusterCIDR"),
                ("{allocateNodeCIDRs: true, clusterCIDR: 10.0.0.0}", "clusterCIDR"),
                (
                    "{allocateNodeCIDRs: true, clusterCIDR: 10.0.0.0/24, nodeCIDRMaskSize: 20}",
                    "nodeCIDRMaskSize",
                ),
                ("{allocateNodeCIDRs: true, clusterCIDR: 10.0.0.0/25}", "nodeCIDRMaskSize"),
                ("{allocateNodeCIDRs: true, clusterCIDR: 'fd00::/40'}", "nodeCIDRMaskSize"),
                (
                    "{allocateNodeCIDRs: true, clusterCIDR: '10.0.0.0/16,fd00::/56', nodeCIDRMaskSize: 24}",
                    "nodeCIDRMaskSize",
                ),
                ("kubeAPIBurst: 0", "kubeAPIBurst"),
                ("{kubeAPIBurst: -1, kubeAPIQPS: 5}", "kubeAPIBurst"),
                ("attachDetachReconcileSyncPeriod: 500ms", "attachDetachReconcileSyncPeriod"),
                ("minResyncPeriod: '12'", "minResyncPeriod"),
                ("concurrentJobSyncs: 0", "concurrentJobSyncs"),
                ("concurrentHorizontalPodAustoscalerSyncs: -1", "concurrentHorizontalPodAustoscalerSyncs"),
                ("authorizationAlwaysAllowPaths: ['**']", "authorizationAlwaysAllowPaths[0]"),
            ],
        );
        let allocator = "{allocateNodeCIDRs: true, clusterCIDR: 10.0.0.0/16, cidrAllocatorType: Range}";
        assert_refused("1.30.0", CONTROLLER_MANAGER, &[(allocator, "cidrAllocatorType")]);
    }

    #[test]
    fn values_that_kube_controller_manager_accepts_are_accepted() {
        assert_accepted(
            "1.34.0",
            CONTROLLER_MANAGER,
            &[
                "{cloudProvider: external, cidrAllocatorType: RangeAllocator, allocateNodeCIDRs: true, clusterCIDR: 100.96.0.0/11}",
                "{allocateNodeCIDRs: true, clusterCIDR: '10.0.0.0/16,fd00::/56'}",
                "{allocateNodeCIDRs: true, clusterCIDR: 'fd00::/48'}",
                "{allocateNodeCIDRs: false, clusterCIDR: '', kubeAPIQPS: -1, kubeAPIBurst: 0}",
                "{allocateNodeCIDRs: true, clusterCIDR: 10.0.0.0/25, controllers: ['*', '-nodeipam']}",
                "{allocateNodeCIDRs: true, clusterCIDR: 10.0.0.0/25, controllers: ['*,-node-ipam-controller']}",
                "{allocateNodeCIDRs: true, clusterCIDR: 10.0.0.0/25, controllers: [tokencleaner]}",
                "tlsCipherSuites: ['TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256']",
                "{minResyncPeriod: 12h, terminatedPodGCThreshold: -1, concurrentJobSyncs: 1, attachDetachReconcileSyncPeriod: 1s}",
            ],
        );
        assert_accepted(
            "1.30.0",
            CONTROLLER_MANAGER,
            &["{cloudProvider: gce, cidrAllocatorType: CloudAllocator}"],
        );
    }

    #[test]
    fn values_without_a_meaning_give_a_warning() {
        assert_warned(
            "1.34.0",
            CONTROLLER_MANAGER,
            &[
                ("nodeMonitorGracePeriod: -40s", "nodeMonitorGracePeriod"),
                ("horizontalPodAutoscalerTolerance: -100m", "horizontalPodAutoscalerTolerance"),
                ("minResyncPeriod: -1h", "minResyncPeriod"),
                ("concurrentDeploymentSyncs: 0", "concurrentDeploymentSyncs"),
                ("concurrentRCSyncs: -5", "concurrentRCSyncs"),
            ],
        );
    }
}
