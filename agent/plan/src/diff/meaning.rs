//! Decides whether two texts of a file mean the same to the program that reads it.
//!
//! A text by upstream's nodeup and a text by the agent differ in order, quotes and comments, and in unset values that Go prints. Rewriting
//! such a file would restart its readers for nothing. Only files with a known format and reader are compared by meaning. A user's file is
//! compared byte by byte. In doubt two texts are different: that costs only a write. The opposite error would keep a node from its
//! configuration.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_yaml::{Mapping, Value};
use x509_parser::pem::Pem;

use crate::static_pod::is_manifest;
use crate::unit_files;
use kops_agent_spec::go_yaml::is_plain_string;
use kops_agent_spec::yaml;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// Kubernetes objects and configurations, and other YAML.
    Yaml,
    Toml,
    /// Sections with directives (systemd.syntax(7)).
    Sections,
    /// Variables whose values are flags of a program (`EnvironmentFile=` of systemd.exec(5)).
    Flags,
    /// One setting in each line, with comments after `#`.
    Lines,
    /// One row in each line, in any order (kube-apiserver's `--token-auth-file`).
    Rows,
}

/// The format of a file that kOps itself writes (nodeup/pkg/model) and that only known programs read.
fn format_of(path: &str) -> Option<Format> {
    let is_toml = path.strip_prefix("/etc/containerd/").is_some_and(|rest| rest.ends_with(".toml"));
    match path {
        "/var/lib/kubelet/kubelet.conf"
        | "/var/lib/kubelet/credential-provider.conf"
        | "/etc/crictl.yaml"
        | "/etc/cloud/cloud.cfg.d/99-disable-network-hotplug.cfg" => Some(Format::Yaml),
        // Upstream writes protokube's variables in random order, so their order has no meaning.
        "/etc/sysconfig/kubelet" | "/etc/sysconfig/containerd" | "/etc/sysconfig/protokube" => {
            Some(Format::Flags)
        }
        "/etc/chrony/chrony.conf"
        | "/etc/chrony.conf"
        | "/etc/kops/firewalld-disabled"
        | "/etc/kubernetes/cloud.config"
        | "/etc/kubernetes/in-tree-cloud.config"
        | "/etc/sysctl.d/99-k8s-general.conf"
        | "/opt/kops/bin/cni-iptables-setup"
        | "/opt/kops/bin/iptables-setup" => Some(Format::Lines),
        "/srv/kubernetes/kube-apiserver/known_tokens.csv" => Some(Format::Rows),
        "/etc/systemd/network/10-eni-secondary.network"
        | "/etc/systemd/network/75-eni-secondary.network"
        | "/etc/systemd/network/99-default.link"
        | "/etc/systemd/timesyncd.conf" => Some(Format::Sections),
        _ if is_manifest(path) => Some(Format::Yaml),
        _ if is_toml => Some(Format::Toml),
        _ if unit_files::is_of_systemd(path) || path.starts_with("/usr/lib/systemd/networkd.conf.d/") => {
            Some(Format::Sections)
        }
        _ => None,
    }
}

/// Whether both texts of the file at `path` have the same meaning.
pub fn is_same_file(path: &str, one: &str, other: &str) -> bool {
    one == other || format_of(path).is_some_and(|format| is_same(format, one, other))
}

/// Whether both texts of a unit have the same meaning.
pub fn is_same_unit(one: &str, other: &str) -> bool {
    one == other || is_same(Format::Sections, one, other)
}

fn is_same(format: Format, one: &str, other: &str) -> bool {
    match format {
        Format::Yaml => is_same_yaml(one, other),
        Format::Toml => {
            let parse = |text: &str| text.parse::<toml::Table>().ok();
            parse(one).is_some_and(|one| parse(other) == Some(one))
        }
        Format::Sections => sections(one) == sections(other),
        Format::Flags => variables(one) == variables(other),
        Format::Lines => settings(one) == settings(other),
        Format::Rows => {
            let rows = |text: &str| {
                let mut rows: Vec<String> = text.lines().map(str::to_owned).collect();
                rows.sort();
                rows
            };
            rows(one) == rows(other)
        }
    }
}

