//! Properties of arbitrary channels, clusters and objects.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::manifest::objects;
use super::prune::{Listed, doomed};
use super::*;

/// An entry of a channel. Names, ids and hashes have few values, so that duplicates occur.
#[derive(Clone, Debug)]
struct Entry {
    name: String,
    id: String,
    hash: String,
    minors: Option<(u64, u64)>,
    needs_pki: bool,
    needs_rolling_update: &'static str,
}

impl Entry {
    fn json(&self) -> Value {
        let range = self.minors.map_or(String::new(), |(from, to)| format!(">=1.{from}.0 <1.{to}.0"));
        json!({"name": self.name, "id": self.id, "manifestHash": self.hash, "kubernetesVersion": range,
               "manifest": "m.yaml", "needsPKI": self.needs_pki, "needsRollingUpdate": self.needs_rolling_update})
    }

    fn is_for(&self, minor: u64) -> bool {
        self.minors.is_none_or(|(from, to)| (from..to).contains(&minor))
    }
}

fn entry() -> impl Strategy<Value = Entry> {
    let minors = prop::option::of((30..34u64, 30..36u64));
    let needs = prop::sample::select(vec!["", "all", "workers", "control-plane"]);
    ("[abc]", "[12]?", "[xyz]?", minors, any::<bool>(), needs).prop_map(
        |(name, id, hash, minors, needs_pki, needs_rolling_update)| Entry {
            name,
            id,
            hash,
            minors,
            needs_pki,
            needs_rolling_update,
        },
    )
}

fn entries() -> impl Strategy<Value = Vec<Entry>> {
    prop::collection::vec(entry(), 0..12)
}

fn channel_with(entries: &[Entry]) -> Channel {
    let entries: Vec<Value> = entries.iter().map(Entry::json).collect();
    let document = json!({"kind": "Addons", "metadata": {"name": "bootstrap"}, "spec": {"addons": entries}});
    Channel::parse(document.to_string().as_bytes(), URL, KopsRelease::NEWEST).unwrap()
}

fn version() -> impl Strategy<Value = ChannelVersion> {
    (prop::option::of("[a-z&<>:/ \"é\u{2028}]{0,8}"), "[12]?", "[xyz]?", 0..3i64).prop_map(
        |(channel, id, manifest_hash, system_generation)| ChannelVersion {
            channel,
            id,
            manifest_hash,
            system_generation,
        },
    )
}

/// Generates the `fieldsV1` of one field manager, with few names and up to three levels.
fn fields() -> impl Strategy<Value = Value> {
    let leaf = Just(json!({}));
    leaf.prop_recursive(3, 16, 3, |below| {
        (prop::collection::btree_map("f:[abc]", below, 1..4), any::<bool>()).prop_map(
            |(mut below, is_itself)| {
                if is_itself {
                    below.insert(".".to_owned(), json!({}));
                }
                json!(below)
            },
        )
    })
    // The root itself is not owned.
    .prop_map(|mut root| {
        root.as_object_mut().map(|root| root.remove("."));
        root
    })
}

/// Collects the paths of all owned fields.
fn paths(fields: &Value, at: &str, found: &mut BTreeSet<String>) {
    for (key, below) in fields.as_object().unwrap() {
        if key == "." {
            found.insert(at.to_owned());
            continue;
        }
        let path = format!("{at}/{key}");
        if below.as_object().unwrap().is_empty() {
            found.insert(path.clone());
        }
        paths(below, &path, found);
    }
}

fn path_set(fields: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    paths(fields, "", &mut found);
    found
}

