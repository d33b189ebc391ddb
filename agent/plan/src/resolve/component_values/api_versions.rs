//! The API versions that `runtimeConfig` can switch on or off, by release.
//!
//! Source: the `install` packages in pkg/apis, and k8s.io/apiserver/pkg/server/resourceconfig.

use std::collections::BTreeMap;

use super::{Component, VersionedName};

/// Keys that each stand for many API versions.
const ALL: [&str; 4] = ["api/all", "api/alpha", "api/beta", "api/ga"];
/// The API groups of CustomResourceDefinitions and APIServices. Two separate servers inside kube-apiserver serve these
/// groups. `VERSIONS` and `VERSIONS_OF_SOME` do not list the versions of these groups.
const GROUPS_OF_OTHERS: [&str; 2] = ["apiextensions.k8s.io/", "apiregistration.k8s.io/"];
/// The API versions that all known Kubernetes releases have.
const VERSIONS: [&str; 49] = [
    "/v1",
    "admission.k8s.io/v1",
    "admission.k8s.io/v1beta1",
    "admissionregistration.k8s.io/v1",
    "admissionregistration.k8s.io/v1alpha1",
    "admissionregistration.k8s.io/v1beta1",
    "apps/v1",
    "apps/v1beta1",
    "apps/v1beta2",
    "authentication.k8s.io/v1",
    "authentication.k8s.io/v1alpha1",
    "authentication.k8s.io/v1beta1",
    "authorization.k8s.io/v1",
    "authorization.k8s.io/v1beta1",
    "autoscaling/v1",
    "autoscaling/v2",
    "batch/v1",
    "batch/v1beta1",
    "certificates.k8s.io/v1",
    "certificates.k8s.io/v1alpha1",
    "certificates.k8s.io/v1beta1",
    "coordination.k8s.io/v1",
    "coordination.k8s.io/v1beta1",
    "discovery.k8s.io/v1",
    "discovery.k8s.io/v1beta1",
    "events.k8s.io/v1",
    "events.k8s.io/v1beta1",
    "extensions/v1beta1",
    "flowcontrol.apiserver.k8s.io/v1",
    "flowcontrol.apiserver.k8s.io/v1beta1",
    "flowcontrol.apiserver.k8s.io/v1beta2",
    "flowcontrol.apiserver.k8s.io/v1beta3",
    "imagepolicy.k8s.io/v1alpha1",
    "internal.apiserver.k8s.io/v1alpha1",
    "networking.k8s.io/v1",
    "networking.k8s.io/v1beta1",
    "node.k8s.io/v1",
    "node.k8s.io/v1alpha1",
    "node.k8s.io/v1beta1",
    "policy/v1",
    "policy/v1beta1",
    "rbac.authorization.k8s.io/v1",
    "rbac.authorization.k8s.io/v1alpha1",
    "rbac.authorization.k8s.io/v1beta1",
    "scheduling.k8s.io/v1",
    "scheduling.k8s.io/v1beta1",
    "storage.k8s.io/v1",
    "storage.k8s.io/v1alpha1",
    "storage.k8s.io/v1beta1",
];
/// The API versions that only some releases have, each with the minor versions of these releases.
const VERSIONS_OF_SOME: [VersionedName; 14] = [
    ("autoscaling/v2beta1", 0..=35),
    ("autoscaling/v2beta2", 0..=35),
    ("coordination.k8s.io/v1alpha1", 31..=31),
    ("coordination.k8s.io/v1alpha2", 32..=u64::MAX),
    ("networking.k8s.io/v1alpha1", 0..=33),
    ("resource.k8s.io/v1", 34..=u64::MAX),
    ("resource.k8s.io/v1alpha2", 0..=30),
    ("resource.k8s.io/v1alpha3", 31..=u64::MAX),
    ("resource.k8s.io/v1beta1", 32..=u64::MAX),
    ("resource.k8s.io/v1beta2", 33..=u64::MAX),
    ("scheduling.k8s.io/v1alpha1", 0..=35),
    ("scheduling.k8s.io/v1alpha2", 36..=u64::MAX),
    ("storagemigration.k8s.io/v1alpha1", 30..=34),
    ("storagemigration.k8s.io/v1beta1", 35..=u64::MAX),
];