// YAML: comparison by values.

fn is_same_yaml(one: &str, other: &str) -> bool {
    match (documents(one), documents(other)) {
        (Some(first), Some(second)) => first == second && ambiguous(&first, one) == ambiguous(&second, other),
        _ => false,
    }
}

/// Parses the documents of a text. Removes null documents, null fields and unset fields, because they have no meaning.
fn documents(text: &str) -> Option<Vec<Value>> {
    let mut documents = Vec::new();
    for document in yaml::documents::<Value>(text) {
        let mut document = document.ok()?;
        drop_nulls(&mut document);
        match &mut document {
            Value::Null => continue,
            Value::Mapping(object) => drop_unset(object),
            _ => {}
        }
        documents.push(document);
    }
    Some(documents)
}

/// Removes null fields, because Kubernetes' decoders treat them as missing. A null in a list is an element, and stays.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Mapping(mapping) => {
            mapping.retain(|_, value| !value.is_null());
            mapping.values_mut().for_each(drop_nulls);
        }
        Value::Sequence(sequence) => sequence.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// Removes fields that Go prints although they are unset. The object's kind decides which fields these are.
fn drop_unset(object: &mut Mapping) {
    match object.get("kind").and_then(Value::as_str) {
        // kubelet reports a pod's status itself, so an empty status in a file has no meaning.
        Some("Pod") if object.get("status").is_some_and(is_empty) => {
            object.remove("status");
        }
        Some("KubeletConfiguration") => drop_unset_of_kubelet(object),
        // The order of `matchImages` has no meaning, because one match is enough (the kubelet's CredentialProvider API).
        Some("CredentialProviderConfig") => {
            let providers = object.get_mut("providers").and_then(Value::as_sequence_mut);
            for images in
                providers.into_iter().flatten().filter_map(|provider| provider.get_mut("matchImages"))
            {
                if let Some(images) = images.as_sequence_mut() {
                    images.sort_by(|one, other| one.as_str().cmp(&other.as_str()));
                }
            }
        }
        _ => {}
    }
}

fn is_empty(value: &Value) -> bool {
    value.as_mapping().is_some_and(Mapping::is_empty)
}

/// The struct fields of kubelet's configuration. An empty struct has the same meaning as a missing struct. An empty list, or an
/// empty map with free keys (`evictionHard`), differs in meaning from a missing one.
const STRUCTS_OF_KUBELET: [&str; 12] = [
    "anonymous",
    "authentication",
    "authorization",
    "crashLoopBackOff",
    "json",
    "logging",
    "memorySwap",
    "metadata",
    "options",
    "text",
    "webhook",
    "x509",
];

/// Removes unset fields. A zero duration and an empty endpoint are unset (pkg/kubelet/apis/config/v1beta1/defaults.go compares with zero).
fn drop_unset_of_kubelet(object: &mut Mapping) {
    for (_, value) in object.iter_mut() {
        if let Value::Mapping(inner) = value {
            drop_unset_of_kubelet(inner);
        }
    }
    object.retain(|key, value| {
        let key = key.as_str().unwrap_or_default();
        // The keys of `evictionSoftGracePeriod` are signals, such as `memory.available`. For these keys, a zero duration is a value.
        let is_unset_duration = value.as_str() == Some("0s") && !key.contains('.');
        // Up to kOps 1.35, a flag sets the endpoint, and Go writes the unset field with an empty value.
        let is_unset_endpoint = key == "containerRuntimeEndpoint" && value.as_str() == Some("");
        !(is_unset_duration || is_unset_endpoint || (STRUCTS_OF_KUBELET.contains(&key) && is_empty(value)))
    });
}

