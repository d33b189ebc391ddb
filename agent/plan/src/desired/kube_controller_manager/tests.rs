//! Tests that every setting becomes its flag, and that the user's own certificate replaces the
//! issued one.
#![allow(clippy::unwrap_used)]

use crate::resolve::testing::{api_server, control_plane};
use crate::resource::{Kind, ResourceId};

use super::*;

/// A value for every field that becomes a flag, except the fields that kOps sets itself.
const EVERY_FIELD: &str = r#"
master: "s11"
logFormat: "s12"
logLevel: 13
cloudProvider: "s15"
clusterName: "s16"
clusterCIDR: "s17"
allocateNodeCIDRs: false
nodeCIDRMaskSize: 19
configureCloudRoutes: false
controllers: [b21, a21]
cidrAllocatorType: "s22"
attachDetachReconcileSyncPeriod: 24m0s
disableAttachDetachReconcileSync: false
terminatedPodGCThreshold: 26
nodeMonitorPeriod: 27m0s
nodeMonitorGracePeriod: 28m0s
podEvictionTimeout: 29m0s
useServiceAccountCredentials: false
horizontalPodAutoscalerSyncPeriod: 31m0s
horizontalPodAutoscalerDownscaleDelay: 32m0s
horizontalPodAutoscalerDownscaleStabilization: 33m0s
horizontalPodAutoscalerUpscaleDelay: 34m0s
horizontalPodAutoscalerInitialReadinessDelay: 35m0s
horizontalPodAutoscalerCpuInitializationPeriod: 36m0s
horizontalPodAutoscalerTolerance: 3700m
horizontalPodAutoscalerUseRestClients: false
experimentalClusterSigningDuration: 39m0s
ClusterSigningDuration: 40m0s
featureGates: {AllBeta: "true", AllAlpha: "false"}
tlsCipherSuites: [b43, a43]
tlsMinVersion: "s44"
minResyncPeriod: "s46"
kubeAPIQPS: 4700m
kubeAPIBurst: 48
concurrentDeploymentSyncs: 49
concurrentEndpointSyncs: 50
concurrentNamespaceSyncs: 51
concurrentReplicasetSyncs: 52
concurrentServiceSyncs: 53
concurrentResourceQuotaSyncs: 54
concurrentServiceaccountTokenSyncs: 55
concurrentRCSyncs: 56
concurrentHorizontalPodAustoscalerSyncs: 57
concurrentJobSyncs: 58
authorizationAlwaysAllowPaths: [b61, a61]
externalCloudVolumePlugin: "s62"
endpointUpdatesBatchPeriod: 63m0s
endpointSliceUpdatesBatchPeriod: 64m0s
enableProfiling: false
enableContentionProfiling: false
enableLeaderMigration: false
"#;

const EVERY_FLAG: &str = r#"
--allocate-node-cidrs=false
--attach-detach-reconcile-sync-period=24m0s
--authentication-kubeconfig=/var/lib/kube-controller-manager/kubeconfig
--authorization-always-allow-paths=b61,a61
--authorization-kubeconfig=/var/lib/kube-controller-manager/kubeconfig
--cidr-allocator-type=s22
--cloud-provider=s15
--cluster-cidr=s17
--cluster-name=s16
--cluster-signing-cert-file=/srv/kubernetes/kube-controller-manager/ca.crt
--cluster-signing-duration=40m0s
--cluster-signing-key-file=/srv/kubernetes/kube-controller-manager/ca.key
--concurrent-deployment-syncs=49
--concurrent-endpoint-syncs=50
--concurrent-horizontal-pod-autoscaler-syncs=57
--concurrent-job-syncs=58
--concurrent-namespace-syncs=51
--concurrent-rc-syncs=56
--concurrent-replicaset-syncs=52
--concurrent-resource-quota-syncs=54
--concurrent-service-syncs=53
--concurrent-serviceaccount-token-syncs=55
--configure-cloud-routes=false
--contention-profiling=false
--controllers=b21,a21
--disable-attach-detach-reconcile-sync=false
--enable-leader-migration=false
--endpoint-updates-batch-period=1h3m0s
--endpointslice-updates-batch-period=1h4m0s
--experimental-cluster-signing-duration=39m0s
--external-cloud-volume-plugin=s62
--feature-gates=AllAlpha=false,AllBeta=true
--flex-volume-plugin-dir=/usr/libexec/kubernetes/kubelet-plugins/volume/exec/
--horizontal-pod-autoscaler-cpu-initialization-period=36m0s
--horizontal-pod-autoscaler-downscale-delay=32m0s
--horizontal-pod-autoscaler-downscale-stabilization=33m0s
--horizontal-pod-autoscaler-initial-readiness-delay=35m0s
--horizontal-pod-autoscaler-sync-period=31m0s
--horizontal-pod-autoscaler-tolerance=3.700
--horizontal-pod-autoscaler-upscale-delay=34m0s
--horizontal-pod-autoscaler-use-rest-clients=false
--kube-api-burst=48
--kube-api-qps=4.700
--kubeconfig=/var/lib/kube-controller-manager/kubeconfig
--logging-format=s12
--master=s11
--min-resync-period=s46
--node-cidr-mask-size=19
--node-monitor-grace-period=28m0s
--node-monitor-period=27m0s
--pod-eviction-timeout=29m0s
--profiling=false
--root-ca-file=/srv/kubernetes/ca.crt
--service-account-private-key-file=/srv/kubernetes/kube-controller-manager/service-account.key
--terminated-pod-gc-threshold=26
--tls-cert-file=/srv/kubernetes/kube-controller-manager/server.crt
--tls-cipher-suites=b43,a43
--tls-min-version=s44
--tls-private-key-file=/srv/kubernetes/kube-controller-manager/server.key
--use-service-account-credentials=false
--v=13
"#;

