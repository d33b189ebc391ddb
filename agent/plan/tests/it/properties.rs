//! Properties of deciding as a whole, for arbitrary user input. Equal inputs give equal outputs, and the order of unordered input does not
//! matter. No value breaks out of its line.

#![allow(clippy::unwrap_used)]

use crate::written;

use crate::clouds;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use crate::api::{Field, Kind, fields};
use crate::clouds::{CLOUDS, Derived, Machine, Role};
use crate::written::{HARMLESS, with_value};
use kops_agent_plan::desired::desired;
use kops_agent_plan::resolve::{Inputs, Problems, resolve};
use kops_agent_plan::resource::DesiredState;
use kops_agent_spec::facts::Facts;
use kops_agent_spec::{BootConfig, NodeupConfig, parse_yaml};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::Value;

const BOOT: &str = r#"
CloudProvider: aws
ConfigServer: {servers: ["https://kops-controller.internal.c.example.com:3988/"], CACertificates: pem}
APIServerIPs: [10.0.0.1, "fd00::1"]
ClusterName: c.example.com
InstanceGroupName: nodes
InstanceGroupRole: Node
"#;

const CONFIG: &str = r#"
Assets:
  amd64:
  - 5c0d28cea2a3a5c91861dda088a29d56c1b027e184dae1d792686f0710750076@https://dl.k8s.io/release/v1.34.0/bin/linux/amd64/kubelet
  - cfda68cba5848bc3b6c6135ae2f20ba2c78de20059f68789c090166d6abc3e2c@https://dl.k8s.io/release/v1.34.0/bin/linux/amd64/kubectl
  - 7644623e4ec9ad443ab352a8a5800a5180ee28741288be805286ba72bb8e7164@https://artifacts.k8s.io/binaries/cloud-provider-aws/v1.31.7/linux/amd64/ecr-credential-provider-linux-amd64
  - 1a28a0506bfe5bcdc981caf1a49eeab7e72da8321f1119b7be85f22621013098@https://github.com/containernetworking/plugins/releases/download/v1.7.1/cni-plugins-linux-amd64-v1.7.1.tgz
  - 9d68969855fbf676cdb8ed758e420fb048d61f984f61de3e53eddfebe484d168@https://github.com/containerd/containerd/releases/download/v2.3.4/containerd-2.3.4-linux-amd64.tar.gz
  - f6ae8efc0fa40079e1475e97cbe9d1bd3f106a28d6af78a11d9f1bd565515e60@https://github.com/opencontainers/runc/releases/download/v1.4.3/runc.amd64
CAs: {kubernetes-ca: pem}
ClusterName: c.example.com
FileAssets:
- {name: a, content: a}
- {name: b, path: /etc/b.d/b, mode: "0600", content: b}
- {name: c, path: /opt/c, isBase64: true, content: Yw==}
Hooks:
- - {name: one, manifest: "ExecStart=/opt/c\n", requires: [x.service], before: [kubelet.service]}
  - {execContainer: {image: busybox, command: [sh, -c, "echo a b"], environment: {A: b, C: d e}}}
- - {name: two.service, enabled: false}
  - {name: three.timer, useRawManifest: true, manifest: "[Timer]\nOnCalendar=daily\n"}
InstallCNIAssets: true
KeypairIDs: {kubernetes-ca: "1", etcd-clients-ca-cilium: "2"}
KubeProxy: {enabled: true, image: "registry.k8s.io/kube-proxy:v1.34.0", proxyMode: nftables, clusterCIDR: 100.96.0.0/11}
KubeletConfig:
  cgroupDriver: systemd
  clusterDNS: 100.64.0.10
  clusterDomain: cluster.local
  featureGates: {AllBeta: "true"}
  nodeLabels: {role: node, "example.com/label": value}
  taints: ["a=b:NoSchedule"]
  evictionHard: memory.available<100Mi
KubernetesVersion: 1.34.0
Networking: {nonMasqueradeCIDR: 100.64.0.0/10, serviceClusterIPRange: 100.64.0.0/13, cilium: {}, kubeRouter: {}}
ServiceNodePortRange: 30000-32767
SysctlParameters: ["net.core.somaxconn=1024", "vm.swappiness=1"]
UpdatePolicy: automatic
UseCiliumEtcd: true
VolumeMounts:
- {device: /dev/xvdd, filesystem: ext4, path: /srv/d, mountOptions: [noatime]}
- {device: /dev/xvde, filesystem: xfs, path: /srv/e}
containerdConfig: {version: 2.3.4, logLevel: info, registryMirrors: {docker.io: ["https://mirror"]}}
packages: [nfs-common, htop]
usesNoneDNS: true
"#;