proptest! {
    /// Each add-on with an entry for the Kubernetes version is on the menu exactly once, with one of its entries for that version (the
    /// chosen entry). Entries of the add-on for that version that follow the chosen entry have the chosen entry's id and hash.
    #[test]
    fn the_menu_has_each_name_once(entries in entries(), minor in 29..37u64) {
        let channel = channel_with(&entries);
        let menu = channel.menu(kubernetes(&format!("v1.{minor}.5")));
        let wanted: BTreeSet<&str> =
            entries.iter().filter(|entry| entry.is_for(minor)).map(|entry| entry.name.as_str()).collect();
        let names: Vec<&str> = menu.addons.iter().map(|addon| addon.name.as_str()).collect();
        prop_assert_eq!(names.iter().copied().collect::<BTreeSet<_>>(), wanted);
        prop_assert_eq!(names.len(), names.iter().collect::<BTreeSet<_>>().len());
        for addon in &menu.addons {
            let chosen = &entries[addon.index];
            prop_assert!(chosen.is_for(minor) && chosen.name == addon.name);
            let same = |entry: &&Entry| (&entry.id, &entry.hash) == (&chosen.id, &chosen.hash);
            let later = entries[addon.index..].iter().filter(|entry| entry.name == chosen.name && entry.is_for(minor));
            prop_assert!(later.clone().all(|entry| same(&entry)), "a later one is of another version");
            // If consecutive entries have equal versions, the first of these entries is chosen.
            let earlier = entries[..addon.index].iter().rev().find(|entry| entry.name == chosen.name && entry.is_for(minor));
            prop_assert!(!earlier.is_some_and(|entry| same(&entry)));
        }
        prop_assert!(menu.left_out.is_empty());
    }

    #[test]
    fn entries_for_other_versions_are_ignored(entries in entries(), minor in 29..37u64) {
        let version = kubernetes(&format!("v1.{minor}.0"));
        let only: Vec<Entry> = entries.iter().filter(|entry| entry.is_for(minor)).cloned().collect();
        let chosen = |channel: Channel| -> Vec<(String, ChannelVersion)> {
            channel.menu(version).addons.into_iter().map(|addon| (addon.name.clone(), addon.version())).collect()
        };
        prop_assert_eq!(chosen(channel_with(&entries)), chosen(channel_with(&only)));
    }

    /// If the due work is done and its version is recorded, nothing more is due.
    #[test]
    fn applied_work_is_not_due_again(entries in entries(), installed in prop::option::of(version()), has_pki: bool) {
        for addon in menu(&channel_with(&entries)).addons {
            let Some(due_now) = due(&addon, installed.as_ref(), has_pki) else { continue };
            let recorded = match &due_now.version {
                Some(version) => ChannelVersion::parse(&version.encode()),
                None => installed.clone(),
            };
            prop_assert_eq!(due(&addon, recorded.as_ref(), has_pki || due_now.pki), None);
            prop_assert!(due_now.version.is_some() || due_now.pki);
            prop_assert!(due_now.marks.is_none() || (due_now.version.is_some() && installed.is_some()));
        }
    }

    /// No version replaces itself. If the ids or hashes of two versions differ, each replaces the other. Otherwise only the version with
    /// the higher generation replaces the other version.
    #[test]
    fn versions_replace_each_other_by_the_rules(one in version(), other in version()) {
        prop_assert!(!one.replaces(&one));
        let is_another = (&one.id, &one.manifest_hash) != (&other.id, &other.manifest_hash);
        let is_later = one.system_generation > other.system_generation;
        prop_assert_eq!(one.replaces(&other), is_another || is_later);
        prop_assert_eq!(one.replaces(&other) && other.replaces(&one), is_another);
    }

    #[test]
    fn a_recorded_version_reads_back(version in version(), name in "[a-z.]{1,12}") {
        let annotations = BTreeMap::from([(annotation(&name), version.encode())]);
        prop_assert_eq!(recorded(&annotations), BTreeMap::from([(name, version.clone())]));
        let is_escaped = !version.encode().contains(['&', '<', '>', '\u{2028}']);
        prop_assert!(is_escaped);
    }

    /// A version is in a range if all comparisons of one alternative hold.
    #[test]
    fn a_range_has_the_versions_of_its_comparisons(
        alternatives in prop::collection::vec(prop::collection::vec((0..6usize, 0..3u64, 0..3u64, 0..3u64), 1..4), 1..3),
        version in (0..3u64, 0..3u64, 0..3u64),
        spaced: bool,
    ) {
        const OPERATORS: [&str; 6] = ["=", "!=", ">", ">=", "<", "<="];
        let gap = if spaced { " " } else { "" };
        let word = |(operator, a, b, c): &(usize, u64, u64, u64)| format!("{}{gap}{a}.{b}.{c}", OPERATORS[*operator]);
        let text: Vec<String> =
            alternatives.iter().map(|all| all.iter().map(word).collect::<Vec<_>>().join(" ")).collect();
        let holds = |(operator, a, b, c): &(usize, u64, u64, u64)| {
            let other = (*a, *b, *c);
            match OPERATORS[*operator] {
                "=" => version == other,
                "!=" => version != other,
                ">" => version > other,
                ">=" => version >= other,
                "<" => version < other,
                _ => version <= other,
            }
        };
        let wanted = alternatives.iter().any(|all| all.iter().all(holds));
        let range: VersionRange = text.join(" || ").parse().unwrap();
        let (a, b, c) = version;
        prop_assert_eq!(range.has(kubernetes(&format!("v{a}.{b}.{c}"))), wanted);
    }

    #[test]
    fn pruning_deletes_listed_objects_outside_the_manifest(
        kept in prop::collection::btree_set(("[nm]", "[abc]"), 0..6),
        listed in prop::collection::btree_set(("[nm]", "[abc]"), 0..6),
    ) {
        let document = |(namespace, name): &(String, String)| {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}}).to_string()
        };
        let manifest: Vec<String> = kept.iter().map(document).collect();
        let manifest = objects(manifest.join("\n---\n").as_bytes(), URL).unwrap();
        let rule = PruneKind { kind: "ConfigMap".into(), label_selector: "a=b".into(), ..PruneKind::default() };
        let found = listed.iter().map(|(namespace, name)| Listed {
            namespace: namespace.clone(),
            name: name.clone(),
            is_paused: false,
            is_owned: false,
        });
        let doomed: BTreeSet<(String, String)> =
            doomed(&rule, &manifest, found.collect()).into_iter().map(|one| (one.namespace, one.name)).collect();
        prop_assert_eq!(doomed, listed.difference(&kept).cloned().collect::<BTreeSet<_>>());
    }

    /// Merging the fields of two managers keeps all paths of both and adds none. The order does not matter.
    #[test]
    fn merged_fields_are_the_union_of_both(one in fields(), other in fields()) {
        let union = managed_fields::union(&one, &other);
        let wanted: BTreeSet<String> = path_set(&one).union(&path_set(&other)).cloned().collect();
        prop_assert_eq!(path_set(&union), wanted);
        prop_assert_eq!(&managed_fields::union(&other, &one), &union);
        prop_assert_eq!(managed_fields::union(&union, &one), union);
    }

    #[test]
    fn arbitrary_channels_and_manifests_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), text in "(?s)[a-z:{}\\[\\]\n -]{0,80}") {
        for bytes in [&bytes[..], text.as_bytes()] {
            for version in ["1.35.0", "1.36.0"] {
                let release = KopsRelease::of_version(version).unwrap();
                let _ = Channel::parse(bytes, URL, release).map(|channel| menu(&channel));
            }
            let _ = objects(bytes, URL);
        }
    }

    #[test]
    fn parsing_ranges_and_versions_never_panics(text in ".{0,30}", near in "[v0-9.x<>=!| +-]{0,30}") {
        for text in [text, near] {
            let _ = text.parse::<VersionRange>();
            let _ = ServerVersion::parse(&text);
            let _ = ChannelVersion::parse(&text);
        }
    }
}
