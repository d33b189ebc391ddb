//! Golden nodes: the desired state of a machine of each role on each cloud, as text for reviews (`tests/golden`).

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::clouds::{CLOUDS, Machine, PRIVATE, Role, certificate, hash_of_url};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kops_agent_plan::resource::{
    AssetContent, Content, DesiredState, File, Issuer, Kubeconfig, Resource, ResourceId, SecretPiece, Unit,
};
use serde_json::json;
use similar::{ChangeTag, TextDiff};

/// The snapshots of all other machines refer to the texts of these two machines. The snapshot of the second machine refers to the texts of
/// the first machine.
const FIRST: [(&str, Role); 2] = [("aws", Role::ControlPlane), ("aws", Role::Node)];
/// A text with fewer than this many lines is printed completely. A longer text may be replaced by a reference to an equal text of another
/// machine.
const LONG: usize = 4;
const SNAPSHOTS: &str = "../../../../tests/golden/snapshots";

macro_rules! nodes {
    ($($cloud:ident)*) => {
        $(mod $cloud {
            use super::*;

            #[test]
            fn control_plane() {
                compare(stringify!($cloud), Role::ControlPlane);
            }

            #[test]
            fn node() {
                compare(stringify!($cloud), Role::Node);
            }
        })*

        const COMPARED: &[&str] = &[$(stringify!($cloud)),*];
    };
}
nodes!(aws azure digitalocean gce hetzner linode metal openstack scaleway);

#[test]
fn every_cloud_has_snapshots_and_every_snapshot_a_cloud() {
    assert_eq!(COMPARED, CLOUDS.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    let expected: BTreeSet<String> = COMPARED
        .iter()
        .flat_map(|cloud| Role::ALL.map(|role| format!("{cloud}-{}.snap", role.name())))
        .collect();
    // This test must list the directory. The lint is for the crate under test, which must not read files.
    #[allow(clippy::disallowed_methods)]
    let there = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/snapshots"));
    let there: BTreeSet<String> =
        there.unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    let others: Vec<_> = there.difference(&expected).collect();
    assert!(others.is_empty(), "no test makes these, or they were not accepted: {others:?}");
}

/// Writes each machine's inputs and desired state into folders below `KOPS_AGENT_GOLDEN`. `tests/golden/upstream/compare` compares the
/// desired states with the output of upstream's own code.
#[test]
#[ignore = "writes files for tests/golden/upstream/compare"]
#[allow(clippy::disallowed_methods)]
fn written_for_upstream() {
    let folder = std::env::var("KOPS_AGENT_GOLDEN").unwrap();
    for (cloud, role) in CLOUDS.iter().flat_map(|(cloud, _)| Role::ALL.map(|role| (*cloud, role))) {
        let derived = Machine::new(cloud, role).derive().unwrap();
        let keysets: BTreeMap<&String, _> = derived.config["KeypairIDs"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, id)| (name, json!({"id": id, "certificate": certificate(name)})))
            .collect();
        let decided = derived.decide().unwrap();
        let resources: Vec<&Resource> = decided.iter().map(|(_, resource)| resource).collect();
        let at = format!("{folder}/{cloud}-{}", role.name());
        std::fs::create_dir_all(&at).unwrap();
        for (name, document) in [
            ("kube_env.yaml", &derived.boot),
            ("nodeupconfig.yaml", &derived.config),
            ("facts.yaml", &derived.facts),
            ("keysets.json", &json!(keysets)),
            ("decided.json", &json!({ "resources": resources })),
        ] {
            std::fs::write(format!("{at}/{name}"), document.to_string()).unwrap();
        }
    }
}

fn compare(cloud: &str, role: Role) {
    let printed_before = FIRST.into_iter().take_while(|first| *first != (cloud, role));
    let known = printed_before.map(|(cloud, role)| (format!("{cloud}-{}", role.name()), decide(cloud, role)));
    let text = print(&decide(cloud, role), &known.collect::<Vec<_>>());
    for secret in [PRIVATE, &STANDARD.encode(PRIVATE), "PRIVATE KEY"] {
        assert!(!text.contains(secret), "private material is shown");
    }
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(SNAPSHOTS);
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(format!("{cloud}-{}", role.name()), text));
}

