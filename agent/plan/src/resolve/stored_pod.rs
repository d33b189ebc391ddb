//! Pods that kOps wrote into the state store. The machine runs them unchanged or with small additions.

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use kops_agent_spec::invalid::Invalid;
use kops_agent_spec::parse_yaml;
use kops_agent_spec::redaction::manifest::Manifest;

/// A pod manifest from the state store.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredPod {
    text: String,
    document: Map<String, Value>,
    spec: Map<String, Value>,
}

impl Serialize for StoredPod {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Manifest::read(&self.text).map(|manifest| manifest.shown()).serialize(serializer)
    }
}

impl StoredPod {
    /// Parses a pod. Problem texts contain `url`.
    pub(super) fn parse(text: &str, url: &str) -> Result<StoredPod, Invalid> {
        let document: Map<String, Value> =
            parse_yaml(text.as_bytes(), url).map_err(|error| error.to_string())?;
        let spec = match document.get("spec") {
            Some(Value::Object(spec)) => spec.clone(),
            _ => {
                return Err(Invalid::new(format!(
                    "{url} has no spec, so it is no pod; run `kops update cluster --yes`"
                )));
            }
        };
        for field in ["containers", "volumes"] {
            if !matches!(spec.get(field), None | Some(Value::Null | Value::Array(_))) {
                return Err(Invalid::new(format!(
                    "spec.{field} of {url} is no list; run `kops update cluster --yes`"
                )));
            }
        }
        Ok(StoredPod { text: text.to_owned(), document, spec })
    }

    /// The text of the manifest, unchanged.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The pod's containers, as the manifest has them.
    pub fn containers(&self) -> &[Value] {
        self.list("containers")
    }

    /// The pod's volumes, as the manifest has them.
    pub fn volumes(&self) -> &[Value] {
        self.list("volumes")
    }

    /// A copy of the pod with `value` in the field `field` of its security context.
    pub fn with_security_context(&self, field: &str, value: Value) -> Value {
        let mut spec = self.spec.clone();
        let mut context = spec.get("securityContext").and_then(Value::as_object).cloned().unwrap_or_default();
        context.insert(field.to_owned(), value);
        spec.insert("securityContext".to_owned(), context.into());
        let mut document = self.document.clone();
        document.insert("spec".to_owned(), spec.into());
        document.into()
    }

    fn list(&self, field: &str) -> &[Value] {
        self.spec.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    const URL: &str = "s3://clusters/c.example.com/manifests/pod.yaml";

    #[test]
    fn a_security_context_keeps_its_other_fields() {
        let text = "kind: Pod\nspec: {securityContext: {runAsUser: 1}, dnsPolicy: Default}\n";
        let pod = StoredPod::parse(text, URL).unwrap();
        assert_eq!(pod.text(), text);
        assert_eq!(
            pod.with_security_context("seLinuxOptions", json!({"level": "s0"})),
            json!({"kind": "Pod", "spec": {
                "dnsPolicy": "Default",
                "securityContext": {"runAsUser": 1, "seLinuxOptions": {"level": "s0"}},
            }})
        );
    }

    #[test]
    fn lists_are_unchanged_and_missing_lists_are_empty() {
        let pod = StoredPod::parse("spec: {containers: [{name: a, new: [1]}], volumes: null}", URL).unwrap();
        assert_eq!(pod.containers(), [json!({"name": "a", "new": [1]})]);
        assert!(pod.volumes().is_empty());
    }

    #[test]
    fn other_objects_than_pods_are_rejected_with_the_url() {
        for text in ["kind: Pod", "spec: {containers: {}}", "spec: [", ""] {
            let problem = StoredPod::parse(text, URL).unwrap_err();
            assert!(problem.to_string().contains(URL), "{problem}");
        }
    }
}
