//! Reading a channel, as upstream's `ParseAddons` does.

use kops_agent_spec::{SpecError, parse_document, parse_yaml};
use serde_json::Value;

use super::manifest::{documents, sha256_of_trimmed};
use super::spec::{AddonSpec, Addons};
use crate::kops_release::KopsRelease;

/// The kind of a channel's document. It has no apiVersion.
const KIND: &str = "Addons";
/// The name of the document that `kops update cluster` writes (upstream: `bootstrapchannelbuilder.go`).
const BOOTSTRAP: &str = "bootstrap";

/// Add-ons, in the order in which they are named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Channel {
    /// Where it was read.
    pub url: String,
    /// Whether kOps itself has written it, along with every manifest and its hash.
    pub is_bootstrap: bool,
    /// Whether it is a manifest, which its kOps release takes for a channel without add-ons.
    pub is_unheeded_manifest: bool,
    /// The kOps release by whose rules it is followed.
    pub release: KopsRelease,
    /// The entries with their names, in order.
    pub(super) entries: Vec<(String, AddonSpec)>,
}

impl Channel {
    /// Reads a channel by the rules of a kOps release. What is no document of the kind `Addons` is a manifest, and the channel's
    /// one add-on where the release has such; what has no content has none.
    ///
    /// # Errors
    /// If it is no YAML, a field has the wrong type, or an entry has no name. The error names the field.
    pub fn parse(text: &[u8], url: &str, release: KopsRelease) -> Result<Channel, SpecError> {
        let text = std::str::from_utf8(text)
            .map_err(|error| SpecError::of_file(url, format!("it is no UTF-8: {error}")))?
            .trim();
        let sections = documents(text);
        // All are read, so that what is broken further down is told, too.
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
        // Older releases ask for no kind.
        let addons: Addons = parse_yaml(section.as_bytes(), url)?;
        let is_bootstrap = addons.metadata.name == BOOTSTRAP;
        let entries = entries(addons, url)?;
        let is_unheeded_manifest = entries.is_empty() && !is_addons(document);
        Ok(Channel { is_bootstrap, is_unheeded_manifest, entries, ..without_entries })
    }

    /// The entries with the names of their add-ons, in order and of all versions.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &AddonSpec)> {
        self.entries.iter().map(|(name, entry)| (name.as_str(), entry))
    }

    /// How many entries it has, of all versions.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it names no add-on.
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
            let problem = "it has no name, and neither has metadata, whose name it would take";
            return Err(SpecError::of_field(url, &field(".name"), problem));
        }
        entries.push((name, entry));
    }
    Ok(entries)
}

/// The add-on that a manifest is by itself. Its name stays the same when the manifest changes, for that is what an update is.
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
