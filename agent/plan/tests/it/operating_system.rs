//! The files, units and packages of a node on clouds, distributions and networks that the conformance corpus does not cover.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};

use kops_agent_plan::desired::desired;
use kops_agent_plan::resolve::{Inputs, resolve};
use kops_agent_plan::resource::{Content, DesiredState, Resource, ResourceId};
use kops_agent_spec::facts::Facts;
use kops_agent_spec::{BootConfig, NodeupConfig, parse_yaml};
use serde_json::{Value, json};

/// A node with only the settings that a test needs.
struct Node {
    boot: Value,
    config: Value,
    facts: Value,
}

impl Node {
    fn new(distribution: &str, version: &str) -> Node {
        Node {
            boot: json!({"CloudProvider": "aws", "ClusterName": "c.example.com", "InstanceGroupRole": "Node"}),
            config: json!({
                "CAs": {"kubernetes-ca": "pem"},
                "ClusterName": "c.example.com",
                "KeypairIDs": {"kubernetes-ca": "1"},
                "KubeletConfig": {},
                "KubernetesVersion": "1.34.0",
                "containerdConfig": {"version": "2.3.4", "runc": {"version": "1.4.3"}},
                "Networking": {"nonMasqueradeCIDR": "100.64.0.0/10"},
                "UpdatePolicy": "automatic",
            }),
            facts: json!({
                "arch": "amd64",
                "distro": {"id": distribution, "versionID": version},
                "hostname": "n",
                "interfaces": [
                    {"name": "ens5", "mac": "02:00:00:00:00:01"},
                    {"name": "ens6", "mac": "02:00:00:00:00:02"},
                    {"name": "eth0.1", "mac": "02:00:00:00:00:01", "virtual": true},
                ],
                "kernel": "6.12.0-55.el10",
                "cloud": {
                    "aws": {
                        "instanceID": "i-1", "instanceType": "m5.large", "region": "us-test-1", "localIPv4": "10.0.0.2",
                        "mac": "02:00:00:00:00:01", "networkInterfaces": {"max": 3, "ipv4PerInterface": 10},
                    },
                    "azure": {"resourceID": "/subscriptions/s/vm"},
                    "hetzner": {"instanceID": "1", "privateIPv4": "10.0.0.2"},
                    "linode": {"label": "n"},
                },
            }),
        }
    }

    fn with(mut self, part: fn(&mut Node) -> &mut Value, fields: Value) -> Node {
        let target = part(&mut self);
        for (field, value) in fields.as_object().unwrap() {
            target[field] = value.clone();
        }
        self
    }

    fn boot(self, fields: Value) -> Node {
        self.with(|node| &mut node.boot, fields)
    }

    fn config(self, fields: Value) -> Node {
        self.with(|node| &mut node.config, fields)
    }

    fn network(self, fields: Value) -> Node {
        self.with(|node| &mut node.config["Networking"], fields)
    }

    fn facts(self, fields: Value) -> Node {
        self.with(|node| &mut node.facts, fields)
    }

    fn inputs(&self) -> Inputs {
        // The agent would download these files, but a test needs only their entries in the list of assets.
        let assets: Vec<String> = [
            "https://dl.k8s.io/release/v1.34.0/bin/linux/amd64/kubelet",
            "https://dl.k8s.io/release/v1.34.0/bin/linux/amd64/kubectl",
            "https://artifacts.k8s.io/ecr-credential-provider-linux-amd64",
            "https://github.com/cni-plugins-linux-amd64-v1.7.1.tgz",
            "https://github.com/containerd-2.3.4-linux-amd64.tar.gz",
            "https://github.com/runc.amd64",
        ]
        .map(|url| format!("{}@{url}", "ab".repeat(32)))
        .to_vec();
        let mut config = self.config.clone();
        config["Assets"] = json!({ "amd64": assets });
        Inputs {
            boot: BootConfig::parse(&serde_json::to_vec(&self.boot).unwrap(), "boot").unwrap(),
            config: NodeupConfig::parse(&serde_json::to_vec(&config).unwrap(), "config").unwrap(),
            keysets: BTreeMap::new(),
            secret_names: BTreeSet::new(),
            manifests: BTreeMap::new(),
            facts: parse_yaml::<Facts>(&serde_json::to_vec(&self.facts).unwrap(), "facts").unwrap(),
            kops_version: None,
            archives: Default::default(),
        }
    }

    fn state(&self) -> DesiredState {
        desired(&resolve(self.inputs()).unwrap()).unwrap()
    }

    fn problems(&self) -> String {
        resolve(self.inputs()).unwrap_err().to_string()
    }
}

