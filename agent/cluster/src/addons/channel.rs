//! Reads a channel, like upstream's `ParseAddons`.

use kops_agent_spec::{SpecError, parse_document, parse_yaml};
use serde_json::Value;

use super::manifest::{documents, sha256_of_trimmed};
use super::spec::{AddonSpec, Addons};
use kops_agent_spec::kops_release::KopsRelease;

/// The kind of a channel's document. The document has no apiVersion.
const KIND: &str = "Addons";
/// The name of the document that `kops update cluster` writes (upstream: `bootstrapchannelbuilder.go`).
const BOOTSTRAP: &str = "bootstrap";

/// The add-on entries of a channel, in the document's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Channel {
    pub url: String,
    /// Whether kOps itself wrote the channel, along with every manifest and its hash.
    pub is_bootstrap: bool,
    /// True if the document is a manifest and `release` supports only channels. The channel then has no entries.
    pub is_unheeded_manifest: bool,
    /// The kOps release whose rules apply to the channel.
    pub release: KopsRelease,
    /// The entries, each with the name of its add-on, in the document's order.
    pub(super) entries: Vec<(String, AddonSpec)>,
}

impl Channel {
    /// Reads a channel by the rules of a kOps release. A document whose kind is not `Addons` is a manifest. If the release supports
    /// manifests, the manifest becomes the channel's only add-on. An empty text gives an empty channel.
    pub fn parse(text: &[u8], url: &str, release: KopsRelease) -> Result<Channel, SpecError> {
        let text = std::str::from_utf8(text)
            .map_err(|error| SpecError::of_file(url, format!("it is not UTF-8: {error}")))?
            .trim();
        let sections = documents(text);
        // All documents are parsed, so that an error in a later document is reported too.
        let parsed = sections
            .iter()
            .map(|section| parse_document(section.as_bytes(), url))
            .collect::<Result<Vec<_>, _>>()?;
        let without_entries = Channel {
            url: url.to_owned(),
            is_bootstrap: false,
            is_unheeded_manifest: false,
            release,
            entries: Vec::new(),
        };
        let (Some(section), Some(document)) = (sections.first(), parsed.first()) else {
            return Ok(without_entries);
        };
        if !is_addons(document) && release.takes_manifests_for_channels() {
            return Ok(Channel { entries: vec![direct(text, url)], ..without_entries });
        }
        // If the release does not support manifests, a document of a different kind is also parsed as `Addons`.
        let addons: Addons = parse_yaml(section.as_bytes(), url)?;
        let is_bootstrap = addons.metadata.name == BOOTSTRAP;
        let entries = entries(addons, url)?;
        let is_unheeded_manifest = entries.is_empty() && !is_addons(document);
        Ok(Channel { is_bootstrap, is_unheeded_manifest, entries, ..without_entries })
    }

    /// All entries, each with its add-on's name, in the channel's order. The entries are not filtered by Kubernetes version.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &AddonSpec)> {
        self.entries.iter().map(|(name, entry)| (name.as_str(), entry))
    }

    /// The total number of entries, over all Kubernetes versions.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

fn is_addons(document: &Value) -> bool {
    let has_version =
        document.get("apiVersion").and_then(Value::as_str).is_some_and(|version| !version.is_empty());
    !has_version && document.get("kind").and_then(Value::as_str) == Some(KIND)
}

fn entries(document: Addons, url: &str) -> Result<Vec<(String, AddonSpec)>, SpecError> {
    let mut entries = Vec::new();
    for (index, entry) in document.spec.addons.into_iter().enumerate() {
        let field = |name: &str| format!("spec.addons[{index}]{name}");
        let Some(entry) = entry else {
            return Err(SpecError::of_field(url, &field(""), "it is null, but should be an add-on"));
        };
        let name = entry.name.clone().unwrap_or_else(|| document.metadata.name.clone());
        if name.is_empty() {
            let problem = "it is missing, and so is its default, metadata.name";
            return Err(SpecError::of_field(url, &field(".name"), problem));
        }
        entries.push((name, entry));
    }
    Ok(entries)
}

/// Makes an add-on from a manifest. The add-on's name depends only on the URL, so a changed manifest updates the existing add-on.
fn direct(text: &str, url: &str) -> (String, AddonSpec) {
    let name = format!("manifest-{}", &sha256_of_trimmed(url.as_bytes())[..12]);
    let spec = AddonSpec {
        name: Some(name.clone()),
        manifest: Some(url.to_owned()),
        manifest_hash: sha256_of_trimmed(text.as_bytes()),
        ..AddonSpec::default()
    };
    (name, spec)
}
