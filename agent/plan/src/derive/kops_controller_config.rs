//! Finds kops-controller's configuration. kOps writes it into a ConfigMap among the addons, whose manifests are in the state store
//! (upstream: `upup/models/cloudup/resources/addons/kops-controller.addons.k8s.io`).

use std::collections::BTreeMap;

use kops_agent_spec::invalid::Invalid;
use kops_agent_spec::yaml;
use serde::Deserialize;

/// The folder of kops-controller's manifests among the addons.
const ADDON: &str = "kops-controller.addons.k8s.io/";
const NAME: &str = "kops-controller";
const KEY: &str = "config.yaml";

#[derive(Deserialize)]
struct Object {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    data: serde_json::Value,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Metadata {
    name: String,
}

/// The addon manifest with kops-controller's configuration. `manifests` are paths below `addons`.
pub fn kops_controller_manifest<'a>(manifests: impl IntoIterator<Item = &'a String>) -> Option<&'a str> {
    manifests.into_iter().map(String::as_str).find(|path| path.starts_with(ADDON))
}

/// Finds kops-controller's configuration in the text of its addon manifest.
pub fn kops_controller_config(manifest: &str) -> Result<String, Invalid> {
    for document in yaml::documents::<Option<Object>>(manifest) {
        let object = document.map_err(|error| format!("it is no YAML: {error}"))?;
        let Some(object) = object.filter(|object| object.kind == "ConfigMap" && object.metadata.name == NAME)
        else {
            continue;
        };
        let data: BTreeMap<String, String> = serde_json::from_value(object.data).unwrap_or_default();
        if let Some(config) = data.get(KEY) {
            return Ok(config.clone());
        }
    }
    Err(Invalid::new(format!("there is no ConfigMap {NAME} with {KEY} in it")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use kops_agent_spec::{CloudProvider, KopsControllerOptions};

    use super::*;
    use kops_agent_cluster::takeover::left_to_upstream;

    const MANIFEST: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: kops-controller\n  namespace: kube-system\ndata:\n  \
                            config.yaml: |\n    {\"clusterName\":\"c\"}\n---\napiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: kops-controller}\n";

    #[test]
    fn the_configuration_comes_from_the_config_map() {
        assert_eq!(kops_controller_config(MANIFEST).unwrap(), "{\"clusterName\":\"c\"}\n");
        let behind =
            format!("---\nkind: ServiceAccount\nmetadata: {{name: kops-controller}}\n---\n{MANIFEST}");
        assert!(kops_controller_config(&behind).is_ok());
    }

    /// The docs have a ConfigMap for Linode, because kOps does not write kops-controller's ConfigMap on Linode.
    #[test]
    fn the_config_map_in_the_docs_for_linode_is_valid() {
        let page = include_str!("../../../../docs/clouds-and-stores.md");
        let section = page.split("\n## Linode\n").nth(1).unwrap();
        let manifest = section.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
        let config = kops_controller_config(manifest).unwrap().replace("CLUSTER", "c.example.com");
        let options = KopsControllerOptions::parse(config.as_bytes(), "config.yaml").unwrap();
        assert_eq!((options.cloud, left_to_upstream(&options)), (CloudProvider::Linode, None));
        let of_document: serde_json::Value = serde_yaml::from_str(&config).unwrap();
        assert_eq!(serde_json::to_value(&options).unwrap(), of_document, "it says nothing that is not read");
        let server = options.server.unwrap();
        assert_eq!(server.provider.others.keys().collect::<Vec<_>>(), [options.cloud.id()]);
        assert_eq!((server.listen.as_str(), server.signing_cas.len()), (":3988", 1));
        assert_eq!(server.cert_names, ["kubelet", "kubelet-server", "kube-proxy"]);
    }

    #[test]
    fn a_manifest_without_a_configuration_is_an_error() {
        for (manifest, expected) in [
            ("", "no ConfigMap"),
            ("kind: ConfigMap\nmetadata: {name: other}\ndata: {config.yaml: x}\n", "no ConfigMap"),
            ("kind: ConfigMap\nmetadata: {name: kops-controller}\ndata: {other: x}\n", "no ConfigMap"),
            ("kind: [\n", "no YAML"),
        ] {
            let error = kops_controller_config(manifest).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn the_manifest_is_found_by_the_addons_name() {
        let manifests = ["a/b.yaml".to_owned(), "kops-controller.addons.k8s.io/k8s-1.16.yaml".to_owned()];
        assert_eq!(kops_controller_manifest(&manifests), Some(manifests[1].as_str()));
        assert_eq!(kops_controller_manifest(&manifests[..1]), None);
    }
}
