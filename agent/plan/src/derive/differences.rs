//! The differences between two configurations of the same group, in a form that is safe for logs.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use sha2::{Digest, Sha256};

use kops_agent_spec::redaction::without_credentials;
use kops_agent_spec::{NodeupConfig, free_text};

/// A field that differs between the derived configuration and kOps' configuration. If a text may be secret, only its size is shown. For a
/// long text or a certificate, a hash is shown too.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FieldDifference {
    /// The dotted path of the field, with the names in nodeupconfig.yaml.
    pub path: String,
    /// The value in the derived configuration.
    pub ours: String,
    /// The value in kOps' configuration.
    pub theirs: String,
}

impl fmt::Display for FieldDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: derived is {}, kOps wrote {}", self.path, self.ours, self.theirs)
    }
}

/// The first line of a certificate. Certificates are public.
const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----";
/// The maximum number of characters of a text that are shown.
const SHOWN: usize = 120;

/// All fields that differ, sorted by name.
pub fn differences(ours: &NodeupConfig, theirs: &NodeupConfig) -> Vec<FieldDifference> {
    let mut found = Vec::new();
    // Serialization cannot fail, because both configurations are of our own type.
    let json = |config: &NodeupConfig| serde_json::to_value(config).unwrap_or_default();
    compare(&Place::default(), &json(ours), &json(theirs), &mut found);
    found
}

#[derive(Clone, Default)]
struct Place {
    path: String,
    names: Vec<String>,
}

impl Place {
    fn field(&self, name: &str) -> Place {
        let path = if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) };
        Place { path, names: self.names.iter().cloned().chain([name.to_owned()]).collect() }
    }

    fn item(&self, index: usize) -> Place {
        Place { path: format!("{}[{index}]", self.path), ..self.clone() }
    }

    /// Whether the value at this path is free text or contains free text.
    fn holds_free_text(&self, value: &Value) -> bool {
        let within =
            self.names.iter().rev().fold(value.clone(), |value, name| {
                Value::Object([(name.clone(), value)].into_iter().collect())
            });
        !free_text::values(&within).is_empty()
    }
}

fn compare(place: &Place, ours: &Value, theirs: &Value, found: &mut Vec<FieldDifference>) {
    match (ours, theirs) {
        _ if ours == theirs => {}
        (Value::Object(ours), Value::Object(theirs)) => {
            let mut names: Vec<&String> = ours.keys().chain(theirs.keys()).collect();
            names.sort();
            names.dedup();
            for name in names {
                let of = |object: &serde_json::Map<String, Value>| object.get(name).cloned();
                compare_either(&place.field(name), of(ours), of(theirs), found);
            }
        }
        (Value::Array(ours), Value::Array(theirs)) if ours.len() == theirs.len() => {
            for (index, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
                compare(&place.item(index), ours, theirs, found);
            }
        }
        (Value::Array(ours), Value::Array(theirs)) => {
            let without = |list: &[Value], other: &[Value]| {
                Value::Array(list.iter().filter(|item| !other.contains(item)).cloned().collect())
            };
            found.push(FieldDifference {
                path: place.path.clone(),
                ours: format!(
                    "{} items, of which the other list lacks {}",
                    ours.len(),
                    shown(place, &without(ours, theirs))
                ),
                theirs: format!(
                    "{} items, of which the other list lacks {}",
                    theirs.len(),
                    shown(place, &without(theirs, ours))
                ),
            });
        }
        _ => found.push(FieldDifference {
            path: place.path.clone(),
            ours: shown(place, ours),
            theirs: shown(place, theirs),
        }),
    }
}

fn compare_either(
    place: &Place,
    ours: Option<Value>,
    theirs: Option<Value>,
    found: &mut Vec<FieldDifference>,
) {
    match (ours, theirs) {
        (Some(ours), Some(theirs)) => compare(place, &ours, &theirs, found),
        (ours, theirs) => {
            let show = |value: Option<Value>| {
                value.map_or_else(|| "absent".to_owned(), |value| shown(place, &value))
            };
            found.push(FieldDifference { path: place.path.clone(), ours: show(ours), theirs: show(theirs) });
        }
    }
}

