//! Which entry of a channel is the one for a cluster's Kubernetes, and what it says of its add-on.

use std::collections::BTreeSet;

use kops_agent_spec::SpecError;

use super::channel::Channel;
use super::manifest::sha256_of_trimmed;
use super::prune;
use super::spec::{AddonSpec, NeedsRollingUpdate};
use super::version::ChannelVersion;
use super::version_range::{ServerVersion, VersionRange};
use crate::kops_release::KopsRelease;

/// Whose annotations record an add-on's version where its entry does not say (upstream: `GetNamespace`).
const NAMESPACE: &str = "kube-system";

/// The entries that are for a cluster's Kubernetes, one a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Menu {
    /// In the channel's order: where several of a name are for it, the first one's place.
    pub addons: Vec<Addon>,
    /// Entries that cannot be told to be for it.
    pub left_out: Vec<LeftOut>,
}

/// An entry that is passed over, because its range of versions is none. Upstream logs no more than that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    pub name: String,
    /// Which field is wrong, and how.
    pub problem: SpecError,
}

/// The entry that was chosen of an add-on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addon {
    pub name: String,
    /// Which entry of `spec.addons` it is, from 0.
    pub index: usize,
    pub channel: String,
    /// Whether kOps itself has written the channel, and with it the manifest.
    pub is_bootstrap: bool,
    /// The kOps release by whose rules it is applied.
    pub release: KopsRelease,
    /// What the channel says of it.
    pub spec: AddonSpec,
}

impl Channel {
    /// The entries for this version of Kubernetes. Of several of a name the last one whose id or hash is another than the one's
    /// before it is chosen, as upstream's `GetCurrent` does.
    pub fn menu(&self, kubernetes: ServerVersion) -> Menu {
        let mut menu = Menu::default();
        for (index, (name, spec)) in self.entries.iter().enumerate() {
            let range = &spec.kubernetes_version;
            match range.parse::<VersionRange>() {
                _ if range.is_empty() => {}
                Ok(range) if range.has(kubernetes) => {}
                Ok(_) => continue,
                Err(problem) => {
                    let field = format!("spec.addons[{index}].kubernetesVersion");
                    let problem = SpecError::of_field(&self.url, &field, problem);
                    menu.left_out.push(LeftOut { name: name.clone(), problem });
                    continue;
                }
            }
            let addon = Addon {
                name: name.clone(),
                index,
                channel: self.url.clone(),
                is_bootstrap: self.is_bootstrap,
                release: self.release,
                spec: spec.clone(),
            };
            match menu.addons.iter_mut().find(|chosen| chosen.name == *name) {
                None => menu.addons.push(addon),
                Some(chosen) if addon.version().replaces(&chosen.version()) => *chosen = addon,
                Some(_) => {}
            }
        }
        menu
    }
}

/// Leaves each add-on to the last of the channels that has it, and returns the entries of the others. Upstream applies channels one after the other
/// and reads what is recorded before each, so that the last one's version stands after each of its rounds; applied in between, the others' would
/// change the cluster there and back every minute.
pub fn leave_to_last_channel(menus: &mut [Menu]) -> Vec<Addon> {
    let (mut later, mut others) = (BTreeSet::new(), Vec::new());
    for menu in menus.iter_mut().rev() {
        others.extend(menu.addons.extract_if(.., |addon| later.contains(&addon.record())));
        later.extend(menu.addons.iter().map(Addon::record));
    }
    others
}

impl Addon {
    /// Where its version is recorded: the namespace and the name that the annotation has.
    pub fn record(&self) -> (String, String) {
        (self.namespace().to_owned(), self.name.clone())
    }

    /// The version that is recorded once it is applied.
    pub fn version(&self) -> ChannelVersion {
        ChannelVersion::of(&self.channel, &self.spec.id, &self.spec.manifest_hash)
    }

    /// The namespace whose annotations record its version.
    pub fn namespace(&self) -> &str {
        self.spec.namespace.as_deref().unwrap_or(NAMESPACE)
    }

