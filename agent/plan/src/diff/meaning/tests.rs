#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::*;
use kops_agent_spec::go_yaml;

const MANIFEST: &str = "/etc/kubernetes/manifests/kube-apiserver.manifest";
const KUBELET: &str = "/var/lib/kubelet/kubelet.conf";
const CONTAINERD: &str = "/etc/containerd/config.toml";
const FLAGS: &str = "/etc/sysconfig/kubelet";
const SYSCTL: &str = "/etc/sysctl.d/99-k8s-general.conf";
const UNIT: &str = "/lib/systemd/system/kubelet.service";

#[track_caller]
fn same(path: &str, one: &str, other: &str) {
    assert!(is_same_file(path, one, other) && is_same_file(path, other, one), "{path}:\n{one}\n{other}");
}

#[track_caller]
fn different(path: &str, one: &str, other: &str) {
    assert!(!is_same_file(path, one, other) && !is_same_file(path, other, one), "{path}:\n{one}\n{other}");
}

#[test]
fn pods_are_compared_as_kubelet_reads_them() {
    let pod = "kind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a, args: [--v=2, --x=y]}]}\n";
    same(MANIFEST, pod, &format!("{pod}status: {{}}\n"));
    same(MANIFEST, pod, &pod.replace("{name: a}\n", "{name: a, creationTimestamp: null}\n"));
    same(MANIFEST, pod, &format!("# upstream's\n{}", pod.replace("[--v=2, --x=y]", "[\"--v=2\", '--x=y']")));
    different(MANIFEST, pod, &format!("{pod}status: {{phase: Running}}\n"));
    different(MANIFEST, pod, &pod.replace("--v=2", "--v=3"));
    different(MANIFEST, pod, &pod.replace("--v=2, --x=y", "--x=y, --v=2"));
    different(MANIFEST, pod, &pod.replace("name: a,", "name: a, resources: {limits: {cpu: 1}},"));
    different(MANIFEST, pod, "kind: Pod\nkind: Pod\n");
    different(MANIFEST, pod, "\t");
}

/// Up to kOps 1.35, nodeup wrote the files of this test.
#[test]
fn files_of_older_releases_are_compared_by_meaning() {
    let variables = "KUBECONFIG=/var/lib/kops/kubeconfig\nAWS_REGION=us-test-1\n";
    let reordered = "AWS_REGION=us-test-1\nKUBECONFIG=/var/lib/kops/kubeconfig\n";
    same("/etc/sysconfig/protokube", variables, reordered);
    different("/etc/sysconfig/protokube", variables, &reordered.replace("us-test-1", "us-test-2"));

    let config = "kind: KubeletConfiguration\n";
    same(KUBELET, config, &format!("{config}containerRuntimeEndpoint: \"\"\n"));
    different(KUBELET, config, &format!("{config}containerRuntimeEndpoint: unix:///run/c.sock\n"));
    different(KUBELET, config, &format!("{config}resolvConf: \"\"\n"));

    for path in ["/etc/kubernetes/cloud.config", "/etc/kubernetes/in-tree-cloud.config"] {
        same(path, "[global]\nregion=\"a\"\n", "[global]\nregion=\"a\"\n\n\n");
        different(path, "[global]\nregion=\"a\"\n", "[global]\nregion=\"b\"\n");
    }

    let network = "[Match]\nName=ens[6-9]*\n\n[Link]\nUnmanaged=yes\n";
    for name in ["10-eni-secondary", "75-eni-secondary"] {
        let path = format!("/etc/systemd/network/{name}.network");
        same(&path, network, &format!("\n{network}"));
        different(&path, network, &network.replace("yes", "no"));
    }

    let servers = "[Time]\nNTP=169.254.169.123\n";
    let path = "/etc/systemd/timesyncd.conf";
    same(path, servers, &format!("# Built by Kops - do NOT edit\n\n{servers}"));
    different(path, servers, &servers.replace("123", "124"));

    let script = "#!/bin/bash\niptables -w -t nat -N IP-MASQ\n";
    let path = "/opt/kops/bin/cni-iptables-setup";
    same(path, script, &script.replace("bash\n", "bash\n# Built by kOps - do not edit\n\n"));
    different(path, script, &script.replace("-N", "-X"));
}

