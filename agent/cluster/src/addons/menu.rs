//! Selects the entries of a channel for a cluster's Kubernetes version.

use std::collections::BTreeSet;

use kops_agent_spec::SpecError;

use super::channel::Channel;
use super::manifest::sha256_of_trimmed;
use super::prune;
use super::spec::{AddonSpec, NeedsRollingUpdate};
use super::version::ChannelVersion;
use super::version_range::{ServerVersion, VersionRange};
use kops_agent_spec::kops_release::KopsRelease;

/// The default namespace whose annotations record an add-on's version (upstream: `GetNamespace`).
const NAMESPACE: &str = "kube-system";

/// The entries for a cluster's Kubernetes version, one for each add-on name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Menu {
    /// The selected entries, in the channel's order. If several entries of an add-on match, the add-on has the position of the first match.
    pub addons: Vec<Addon>,
    /// Entries with an invalid version range.
    pub left_out: Vec<LeftOut>,
}

/// An entry that is skipped because its version range is invalid. Upstream only logs such an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    pub name: String,
    /// The invalid field, with the reason.
    pub problem: SpecError,
}

/// The selected entry of an add-on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addon {
    pub name: String,
    /// The index of the entry in `spec.addons`, from 0.
    pub index: usize,
    pub channel: String,
    /// Whether kOps itself wrote the channel and the manifest.
    pub is_bootstrap: bool,
    /// The kOps release whose rules apply to the add-on.
    pub release: KopsRelease,
    pub spec: AddonSpec,
}

impl Channel {
    /// Selects the entries for this Kubernetes version. A later entry of an add-on replaces the selected entry if the ids or the hashes
    /// differ, as in upstream's `GetCurrent`.
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

/// Keeps each add-on only in the last channel that has it, and returns the removed entries. Upstream applies the channels one after
/// another, and reads the recorded versions before each channel. Therefore the version of the last channel is in place after each round of
/// upstream's channels pod. If kops-agent applied the removed entries too, the cluster would change back and forth every minute.
pub fn leave_to_last_channel(menus: &mut [Menu]) -> Vec<Addon> {
    let (mut later, mut others) = (BTreeSet::new(), Vec::new());
    for menu in menus.iter_mut().rev() {
        others.extend(menu.addons.extract_if(.., |addon| later.contains(&addon.record())));
        later.extend(menu.addons.iter().map(Addon::record));
    }
    others
}

impl Addon {
    /// Where the add-on's version is recorded: the namespace and the add-on's name.
    pub fn record(&self) -> (String, String) {
        (self.namespace().to_owned(), self.name.clone())
    }

    /// The version to record after the add-on is applied.
    pub fn version(&self) -> ChannelVersion {
        ChannelVersion::new(&self.channel, &self.spec.id, &self.spec.manifest_hash)
    }

    /// The namespace whose annotations record the add-on's version.
    pub fn namespace(&self) -> &str {
        self.spec.namespace.as_deref().unwrap_or(NAMESPACE)
    }

    /// The nodes that need replacement after an update. `None` if no node needs replacement.
    pub fn needs_rolling_update(&self) -> Option<NeedsRollingUpdate> {
        NeedsRollingUpdate::parse(&self.spec.needs_rolling_update)
    }

    pub fn check(&self) -> Result<(), SpecError> {
        self.manifest_url()?;
        let needs = &self.spec.needs_rolling_update;
        if !needs.is_empty() && NeedsRollingUpdate::parse(needs).is_none() {
            let problem = format!("it is {needs:?}, but should be control-plane, workers or all");
            return Err(self.wrong("needsRollingUpdate", problem));
        }
        let rules = self.spec.prune.iter().flat_map(|prune| &prune.kinds);
        for (index, rule) in rules.enumerate() {
            prune::check(rule)
                .map_err(|problem| self.wrong(&format!("prune.kinds[{index}]"), problem.into()))?;
        }
        Ok(())
    }

    /// The URL of the add-on's manifest. A relative path in the entry is resolved against the channel's URL (RFC 3986, 5.2).
    pub fn manifest_url(&self) -> Result<String, SpecError> {
        match self.spec.manifest.as_deref() {
            None | Some("") => {
                Err(self.wrong("manifest", "it is missing, so there is nothing to apply".to_owned()))
            }
            Some(url) if is_absolute(url) => Ok(url.to_owned()),
            Some(path) => Ok(resolved(&self.channel, path)),
        }
    }

    /// Checks that a manifest has the hash in kOps' own channel. kOps writes the manifests before the channel, so a new manifest may be
    /// read with the old channel. This manifest must not be recorded as the old version. Manifests of other channels are not checked: their
    /// authors choose the hashes, and upstream does not check any manifest.
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
                    "its SHA-256 is {found}, but {} expects {wanted}; `kops update cluster --yes` writes both and may be running",
                    self.channel
                ),
            )),
        }
    }

    fn wrong(&self, field: &str, problem: String) -> SpecError {
        SpecError::of_field(&self.channel, &format!("spec.addons[{}].{field}", self.index), problem)
    }
}

fn is_absolute(url: &str) -> bool {
    let Some((scheme, _)) = url.split_once(':') else { return false };
    let mut chars = scheme.chars();
    chars.next().is_some_and(|first| first.is_ascii_alphabetic())
        && chars.all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
}

/// Resolves a path against the URL of a file. `Url::join` of the crate `url` is not suitable: it escapes characters that store keys contain
/// unescaped, as in `a b.yaml`, and it cannot join to a plain path.
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
