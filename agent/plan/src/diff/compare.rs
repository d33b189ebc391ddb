//! Compares a desired resource with the observed resource. [`super::units`] compares units, because their changes depend on all other
//! resources.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::observed::{Access, Observed, ObservedContent, ObservedFile};
use super::step::Change;
use crate::resource::{AssetContent, Content, File, FreeText, Resource};
use crate::shown::{self, Text};
use kops_agent_spec::digest::sha256_hex;
use kops_agent_spec::urls::shown_url;

/// The changes for a resource. `None` if the resource needs no step, not even to create it.
///
/// `is_reissued` returns whether this plan replaces the certificate with this name.
pub(super) fn changes(
    desired: &Resource,
    observed: Option<&Observed>,
    is_reissued: &dyn Fn(&str) -> bool,
) -> Option<Vec<Change>> {
    match (desired, observed) {
        (Resource::File(file), None) => Some(new_file(file, None)),
        (Resource::File(file), Some(Observed::File(present))) => {
            Some(file_changes(file, present, is_reissued))
        }
        (Resource::File(file), Some(Observed::Other(what))) => {
            Some(new_file(file, Some(Change::Replace { what: what.clone() })))
        }
        (Resource::Certificate(_), None) => {
            Some(vec![Change::Issue { why: "it does not exist yet".into(), renewal: false }])
        }
        (Resource::Certificate(_), Some(Observed::Certificate(present))) => {
            let issue = |why: &String| Change::Issue { why: why.clone(), renewal: present.is_due };
            Some(present.replace.iter().map(issue).collect())
        }
        // A desired entry without addresses means that `/etc/hosts` has no line for the host.
        (Resource::HostsEntry(entry), None) if entry.addresses.is_empty() => None,
        (Resource::HostsEntry(entry), Some(Observed::Resource(_))) if entry.is_replaced_by_gossip => None,
        (_, Some(Observed::Other(what))) => {
            let mut changes = vec![Change::Replace { what: what.clone() }];
            changes.extend(properties(desired, None));
            Some(changes)
        }
        (_, Some(Observed::Resource(present))) => Some(properties(desired, Some(present))),
        (_, _) => Some(properties(desired, None)),
    }
}

/// The properties of a simple resource that differ from `present`. If `present` is `None`, returns all properties.
fn properties(desired: &Resource, present: Option<&Resource>) -> Vec<Change> {
    let present: Vec<(&str, String)> = present.map(named_properties).unwrap_or_default();
    let find = |field: &str| present.iter().find(|(name, _)| *name == field).map(|(_, value)| value.clone());
    named_properties(desired).into_iter().filter_map(|(field, to)| set(field, find(field), to)).collect()
}

pub(super) fn set(field: &str, from: Option<String>, to: String) -> Option<Change> {
    (from.as_ref() != Some(&to)).then(|| Change::Set { field: field.into(), from, to })
}

/// The properties of a resource besides its id.
fn named_properties(resource: &Resource) -> Vec<(&'static str, String)> {
    match resource {
        Resource::PackageSource(x) => {
            vec![("keyring", shown_url(&x.keyring)), ("sources", x.sources.join("; "))]
        }
        Resource::Group(x) => vec![("gid", x.gid.to_string())],
        Resource::User(x) => {
            let mut properties = vec![("uid", x.uid.to_string())];
            // If the desired user has no home or shell, the existing user keeps its home or shell.
            if !x.home.is_empty() {
                properties.push(("home", x.home.clone()));
            }
            if !x.shell.is_empty() {
                properties.push(("shell", x.shell.clone()));
            }
            properties
        }
        Resource::Mount(x) => vec![
            ("device", x.device.clone()),
            ("filesystem", x.filesystem.clone()),
            ("atBoot", x.at_boot.to_string()),
        ],
        Resource::BindMount(x) => vec![("source", x.source.clone()), ("options", x.options.join(","))],
        Resource::Directory(x) => {
            vec![("mode", x.mode.to_string()), ("owner", x.owner.clone()), ("group", x.group.clone())]
        }
        Resource::Symlink(x) => vec![("target", x.target.clone())],
        Resource::HostsEntry(x) => vec![("addresses", x.addresses.join(" "))],
        Resource::DiscoveryRegistration(x) => vec![("url", x.url.clone()), ("object", x.object.clone())],
        Resource::Package(_)
        | Resource::KernelModule(_)
        | Resource::Ipv6Prefix(_)
        | Resource::Image(_)
        | Resource::Certificate(_)
        | Resource::File(_)
        | Resource::Unit(_) => vec![],
    }
}

fn new_file(file: &File, replaced: Option<Change>) -> Vec<Change> {
    let mut changes: Vec<Change> = replaced.into_iter().collect();
    changes.extend(access_changes(file, None));
    changes.extend(content_change(file, None, &|_| true));
    changes.extend(file.on_change.iter().map(|command| Change::Run { command: command.clone() }));
    changes
}

fn file_changes(file: &File, present: &ObservedFile, is_reissued: &dyn Fn(&str) -> bool) -> Vec<Change> {
    if file.create_only {
        return vec![];
    }
    let mut changes = access_changes(file, Some(present));
    let content = content_change(file, Some(present), is_reissued);
    let is_new_to_commands = content.is_some() || present.commands_ran_for.as_ref() != Some(&present.sha256);
    changes.extend(content);
    if is_new_to_commands {
        changes.extend(file.on_change.iter().map(|command| Change::Run { command: command.clone() }));
    }
    changes
}