const FACTS: &str = r#"
arch: amd64
distro: {id: ubuntu, versionID: "24.04"}
hostname: ip-10-0-0-2
interfaces: [{name: ens5, mac: "02:00:00:00:00:01"}, {name: lo}]
kernel: 6.8.0
memoryBytes: 8589934592
processors: 2
cloud:
  aws: {instanceID: i-1, instanceType: m5.large, region: us-test-1, localIPv4: 10.0.0.2, mac: "02:00:00:00:00:01", networkInterfaces: {max: 3, ipv4PerInterface: 10}}
"#;

/// Fields whose text may have several lines, and fields whose text is escaped when it is written.
const OF_MANY_LINES: [&str; 8] = [
    "/CAs/",
    "/content",
    "/manifest",
    "/command/",
    "/environment/",
    "/SysctlParameters/",
    "/configOverride",
    "/ServiceAccountPublicKeys",
];

fn config() -> Value {
    serde_yaml::from_str(CONFIG).unwrap()
}

/// The desired state for this configuration. `None` if a field has the wrong type.
fn decide(config: &Value) -> Option<Result<DesiredState, String>> {
    let inputs = Inputs {
        boot: BootConfig::parse(BOOT.as_bytes(), "kube_env.yaml").unwrap(),
        config: NodeupConfig::parse(&serde_json::to_vec(config).unwrap(), "nodeupconfig.yaml").ok()?,
        keysets: BTreeMap::new(),
        secret_names: BTreeSet::new(),
        manifests: BTreeMap::new(),
        facts: parse_yaml::<Facts>(FACTS.as_bytes(), "facts.yaml").unwrap(),
        kops_version: None,
        archives: Default::default(),
    };
    Some(match resolve(inputs) {
        Ok(node) => desired(&node).map_err(|conflicts| format!("{conflicts:?}")),
        Err(problems) => Err(Problems::to_string(&problems)),
    })
}

/// The configuration's fields whose texts have only one line.
static TEXTS: LazyLock<Vec<Field>> = LazyLock::new(|| {
    let is_one_line = |field: &Field| {
        field.kind == Kind::Text && !OF_MANY_LINES.iter().any(|part| format!("{field}/").contains(part))
    };
    fields::<NodeupConfig>().into_iter().filter(is_one_line).collect()
});

/// The desired state of a machine of this role, if its configuration has `text` in `field`.
fn decide_with(role: Role, field: &Field, text: &str) -> Result<DesiredState, String> {
    static MACHINES: LazyLock<[Derived; 2]> =
        LazyLock::new(|| Role::ALL.map(|role| Machine::new("scaleway", role).derive().unwrap()));
    let mut machine = MACHINES[usize::from(role == Role::Node)].clone();
    *field.reach(&mut machine.config, true, "key") = text.into();
    machine.decide()
}

fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.split(['\n', '\r']).map(|line| line.trim_start_matches([' ', '\t']))
}

/// Formats the document as JSON. `orders` decides the order of the keys in mappings.
fn with_keys_in_any_order(value: &Value, orders: &mut impl Iterator<Item = u64>) -> String {
    match value {
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(|item| with_keys_in_any_order(item, orders)).collect();
            format!("[{}]", items.join(","))
        }
        Value::Object(fields) => {
            let mut entries: Vec<_> = fields
                .iter()
                .map(|(key, field)| {
                    let entry =
                        format!("{}:{}", Value::from(key.as_str()), with_keys_in_any_order(field, orders));
                    (orders.next(), entry)
                })
                .collect();
            entries.sort();
            let entries: Vec<String> = entries.into_iter().map(|(_, entry)| entry).collect();
            format!("{{{}}}", entries.join(","))
        }
        scalar => scalar.to_string(),
    }
}

fn odd_text() -> impl Strategy<Value = String> {
    let breaks = select(vec![
        "\n", "\r", "\r\n", "\0", "\u{85}", "\u{2028}", "\\n", "\x0b", "\x1b", "\"\n", "'\n", "\t",
    ]);
    (any::<String>(), breaks).prop_map(|(text, line_break)| format!("{text}{line_break}INJECTED=1"))
}

#[test]
fn the_base_configuration_is_a_whole_node() {
    let state = decide(&config()).unwrap().unwrap();
    assert!(state.len() > 60, "{}", state.len());
    assert!(written::texts(&state).len() > 20);
}

