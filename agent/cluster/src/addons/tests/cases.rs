//! Test cases for channels, versions and due updates.

use std::collections::BTreeMap;

use super::*;

#[test]
fn a_channel_in_kops_form_is_read() {
    let channel = channel(
        "kind: Addons
metadata:
  creationTimestamp: null
  name: bootstrap
spec:
  addons:
  - id: k8s-1.12
    manifest: coredns.addons.k8s.io/k8s-1.12.yaml
    manifestHash: abc
    name: coredns.addons.k8s.io
    needsPKI: true
    needsRollingUpdate: all
    prune:
      kinds:
      - {kind: ConfigMap, labelSelector: 'a=b', namespaces: [kube-system]}
      - {group: apps, kind: Deployment, labelSelector: 'a=b'}
    selector:
      k8s-addon: coredns.addons.k8s.io
    version: 9.99.0
",
    );
    assert!(channel.is_bootstrap);
    let menu = menu(&channel);
    let [addon] = &menu.addons[..] else { panic!("{menu:?}") };
    assert_eq!((addon.name.as_str(), addon.namespace()), ("coredns.addons.k8s.io", "kube-system"));
    assert_eq!(
        addon.manifest_url().unwrap(),
        "s3://clusters/c.example.com/addons/coredns.addons.k8s.io/k8s-1.12.yaml"
    );
    assert_eq!(addon.needs_rolling_update(), Some(NeedsRollingUpdate::All));
    assert!(addon.spec.needs_pki && addon.check().is_ok());
    let kinds: Vec<&str> = addon.spec.prune.iter().flat_map(|p| &p.kinds).map(|k| k.kind.as_str()).collect();
    assert_eq!(kinds, ["ConfigMap", "Deployment"]);
}

#[test]
fn only_the_first_document_of_a_channel_counts() {
    let first = "kind: Addons\nmetadata: {name: example}\nspec: {addons: [{name: a, manifest: a.yaml}]}";
    let second = "kind: Addons\nmetadata: {name: other}\nspec: {addons: [{name: b, manifest: b.yaml}]}";
    let names =
        |text: &str| -> Vec<String> { menu(&channel(text)).addons.into_iter().map(|a| a.name).collect() };
    assert_eq!(names(&format!("{first}\n---\n{second}\n")), ["a"]);
    assert_eq!(names(&format!("# kOps\n---\n{first}\n---\n{second}\n")), ["a"]);
    let problem = refusal(&format!("{first}\n---\nnot: [yaml"));
    assert!(problem.contains(URL) && problem.contains("not YAML"), "{problem}");
}

#[test]
fn the_last_channel_with_an_add_on_wins() {
    let of = |entries: &str| menu(&channel(&format!("{{kind: Addons, spec: {{addons: [{entries}]}}}}")));
    let mut menus = [
        of("{name: a, manifest: 1}, {name: b, manifest: 1}, {name: c, manifest: 1}"),
        of("{name: a, manifest: 2}, {name: b, manifest: 2, namespace: other}"),
        of("{name: a, manifest: 3}"),
    ];
    let entry = |addon: &Addon| {
        format!("{}/{} {}", addon.namespace(), addon.name, addon.spec.manifest.as_ref().unwrap())
    };
    let others: Vec<String> = leave_to_last_channel(&mut menus).iter().map(entry).collect();
    assert_eq!(others, ["kube-system/a 2", "kube-system/a 1"]);
    let left: Vec<Vec<String>> = menus.iter().map(|menu| menu.addons.iter().map(entry).collect()).collect();
    assert_eq!(
        left,
        [vec!["kube-system/b 1", "kube-system/c 1"], vec!["other/b 2"], vec!["kube-system/a 3"]]
    );
    assert!(leave_to_last_channel(&mut menus).is_empty());
}

#[test]
fn an_entry_without_a_name_has_the_channels_name() {
    let text = "kind: Addons\nmetadata: {name: example}\nspec: {addons: [{manifest: a.yaml}]}";
    assert_eq!(menu(&channel(text)).addons[0].name, "example");
    assert!(!channel(text).is_bootstrap);
}