fn resource(state: &DesiredState, id: &str) -> Option<Resource> {
    let id: ResourceId = serde_json::from_value(json!(id)).unwrap();
    state.get(&id).cloned()
}

fn has(state: &DesiredState, id: &str) -> bool {
    resource(state, id).is_some()
}

fn text(state: &DesiredState, path: &str) -> String {
    match resource(state, &format!("file {path}")) {
        Some(Resource::File(file)) => match file.content {
            Content::Text(text) => text,
            other => panic!("{path} is {other:?}"),
        },
        other => panic!("{path} is {other:?}"),
    }
}

fn present<'a>(state: &DesiredState, ids: &[&'a str]) -> Vec<&'a str> {
    ids.iter().copied().filter(|id| has(state, id)).collect()
}

const EC2_NET_UTILS: &str = "file /etc/udev/rules.d/99-vpc-policy-routes.rules";
const FOREIGN_ROUTES: &str = "file /usr/lib/systemd/networkd.conf.d/40-disable-manage-foreign-routes.conf";
const MAC_ADDRESSES: &str = "file /etc/systemd/network/99-default.link";
const SECONDARY: &str = "file /etc/systemd/network/75-eni-secondary.network";
const HOTPLUG: &str = "file /etc/cloud/cloud.cfg.d/99-disable-network-hotplug.cfg";
const IFUPDOWN: &str = "file /etc/udev/rules.d/75-cloud-ifupdown.rules";
const NM_CLOUD_SETUP: &str = "file /etc/kops/nm-cloud-setup-disabled";
const ENI_FILES: [&str; 7] =
    [EC2_NET_UTILS, FOREIGN_ROUTES, MAC_ADDRESSES, SECONDARY, HOTPLUG, IFUPDOWN, NM_CLOUD_SETUP];

#[test]
fn no_distribution_configures_interfaces_of_the_vpc_cni() {
    let cases: [(&str, &str, &[&str]); 8] = [
        ("amzn", "2023", &[EC2_NET_UTILS, FOREIGN_ROUTES, MAC_ADDRESSES, SECONDARY]),
        ("debian", "11", &[IFUPDOWN]),
        ("debian", "12", &[FOREIGN_ROUTES, MAC_ADDRESSES, SECONDARY, HOTPLUG]),
        ("ubuntu", "22.04", &[FOREIGN_ROUTES, MAC_ADDRESSES]),
        ("ubuntu", "24.04", &[FOREIGN_ROUTES, MAC_ADDRESSES, HOTPLUG]),
        ("rhel", "9.4", &[NM_CLOUD_SETUP]),
        ("rocky", "9.4", &[]),
        ("flatcar", "4230.2.0", &[]),
    ];
    for (distribution, version, expected) in cases {
        let state = Node::new(distribution, version).network(json!({"amazonVPC": {}})).state();
        assert_eq!(present(&state, &ENI_FILES), expected, "{distribution} {version}");
    }
}

#[test]
fn cilium_needs_fewer_files_unless_pods_use_enis() {
    let state = Node::new("debian", "12").network(json!({"cilium": {}})).state();
    assert_eq!(present(&state, &ENI_FILES), [FOREIGN_ROUTES, HOTPLUG]);
    let state = Node::new("debian", "12").network(json!({"cilium": {"ipam": "eni"}})).state();
    assert_eq!(present(&state, &ENI_FILES), [FOREIGN_ROUTES, MAC_ADDRESSES, SECONDARY, HOTPLUG]);
}

#[test]
fn the_primary_interface_stays_managed_and_must_be_known() {
    let node = Node::new("amzn", "2023").network(json!({"amazonVPC": {}}));
    let network = text(&node.state(), "/etc/systemd/network/75-eni-secondary.network");
    assert!(network.contains("Property=!INTERFACE=ens5\n"), "{network}");
    let problems = node.facts(json!({"interfaces": []})).problems();
    assert!(problems.contains("no interface has the hardware address 02:00:00:00:00:01"), "{problems}");
}

#[test]
fn a_bpf_mount_of_systemd_stays() {
    let node = Node::new("debian", "12").network(json!({"cilium": {}}));
    assert!(has(&node.state(), "unit sys-fs-bpf.mount"));
    let state = node.facts(json!({"bpfMountedBySystemd": true})).state();
    assert!(!has(&state, "unit sys-fs-bpf.mount"));
    assert!(has(&state, "unit run-cilium-cgroupv2.mount"));
}