fn shown(place: &Place, value: &Value) -> String {
    let text = match value {
        Value::String(text) => format!("{text:?}"),
        other => other.to_string(),
    };
    let text = without_credentials(&text);
    let hides = place.holds_free_text(value);
    let raw = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let is_certificate = raw.starts_with(CERTIFICATE);
    if !hides && !is_certificate && text.chars().count() <= SHOWN {
        return text;
    }
    // A hash would reveal a short secret.
    if hides {
        return format!("{} bytes, which are not shown", raw.len());
    }
    if matches!(value, Value::String(_)) {
        let hash = STANDARD.encode(Sha256::digest(raw.as_bytes()));
        return format!("{} bytes with SHA-256 {hash}", raw.len());
    }
    let start: String = text.chars().take(SHOWN).collect();
    format!("{start}…")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use kops_agent_spec::FileAssetSpec;

    fn config() -> NodeupConfig {
        NodeupConfig {
            kubernetes_version: "1.34.1".into(),
            cas: [("kubernetes-ca".to_owned(), "-----BEGIN CERTIFICATE-----\nours".to_owned())].into(),
            packages: vec!["a".into(), "b".into()],
            file_assets: vec![FileAssetSpec {
                path: "/a".into(),
                content: "password".into(),
                ..Default::default()
            }],
            ..NodeupConfig::default()
        }
    }

    #[test]
    fn equal_configurations_have_no_differences() {
        assert_eq!(differences(&config(), &config()), []);
    }

    #[test]
    fn differences_name_fields_and_hide_contents() {
        let mut theirs = config();
        theirs.kubernetes_version = "1.34.2".into();
        theirs.cas.insert("kubernetes-ca".into(), "-----BEGIN CERTIFICATE-----\ntheirs".into());
        theirs.packages = vec!["b".into()];
        theirs.file_assets[0].content = "hunter2".into();
        theirs.cluster_name = "c".into();
        let found = differences(&config(), &theirs);
        let told: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(told.len(), 5, "{told:#?}");
        assert!(told[0].starts_with("CAs.kubernetes-ca: derived is 32 bytes with SHA-256 "), "{}", told[0]);
        assert_eq!(told[1], "ClusterName: derived is absent, kOps wrote \"c\"");
        assert!(told[2].starts_with("FileAssets[0].content: derived is 8 bytes"), "{}", told[2]);
        assert_eq!(told[3], "KubernetesVersion: derived is \"1.34.1\", kOps wrote \"1.34.2\"");
        assert_eq!(
            told[4],
            "packages: derived is 2 items, of which the other list lacks [\"a\"], kOps wrote 1 items, of which the other list lacks []"
        );
        assert!(!told.concat().contains("hunter2") && !told.concat().contains("password"));
    }

    #[test]
    fn only_free_text_and_logins_of_urls_are_hidden() {
        let config = |secret: &str| {
            let config = format!(
                "Assets: {{arm64: ['https://robot:{secret}@mirror/a']}}\ncontainerdConfig:\n  configAdditions: {{plugins.a.auth: \
                 {secret}}}\n  registryMirrors: {{'*': ['https://robot:{secret}@mirror']}}\nKubeletConfig: {{anonymousAuth: {}, \
                 tokenFile: '/{}'}}\n",
                secret == "hunter2hunter2",
                secret.len()
            );
            NodeupConfig::from_document(&serde_yaml::from_str(&config).unwrap(), "").unwrap()
        };
        let found = differences(&config("hunter2hunter2"), &config("correcthorse"));
        let told: String = found.iter().map(|found| format!("{found}\n")).collect();
        assert!(found.len() >= 3, "{told}");
        assert!(!told.contains("hunter2") && !told.contains("correcthorse"), "{told}");
        let hash = STANDARD.encode(Sha256::digest("hunter2hunter2"));
        assert!(!told.contains(&hash), "{told}");
        for part in ["https://[***]@mirror/a", "anonymousAuth: derived is true, kOps wrote false"] {
            assert!(told.contains(part), "{part:?} is not in {told}");
        }
    }

    #[test]
    fn a_list_with_contents_is_hidden_as_a_whole() {
        let mut theirs = config();
        theirs.file_assets.clear();
        let told = differences(&config(), &theirs).iter().map(ToString::to_string).collect::<String>();
        assert!(told.contains("FileAssets: derived is") && !told.contains("password"), "{told}");
    }
}