/// An entry in two forms: kOps 1.34 and 1.35 write the version, kOps 1.36 and newer omit it.
#[test]
fn an_entry_of_kops_own_channel_means_the_same_in_every_release() {
    const OF_1_35: &str = "{id: k8s-1.12, manifest: dns-controller.addons.k8s.io/k8s-1.12.yaml, manifestHash: abc,
        name: dns-controller.addons.k8s.io, needsRollingUpdate: control-plane, needsPKI: true,
        prune: {kinds: [{kind: ConfigMap, labelSelector: 'app.kubernetes.io/managed-by=kops', namespaces: [kube-system]}]},
        selector: {k8s-addon: dns-controller.addons.k8s.io}, version: 9.99.0}";
    let of = |version: &str, entry: &str| {
        let text = format!("kind: Addons\nmetadata: {{name: bootstrap}}\nspec:\n  addons:\n  - {entry}\n");
        let release = KopsRelease::of_version(version).unwrap();
        menu(&Channel::parse(text.as_bytes(), URL, release).unwrap()).addons.remove(0)
    };
    let of_1_36: &str = &OF_1_35.replace(", version: 9.99.0", "");
    let before = of("1.35.2", OF_1_35);
    // The recorded version has the same form in all releases.
    let recorded = r#"{"channel":"s3://x","id":"k8s-1.12","manifestHash":"abc","systemGeneration":1}"#;
    let recorded = ChannelVersion::parse(recorded).unwrap();
    for (version, entry) in
        [("1.34.3", OF_1_35), ("1.35.2", OF_1_35), ("1.36.2", of_1_36), ("1.37.0-alpha.1", of_1_36)]
    {
        let addon = of(version, entry);
        assert_eq!((addon.check(), addon.is_bootstrap), (Ok(()), true));
        assert_eq!(due(&addon, Some(&recorded), true), None, "{version}: an upgrade alone makes nothing due");
        assert_eq!(due(&addon, None, false), due(&before, None, false));
        assert_eq!(addon.spec.prune, before.spec.prune);
        assert_eq!(addon.needs_rolling_update(), before.needs_rolling_update());
        let updated = of(version, &entry.replace("abc", "def"));
        assert_eq!(
            due(&updated, Some(&recorded), true).unwrap().marks,
            Some(NeedsRollingUpdate::ControlPlane)
        );
    }
}

/// If a cluster publishes no names in DNS, kOps 1.36 and newer write an empty manifest for dns-controller. Then dns-controller's objects
/// are pruned.
#[test]
fn an_empty_manifest_has_no_objects() {
    const OF_NOTHING: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let addon = addon(&format!("{{name: a, manifest: a.yaml, manifestHash: {OF_NOTHING}}}"));
    assert_eq!(addon.check_manifest(b"", "s3://b/a.yaml"), Ok(()));
    assert!(manifest::objects(b"", "s3://b/a.yaml").unwrap().is_empty());
}

#[test]
fn up_to_kops_1_35_a_manifest_in_place_of_a_channel_is_an_empty_channel() {
    const MANIFEST: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\n";
    const WITHOUT_KIND: &str = "spec: {addons: [{name: a, manifest: a.yaml}]}";
    for (version, of_manifest) in [("1.34.3", 0), ("1.35.2", 0), ("1.36.2", 1), ("1.37.0-alpha.1", 1)] {
        let release = KopsRelease::of_version(version).unwrap();
        let read = |text: &str| Channel::parse(text.as_bytes(), URL, release).unwrap();
        assert_eq!(read(MANIFEST).len(), of_manifest, "{version}");
        assert_eq!(read(MANIFEST).is_unheeded_manifest, of_manifest == 0);
        for text in ["", "kind: Addons", "kind: Addons\nspec: {addons: [{name: a, manifest: a.yaml}]}"] {
            assert!(!read(text).is_unheeded_manifest, "{text}");
        }
        // A document without a kind is a channel in older releases, and a manifest in newer releases.
        let names: Vec<bool> = read(WITHOUT_KIND).entries().map(|(name, _)| name == "a").collect();
        assert_eq!(names, [of_manifest == 0], "{version}");
    }
}

#[test]
fn the_url_of_kops_own_channel_contains_the_clusters_folder() {
    assert_eq!(cluster_folder(&bootstrap_channel("s3://b/c")), Some("s3://b/c"));
    assert_eq!(cluster_folder("https://example.com/addons.yaml"), None);
}

