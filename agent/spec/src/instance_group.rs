//! An instance group: machines that all have the same configuration.

mod instance_group_spec;

use serde::Deserialize;
use serde_json::Value;

pub use instance_group_spec::*;

use super::error::SpecError;
use super::field_warnings::{FieldWarning, warnings};
use super::metadata::{ApiVersion, ObjectMeta, version_of};
use super::respell::{Move, Respelling, moved};
use super::yaml::parse_document;

/// An instance group as the user wrote it. Whatever the file's apiVersion, the fields have the names of kOps' internal API.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct InstanceGroup {
    pub metadata: ObjectMeta,
    pub spec: InstanceGroupSpec,
}

/// The differences between v1alpha2 and the internal version (upstream: `pkg/apis/kops/v1alpha2/conversion.go`).
///
/// A group's hook with `disabled: true` becomes a hook with `enabled: true`, so the hook runs. Upstream inverts the value only for the
/// hooks of clusters. kops-agent copies this error, because it must make the node that nodeup makes.
const V1ALPHA2: &[Move] = &[
    moved("spec.associatePublicIp", "spec.associatePublicIP"),
    moved("spec.externalLoadBalancers[].targetGroupArn", "spec.externalLoadBalancers[].targetGroupARN"),
    moved("spec.hooks[].disabled", "spec.hooks[].enabled"),
    moved("spec.kubelet.clientCaFile", "spec.kubelet.clientCAFile"),
    moved(
        "spec.kubelet.authenticationTokenWebhookCacheTtl",
        "spec.kubelet.authenticationTokenWebhookCacheTTL",
    ),
    moved("spec.rootVolumeEncryption", "spec.rootVolume.encryption"),
    moved("spec.rootVolumeEncryptionKey", "spec.rootVolume.encryptionKey"),
    moved("spec.rootVolumeIops", "spec.rootVolume.iops"),
    moved("spec.rootVolumeOptimization", "spec.rootVolume.optimization"),
    moved("spec.rootVolumeSize", "spec.rootVolume.size"),
    moved("spec.rootVolumeThroughput", "spec.rootVolume.throughput"),
    moved("spec.rootVolumeType", "spec.rootVolume.type"),
];

impl InstanceGroup {
    /// Reads an InstanceGroup of v1alpha2 or v1alpha3. Errors contain `url`, and the names of fields as in the file.
    pub fn parse(text: &[u8], url: &str) -> Result<InstanceGroup, SpecError> {
        InstanceGroup::from_document(parse_document(text, url)?, url)
    }

    /// Like [`InstanceGroup::parse`], for a document that is already parsed.
    pub fn from_document(document: Value, url: &str) -> Result<InstanceGroup, SpecError> {
        InstanceGroup::with_role(document, url)?.read()
    }

    /// Like [`InstanceGroup::from_document`], for a document that a user wrote. Like kOps, rejects a number or a boolean in place of a
    /// string.
    pub fn from_manifest(document: Value, url: &str) -> Result<InstanceGroup, SpecError> {
        InstanceGroup::with_role(document, url)?.read_manifest()
    }

