//! Where two configurations of the same group differ, told so that logs can have it.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::redaction::{Redactor, is_secret_name};
use kops_agent_spec::NodeupConfig;

/// A field that differs. Of texts that may be secret only the size is shown, of long ones and of certificates the hash, too.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FieldDifference {
    /// Dotted path of the field, by its name in nodeupconfig.yaml.
    pub path: String,
    /// Its value in ours.
    pub ours: String,
    /// Its value in theirs.
    pub theirs: String,
}

impl fmt::Display for FieldDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: derived is {}, kOps wrote {}", self.path, self.ours, self.theirs)
    }
}

/// Fields whose content belongs to users and may hold secrets.
const MAY_BE_SECRET: [&str; 7] =
    ["content", "manifest", "environment", "command", "CAs", "configOverride", "configAdditions"];
/// What certificates begin with, which are for all to read.
const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----";
/// Characters of a text that are shown.
const SHOWN: usize = 120;

/// Every field in which two configurations differ, in the order of their names.
pub fn differences(ours: &NodeupConfig, theirs: &NodeupConfig) -> Vec<FieldDifference> {
    let mut found = Vec::new();
    // Both are our own type, which always has a JSON form.
    let json = |config: &NodeupConfig| serde_json::to_value(config).unwrap_or_default();
    compare(&Place::default(), &json(ours), &json(theirs), &mut found);
    found
}

#[derive(Clone, Default)]
struct Place {
    path: String,
    may_be_secret: bool,
}

impl Place {
    fn field(&self, name: &str) -> Place {
        let path = if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) };
        Place { path, may_be_secret: self.may_be_secret || may_be_secret(name) }
    }

    fn item(&self, index: usize) -> Place {
        Place { path: format!("{}[{index}]", self.path), ..self.clone() }
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
                ours: format!("{} items, only there {}", ours.len(), shown(place, &without(ours, theirs))),
                theirs: format!(
                    "{} items, only there {}",
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
    // Whether something is switched on is no secret, whatever it is called.
    let hides = !value.is_boolean() && (place.may_be_secret || holds_hidden(value));
    let text = match value {
        Value::String(text) => format!("{text:?}"),
        other => other.to_string(),
    };
    let text = Redactor::default().configuration(&text);
    if !hides && text.chars().count() <= SHOWN {
        return text;
    }
    let raw = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    // A hash tells a short secret.
    if hides && !raw.starts_with(CERTIFICATE) {
        return format!("{} bytes, which are not shown", raw.len());
    }
    if hides || matches!(value, Value::String(_)) {
        let hash = STANDARD.encode(Sha256::digest(raw.as_bytes()));
        return format!("{} bytes with SHA-256 {hash}", raw.len());
    }
    let start: String = text.chars().take(SHOWN).collect();
    format!("{start}…")
}

fn may_be_secret(name: &str) -> bool {
    MAY_BE_SECRET.contains(&name) || is_secret_name(name)
}

/// Whether a mapping or list has a field within that may be secret, or a PEM block.
fn holds_hidden(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains("-----BEGIN"),
        Value::Array(items) => items.iter().any(holds_hidden),
        Value::Object(entries) => entries
            .iter()
            .any(|(name, value)| (may_be_secret(name) && !value.is_boolean()) || holds_hidden(value)),
        _ => false,
    }
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
    fn equal_ones_have_none() {
        assert_eq!(differences(&config(), &config()), []);
    }

    #[test]
    fn fields_are_told_and_contents_are_not() {
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
            "packages: derived is 2 items, only there [\"a\"], kOps wrote 1 items, only there []"
        );
        assert!(!told.concat().contains("hunter2") && !told.concat().contains("password"));
    }

    #[test]
    fn what_names_urls_and_forms_say_is_secret_is_not_told() {
        let config = |secret: &str| {
            let config = format!(
                "Assets: {{arm64: ['https://robot:{secret}@mirror/a']}}\ncontainerdConfig:\n  configAdditions: {{plugins.a.auth: \
                 {secret}}}\n  registryMirrors: {{'*': ['https://robot:{secret}@mirror']}}\n  \
                 additionalConfig: x\nKubeletConfig: {{anonymousAuth: {}, rootDir: 'API_TOKEN={secret}'}}\n\
                 KubernetesVersion: 'Bearer {secret}9'\n",
                secret == "hunter2hunter2"
            );
            NodeupConfig::from_document(&serde_yaml::from_str(&config).unwrap(), "").unwrap()
        };
        let found = differences(&config("hunter2hunter2"), &config("correcthorse"));
        let told: String = found.iter().map(|found| format!("{found}\n")).collect();
        assert!(found.len() >= 4, "{told}");
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