proptest! {
    /// No text of the configuration can change another part of a node's files. In a YAML file, the text changes only the value that it is
    /// in. In any other file, the text cannot begin a new line.
    #[test]
    fn no_value_breaks_out_of_its_line(role in select(&Role::ALL[..]), field: Index, text in odd_text()) {
        let field = field.get::<Field>(&TEXTS);
        // A colon splits a taint into two values, so this text is skipped.
        prop_assume!(!(format!("{field}/").contains("/taints/") && text.contains(':')));
        // A comma splits this field into several values, so this text is skipped.
        prop_assume!(!(format!("{field}").ends_with("/enforceNodeAllocatable") && text.contains(',')));
        let Ok(state) = decide_with(role, field, &text) else { return Ok(()) };
        // A variable of the API server's pod may have a value of several lines, because the value is only written as YAML.
        let may_have_lines = format!("{field}").ends_with("/KubeAPIServer/env/[]/value");
        prop_assert!(may_have_lines || !text.contains(['\n', '\r', '\0']), "{field} took {text:?}");
        let usual = decide_with(role, field, HARMLESS).map(|state| written::texts(&state)).unwrap_or_default();
        for (id, written) in written::texts(&state) {
            let usual = usual.iter().find(|(other, _)| *other == id).and_then(|(id, text)| written::yaml(id, text));
            match (usual, written::yaml(&id, &written)) {
                (Some(usual), Some(document)) => {
                    let (expected, found) = (with_value(&usual, &text), with_value(&document, &text));
                    prop_assert_eq!(found, expected, "{} changed more in {}", field, id);
                }
                (Some(_), None) => prop_assert!(false, "{field} breaks {id}: {written}"),
                // A node with [`HARMLESS`] in the field lacks this file, because [`HARMLESS`] is no valid setting `NAME=VALUE`. So there is
                // no file to compare with, and the test only checks that this file has no injected field.
                (None, Some(document)) => {
                    let is_broken = document.as_object().is_some_and(|fields| fields.contains_key("INJECTED"));
                    prop_assert!(!is_broken, "{field} in {id}");
                }
                (None, None) => {
                    prop_assert!(lines(&written).all(|line| !line.starts_with("INJECTED")), "{field} in {id}");
                }
            }
        }
    }

    #[test]
    fn the_words_of_a_hook_stay_on_their_line(words in prop::collection::vec(odd_text(), 1..4)) {
        let mut config = config();
        *config.pointer_mut("/Hooks/0/1/execContainer/command").unwrap() = words.clone().into();
        *config.pointer_mut("/Hooks/0/1/execContainer/environment/A").unwrap() = words.concat().into();
        let state = decide(&config).unwrap().unwrap();
        let units: Vec<_> = written::texts(&state).into_iter().filter(|(id, _)| id.contains("kops-hook-1-ig")).collect();
        prop_assert_eq!(units.len(), 1);
        prop_assert!(units[0].1.lines().all(|line| !line.starts_with("INJECTED")));
        prop_assert_eq!(units[0].1.lines().filter(|line| line.starts_with("ExecStart=")).count(), 1);
    }

    #[test]
    fn the_order_of_keys_does_not_matter(
        cloud in select(CLOUDS),
        role in select(&Role::ALL[..]),
        orders in prop::collection::vec(any::<u64>(), 64),
    ) {
        let machine = Machine::new(cloud.0, role);
        let mut orders = orders.into_iter().cycle();
        let mut shuffled = |document: &Value| with_keys_in_any_order(document, &mut orders);
        let of_cluster = machine.derive().unwrap();
        let derived = machine.derive_from(&shuffled(&machine.cluster), &shuffled(&machine.group)).unwrap();
        prop_assert_eq!(&derived.config, &of_cluster.config);
        prop_assert_eq!(&derived.boot, &of_cluster.boot);
        let state = clouds::decide(
            &shuffled(&derived.boot), &shuffled(&derived.config), &shuffled(&derived.facts));
        prop_assert_eq!(state, of_cluster.decide());
    }

    #[test]
    fn the_order_of_unordered_lists_does_not_matter(
        packages in Just(vec![0, 1]).prop_shuffle(),
        files in Just(vec![0, 1, 2]).prop_shuffle(),
        mounts in Just(vec![0, 1]).prop_shuffle(),
        assets in Just(vec![0, 1, 2, 3, 4, 5]).prop_shuffle(),
    ) {
        let mut shuffled = config();
        for (place, order) in
            [("/packages", packages), ("/FileAssets", files), ("/VolumeMounts", mounts), ("/Assets/amd64", assets)]
        {
            let list = shuffled.pointer_mut(place).unwrap();
            *list = order.iter().map(|index| list[*index].clone()).collect();
        }
        let state = decide(&shuffled).unwrap().unwrap();
        prop_assert_eq!(&state, &decide(&config()).unwrap().unwrap());
        prop_assert_eq!(state, decide(&shuffled).unwrap().unwrap());
    }
}
