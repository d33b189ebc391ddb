//! The controllers of kube-controller-manager, by release.
//!
//! Source: cmd/kube-controller-manager/names, and the descriptors with their aliases in cmd/kube-controller-manager/app.

use super::{Component, VersionedName, items};

/// The controllers' names and aliases that all known Kubernetes releases have.
const CONTROLLERS: [&str; 85] = [
    "attachdetach",
    "bootstrap-signer-controller",
    "bootstrapsigner",
    "certificatesigningrequest-approving-controller",
    "certificatesigningrequest-cleaner-controller",
    "certificatesigningrequest-signing-controller",
    "cloud-node-lifecycle",
    "cloud-node-lifecycle-controller",
    "clusterrole-aggregation",
    "clusterrole-aggregation-controller",
    "cronjob",
    "cronjob-controller",
    "csrapproving",
    "csrcleaner",
    "csrsigning",
    "daemonset",
    "daemonset-controller",
    "deployment",
    "deployment-controller",
    "disruption",
    "disruption-controller",
    "endpoint",
    "endpoints-controller",
    "endpointslice",
    "endpointslice-controller",
    "endpointslice-mirroring-controller",
    "endpointslicemirroring",
    "ephemeral-volume",
    "ephemeral-volume-controller",
    "garbage-collector-controller",
    "garbagecollector",
    "horizontal-pod-autoscaler-controller",
    "horizontalpodautoscaling",
    "job",
    "job-controller",
    "legacy-service-account-token-cleaner",
    "legacy-serviceaccount-token-cleaner-controller",
    "namespace",
    "namespace-controller",
    "node-ipam-controller",
    "node-lifecycle-controller",
    "node-route-controller",
    "nodeipam",
    "nodelifecycle",
    "persistentvolume-attach-detach-controller",
    "persistentvolume-binder",
    "persistentvolume-binder-controller",
    "persistentvolume-expander",
    "persistentvolume-expander-controller",
    "persistentvolume-protection-controller",
    "persistentvolumeclaim-protection-controller",
    "pod-garbage-collector-controller",
    "podgc",
    "pv-protection",
    "pvc-protection",
    "replicaset",
    "replicaset-controller",
    "replicationcontroller",
    "replicationcontroller-controller",
    "resource-claim-controller",
    "resourceclaim-controller",
    "resourcequota",
    "resourcequota-controller",
    "root-ca-cert-publisher",
    "root-ca-certificate-publisher-controller",
    "route",
    "service",
    "service-cidr-controller",
    "service-lb-controller",
    "serviceaccount",
    "serviceaccount-controller",
    "serviceaccount-token",
    "serviceaccount-token-controller",
    "statefulset",
    "statefulset-controller",
    "storage-version-gc",
    "storageversion-garbage-collector-controller",
    "taint-eviction-controller",
    "token-cleaner-controller",
    "tokencleaner",
    "ttl",
    "ttl-after-finished",
    "ttl-after-finished-controller",
    "ttl-controller",
    "validatingadmissionpolicy-status-controller",
];
/// The controllers' names and aliases that only some Kubernetes releases have, each with the minor versions of these releases.
const CONTROLLERS_OF_SOME: [VersionedName; 9] = [
    ("device-taint-eviction-controller", 33..=u64::MAX),
    ("kube-apiserver-serving-clustertrustbundle-publisher-controller", 32..=u64::MAX),
    ("podcertificaterequest-cleaner-controller", 34..=u64::MAX),
    ("podgroup-protection-controller", 36..=u64::MAX),
    ("resourcepoolstatusrequest-controller", 36..=u64::MAX),
    ("selinux-warning-controller", 32..=u64::MAX),
    ("storage-version-migrator-controller", 30..=u64::MAX),
    ("svm", 30..=u64::MAX),
    ("volumeattributesclass-protection-controller", 32..=u64::MAX),
];

/// The name and the alias of the controller that assigns address ranges to nodes.
const NODE_IPAM: [&str; 2] = ["node-ipam-controller", "nodeipam"];

/// Whether kube-controller-manager runs the controller that assigns address ranges to nodes. If `controllers` is empty, all controllers
/// run.
pub(super) fn runs_node_ipam(controllers: &[String]) -> bool {
    let names = || items(controllers).map(|(_, name)| name);
    let is_excluded =
        names().any(|name| name.strip_prefix('-').is_some_and(|name| NODE_IPAM.contains(&name)));
    let is_named = || names().any(|name| name == "*" || NODE_IPAM.contains(&name));
    controllers.is_empty() || !is_excluded && is_named()
}

/// Checks names of controllers. `*` enables the default controllers, and a `-` before a name disables the controller.
pub(super) fn check(component: &mut Component<'_>, names: &[String]) {
    let names = items(names).map(|(_, name)| name).filter(|name| *name != "*");
    let names = names.map(|name| name.strip_prefix('-').unwrap_or(name));
    component.names("controllers", "controller", names, &CONTROLLERS, &CONTROLLERS_OF_SOME);
}

#[cfg(test)]
mod tests {
    use crate::resolve::component_values::testing::{CONTROLLER_MANAGER, assert_accepted, assert_refused};

    #[test]
    fn controllers_that_the_release_does_not_have_are_refused() {
        let newer = "controllers: ['*', selinux-warning-controller]";
        assert_refused(
            "1.31.0",
            CONTROLLER_MANAGER,
            &[
                ("controllers: ['*', tokens]", "controllers"),
                ("controllers: ['*', '-nodeipam-controller']", "controllers"),
                (newer, "controllers"),
            ],
        );
        assert_accepted(
            "1.32.0",
            CONTROLLER_MANAGER,
            &["controllers: ['*', '-nodeipam', tokencleaner, endpointslice-controller]", newer],
        );
    }
}