#[test]
fn kubelet_treats_zero_durations_but_not_empty_lists_as_unset() {
    let config = "kind: KubeletConfiguration\ncgroupDriver: systemd\n";
    same(
        KUBELET,
        config,
        "kind: KubeletConfiguration\nauthorization:\n  webhook:\n    cacheAuthorizedTTL: 0s\ncgroupDriver: systemd\n\
         memorySwap: {}\nsyncFrequency: 0s\n",
    );
    for other in ["enforceNodeAllocatable: []\n", "evictionHard: {}\n", "syncFrequency: 1s\n", "maxPods: 0\n"]
    {
        different(KUBELET, config, &format!("{config}{other}"));
    }
    let grace = format!("{config}evictionSoftGracePeriod: {{memory.available: 0s}}\n");
    different(KUBELET, &grace, &format!("{config}evictionSoftGracePeriod: {{}}\n"));
    // In objects of other kinds than KubeletConfiguration, a zero duration is a value.
    let providers = "/var/lib/kubelet/credential-provider.conf";
    let ours = "kind: CredentialProviderConfig\nproviders: [{name: a, matchImages: [x, y]}]\n";
    same(providers, ours, &ours.replace("[x, y]", "[y, x]"));
    different(providers, ours, &ours.replace("[x, y]", "[x]"));
    different(providers, ours, &ours.replace("name: a,", "name: a, defaultCacheDuration: 0s,"));
}

#[test]
fn quotes_matter_for_texts_that_go_reads_as_another_type() {
    for ambiguous in ["yes", "0644", "1_000", "12:30"] {
        different(KUBELET, &format!("a: {ambiguous}\n"), &format!("a: \"{ambiguous}\"\n"));
        same(KUBELET, &format!("a: '{ambiguous}'\n"), &format!("a: \"{ambiguous}\"\n"));
    }
}

#[test]
fn units_are_compared_by_their_directives() {
    let unit = "[Unit]\nAfter=a.service\n\n[Service]\nEnvironmentFile=/x\nExecStart=/a --b \\\n  --c\n";
    same(
        UNIT,
        unit,
        "# kOps\n[Service]\nEnvironmentFile = /x\nExecStart=/a --b  --c\n[Unit]\nAfter=a.service",
    );
    assert!(is_same_unit(unit, &format!("; a comment\n{unit}")));
    different(UNIT, unit, &unit.replace("--c", "--d"));
    different(UNIT, unit, &unit.replace("/a --b", "/a '--b"));
    different(UNIT, unit, &unit.replace("[Unit]", "[Install]"));
    let two = "[Service]\nExecStartPre=/a\nExecStartPre=/b\n";
    different(UNIT, two, "[Service]\nExecStartPre=/b\nExecStartPre=/a\n");
    different(UNIT, two, "[Service]\nExecStartPre=/a\nExecStartPre=\nExecStartPre=/b\n");
    different(UNIT, "[Service]\nA\n", "[Service]\nA=\n");
}

#[test]
fn only_the_order_of_flags_is_ignored() {
    let flags = "DAEMON_ARGS=\"--v=2 --cloud-provider=external --a=1 --a=2\"\nHOME=\"/root\"\n";
    same(FLAGS, flags, "HOME=/root\nDAEMON_ARGS=\"--a=1 --cloud-provider=external --a=2 --v=2\"\n");
    different(FLAGS, flags, &flags.replace("--a=1 --a=2", "--a=2 --a=1"));
    different(FLAGS, flags, &flags.replace("--v=2", "--v=3"));
    different(FLAGS, flags, &flags.replace("/root", "/"));
    different(FLAGS, "A=\"--a b --c\"\n", "A=\"--c --a b\"\n");
    different(FLAGS, "A=\"--a='x y' --c\"\n", "A=\"--c --a='x y'\"\n");
}

#[test]
fn settings_are_compared_without_comments() {
    same(SYSCTL, "# a\nvm.a = 1\n\nvm.b = 2\n", "vm.a = 1\n# b\nvm.b = 2");
    different(SYSCTL, "vm.a = 1\nvm.b = 2\n", "vm.b = 2\nvm.a = 1\n");
    same("/etc/kops/firewalld-disabled", "# a mark\n", "# another\n");
    same(
        "/etc/systemd/network/99-default.link",
        "\n[Match]\nA=1\n[Link]\nB=2\n",
        "[Match]\nA=1\n\n[Link]\nB=2\n",
    );
    different("/opt/kops/bin/iptables-setup", "#!/bin/sh\n:\n", "#!/bin/bash\n:\n");
    same("/srv/kubernetes/kube-apiserver/known_tokens.csv", "a,b,b\nc,d,d\n", "c,d,d\na,b,b\n");
}