/// The desired state of this machine. In the texts of the state, `<certificate of NAME>` replaces each certificate.
fn decide(cloud: &str, role: Role) -> DesiredState {
    let derived = Machine::new(cloud, role).derive().unwrap_or_else(|problem| panic!("{cloud}: {problem}"));
    let keysets = derived.config["KeypairIDs"].as_object().unwrap().keys();
    let names: Vec<_> =
        keysets.map(|name| (certificate(name), format!("<certificate of {name}>\n"))).collect();
    let mut named = DesiredState::default();
    for (_, resource) in derived.decide().unwrap_or_else(|problem| panic!("{cloud}: {problem}")).iter() {
        let mut resource = resource.clone();
        if let Resource::File(File { content: Content::Text(text), .. }) = &mut resource {
            *text = names.iter().fold(text.clone(), |text, (pem, name)| text.replace(pem, name));
        }
        named.add(resource);
    }
    named
}

/// Prints a state: one line for each resource and, below the line, the resource's text.
fn print(state: &DesiredState, known: &[(String, DesiredState)]) -> String {
    let mut out = String::new();
    let mut previous = None;
    for (id, resource) in state.iter() {
        if previous.is_some_and(|previous| previous != id.kind) {
            out.push('\n');
        }
        previous = Some(id.kind);
        let (head, body) = describe(resource);
        write!(out, "{id}").unwrap();
        if !head.is_empty() {
            write!(out, "  {head}").unwrap();
        }
        out.push('\n');
        for line in shorten(known, id, &body).lines() {
            writeln!(out, "    {line}").unwrap();
        }
    }
    out
}

/// Shortens the text of the resource `id` if it has at least `LONG` lines. If a resource of a `known` machine has an equal text, returns a
/// reference to that resource. If only the resource `id` of a known machine has a similar text, returns the difference between the
/// two texts.
fn shorten(known: &[(String, DesiredState)], id: &ResourceId, body: &str) -> String {
    let lines = body.lines().count();
    if lines < LONG {
        return body.to_owned();
    }
    let text = |resource: &Resource| describe(resource).1;
    let namesakes = || known.iter().filter_map(|(machine, state)| Some((machine, text(state.get(id)?))));
    if let Some((machine, _)) = namesakes().find(|(_, namesake)| namesake == body) {
        return format!("({lines} lines as on {machine})");
    }
    let other = known.iter().find_map(|(machine, state)| {
        let (other, _) = state.iter().find(|(_, resource)| text(resource) == body)?;
        Some(format!("({lines} lines as in {machine}: {other})"))
    });
    let difference = namesakes().map(|(machine, namesake)| {
        let changed = difference(&namesake, body);
        format!("({lines} lines as on {machine}, but for)\n{changed}")
    });
    let difference = difference.min_by_key(|text| text.lines().count());
    other
        .or_else(|| difference.filter(|text| text.lines().count() * 2 < lines))
        .unwrap_or_else(|| body.to_owned())
}

/// The lines that differ between two texts, marked with `-` and `+`. The result also has the line before each group of differing lines,
/// without a mark.
fn difference(old: &str, new: &str) -> String {
    let mut out = String::new();
    let mut before = None;
    for change in TextDiff::from_lines(old, new).iter_all_changes() {
        let sign = match change.tag() {
            ChangeTag::Equal => {
                before = Some(change.value());
                continue;
            }
            ChangeTag::Delete => '-',
            ChangeTag::Insert => '+',
        };
        if let Some(line) = before.take() {
            writeln!(out, "  {}", line.trim_end_matches('\n')).unwrap();
        }
        writeln!(out, "{sign} {}", change.value().trim_end_matches('\n')).unwrap();
    }
    out
}