/// Counts how often each ambiguous string is in quotes. Without quotes, Go reads such a string as another type: `yes` as a boolean, `0644`
/// as a number. This crate's parser reads both `yes` and `"yes"` as a string, so it cannot distinguish them.
fn ambiguous(documents: &[Value], text: &str) -> BTreeMap<String, usize> {
    let mut strings = BTreeSet::new();
    documents.iter().for_each(|document| collect_strings(document, &mut strings));
    let quoted = |string: &str| {
        text.matches(&format!("\"{string}\"")).count() + text.matches(&format!("'{string}'")).count()
    };
    strings
        .into_iter()
        .filter(|string| !string.is_empty() && !is_plain_string(string))
        .map(|string| (string.to_owned(), quoted(string)))
        .collect()
}

fn collect_strings<'a>(value: &'a Value, strings: &mut BTreeSet<&'a str>) {
    match value {
        Value::String(string) => {
            strings.insert(string);
        }
        Value::Sequence(sequence) => sequence.iter().for_each(|value| collect_strings(value, strings)),
        Value::Mapping(mapping) => mapping.iter().for_each(|(key, value)| {
            collect_strings(key, strings);
            collect_strings(value, strings);
        }),
        _ => {}
    }
}

// Other texts: comparison by directives, variables or lines.

/// The values of each directive in each section, in order. Lines outside sections are in a section with an empty name. A line that is not a
/// directive is a key with an empty value.
fn sections(text: &str) -> BTreeMap<String, BTreeMap<String, Vec<String>>> {
    let mut sections: BTreeMap<String, BTreeMap<String, Vec<String>>> = BTreeMap::new();
    let mut section = String::new();
    let mut begun: Option<String> = None;
    for line in text.lines() {
        let line = line.trim();
        if line.starts_with(['#', ';']) || (line.is_empty() && begun.is_none()) {
            continue;
        }
        let whole = match begun.take() {
            Some(before) => format!("{before} {line}"),
            None => line.to_owned(),
        };
        if let Some(before) = whole.strip_suffix('\\') {
            begun = Some(before.to_owned());
        } else if whole.starts_with('[') && whole.ends_with(']') {
            section = whole;
            sections.entry(section.clone()).or_default();
        } else {
            let (key, value) = whole.split_once('=').map_or((whole.as_str(), None), |(k, v)| (k, Some(v)));
            let values = sections.entry(section.clone()).or_default().entry(key.trim_end().to_owned());
            values.or_default().push(value.map_or(String::new(), |value| format!("={}", value.trim_start())));
        }
    }
    if let Some(rest) = begun {
        sections.entry(section).or_default().entry(rest).or_default();
    }
    sections
}

/// The variables of an environment file. If a value consists only of flags, the flags are sorted by name.
fn variables(text: &str) -> BTreeMap<&str, Vec<&str>> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(['#', ';']));
    lines
        .map(|line| {
            let Some((name, value)) = line.split_once('=') else { return (line, vec![]) };
            let value = unquoted(value);
            let words: Vec<&str> = value.split_whitespace().collect();
            if words.is_empty() || !words.iter().all(|word| word.starts_with("--")) || has_quotes(value) {
                return (name, vec![value]);
            }
            let mut flags = words;
            // The sort is stable, because the order of a repeated flag's values matters.
            flags.sort_by_key(|flag| flag.split('=').next());
            (name, flags)
        })
        .collect()
}

fn has_quotes(value: &str) -> bool {
    value.contains(['"', '\'', '\\'])
}

/// Removes quotes around the whole value.
fn unquoted(value: &str) -> &str {
    let inner = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
    inner.filter(|inner| !has_quotes(inner)).unwrap_or(value)
}

/// The lines that are neither blank nor comments.
fn settings(text: &str) -> Vec<&str> {
    let is_comment = |line: &str| line.trim_start().starts_with('#') && !line.starts_with("#!");
    text.lines().map(str::trim_end).filter(|line| !line.is_empty() && !is_comment(line)).collect()
}