#[test]
fn a_manifest_in_place_of_a_channel_is_an_add_on_named_after_its_url() {
    let of = |text: &str| menu(&channel(text)).addons.remove(0);
    let one = of("\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\n");
    let two = of("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: two}\n---\nkind: Other\n");
    assert_eq!(one.name, two.name);
    assert_eq!((one.name.len(), &one.name[..9]), ("manifest-".len() + 12, "manifest-"));
    assert_eq!(one.manifest_url().unwrap(), URL);
    assert_ne!(one.spec.manifest_hash, two.spec.manifest_hash);
    // The hash is the output of `printf 'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}' | sha256sum`.
    assert_eq!(one.spec.manifest_hash, "e5ed981f0e72623959501280a403227375278d17326d477797931aed83e19cb1");
    // A document with an apiVersion is a manifest, even if its kind is `Addons`.
    assert!(
        of("apiVersion: example.com/v1\nkind: Addons\nmetadata: {name: a}").name.starts_with("manifest-")
    );
}

#[test]
fn a_channel_without_content_has_no_add_ons() {
    for text in ["", "\n  \n", "# nothing\n", "---\n# nothing\n---\n", "kind: Addons"] {
        assert!(channel(text).is_empty(), "{text:?}");
    }
}

#[test]
fn errors_of_a_channel_name_the_field() {
    for (text, wanted) in [
        ("not: [valid", "it is not YAML"),
        ("[1]", "it holds a list"),
        ("kind: Addons\nspec: {addons: {}}", "field spec.addons of"),
        ("kind: Addons\nspec: {addons: [{name: a}, null]}", "field spec.addons[1] of"),
        ("kind: Addons\nspec: {addons: [{manifest: a}]}", "field spec.addons[0].name of"),
        ("kind: Addons\nspec: {addons: [{name: ''}]}", "field spec.addons[0].name of"),
        ("kind: Addons\nspec: {addons: [{name: a, needsPKI: maybe}]}", "field spec.addons[0].needsPKI of"),
        ("kind: Addons\nspec: {addons: [{name: a, prune: {kinds: [1]}}]}", "prune.kinds[0] of"),
    ] {
        let problem = refusal(text);
        assert!(problem.contains(wanted) && problem.contains(URL), "{text:?}: {problem}");
    }
    assert!(Channel::parse(b"\xff", URL, KopsRelease::NEWEST).unwrap_err().to_string().contains("UTF-8"));
}

#[test]
fn an_invalid_entry_does_not_affect_other_add_ons() {
    for (entry, wanted) in [
        ("{name: a}", "field spec.addons[0].manifest of"),
        ("{name: a, manifest: ''}", "field spec.addons[0].manifest of"),
        ("{name: a, manifest: a, needsRollingUpdate: some}", "field spec.addons[0].needsRollingUpdate of"),
        (
            "{name: a, manifest: a, prune: {kinds: [{kind: A, labelSelector: b}, {group: x}]}}",
            "prune.kinds[1] of",
        ),
        ("{name: a, manifest: a, prune: {kinds: [{kind: Pod}]}}", "would delete every Pod"),
    ] {
        let problem = addon(entry).check().unwrap_err().to_string();
        assert!(problem.contains(wanted) && problem.contains(URL), "{entry}: {problem}");
    }
}

#[test]
fn manifest_paths_are_relative_to_the_channel() {
    for (channel, manifest, found) in [
        ("s3://b/c/addons/x.yaml", "a/b.yaml", "s3://b/c/addons/a/b.yaml"),
        ("s3://b/c/addons/x.yaml", "../a.yaml", "s3://b/c/a.yaml"),
        ("s3://b/c/addons/x.yaml", "./a/./b/../c.yaml", "s3://b/c/addons/a/c.yaml"),
        ("s3://b/c/addons/x.yaml", "/a.yaml", "s3://b/a.yaml"),
        ("s3://b/x.yaml", "../../a.yaml", "s3://b/a.yaml"),
        // Object keys of the store are not escaped.
        ("s3://b/c d/x.yaml", "a b?.yaml", "s3://b/c d/a b?.yaml"),
        ("s3://b/x.yaml", "gs://other/a.yaml", "gs://other/a.yaml"),
        ("file:///srv/store/x.yaml", "a.yaml", "file:///srv/store/a.yaml"),
        ("/srv/store/x.yaml", "a.yaml", "/srv/store/a.yaml"),
    ] {
        let text =
            format!("kind: Addons\nmetadata: {{name: n}}\nspec: {{addons: [{{manifest: {manifest}}}]}}");
        let channel = Channel::parse(text.as_bytes(), channel, KopsRelease::NEWEST).unwrap();
        assert_eq!(menu(&channel).addons[0].manifest_url().unwrap(), found, "{manifest}");
    }
}