    fn with_role(document: Value, url: &str) -> Result<Respelling<'_>, SpecError> {
        let respelling = InstanceGroup::respelled(document, url)?;
        if respelling.get("spec.role").is_none() {
            return respelling
                .refuse("spec.role", "it is missing; write ControlPlane, APIServer, Node or Bastion");
        }
        Ok(respelling)
    }

    /// The fields of an InstanceGroup that the agent does not read. They are misspelled, of another API version, or newer than this agent.
    pub fn ignored_fields(text: &[u8], url: &str) -> Result<Vec<String>, SpecError> {
        Ok(InstanceGroup::respelled(parse_document(text, url)?, url)?.ignored::<InstanceGroup>())
    }

    /// Warnings about fields of an InstanceGroup that cause no error: ignored, removed and deprecated fields.
    pub fn warnings(text: &[u8], url: &str) -> Result<Vec<FieldWarning>, SpecError> {
        InstanceGroup::warnings_of(&parse_document(text, url)?, url)
    }

    /// Like [`InstanceGroup::warnings`], for a document that is already parsed.
    pub fn warnings_of(document: &Value, url: &str) -> Result<Vec<FieldWarning>, SpecError> {
        let ignored = InstanceGroup::respelled(document.clone(), url)?.ignored::<InstanceGroup>();
        Ok(warnings(document, ignored))
    }

    fn respelled(document: Value, url: &str) -> Result<Respelling<'_>, SpecError> {
        let version = version_of(&document, url, "InstanceGroup")?;
        let mut respelling = Respelling::new(document, url);
        if version == ApiVersion::V1Alpha2 {
            respelling.apply(V1ALPHA2)?;
        }
        Ok(respelling)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::InstanceGroupRole;

    const URL: &str = "s3://clusters/c.example.com/instancegroup/nodes";

    fn parse(text: &str) -> InstanceGroup {
        InstanceGroup::parse(text.as_bytes(), URL).unwrap()
    }

    #[test]
    fn ignored_fields_are_named_in_the_users_spelling() {
        let text = "kind: InstanceGroup\nmetadata: {name: n, generation: 1}\n\
                    spec:\n  role: Node\n  machinType: m5.large\n  kubelet: {maxPod: 3, maxPods: 4}\n";
        assert_eq!(
            InstanceGroup::ignored_fields(text.as_bytes(), URL).unwrap(),
            ["spec.kubelet.maxPod", "spec.machinType"]
        );
    }

    #[test]
    fn both_versions_give_the_same_group() {
        let old = parse(
            r#"
apiVersion: kops.k8s.io/v1alpha2
kind: InstanceGroup
metadata: {name: nodes}
spec:
  role: Master
  associatePublicIp: true
  externalLoadBalancers: [{targetGroupArn: arn}]
  hooks: [{name: a, enabled: false}]
  kubelet: {clientCaFile: /ca, maxPods: 20}
  rootVolumeEncryption: true
  rootVolumeEncryptionKey: key
  rootVolumeIops: 300
  rootVolumeOptimization: true
  rootVolumeSize: 33
  rootVolumeThroughput: 421
  rootVolumeType: gp3
"#,
        );
        let new = parse(
            r#"
apiVersion: kops.k8s.io/v1alpha3
kind: InstanceGroup
metadata: {name: nodes}
spec:
  role: ControlPlane
  associatePublicIP: true
  externalLoadBalancers: [{targetGroupARN: arn}]
  hooks: [{name: a, enabled: false}]
  kubelet: {clientCAFile: /ca, maxPods: 20}
  rootVolume:
    {encryption: true, encryptionKey: key, iops: 300, optimization: true, size: 33, throughput: 421, type: gp3}
"#,
        );
        assert_eq!(old, new);
        assert_eq!(old.spec.role, InstanceGroupRole::ControlPlane);
    }

    #[test]
    fn a_disabled_hook_of_a_group_is_enabled_as_in_upstream() {
        let group = parse("spec: {role: Node, hooks: [{disabled: true}, {disabled: false}, {}]}");
        let enabled: Vec<Option<bool>> = group.spec.hooks.iter().map(|hook| hook.enabled).collect();
        assert_eq!(enabled, [Some(true), Some(false), None]);
    }

    #[test]
    fn errors_spell_fields_as_the_file_does() {
        for (text, field) in [
            ("spec: {role: Node, rootVolumeSize: big}", "spec.rootVolumeSize"),
            ("spec: {role: Worker}", "spec.role"),
            ("spec: {}", "spec.role"),
            ("spec: {role: Node, hooks: [{}, {roles: [Worker]}]}", "spec.hooks[1].roles[0]"),
            ("kind: Cluster", "kind"),
        ] {
            let error = InstanceGroup::parse(text.as_bytes(), URL).unwrap_err();
            assert_eq!((error.field.as_str(), error.source_file.as_str()), (field, URL), "{error}");
        }
    }
}