#[test]
fn kube_router_gets_iproute2s_tables_at_its_path() {
    for (distribution, version, links) in [
        ("debian", "12", true),
        ("debian", "13", false),
        ("ubuntu", "24.04", true),
        ("ubuntu", "25.10", false),
        ("rocky", "9.4", false),
    ] {
        let state = Node::new(distribution, version).network(json!({"kubeRouter": {}})).state();
        assert_eq!(has(&state, "symlink /usr/share/iproute2"), links, "{distribution} {version}");
        assert!(has(&state, "file /var/lib/kube-router/kubeconfig"));
    }
}

#[test]
fn calico_on_ubuntu_gets_wireguard_unless_it_is_off() {
    let wireguard = |node: Node| has(&node.state(), "package wireguard");
    assert!(wireguard(Node::new("ubuntu", "24.04").network(json!({"calico": {}}))));
    assert!(!wireguard(Node::new("ubuntu", "24.04").network(json!({"calico": {"wireguardEnabled": false}}))));
    assert!(!wireguard(
        Node::new("ubuntu", "24.04").network(json!({"calico": {}, "nonMasqueradeCIDR": "::/0"}))
    ));
    assert!(!wireguard(Node::new("debian", "12").network(json!({"calico": {}}))));
}

#[test]
fn kernel_modules_depend_on_network_and_kernel() {
    let modules = |node: Node| {
        let state = node.state();
        let modules = state.iter().filter_map(|(_, resource)| match resource {
            Resource::KernelModule(module) => Some((module.name.clone(), module.package.clone())),
            _ => None,
        });
        modules.collect::<Vec<_>>()
    };
    let plain = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), None)).collect::<Vec<_>>();
    assert_eq!(modules(Node::new("debian", "12")), plain(&["br_netfilter"]));
    assert_eq!(
        modules(Node::new("debian", "12").network(json!({"kindnet": {}}))),
        plain(&["nfnetlink_queue"])
    );
    assert_eq!(modules(Node::new("rocky", "9.4")), plain(&["br_netfilter", "nf_conntrack"]));
    let package = Some("kernel-modules-extra-6.12.0-55.el10".to_owned());
    assert_eq!(
        modules(Node::new("rhel", "10.0")),
        ["br_netfilter", "ip_set", "nf_conntrack", "nf_tables"]
            .map(|name| (name.to_owned(), package.clone()))
    );
}

#[test]
fn names_of_the_control_plane_replace_dns() {
    let addresses = |state: &DesiredState, hostname: &str| match resource(state, &format!("host {hostname}"))
    {
        Some(Resource::HostsEntry(entry)) => Some(entry.addresses),
        _ => None,
    };
    let node = Node::new("debian", "12").boot(json!({"APIServerIPs": ["10.0.0.1", "fd00::1"]}));
    let state = node.state();
    let expected = Some(vec!["10.0.0.1".to_owned(), "fd00::1".to_owned()]);
    assert_eq!(addresses(&state, "api.internal.c.example.com"), expected);
    assert_eq!(addresses(&state, "kops-controller.internal.c.example.com"), expected);
    assert_eq!(addresses(&state, "main.etcd.internal.c.example.com"), None);
    let problems =
        node.boot(json!({"EtcdIPs": ["10.0.0"], "APIServerIPs": ["10.0.0.1\n10.0.0.2 evil"]})).problems();
    assert!(problems.contains("EtcdIPs[0]") && problems.contains("APIServerIPs[0]"), "{problems}");
}

#[test]
fn time_comes_from_the_cloud_unless_the_user_manages_it() {
    let chrony = "/etc/chrony/chrony.conf";
    assert!(text(&Node::new("debian", "12").state(), chrony).starts_with("pool 169.254.169.123 "));
    let state = Node::new("debian", "12").boot(json!({"CloudProvider": "hetzner"})).state();
    assert!(has(&state, "unit chrony.service") && !has(&state, "file /etc/chrony/chrony.conf"));
    let state = Node::new("debian", "12").config(json!({"NTPUnmanaged": true})).state();
    assert!(!has(&state, "package chrony") && !has(&state, "unit chrony.service"));
}

#[test]
fn the_update_policy_disables_automatic_updates() {
    let state = Node::new("debian", "12").config(json!({"UpdatePolicy": "external"})).state();
    assert!(!has(&state, "package unattended-upgrades"));
    assert_eq!(text(&state, "/etc/apt/apt.conf.d/20auto-upgrades"), "APT::Periodic::Enable \"0\";\n");
    let hook = json!({"Hooks": [[{"name": "update-service", "manifest": "Type=oneshot"}], null]});
    let state = Node::new("flatcar", "4230.2.0").config(hook).state();
    let Some(Resource::Unit(unit)) = resource(&state, "unit update-service.service") else { panic!() };
    assert_eq!(
        unit.text.unwrap(),
        "[Unit]\nDescription=Kops Hook update-service\n\n[Service]\nType=oneshot\n"
    );
}