fn node_with(config: &str) -> NodeConfig {
    control_plane(|inputs| {
        let control_plane = inputs.config.control_plane_config.as_mut().unwrap();
        control_plane.kube_controller_manager = serde_yaml::from_str(config).unwrap();
    })
}

fn flags_of(config: &str) -> Vec<String> {
    let node = node_with(config);
    flags(&node, &node.control_plane().unwrap().kube_controller_manager)
}

fn state_of(node: &NodeConfig) -> DesiredState {
    let mut state = DesiredState::default();
    add(node, &mut state);
    state
}

#[test]
fn every_setting_becomes_its_flag() {
    assert_eq!(flags_of(EVERY_FIELD).join("\n"), EVERY_FLAG.trim());
}

#[test]
fn the_users_leader_election_settings_become_flags() {
    let flags = flags_of("{leaderElection: {leaderElect: true, leaderElectLeaseDuration: 1m0s}}");
    assert!(flags.contains(&"--leader-elect=true".to_owned()), "{flags:?}");
    assert!(flags.contains(&"--leader-elect-lease-duration=1m0s".to_owned()), "{flags:?}");
}

#[test]
fn the_users_certificate_replaces_the_issued_one() {
    let certificate = ResourceId::new(Kind::Certificate, "kube-controller-manager-server");
    assert!(state_of(&node_with("{}")).get(&certificate).is_some());
    assert!(
        state_of(&node_with("{tlsCertFile: /srv/kubernetes/kube-controller-manager/my.crt}"))
            .get(&certificate)
            .is_none()
    );
    let flags = flags_of(
        "{tlsCertFile: /srv/kubernetes/kube-controller-manager/my.crt, tlsPrivateKeyFile: /srv/kubernetes/kube-controller-manager/my.key}",
    );
    assert!(
        flags.contains(&"--tls-cert-file=/srv/kubernetes/kube-controller-manager/my.crt".to_owned()),
        "{flags:?}"
    );
    assert!(
        flags.contains(&"--tls-private-key-file=/srv/kubernetes/kube-controller-manager/my.key".to_owned()),
        "{flags:?}"
    );
}

#[test]
fn volume_plugins_have_kubelets_directory() {
    let node = control_plane(|inputs| {
        inputs.config.kubelet_config.volume_plugin_directory = "/plugins/".into();
    });
    let manifest = serde_json::to_string(&state_of(&node).iter().collect::<Vec<_>>()).unwrap();
    assert!(manifest.contains("--flex-volume-plugin-dir=/plugins/"), "{manifest}");
    assert!(manifest.contains("mountPath: /plugins/"), "{manifest}");
}

#[test]
fn a_dedicated_api_server_does_not_get_it() {
    assert!(state_of(&api_server(|_| {})).is_empty());
}