pub(super) fn check(component: &mut Component<'_>, runtime_config: &BTreeMap<String, String>) {
    const FIELD: &str = "runtimeConfig";
    for (key, value) in runtime_config {
        let is_many = ALL.contains(&key.as_str());
        // If the key names a single API version, an empty value means true. A value that is not empty must be a bool
        // for Go's `strconv.ParseBool`.
        let is_switch = match is_many {
            true => matches!(value.as_str(), "true" | "false"),
            false => value.is_empty() || crate::resolve::feature_gates::go_bool(value).is_some(),
        };
        if !is_switch {
            component.refuse_value(&format!("{FIELD}.{key}"), format!("{value:?}"), "use true or false");
        }
        if is_many || GROUPS_OF_OTHERS.iter().any(|group| key.starts_with(group)) {
            continue;
        }
        let parts: Vec<&str> = key.split('/').collect();
        match parts.as_slice() {
            [group, version] | [group, version, _] => {
                let version = format!("{group}/{version}");
                component.names(FIELD, "API version", [version.as_str()], &VERSIONS, &VERSIONS_OF_SOME);
            }
            _ => component.refuse_value(
                FIELD,
                format!("{key:?}"),
                "write GROUP/VERSION, such as batch/v1, or GROUP/VERSION/RESOURCE",
            ),
        }
        if let [_, _, resource] = parts.as_slice()
            && resource.to_lowercase() != **resource
        {
            component.refuse_value(FIELD, format!("{key:?}"), "write the resource in lower case");
        }
    }
    if runtime_config.len() == 1 && runtime_config.get(ALL[0]).is_some_and(|value| value == "false") {
        component.refuse_value(FIELD, "api/all=false alone", "also switch on the versions that you need");
        return;
    }
    // The API server itself needs flowcontrol.apiserver.k8s.io/v1.
    let needed = ["flowcontrol.apiserver.k8s.io/v1", "api/ga", "api/all"];
    let first = needed.iter().find_map(|key| Some((*key, runtime_config.get(*key)?)));
    if let Some((key, _)) = first.filter(|(_, value)| *value == "false") {
        component.refuse_value(
            FIELD,
            format!("{key}=false"),
            "remove it, or set flowcontrol.apiserver.k8s.io/v1 to true",
        );
    }
}

#[cfg(test)]
mod tests {
    use crate::resolve::component_values::testing::{API_SERVER, assert_accepted, assert_refused};

    #[test]
    fn versions_that_the_release_does_not_have_are_refused() {
        assert_refused(
            "1.34.0",
            API_SERVER,
            &[
                ("runtimeConfig: {settings.k8s.io/v1alpha1: 'true'}", "runtimeConfig"),
                ("runtimeConfig: {batch/v2alpha1: 'true'}", "runtimeConfig"),
                ("runtimeConfig: {v1: 'true'}", "runtimeConfig"),
                ("runtimeConfig: {batch/v1: 'on'}", "runtimeConfig.batch/v1"),
                ("runtimeConfig: {api/alpha: '1'}", "runtimeConfig.api/alpha"),
                ("runtimeConfig: {batch/v1/CronJobs: 'true'}", "runtimeConfig"),
                ("runtimeConfig: {api/all: 'false'}", "runtimeConfig"),
                ("runtimeConfig: {api/ga: 'false', apps/v1: 'true'}", "runtimeConfig"),
                ("runtimeConfig: {networking.k8s.io/v1alpha1: 'true'}", "runtimeConfig"),
            ],
        );
        assert_accepted("1.33.0", API_SERVER, &["runtimeConfig: {networking.k8s.io/v1alpha1: 'true'}"]);
        assert_accepted(
            "1.34.0",
            API_SERVER,
            &[
                "runtimeConfig: {api/all: 'true', batch/v1beta1: '', resource.k8s.io/v1beta1/deviceclasses: '1'}",
                "runtimeConfig: {apiextensions.k8s.io/v1: 'true', api/beta: 'false'}",
                "runtimeConfig: {api/ga: 'false', flowcontrol.apiserver.k8s.io/v1: 'true'}",
            ],
        );
    }
}