#[test]
fn only_manifests_of_kops_own_channel_must_match_their_hashes() {
    const MANIFEST: &[u8] = b"kind: X\n\n";
    let hash = manifest::sha256_of_trimmed(b"kind: X");
    let right = addon(&format!("{{name: a, manifest: a, manifestHash: {hash}}}"));
    assert_eq!(right.check_manifest(MANIFEST, "s3://a"), Ok(()));
    let wrong = addon("{name: a, manifest: a, manifestHash: abc}");
    let problem = wrong.check_manifest(MANIFEST, "s3://a").unwrap_err().to_string();
    assert!(problem.contains("s3://a") && problem.contains(&hash) && problem.contains("abc"), "{problem}");
    assert_eq!(Addon { is_bootstrap: false, ..wrong }.check_manifest(MANIFEST, "s3://a"), Ok(()));
    assert_eq!(addon("{name: a, manifest: a}").check_manifest(MANIFEST, "s3://a"), Ok(()));
}

#[test]
fn the_entry_for_the_kubernetes_version_is_chosen() {
    let channel = channel_of(&[
        "{name: a, id: old, kubernetesVersion: '<1.30.0'}",
        "{name: b}",
        "{name: a, id: new, kubernetesVersion: '>=1.30.0'}",
        "{name: c, kubernetesVersion: '<1.0.0'}",
        "{name: d, kubernetesVersion: 'newest'}",
    ]);
    let chosen = |version: &str| -> Vec<(String, String)> {
        channel.menu(kubernetes(version)).addons.into_iter().map(|a| (a.name, a.spec.id)).collect()
    };
    let pair = |name: &str, id: &str| (name.to_owned(), id.to_owned());
    assert_eq!(chosen("v1.29.9"), [pair("a", "old"), pair("b", "")]);
    assert_eq!(chosen("v1.30.0"), [pair("b", ""), pair("a", "new")]);
    // A pre-release is treated as its release.
    assert_eq!(chosen("v1.30.0-rc.1"), chosen("v1.30.0"));
    let left_out = menu(&channel).left_out;
    let [left_out] = &left_out[..] else { panic!("{left_out:?}") };
    assert_eq!(
        (left_out.name.as_str(), left_out.problem.field.as_str()),
        ("d", "spec.addons[4].kubernetesVersion")
    );
    assert!(left_out.problem.to_string().contains("\"newest\" is not a version range"));
}

#[test]
fn the_last_entry_with_another_id_or_hash_is_chosen() {
    let indices = |entries: &[&str]| -> Vec<usize> {
        menu(&channel_of(entries)).addons.iter().map(|addon| addon.index).collect()
    };
    assert_eq!(indices(&["{name: a, id: '1'}", "{name: a, id: '2'}"]), [1]);
    assert_eq!(indices(&["{name: a, id: '1'}", "{name: a, id: '2'}", "{name: a, id: '1'}"]), [2]);
    assert_eq!(indices(&["{name: a, manifestHash: x}", "{name: a, manifestHash: y}"]), [1]);
    // If two entries have the same id and hash, the first entry is selected, even if other fields differ.
    assert_eq!(indices(&["{name: a, id: '1', manifest: a}", "{name: a, id: '1', manifest: b}"]), [0]);
    // Entries of one name belong to one add-on, even with different namespaces.
    assert_eq!(indices(&["{name: a, id: '1'}", "{name: a, id: '2', namespace: other}"]), [1]);
}

#[test]
fn a_version_replaces_another_id_hash_or_generation() {
    const ONE: &str = "3544de6578b2b582c0323b15b7b05a28c60b9430";
    const TWO: &str = "ea9e79bf29adda450446487d65a8fc6b3fdf8c2b";
    let version = |id: &str, hash: &str, generation: i64| ChannelVersion {
        system_generation: generation,
        ..ChannelVersion::new(URL, id, hash)
    };
    for (new, old, replaces) in [
        (version("a", ONE, 0), version("a", ONE, 0), false),
        (version("a", ONE, 0), version("a", "", 0), true),
        (version("a", TWO, 0), version("a", ONE, 0), true),
        (version("b", ONE, 0), version("a", ONE, 0), true),
        (version("a", ONE, 1), version("a", ONE, 0), true),
        (version("a", ONE, 0), version("a", ONE, 1), false),
        (version("a", ONE, 1), version("a", ONE, 1), false),
        // A version with a different hash replaces the old version, even if its own generation is older.
        (version("a", TWO, 0), version("a", ONE, 1), true),
    ] {
        assert_eq!(new.replaces(&old), replaces, "{new:?} {old:?}");
    }
    let elsewhere = ChannelVersion { channel: None, ..version("a", ONE, 1) };
    assert!(!version("a", ONE, 1).replaces(&elsewhere), "where a version comes from decides nothing");
}