#[test]
fn a_users_file_is_compared_byte_by_byte() {
    for path in ["/etc/users.yaml", "/etc/sysctl.d/99-mine.conf", "/etc/containerd/certs.d", "/opt/x.service"]
    {
        different(path, "a: 1\n", "a:  1\n");
        same(path, "a: 1\n", "a: 1\n");
    }
}

#[test]
fn kubeconfigs_are_compared_by_authority_and_user() {
    let pem = |label: &str, byte: u8| {
        let body = STANDARD.encode([byte; 40]);
        format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n")
    };
    let (a, b, key) = (pem("CERTIFICATE", 1), pem("CERTIFICATE", 2), pem("RSA PRIVATE KEY", 3));
    let ours = |ca: &str, certificate: &str, key: &str| {
        format!(
            "kind: Config\nclusters:\n- name: local\n  cluster: {{server: s, certificate-authority-data: {}}}\nusers:\n- \
             name: u\n  user:\n    client-certificate-data: {}\n    client-key-data: {}\n",
            STANDARD.encode(ca),
            STANDARD.encode(certificate),
            STANDARD.encode(key)
        )
    };
    let config = ours(&format!("{a}{b}"), &a, &key);
    assert!(is_same_kubeconfig(&config, &ours(&format!("{b}\n{a}"), &format!("{a}\n"), &key)));
    assert!(is_same_kubeconfig(&config, &config.replace("server: s", "server: \"s\"")));
    for other in [
        ours(&a, &a, &key),
        ours(&format!("{a}{b}"), &b, &key),
        ours(&format!("{a}{b}"), &a, &pem("RSA PRIVATE KEY", 4)),
        config.replace("server: s", "server: t"),
        config.replace("name: u", "name: v"),
        config.replace("client-key-data", "token"),
        String::new(),
    ] {
        assert!(!is_same_kubeconfig(&config, &other) && !is_same_kubeconfig(&other, &config), "{other}");
    }
    assert!(is_same_pem(&format!("{a}{b}"), &format!("{a}\n{b}")) && !is_same_pem(&a, &b));
    assert!(!is_same_pem(&format!("{a}{b}"), &format!("{b}{a}")));
    assert!(are_same_authorities(&format!("{a}{b}"), &format!("{b}{a}")) && !are_same_authorities(&a, ""));
}

// Properties of the comparison, for arbitrary texts.

/// A document without null or empty leaves. So `change` always changes the value of a leaf.
fn document() -> impl Strategy<Value = Json> {
    let word = prop_oneof![
        "[a-z]{1,6}",
        Just("yes".to_owned()),
        Just("0644".to_owned()),
        Just("0s".to_owned()),
        Just("~".to_owned()),
        Just("a: b #c".to_owned()),
    ];
    let leaf = prop_oneof![
        any::<bool>().prop_map(Json::from),
        (0..1000i64).prop_map(Json::from),
        word.prop_map(Json::from)
    ];
    let value = leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..4).prop_map(Json::from),
            prop::collection::btree_map("[a-z]{1,4}", inner, 1..4)
                .prop_map(|map| Json::Object(map.into_iter().collect())),
        ]
    });
    let kind =
        prop_oneof![Just("Pod"), Just("KubeletConfiguration"), Just("CredentialProviderConfig"), Just("x")];
    (prop::collection::btree_map("[A-Z][a-z]{0,4}", value, 1..5), kind).prop_map(|(map, kind)| {
        let mut whole: Json = Json::Object(map.into_iter().collect());
        whole["kind"] = json!(kind);
        whole
    })
}

fn leaves(value: &Json) -> usize {
    match value {
        Json::Array(all) => all.iter().map(leaves).sum(),
        Json::Object(all) => all.values().map(leaves).sum(),
        _ => 1,
    }
}

