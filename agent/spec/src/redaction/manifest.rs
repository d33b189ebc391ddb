//! Hides the values of environment variables in the manifest of a pod.
//!
//! A static pod cannot refer to a Secret. So kOps writes tokens of clouds and keys of stores in clear into its manifest
//! (pkg/model/components/channels/model.go, util/pkg/env/standard.go), and users add variables of their own. All other fields of a
//! manifest are shown. The shown text is written from the parsed manifest: YAML's quotes, blocks, anchors and comments cannot leak a
//! value.

use serde_json::Value;

use crate::digest::sha256_hex;
use crate::{free_text, go_yaml, yaml};

/// A manifest that can be shown without the values of its environment variables.
pub struct Manifest {
    /// The documents, with placeholders in place of the values.
    documents: Vec<Value>,
    values: Vec<String>,
}

impl Manifest {
    /// Parses a manifest in YAML or JSON. `None` if the text is invalid or not a manifest.
    pub fn read(text: &str) -> Option<Manifest> {
        let mut documents = Vec::new();
        for document in yaml::documents::<Value>(text) {
            match document.ok()? {
                Value::Null => {}
                document @ Value::Object(_) => documents.push(document),
                _ => return None,
            }
        }
        Some(Manifest::from_documents(documents))
    }

    pub fn from_documents(mut documents: Vec<Value>) -> Manifest {
        let mut values = Vec::new();
        for document in &mut documents {
            free_text::for_each(document, &mut |value| {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                if !text.is_empty() {
                    *value = Value::String(placeholder(&text));
                    values.push(text);
                }
            });
        }
        Manifest { documents, values }
    }

    pub fn values(&self) -> &[String] {
        &self.values
    }

    /// The manifest with a placeholder for each value. Different values have different placeholders, so texts can be compared line by line.
    /// A placeholder contains a digest, from which a short value can be guessed. So [`without_placeholders`] must replace the placeholders
    /// with marks before output.
    pub fn with_placeholders(&self) -> String {
        self.documents.iter().map(go_yaml::value_to_string).collect::<Vec<_>>().join("---\n")
    }

    /// The first document, with a mark in place of each value. `null` if there is no document.
    pub fn shown(&self) -> Value {
        self.documents.first().map_or(Value::Null, |document| {
            let json = without_placeholders(&document.to_string());
            serde_json::from_str(&json).unwrap_or_default()
        })
    }
}

/// The beginning of a placeholder. The digest follows. Without the digest, the placeholder would be [`super::MARK`].
const BEGIN: &str = "[***";
const END: &str = "]";
const DIGEST: usize = 64;

/// The placeholder of a value. Different values have different placeholders.
pub fn placeholder(value: &str) -> String {
    format!("{BEGIN}{}{END}", sha256_hex(value.as_bytes()))
}

/// Replaces each placeholder in a text with [`super::MARK`].
pub fn without_placeholders(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(BEGIN) {
        let (before, after) = rest.split_at(at + BEGIN.len());
        shown.push_str(before);
        let digest = after.bytes().take_while(u8::is_ascii_hexdigit).count();
        rest = if digest == DIGEST { &after[DIGEST..] } else { after };
    }
    shown.push_str(rest);
    shown
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const POD: &str = "kind: Pod # hunter2\nspec:\n  containers:\n  - name: a\n    args: [--kubeconfig=/var/lib/a, --token-ttl=1h, '*']\n    \
                       env: &e\n    - {name: HCLOUD_TOKEN, value: hunter2}\n    - name: EMPTY\n      value: ''\n    - name: BLOCK\n      value: |\n        \
                       hunter2\n    - {name: NUMBER, value: 12345}\n    - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}\n  - name: b\n    env: *e\n";

    #[test]
    fn only_values_of_variables_are_hidden() {
        let manifest = Manifest::read(POD).unwrap();
        assert_eq!(manifest.values().len(), 6);
        for shown in [without_placeholders(&manifest.with_placeholders()), manifest.shown().to_string()] {
            assert!(!shown.contains("hunter2") && !shown.contains("12345"), "{shown}");
            for part in
                ["HCLOUD_TOKEN", "--kubeconfig=/var/lib/a", "--token-ttl=1h", "spec.nodeName", "[***]"]
            {
                assert!(shown.contains(part), "{part} is not in {shown}");
            }
        }
    }

    #[test]
    fn other_texts_are_not_manifests() {
        for text in ["hunter2", "[a]", "spec: [", "a: 1\n---\nhunter2"] {
            assert!(Manifest::read(text).is_none(), "{text}");
        }
        assert_eq!(Manifest::read("").unwrap().with_placeholders(), "");
    }

    #[test]
    fn different_values_have_different_placeholders() {
        let text = |value: &str| {
            let text = format!("env: [{{name: A, value: {value}}}]");
            Manifest::read(&text).unwrap().with_placeholders()
        };
        assert_ne!(text("a"), text("b"));
        assert_eq!(without_placeholders(&text("a")), without_placeholders(&text("b")));
        assert_eq!(without_placeholders("[***] [***x] [***"), "[***] [***x] [***");
    }
}