#[test]
fn versions_are_recorded_in_upstreams_form() {
    let version = ChannelVersion::new(URL, "k8s-1.12", "abc");
    let text = format!(r#"{{"channel":"{URL}","id":"k8s-1.12","manifestHash":"abc","systemGeneration":1}}"#);
    assert_eq!(version.encode(), text);
    assert_eq!(
        ChannelVersion::new("s3://a/b?c&d<e>", "", "").encode(),
        r#"{"channel":"s3://a/b?c\u0026d\u003ce\u003e","systemGeneration":1}"#
    );
    assert_eq!(ChannelVersion::default().encode(), "{}");
    assert_eq!(annotation("coredns.addons.k8s.io"), "addons.k8s.io/coredns.addons.k8s.io");
    let annotations: BTreeMap<String, String> = [
        ("addons.k8s.io/a", text.as_str()),
        ("addons.k8s.io/older", r#"{"version":"1.2.3","channel":null,"id":null,"manifestHash":"x"}"#),
        ("addons.k8s.io/broken", "{"),
        ("addons.k8s.io/list", "[]"),
        ("addons.k8s.io/null", "null"),
        ("other/a", "{}"),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into();
    let recorded = recorded(&annotations);
    assert_eq!(recorded["a"], version);
    let older = ChannelVersion { manifest_hash: "x".into(), ..ChannelVersion::default() };
    assert_eq!(recorded["older"], older);
    assert_eq!(recorded.keys().collect::<Vec<_>>(), ["a", "null", "older"]);
}

#[test]
fn an_add_on_is_due_when_it_is_new_changed_or_lacks_its_pki() {
    let installed = |hash: &str| Some(ChannelVersion::new(URL, "", hash));
    let plain = addon("{name: a, manifest: a, manifestHash: new}");
    assert!(due(&plain, None, true).unwrap().version.is_some());
    assert!(due(&plain, installed("old").as_ref(), true).unwrap().version.is_some());
    assert_eq!(due(&plain, installed("new").as_ref(), true), None);
    // Without `needsPKI`, a missing PKI does not make the add-on due.
    assert_eq!(due(&plain, installed("new").as_ref(), false), None);

    let with_pki = addon("{name: a, manifest: a, manifestHash: new, needsPKI: true}");
    let only_pki = Due { version: None, pki: true, marks: None };
    assert_eq!(due(&with_pki, installed("new").as_ref(), false), Some(only_pki));
    assert_eq!(due(&with_pki, installed("new").as_ref(), true), None);
    let first = due(&with_pki, None, false).unwrap();
    assert!(first.version.is_some() && first.pki);
}

#[test]
fn nodes_are_marked_after_an_update_but_not_for_a_new_add_on() {
    let old = ChannelVersion::new(URL, "", "old");
    for (needs, marks) in [
        ("all", Some(NeedsRollingUpdate::All)),
        ("workers", Some(NeedsRollingUpdate::Workers)),
        ("control-plane", Some(NeedsRollingUpdate::ControlPlane)),
        ("''", None),
    ] {
        let addon = addon(&format!(
            "{{name: a, manifest: a, manifestHash: new, needsRollingUpdate: {needs}, needsPKI: true}}"
        ));
        assert_eq!(due(&addon, Some(&old), true).unwrap().marks, marks);
        assert_eq!(due(&addon, None, true).unwrap().marks, None);
        // If only the add-on's PKI is missing, no node is marked.
        assert_eq!(due(&addon, Some(&addon.version()), false).unwrap().marks, None);
    }
    let selectors = [NeedsRollingUpdate::ControlPlane, NeedsRollingUpdate::Workers, NeedsRollingUpdate::All];
    assert_eq!(
        selectors.map(NeedsRollingUpdate::selector),
        [Some("node-role.kubernetes.io/master="), Some("node-role.kubernetes.io/node="), None]
    );
}