#[test]
fn debian_11_accepts_router_advertisements() {
    let ipv6 = |version| Node::new("debian", version).network(json!({"nonMasqueradeCIDR": "::/0"})).state();
    let parameters = text(&ipv6("11"), "/etc/sysctl.d/99-k8s-general.conf");
    assert!(
        parameters.contains("net.ipv6.conf.ens5.accept_ra=2\nnet.ipv6.conf.ens6.accept_ra=2\n"),
        "{parameters}"
    );
    assert!(!parameters.contains("eth0"));
    assert!(!text(&ipv6("12"), "/etc/sysctl.d/99-k8s-general.conf").contains("accept_ra"));
}

#[test]
fn a_hook_restarts_for_its_file_assets() {
    let config = json!({
        "FileAssets": [{"path": "/opt/a", "content": "x"}, {"path": "/opt/b", "content": "y"}],
        "Hooks": [[{"name": "a", "manifest": "ExecStart=/opt/a\nEnvironmentFile=/etc/other\n"}, {"name": "off", "enabled": false}], null],
    });
    let state = Node::new("debian", "12").config(config).state();
    let Some(Resource::Unit(unit)) = resource(&state, "unit a.service") else { panic!() };
    assert_eq!(unit.restarted_by.iter().map(ToString::to_string).collect::<Vec<_>>(), ["file /opt/a"]);
    let Some(Resource::Unit(off)) = resource(&state, "unit off.service") else { panic!() };
    assert_eq!((off.text, off.enabled, off.running), (None, false, false));
}

#[test]
fn directories_of_file_assets_are_made_except_system_directories() {
    let config = json!({"FileAssets": [
        {"path": "/etc/x.d/a", "content": "x"}, {"path": "/root/.profile", "content": "x"}, {"path": "/tmp/a", "content": "x"},
    ]});
    let state = Node::new("debian", "12").config(config).state();
    let directories =
        ["directory /etc/x.d", "directory /root", "directory /tmp", "directory /srv/kubernetes/assets"];
    assert_eq!(present(&state, &directories), ["directory /etc/x.d", "directory /srv/kubernetes/assets"]);
}

#[test]
fn each_cloud_adds_its_own_resources() {
    let azure = Node::new("ubuntu", "24.04").boot(json!({"CloudProvider": "azure"})).state();
    let Some(Resource::File(rules)) = resource(&azure, "file /etc/udev/rules.d/80-azure-disk.rules") else {
        panic!()
    };
    assert!(rules.create_only && rules.on_change.len() == 2);

    let fstab = json!({"fstab": "/dev/sda / ext4 defaults 0 1\n/dev/sdb none swap sw 0 0\n"});
    let linode = Node::new("debian", "12").boot(json!({"CloudProvider": "linode"})).facts(fstab);
    assert_eq!(text(&linode.state(), "/etc/fstab"), "/dev/sda / ext4 defaults 0 1\n");
    assert_eq!(text(&linode.state(), "/etc/hostname"), "n\n");
    let swapping = linode.config(json!({"KubeletConfig": {"memorySwapBehavior": "LimitedSwap"}}));
    assert!(!has(&swapping.state(), "file /etc/fstab"));
}

#[test]
fn all_problems_are_reported_together() {
    let problems = Node::new("debian", "12")
        .config(json!({
            "packages": ["-y"],
            "VolumeMounts": [{"device": "/dev/a", "filesystem": "ext4", "path": "data"}],
            "FileAssets": [{"path": "etc/a", "content": "x"}],
            "Hooks": [[{"name": "a"}], null],
            "UpdatePolicy": "never",
            "ServiceNodePortRange": "all",
        }))
        .problems();
    for field in [
        "packages[0]",
        "Hooks[0][0]",
        "VolumeMounts[0].path",
        "ServiceNodePortRange",
        "UpdatePolicy",
        "FileAssets[0].path",
    ] {
        assert!(
            problems.lines().any(|line| line.starts_with(&format!("{field}: "))),
            "{field} in {problems}"
        );
    }
}

#[test]
fn a_missing_key_of_ciliums_etcd_authority_is_a_problem() {
    let node = Node::new("debian", "12").config(json!({"UseCiliumEtcd": true}));
    assert!(node.problems().contains("KeypairIDs.etcd-clients-ca-cilium"));
    let node = node.config(json!({"KeypairIDs": {"kubernetes-ca": "1", "etcd-clients-ca-cilium": "2"}}));
    assert!(has(&node.state(), "file /etc/kubernetes/pki/cilium/etcd-client-cilium.key"));
}