/// Changes the value of the leaf with this number.
fn change(value: &mut Json, number: &mut usize) {
    match value {
        Json::Array(all) => all.iter_mut().for_each(|inner| change(inner, number)),
        Json::Object(all) => all.values_mut().for_each(|inner| change(inner, number)),
        leaf => {
            if *number == 0 {
                *leaf = match &*leaf {
                    Json::Bool(value) => json!(!value),
                    Json::Number(value) => json!(value.as_i64().unwrap() + 1),
                    other => json!(format!("{}x", other.as_str().unwrap())),
                };
            }
            *number = number.wrapping_sub(1);
        }
    }
}

type Ini = Vec<(String, Vec<(String, Vec<String>)>)>;

fn ini() -> impl Strategy<Value = Ini> {
    let directives = prop::collection::btree_map(
        "[A-Z][a-z]{1,3}",
        prop::collection::vec("[a-z/ =-]{0,8}[a-z]", 1..4),
        1..4,
    );
    prop::collection::btree_map("[A-Z][a-z]{1,3}", directives, 1..3).prop_map(|sections| {
        sections.into_iter().map(|(name, keys)| (name, keys.into_iter().collect())).collect()
    })
}

/// Formats the sections as text. With `other_way`, uses another notation with the same meaning.
fn ini_text(ini: &Ini, other_way: bool) -> String {
    let mut lines = Vec::new();
    for (name, keys) in ini {
        lines.push(format!("[{name}]"));
        let keys: Vec<_> = if other_way { keys.iter().rev().collect() } else { keys.iter().collect() };
        for (key, values) in keys {
            for value in values {
                lines.push(if other_way {
                    format!("# c\n {key} = {value} \n")
                } else {
                    format!("{key}={value}")
                });
            }
        }
    }
    lines.join("\n")
}

proptest! {
    #[test]
    fn a_document_in_another_notation_is_the_same(document in document()) {
        let (yaml, json) = (go_yaml::to_string(&document), serde_json::to_string_pretty(&document).unwrap());
        prop_assert!(is_same_file(MANIFEST, &yaml, &yaml));
        // JSON quotes some strings that Go's YAML does not quote. The meaning is equal, except for strings that are YAML keywords.
        prop_assert!(is_same_file(MANIFEST, &yaml, &json), "{yaml}\n{json}");
        prop_assert!(is_same_file(MANIFEST, &json, &yaml));
    }

    #[test]
    fn any_change_of_a_document_is_a_difference(document in document(), which in any::<prop::sample::Index>()) {
        let mut changed = document.clone();
        change(&mut changed, &mut which.index(leaves(&document)));
        let texts = [go_yaml::to_string(&document), go_yaml::to_string(&changed)];
        prop_assert!(!is_same_file(MANIFEST, &texts[0], &texts[1]), "{texts:?}");
        prop_assert!(!is_same_file(MANIFEST, &texts[1], &texts[0]));
    }

    #[test]
    fn the_comparison_is_symmetric(one in "\\PC{0,60}", other in "\\PC{0,60}") {
        for path in [MANIFEST, KUBELET, CONTAINERD, FLAGS, SYSCTL, UNIT] {
            prop_assert_eq!(is_same_file(path, &one, &other), is_same_file(path, &other, &one));
            prop_assert!(is_same_file(path, &one, &one));
        }
    }

    #[test]
    fn toml_is_compared_by_its_values(document in document(), which in any::<prop::sample::Index>()) {
        let text = |document: &Json| toml::to_string(document).unwrap();
        let pretty = format!("# upstream's\n\n{}", toml::to_string_pretty(&document).unwrap());
        prop_assert!(is_same_file(CONTAINERD, &text(&document), &pretty));
        let mut changed = document.clone();
        change(&mut changed, &mut which.index(leaves(&document)));
        prop_assert!(!is_same_file(CONTAINERD, &text(&document), &text(&changed)));
    }

    #[test]
    fn sections_are_compared_by_their_values(ini in ini(), which in any::<(prop::sample::Index, prop::sample::Index, prop::sample::Index)>()) {
        let text = ini_text(&ini, false);
        prop_assert!(is_same_unit(&text, &ini_text(&ini, true)), "{text}");
        let mut changed = ini.clone();
        let section = which.0.index(changed.len());
        let keys = &mut changed[section].1;
        let key = which.1.index(keys.len());
        let values = &mut keys[key].1;
        let value = which.2.index(values.len());
        values[value].push('x');
        prop_assert!(!is_same_unit(&text, &ini_text(&changed, false)));
        prop_assert!(!is_same_unit(&ini_text(&changed, true), &text));
    }
}
