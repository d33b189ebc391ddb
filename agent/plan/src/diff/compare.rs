//! One resource, desired and observed, compared. Units are compared in [`super::units`], because what
//! they do depends on everything else.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::observed::{Access, Observed, ObservedContent, ObservedFile};
use super::step::Change;
use crate::digest::sha256_hex;
use crate::resource::{AssetContent, Content, File, Resource};
use crate::shown;
use crate::static_pod::{is_manifest, is_manifest_of_kops};
use kops_agent_spec::urls::shown_url;

/// What must change; `None` where nothing must, not even come into being.
///
/// `is_reissued` tells whether a certificate gets replaced by the same plan.
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
            Some(vec![Change::Issue { why: "there is none yet".into(), renewal: false }])
        }
        (Resource::Certificate(_), Some(Observed::Certificate(present))) => {
            let issue = |why: &String| Change::Issue { why: why.clone(), renewal: present.is_due };
            Some(present.replace.iter().map(issue).collect())
        }
        // To name no address for a host is to want no line about it.
        (Resource::HostsEntry(entry), None) if entry.addresses.is_empty() => None,
        (_, Some(Observed::Other(what))) => {
            let mut changes = vec![Change::Replace { what: what.clone() }];
            changes.extend(properties(desired, None));
            Some(changes)
        }
        (_, Some(Observed::Resource(present))) => Some(properties(desired, Some(present))),
        (_, _) => Some(properties(desired, None)),
    }
}

/// The properties of a simple resource that differ from `present`, or all of them.
fn properties(desired: &Resource, present: Option<&Resource>) -> Vec<Change> {
    let present: Vec<(&str, String)> = present.map(named_properties).unwrap_or_default();
    let find = |field: &str| present.iter().find(|(name, _)| *name == field).map(|(_, value)| value.clone());
    named_properties(desired).into_iter().filter_map(|(field, to)| set(field, find(field), to)).collect()
}

pub(super) fn set(field: &str, from: Option<String>, to: String) -> Option<Change> {
    (from.as_ref() != Some(&to)).then(|| Change::Set { field: field.into(), from, to })
}

/// What there is to say of a resource besides its id.
fn named_properties(resource: &Resource) -> Vec<(&'static str, String)> {
    match resource {
        Resource::PackageSource(x) => {
            vec![("keyring", shown_url(&x.keyring)), ("sources", x.sources.join("; "))]
        }
        Resource::Group(x) => vec![("gid", x.gid.to_string())],
        Resource::User(x) => {
            let mut properties = vec![("uid", x.uid.to_string())];
            // A user that wants no home or shell keeps the one it was given.
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

/// What gives a file the owner, group and mode `to`.
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
        Content::Text(text) => text_change(file, text, present).map(|change| discreet(file, present, change)),
        Content::Base64(encoded) => {
            // What is no base64 never gets this far: it is refused before anything is planned or
            // written. Its own text stands for it here.
            let bytes = STANDARD.decode(encoded).unwrap_or_else(|_| encoded.clone().into_bytes());
            let to = sha256_hex(&bytes);
            let from = present.map(|present| present.sha256.clone());
            let change = Change::WriteBytes { from: from.clone(), to: format!("sha256 {to}"), url: None };
            (from.as_ref() != Some(&to)).then(|| discreet(file, present, change))
        }
        Content::Asset(asset) => asset_change(asset, present),
        Content::Certificate(name) | Content::PrivateKey(name) => {
            compared(present, is_reissued(name), || format!("certificate {name}"))
        }
        // The authority stays when it signs anew.
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
    let Some(present) = present else {
        return Some(written(&file.path, "", text));
    };
    let means_the_same = present.content == ObservedContent::Compared { as_desired: true };
    if means_the_same || present.sha256 == sha256_hex(text.as_bytes()) {
        return None;
    }
    Some(match &present.content {
        ObservedContent::Text(before) => written(&file.path, before, text),
        _ => Change::WriteBytes {
            from: Some(present.sha256.clone()),
            to: format!("sha256 {}", sha256_hex(text.as_bytes())),
            url: None,
        },
    })
}

/// A text that takes the place of another, as far as that may be shown.
pub(super) fn written(path: &str, before: &str, after: &str) -> Change {
    match shown::diff(path, before, after) {
        Some(diff) => Change::Write { diff },
        None => Change::WriteHidden { what: "what may have secrets is not shown".into() },
    }
}

/// What is not for all to read, now or afterwards, may be a secret, a user's file more than others: neither the text
/// nor its hash, which tells a short secret, is shown. Plans are printed to the journal.
fn discreet(file: &File, present: Option<&ObservedFile>, change: Change) -> Change {
    match present {
        // There is nothing to tell of a log that is still empty.
        _ if matches!(&change, Change::Write { diff } if diff.is_empty()) => change,
        // They are private for the values of variables, without which they are shown.
        _ if is_manifest_of_kops(&file.path) && matches!(change, Change::Write { .. }) => change,
        // A digest tells a short value of a variable.
        _ if is_manifest(&file.path) && matches!(change, Change::WriteBytes { .. }) => {
            Change::WriteHidden { what: "manifest of a pod".into() }
        }
        _ if shown::is_private(file.mode) => Change::WriteHidden { what: "private".into() },
        Some(present) if shown::is_private(present.access.mode) => {
            Change::WriteHidden { what: "the present file is private".into() }
        }
        _ => change,
    }
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