    /// The nodes that have to be replaced after an update; `None` for none.
    pub fn needs_rolling_update(&self) -> Option<NeedsRollingUpdate> {
        NeedsRollingUpdate::parse(&self.spec.needs_rolling_update)
    }

    /// Whether its entry can be followed.
    ///
    /// # Errors
    /// The first field that is wrong, and how.
    pub fn check(&self) -> Result<(), SpecError> {
        self.manifest_url()?;
        let needs = &self.spec.needs_rolling_update;
        if !needs.is_empty() && NeedsRollingUpdate::parse(needs).is_none() {
            let problem = format!("it is {needs:?}, but should be control-plane, workers or all");
            return Err(self.wrong("needsRollingUpdate", problem));
        }
        let rules = self.spec.prune.iter().flat_map(|prune| &prune.kinds);
        for (index, rule) in rules.enumerate() {
            prune::check(rule).map_err(|problem| self.wrong(&format!("prune.kinds[{index}]"), problem))?;
        }
        Ok(())
    }

    /// Where its manifest is: its URL, or its path from the channel's (RFC 3986, 5.2).
    ///
    /// # Errors
    /// If the entry names none.
    pub fn manifest_url(&self) -> Result<String, SpecError> {
        match self.spec.manifest.as_deref() {
            None | Some("") => {
                Err(self.wrong("manifest", "it is not there, but is what would be applied".to_owned()))
            }
            Some(url) if is_absolute(url) => Ok(url.to_owned()),
            Some(path) => Ok(resolved(&self.channel, path)),
        }
    }

    /// Whether a manifest is the one that the channel means. kOps writes manifests before the channel, file by file: what is read
    /// in between is not to be recorded as what it is not. The hashes of other channels are their authors' own, and
    /// upstream holds no manifest against any.
    ///
    /// # Errors
    /// It is another one.
    pub fn check_manifest(&self, manifest: &[u8], url: &str) -> Result<(), SpecError> {
        let wanted = &self.spec.manifest_hash;
        if !self.is_bootstrap || wanted.is_empty() {
            return Ok(());
        }
        let found = sha256_of_trimmed(manifest);
        match found == *wanted {
            true => Ok(()),
            false => Err(SpecError::of_file(
                url,
                format!(
                    "its SHA-256 is {found}, but {} wants {wanted}; `kops update cluster --yes` writes both, and may be at it",
                    self.channel
                ),
            )),
        }
    }

    fn wrong(&self, field: &str, problem: String) -> SpecError {
        SpecError::of_field(&self.channel, &format!("spec.addons[{}].{field}", self.index), problem)
    }
}

/// Whether a URL has a scheme.
fn is_absolute(url: &str) -> bool {
    let Some((scheme, _)) = url.split_once(':') else { return false };
    let mut chars = scheme.chars();
    chars.next().is_some_and(|first| first.is_ascii_alphabetic())
        && chars.all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
}

/// A path as seen from the file at a URL. `Url::join` of the crate `url` would escape what the keys of stores have as it is, as in
/// `a b.yaml`, and joins nothing to a plain path.
fn resolved(base: &str, path: &str) -> String {
    let (scheme, rest) = base.split_once("://").map_or(("", base), |(scheme, rest)| (scheme, rest));
    let (authority, base_path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    let joined = match path.starts_with('/') {
        true => path.to_owned(),
        false => format!("{}/{path}", base_path.rsplit_once('/').map_or("", |(folder, _)| folder)),
    };
    let start = if scheme.is_empty() { String::new() } else { format!("{scheme}://{authority}") };
    format!("{start}{}", without_dots(&joined))
}

fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    for (index, segment) in segments.iter().enumerate() {
        let is_last = index + 1 == segments.len();
        match *segment {
            "." | ".." => {
                if *segment == ".." {
                    kept.pop();
                }
                if is_last {
                    kept.push("");
                }
            }
            segment => kept.push(segment),
        }
    }
    format!("/{}", kept.join("/"))
}
