//! Shows a node's configuration for `config dump`: without free text, and without credentials in URLs.

use serde_json::Value;

use super::without_logins;
use crate::resolve::NodeConfig;
use kops_agent_spec::free_text;
use kops_agent_spec::redaction::MARK;

#[must_use]
pub fn node(node: &NodeConfig) -> Value {
    // Serialization cannot fail, because every value of this type has a JSON form.
    document(serde_json::to_value(node).unwrap_or_default())
}

/// Hides the free text of a document: texts that kOps passes on without interpreting them, such as the contents of files. Also hides the
/// credentials in URLs.
#[must_use]
pub fn document(mut document: Value) -> Value {
    free_text::for_each(&mut document, &mut |value| *value = Value::from(MARK));
    without_logins(document)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;
    use crate::resolve::testing::control_plane;
    use kops_agent_spec::NodeupConfig;

    #[test]
    fn free_text_is_hidden_in_the_spec_and_in_the_resolved_node() {
        let custom = json!({
            "FileAssets": [
                {"name": "a", "path": "/a", "content": "hunter2-a", "mode": "0644"},
                {"name": "b", "path": "/b", "content": "aHVudGVyMi1i", "isBase64": true},
            ],
            "Hooks": [[
                {"name": "raw", "manifest": "[Service]\nEnvironment=A=hunter2-c\n", "useRawManifest": true},
                {"name": "section", "manifest": "Environment=A=hunter2-d\n"},
                {"name": "run", "execContainer": {"image": "busybox", "command": ["hunter2-e"], "environment": {"A_NAME": "hunter2-f"}}},
            ], []],
            "containerdConfig": {
                "version": "2.1.4",
                "configAdditions": {"plugins.\"a\".auth.password": "hunter2-g"},
                "registryMirrors": {"*": ["https://robot:hunter2-h@mirror.example.com"]},
            },
        });
        let custom = NodeupConfig::from_document(&custom, "").unwrap();
        let resolved = control_plane(|inputs| {
            inputs.config.file_assets = custom.file_assets;
            inputs.config.hooks = custom.hooks;
            let containerd = inputs.config.containerd_config.get_or_insert_default();
            let given = custom.containerd_config.unwrap();
            containerd.config_additions = given.config_additions;
            containerd.registry_mirrors = given.registry_mirrors;
        });
        let shown = node(&resolved);
        let said = shown.to_string();
        assert!(!said.contains("hunter2") && !said.contains("aHVudGVyMi1i"), "{shown:#}");
        for part in ["busybox", "A_NAME", "mirror.example.com", "raw.service", "\"/a\""] {
            assert!(said.contains(part), "{part:?} is not in {shown:#}");
        }
    }
}
