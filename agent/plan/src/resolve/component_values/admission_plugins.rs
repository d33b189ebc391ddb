//! The admission plugins of the API server, by release.
//!
//! Source: `AllOrderedPlugins` in pkg/kubeapiserver/options/plugins.go.

use std::collections::BTreeSet;

use kops_agent_spec::KubeAPIServerConfig;

use super::{Component, VersionedName, items};

/// The admission plugins that all known Kubernetes releases have.
const PLUGINS: [&str; 34] = [
    "AlwaysAdmit",
    "AlwaysDeny",
    "AlwaysPullImages",
    "CertificateApproval",
    "CertificateSigning",
    "CertificateSubjectRestriction",
    "ClusterTrustBundleAttest",
    "DefaultIngressClass",
    "DefaultStorageClass",
    "DefaultTolerationSeconds",
    "DenyServiceExternalIPs",
    "EventRateLimit",
    "ExtendedResourceToleration",
    "ImagePolicyWebhook",
    "LimitPodHardAntiAffinityTopology",
    "LimitRanger",
    "MutatingAdmissionWebhook",
    "NamespaceAutoProvision",
    "NamespaceExists",
    "NamespaceLifecycle",
    "NodeRestriction",
    "OwnerReferencesPermissionEnforcement",
    "PersistentVolumeClaimResize",
    "PodNodeSelector",
    "PodSecurity",
    "PodTolerationRestriction",
    "Priority",
    "ResourceQuota",
    "RuntimeClass",
    "ServiceAccount",
    "StorageObjectInUseProtection",
    "TaintNodesByCondition",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionWebhook",
];
/// The admission plugins that only some Kubernetes releases have, each with the minor versions of these releases.
const PLUGINS_OF_SOME: [VersionedName; 9] = [
    ("JobValidation", 36..=u64::MAX),
    ("MutatingAdmissionPolicy", 32..=u64::MAX),
    ("NodeDeclaredFeatureValidator", 35..=u64::MAX),
    ("PersistentVolumeLabel", 0..=30),
    ("PodGroupProtection", 36..=u64::MAX),
    ("PodGroupWorkloadExists", 36..=u64::MAX),
    ("PodResizeValidator", 36..=u64::MAX),
    ("PodTopologyLabels", 33..=u64::MAX),
    ("SecurityContextDeny", 0..=29),
];

pub(super) fn check(component: &mut Component<'_>, config: &KubeAPIServerConfig) {
    let (enabled, disabled) = (&config.enable_admission_plugins, &config.disable_admission_plugins);
    for (field, names) in [("enableAdmissionPlugins", enabled), ("disableAdmissionPlugins", disabled)] {
        // A list with one empty entry counts as an empty list.
        let is_empty = names.iter().all(String::is_empty) && names.len() < 2;
        let names = items(names).filter(|_| !is_empty).map(|(_, name)| name);
        component.names(field, "admission plugin", names, &PLUGINS, &PLUGINS_OF_SOME);
    }
    let disabled: BTreeSet<&String> = disabled.iter().collect();
    for name in enabled.iter().filter(|name| disabled.contains(name)) {
        component.refuse(
            "disableAdmissionPlugins",
            format!(
                "has {name}, which enableAdmissionPlugins has too, so {} does not start; remove it from one of the two lists",
                component.name
            ),
        );
    }
}

#[cfg(test)]
mod tests {
    use crate::resolve::component_values::testing::{API_SERVER, assert_accepted, assert_refused};

    #[test]
    fn plugins_that_the_release_does_not_have_are_refused() {
        assert_refused(
            "1.34.0",
            API_SERVER,
            &[
                ("enableAdmissionPlugins: [NodeRestriction, PodSecurityPolicy]", "enableAdmissionPlugins"),
                ("disableAdmissionPlugins: [SecurityContextDeny]", "disableAdmissionPlugins"),
                ("admissionControl: [Initializers]", "enableAdmissionPlugins"),
                (
                    "{enableAdmissionPlugins: [Priority], disableAdmissionPlugins: [Priority]}",
                    "disableAdmissionPlugins",
                ),
            ],
        );
        let set = "enableAdmissionPlugins: [MutatingAdmissionPolicy]";
        assert_refused("1.31.0", API_SERVER, &[(set, "enableAdmissionPlugins")]);
        assert_accepted("1.32.0", API_SERVER, &[set]);
        assert_accepted(
            "1.29.0",
            API_SERVER,
            &["disableAdmissionPlugins: [SecurityContextDeny, PersistentVolumeLabel]"],
        );
    }
}
