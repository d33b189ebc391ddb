//! A node's configuration as `config dump` may show it: without the contents of files that not all may read, and without what
//! names, flags, environments, forms and URLs say is secret.

use serde_json::{Map, Value};

use super::{has_secrets, is_private};
use crate::base64_text;
use crate::redaction::manifest::Manifest;
use crate::redaction::{MARK, Redactor};
use crate::resolve::NodeConfig;
use crate::resource::Mode;

/// A node's configuration as it may be shown.
#[must_use]
pub fn node(node: &NodeConfig) -> Value {
    // It is our own type, which always has a JSON form.
    document(serde_json::to_value(node).unwrap_or_default())
}

fn document(mut document: Value) -> Value {
    hide_contents(&mut document);
    let redactor = learning(Redactor::default(), &document);
    let manifest = Manifest::of(vec![document]);
    redactor.hiding_manifest(&manifest).json_of_configuration(&manifest.shown())
}

/// Hides the content of each file that not all may read, as users specify it and as it was resolved.
fn hide_contents(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(hide_contents),
        Value::Object(fields) => {
            if fields.contains_key("path") || fields.contains_key("isBase64") {
                hide_content(fields);
            }
            fields.values_mut().for_each(hide_contents);
        }
        _ => {}
    }
}

fn hide_content(fields: &mut Map<String, Value>) {
    // kOps makes a file that has no mode private (upstream: nodeup/pkg/model/file_assets.go).
    let mode = fields.get("mode").and_then(Value::as_str).and_then(Mode::parse);
    let is_private = mode.is_none_or(is_private);
    let is_base64 = fields.get("isBase64").and_then(Value::as_bool).unwrap_or_default();
    let Some(content) = fields.get_mut("content") else { return };
    match content {
        Value::String(text) if is_private || (is_base64 && has_secrets(text)) => *text = MARK.to_owned(),
        // As it was resolved.
        Value::Object(resolved) => {
            for (kind, text) in resolved {
                let has_secrets = kind == "base64" && text.as_str().is_some_and(has_secrets);
                if (is_private && matches!(kind.as_str(), "text" | "base64")) || has_secrets {
                    *text = Value::from(MARK);
                }
            }
        }
        _ => {}
    }
}

/// What is secret in the texts of a document.
fn learning(redactor: Redactor, value: &Value) -> Redactor {
    match value {
        Value::String(text) => {
            let redactor = redactor.hiding_named(text);
            let decoded = base64_text::decoded(text);
            decoded.into_iter().fold(redactor, |redactor, text| redactor.hiding_named(&text))
        }
        Value::Array(items) => items.iter().fold(redactor, learning),
        Value::Object(fields) => fields.values().fold(redactor, learning),
        _ => redactor,
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use serde_json::json;

    #[test]
    fn secrets_are_hidden_wherever_they_are_specified() {
        let base64 = |text: &str| STANDARD.encode(text);
        let document = json!({
            "config": {
                "FileAssets": [
                    {"name": "a", "path": "/a", "content": "hunter2-a", "mode": "0400"},
                    {"name": "b", "path": "/b", "content": "hunter2-b"},
                    {"name": "c", "content": base64("password: hunter2-c"), "isBase64": true, "mode": "0644"},
                    {"name": "d", "path": "/d", "content": "shown: x\npassword: hunter2-d\n", "mode": "0644"},
                ],
                "Hooks": [[{
                    "manifest": "[Service]\nEnvironment=API_TOKEN=\"hunter2-e\"\nExecStart=/usr/bin/curl -u robot:hunter2-f https://x\n",
                    "execContainer": {
                        "image": "busybox",
                        "command": ["login", "-u", "robot:hunter2-g", "--password", "hunter2-h", "-p", "hunter2-i", "API_TOKEN=hunter2-j"],
                        "environment": {"API_TOKEN": "hunter2-k", "HOME": "/root"},
                    },
                }]],
                "containerdConfig": {
                    "configAdditions": {"plugins.\"a\".auth.password": "hunter2-l"},
                    "registryMirrors": {"*": ["https://robot:hunter2-m@mirror.example.com"]},
                },
            },
            "fileAssets": [
                {"path": "/a", "mode": "0400", "content": {"text": "hunter2-a"}},
                {"path": "/b", "mode": "0440", "content": {"base64": base64("hunter2-b")}},
                {"path": "/c", "mode": "0644", "content": {"base64": base64("password: hunter2-c")}},
            ],
            "again": "hunter2-d hunter2-e hunter2-k",
            "digest": "0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9",
            "anonymousAuth": false,
        });
        let text = document.to_string();
        let shown = super::document(document);
        let said = shown.to_string();
        assert!(!said.contains("hunter2"), "{shown:#}");
        for secret in ["password: hunter2-c", "hunter2-b"].map(base64) {
            assert!(text.contains(&secret) && !said.contains(&secret), "{shown:#}");
        }
        for part in ["shown: x", "busybox", "mirror.example.com", "/root", "0a1b2c3d", "robot:", "curl"] {
            assert!(said.contains(part), "{part:?} is not in {shown:#}");
        }
        assert_eq!(shown["anonymousAuth"], false);
        assert_eq!(shown["again"], "[***] [***] [***]");
    }
}