fn access_changes(file: &File, present: Option<&ObservedFile>) -> Vec<Change> {
    let from = present.map(|present| &present.access);
    let group = || from.map_or("root", |from| &from.group).to_owned();
    let group = file.group.clone().unwrap_or_else(group);
    changes_of_access(from, Access { mode: file.mode, owner: file.owner.clone(), group })
}

/// The changes that give a file the owner, the group and the mode in `to`.
pub(super) fn changes_of_access(from: Option<&Access>, to: Access) -> Vec<Change> {
    [
        set("mode", from.map(|from| from.mode.to_string()), to.mode.to_string()),
        set("owner", from.map(|from| from.owner.clone()), to.owner),
        set("group", from.map(|from| from.group.clone()), to.group),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn content_change(
    file: &File,
    present: Option<&ObservedFile>,
    is_reissued: &dyn Fn(&str) -> bool,
) -> Option<Change> {
    match &file.content {
        Content::Text(text) => text_change(file, text, present),
        Content::Base64(encoded) => {
            // Invalid base64 never reaches this line, because it is rejected before planning. The fallback is the encoded text.
            let bytes = STANDARD.decode(encoded).unwrap_or_else(|_| encoded.clone().into_bytes());
            let to = sha256_hex(&bytes);
            let from = present.map(|present| present.sha256.clone());
            (from.as_ref() != Some(&to)).then(|| match file.free_text {
                // A digest would reveal a short secret.
                Some(_) => hidden(),
                None => Change::WriteBytes { from, to: format!("sha256 {to}"), url: None },
            })
        }
        Content::Asset(asset) => asset_change(asset, present),
        Content::Certificate(name) | Content::PrivateKey(name) => {
            compared(present, is_reissued(name), || format!("certificate {name}"))
        }
        // A newly issued certificate does not change its authority.
        Content::Ca(name) => compared(present, false, || format!("authority of certificate {name}")),
        Content::Kubeconfig(kubeconfig) => {
            let name = &kubeconfig.certificate;
            compared(present, is_reissued(name), || format!("kubeconfig of certificate {name}"))
        }
        Content::SecretText(_) => compared(present, false, || "secret".into()),
    }
}

fn compared(present: Option<&ObservedFile>, is_reissued: bool, what: impl Fn() -> String) -> Option<Change> {
    let as_desired = matches!(
        present.map(|x| &x.content),
        Some(ObservedContent::Compared { as_desired: true } | ObservedContent::Unknown { .. })
    );
    (is_reissued || !as_desired).then(|| Change::WriteHidden { what: what() })
}

fn text_change(file: &File, text: &str, present: Option<&ObservedFile>) -> Option<Change> {
    let after = Text { text, free_text: file.free_text.as_ref() };
    let Some(present) = present else { return Some(written(&file.path, None, after)) };
    let means_the_same = present.content == ObservedContent::Compared { as_desired: true };
    if means_the_same || present.sha256 == sha256_hex(text.as_bytes()) {
        return None;
    }
    Some(match &present.content {
        ObservedContent::Text(before) => {
            written(&file.path, Some((before.as_str(), present.free_text.as_ref())), after)
        }
        // A digest would reveal a short secret.
        _ if file.free_text.is_some() => hidden(),
        _ => Change::WriteBytes {
            from: Some(present.sha256.clone()),
            to: format!("sha256 {}", sha256_hex(text.as_bytes())),
            url: None,
        },
    })
}

/// The change of a text. If no part of the text may be shown, the change is hidden. `before` is the present text, with the agent's
/// record of its free text. The record is `None` if the agent has not recorded which part is free text.
pub(super) fn written(path: &str, before: Option<(&str, Option<&FreeText>)>, after: Text<'_>) -> Change {
    let (before, known) = before.unwrap_or_default();
    let free_text = match known {
        Some(free_text) => Some(free_text.clone()),
        None => after.free_text.map(|free_text| of_unknown(before, free_text, after.text)),
    };
    match shown::diff(path, Text { text: before, free_text: free_text.as_ref() }, after) {
        Some(diff) => Change::Write { diff },
        None => hidden(),
    }
}

/// Marks the free text in a text that the agent did not write. Every line is free text, unless an equal line of `after` is public.
fn of_unknown(before: &str, free_text: &FreeText, after: &str) -> FreeText {
    let FreeText::Lines(hidden) = free_text else { return free_text.clone() };
    let public = after.lines().enumerate().filter(|(number, _)| !hidden.contains(number));
    let public: BTreeSet<&str> = public.map(|(_, line)| line).collect();
    let unknown = before.lines().enumerate().filter(|(_, line)| !public.contains(line));
    FreeText::Lines(unknown.map(|(number, _)| number).collect())
}

fn hidden() -> Change {
    Change::WriteHidden { what: "your own text; `plan --show-secrets` shows it".into() }
}

fn asset_change(asset: &AssetContent, present: Option<&ObservedFile>) -> Option<Change> {
    let is_there = match (present, &asset.sha256, &asset.member) {
        (Some(present), Some(sha256), None) => present.sha256 == *sha256,
        (Some(present), Some(sha256), Some(member)) => {
            present.content == ObservedContent::Member { archive: sha256.clone(), member: member.clone() }
        }
        (None, _, _) | (_, None, _) => false,
    };
    let hash = asset.sha256.as_deref().unwrap_or("not known");
    (!is_there).then(|| Change::WriteBytes {
        from: present.map(|present| present.sha256.clone()),
        to: match &asset.member {
            Some(member) => format!("{member} of the archive with sha256 {hash}"),
            None => format!("sha256 {hash}"),
        },
        url: Some(shown_url(&asset.url)),
    })
}