/// A resource's text in a snapshot. Returns the text that follows the resource's id on the same line, and the text of the lines below.
fn describe(resource: &Resource) -> (String, String) {
    match resource {
        Resource::File(file) => describe_file(file),
        Resource::Unit(unit) => describe_unit(unit),
        Resource::Directory(x) => (format!("{} {}:{}", x.mode, x.owner, x.group), String::new()),
        Resource::Symlink(x) => (format!("-> {}", x.target), String::new()),
        Resource::Certificate(x) => {
            let issuer = match x.issuer {
                Issuer::Local => format!("signed here by {} {}", x.signer, x.keypair_id),
                Issuer::Bootstrap => format!("signed by a control plane's {}", x.signer),
            };
            let groups = x.subject.organization.iter().map(|group| format!(", O={group}"));
            let subject = format!("CN={}{}", x.subject.common_name, groups.collect::<String>());
            let root = if x.include_root { ", with its authority" } else { "" };
            (
                format!("{:?}, {issuer}{root}: {subject}", x.certificate_type),
                x.sans.iter().map(|name| format!("for {name}\n")).collect(),
            )
        }
        Resource::HostsEntry(x) => (x.addresses.join(" "), String::new()),
        Resource::Package(_) | Resource::KernelModule(_) | Resource::Group(_) => Default::default(),
        other => {
            // All other kinds of resources are printed with all their fields except `kind`.
            let fields = serde_json::to_value(other).unwrap();
            let fields = fields.as_object().unwrap().iter().filter(|(name, _)| *name != "kind");
            (String::new(), fields.map(|(name, value)| format!("{name}: {value}\n")).collect())
        }
    }
}

fn describe_file(file: &File) -> (String, String) {
    let group = file.group.as_ref().map(|group| format!(":{group}")).unwrap_or_default();
    let mut head = format!("{} {}{group}", file.mode, file.owner);
    if file.create_only {
        head.push_str(", only if there is none");
    }
    for command in &file.on_change {
        write!(head, ", then `{}`", command.join(" ")).unwrap();
    }
    let body = match &file.content {
        Content::Text(text) => text.clone(),
        Content::Base64(base64) => format!("base64 {base64}"),
        Content::Asset(AssetContent { url, mirrors, sha256, member }) => {
            assert_eq!(sha256.as_ref(), Some(&hash_of_url(url)), "{} has the hash of another", file.path);
            let mirrors = mirrors.iter().map(|mirror| format!(" or {mirror}")).collect::<String>();
            let member = member.iter().map(|member| format!(" member {member}")).collect::<String>();
            format!("<{url}{mirrors}{member}>")
        }
        Content::Certificate(name) => format!("<certificate {name}>"),
        Content::PrivateKey(name) => format!("<private key of {name}>"),
        Content::Ca(name) => format!("<authority of {name}>"),
        Content::Kubeconfig(Kubeconfig { certificate, server }) => {
            format!("<kubeconfig of {certificate} for {server}>")
        }
        Content::SecretText(pieces) => pieces.iter().map(describe_piece).collect(),
    };
    (head, body)
}

fn describe_piece(piece: &SecretPiece) -> String {
    match piece {
        SecretPiece::Text(text) => text.clone(),
        SecretPiece::Secret(name) => format!("<secret {name}>"),
        SecretPiece::Environment(names) => format!("<environment {}>", names.join(" or ")),
        SecretPiece::EnvironmentLine { name, given } => {
            format!("<{name} of the environment, if {given} is set>")
        }
        SecretPiece::KeysetPrivateKey { keyset, id } => format!("<private key {id} of {keyset}>"),
    }
}

fn describe_unit(unit: &Unit) -> (String, String) {
    let enabled = if unit.enabled { "enabled" } else { "disabled" };
    let running = if unit.running { "running" } else { "stopped" };
    let mut head = format!("{enabled}, {running}");
    for id in &unit.restarted_by {
        write!(head, "\n    restarted by {id}").unwrap();
    }
    (head, unit.text.clone().unwrap_or_else(|| "(the distribution's)".into()))
}