// Keys and certificates: comparison by PEM blocks.

/// Whether two texts have the same PEM blocks in the same order. Text around the blocks is ignored.
pub fn is_same_pem(one: &str, other: &str) -> bool {
    one == other || blocks(one).is_some_and(|one| blocks(other) == Some(one))
}

/// Whether two texts have the same authorities in PEM, in any order.
pub fn are_same_authorities(one: &str, other: &str) -> bool {
    let set = |text: &str| blocks(text).map(|blocks| blocks.into_iter().collect::<BTreeSet<_>>());
    one == other || set(one).is_some_and(|one| set(other) == Some(one))
}

/// The PEM blocks of a text. `None` if the text has no block, or a block is malformed.
fn blocks(text: &str) -> Option<Vec<(String, Vec<u8>)>> {
    let blocks: Result<Vec<_>, _> = Pem::iter_from_buffer(text.as_bytes())
        .map(|block| block.map(|block| (block.label, block.contents)))
        .collect();
    blocks.ok().filter(|blocks| !blocks.is_empty())
}

/// Whether two kubeconfigs connect to the same server with the same certificate and trust the same authorities.
pub fn is_same_kubeconfig(one: &str, other: &str) -> bool {
    one == other || kubeconfig(one).is_some_and(|one| kubeconfig(other) == Some(one))
}

/// Whether the kubeconfig `found` can stay in place of `wanted`. The two may differ only in their authorities: `found` may trust fewer
/// authorities, but must trust all authorities in `least`.
pub fn serves_as_kubeconfig(found: &str, wanted: &str, least: &str) -> bool {
    let (Some(found), Some(wanted)) = (kubeconfig(found), kubeconfig(wanted)) else { return false };
    found.0 == wanted.0 && found.2 == wanted.2 && trusts_enough(&found.1, &wanted.1, least)
}

/// Whether the authorities `found` (PEM) can stay in place of `wanted`. `found` may lack authorities of `wanted`, but must contain all
/// authorities in `least`.
pub fn serve_as_authorities(found: &str, wanted: &str, least: &str) -> bool {
    let set = |text: &str| blocks(text).map(|blocks| blocks.into_iter().collect());
    set(found).zip(set(wanted)).is_some_and(|(found, wanted)| trusts_enough(&found, &wanted, least))
}

/// A set of PEM blocks, whose order does not matter.
type Blocks = BTreeSet<(String, Vec<u8>)>;

fn trusts_enough(found: &Blocks, wanted: &Blocks, least: &str) -> bool {
    let least = blocks(least).unwrap_or_default();
    found.is_subset(wanted) && least.iter().all(|block| found.contains(block))
}

/// The parts of a parsed kubeconfig: all fields except certificates and keys, then the authorities, then the user's certificate and key.
type Kubeconfig = (Value, Blocks, Vec<(String, Vec<u8>)>);

fn kubeconfig(text: &str) -> Option<Kubeconfig> {
    let mut whole: Value = yaml::from_str(text).ok()?;
    drop_nulls(&mut whole);
    let cluster = whole.get_mut("clusters")?.get_mut(0)?.get_mut("cluster")?;
    let authorities = take_pem(cluster, "certificate-authority-data")?;
    let user = whole.get_mut("users")?.get_mut(0)?.get_mut("user")?;
    let mut own = take_pem(user, "client-certificate-data")?;
    own.extend(take_pem(user, "client-key-data")?);
    Some((whole, authorities.into_iter().collect(), own))
}

fn take_pem(from: &mut Value, field: &str) -> Option<Vec<(String, Vec<u8>)>> {
    let encoded = from.as_mapping_mut()?.remove(field)?;
    let text = String::from_utf8(STANDARD.decode(encoded.as_str()?).ok()?).ok()?;
    blocks(&text)
}

#[cfg(test)]
mod tests;
