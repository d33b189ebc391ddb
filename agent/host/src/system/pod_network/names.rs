//! The names of the pod network's interfaces, chains, tables and sets, and the source of each name. Only names that no
//! other program uses are listed, so an operator's own rules are never touched.

const INTERFACES: [&str; 13] = [
    // containernetworking/plugins, plugins/main/bridge/bridge.go: the default name of a bridge.
    "cni0",
    // kOps' kubenet: nodeup/pkg/model/containerd.go.
    "cbr0",
    IPVS,
    // cloudnativelabs/kube-router: pkg/controllers/routing, pkg/controllers/proxy.
    "kube-bridge",
    KUBE_ROUTER,
    // kubernetes/dns: cmd/node-cache/main.go, `-interfacename`.
    "nodelocaldns",
    // projectcalico/calico: felix/dataplane/linux/dataplanedefs/dataplane_defs.go, felix/config/config_params.go.
    "vxlan.calico",
    "vxlan-v6.calico",
    "wireguard.cali",
    "wg-v6.cali",
    "bpfin.cali",
    "bpfout.cali",
    // weaveworks/weave: net/bridge.go.
    "weave",
];
/// Name prefixes of the interfaces of flannel (flannel-io/flannel: `flannel.1`, `flannel-v6.1`, `flannel.ipip`,
/// `flannel-wg`, `flannel0` in pkg/backend), of Cilium (cilium/cilium: pkg/defaults), and of the pods of Calico (felix'
/// `InterfacePrefix`).
const INTERFACE_PREFIXES: [&str; 3] = ["flannel", "cilium_", "cali"];
/// kube-proxy's interface in IPVS mode. It has the addresses of all services (kubernetes/kubernetes:
/// pkg/proxy/ipvs/proxier.go).
pub(super) const IPVS: &str = "kube-ipvs0";
/// kube-router's interface with the addresses of all services (pkg/controllers/proxy/network_services_controller.go).
pub(super) const KUBE_ROUTER: &str = "kube-dummy-if";

/// Name prefixes of iptables chains.
const CHAIN_PREFIXES: [&str; 9] = [
    // Chains of kube-proxy (pkg/proxy/iptables, pkg/proxy/ipvs), of kubelet (pkg/kubelet/kubelet_network_linux.go), and of
    // kube-router (KUBE-ROUTER-, KUBE-POD-FW-, KUBE-NWPLCY-: pkg/controllers/netpol/network_policy_controller.go).
    "KUBE-",
    // projectcalico/calico: felix/rules/rule_defs.go.
    "cali-",
    // cilium/cilium: pkg/datapath/iptables. During an upgrade, Cilium renames old chains with the prefix OLD_.
    "CILIUM_",
    "OLD_CILIUM_",
    // flannel-io/flannel: FLANNEL-FWD and FLANNEL-POSTRTG in pkg/trafficmngr/iptables/iptables.go.
    "FLANNEL-",
    // containernetworking/plugins: pkg/utils/utils.go, plugins/meta/portmap, plugins/meta/firewall.
    "CNI-",
    // aws/amazon-vpc-cni-k8s: pkg/networkutils/network.go.
    "AWS-SNAT-CHAIN-",
    "AWS-CONNMARK-CHAIN-",
    "WEAVE-",
];
/// Full names of chains: the chain of kubenet on kOps nodes (nodeup/pkg/model/containerd.go), the chain of kindnet
/// versions without nftables, and Weave's main chain.
const CHAINS: [&str; 3] = ["IP-MASQ", "KIND-MASQ-AGENT", "WEAVE"];
/// The CNI plugin `firewall` creates this chain for an administrator's own rules (plugins/meta/firewall/README). The
/// chain belongs to the pod network only while it is empty.
pub(super) const ADMINISTRATORS_CHAIN: &str = "CNI-ADMIN";
/// Comment prefixes of the pod network's rules in the machine's standard chains. Only the comment identifies these
/// rules, because they jump to no chain of the pod network.
const COMMENTS: [&str; 5] = [
    // kubernetes/dns: cmd/node-cache/app/cache_app.go.
    "NodeLocal DNS Cache: ",
    // aws/amazon-vpc-cni-k8s: pkg/networkutils/network.go.
    "AWS, primary ENI\"",
    "AWS, CONNMARK\"",
    // Rules of flannel versions that have no chains of their own. The comments are still in
    // pkg/trafficmngr/iptables/iptables.go.
    "flanneld masq\"",
    "flanneld forward\"",
];
/// Name prefixes of ipsets. kube-router's rules for traffic that leaves pods (pkg/controllers/routing/pod_egress.go)
/// have no chain of their own and no comment, so only the ipset identifies them.
const SETS_OF_RULES: [&str; 2] = ["kube-router-", "inet6:kube-router-"];

/// Full names of nftables tables.
const TABLES: [&str; 10] = [
    // kubernetes/kubernetes: pkg/proxy/nftables/proxier.go. Calico's BPF mode uses the same name.
    "kube-proxy",
    // flannel: pkg/trafficmngr/nftables/nftables.go.
    "flannel-ipv4",
    "flannel-ipv6",
    // containernetworking/plugins: plugins/meta/portmap/portmap_nftables.go, pkg/ip/ipmasq_nftables_linux.go.
    "cni_hostport",
    "cni_plugins_masquerade",
    // projectcalico/calico: felix/dataplane/linux/int_dataplane.go.
    "calico",
    "calico-arp",
    // kube-router: pkg/controllers/netpol/npc_nftables.go.
    "kube-router-filter-ipv4",
    "kube-router-filter-ipv6",
    // kubernetes-sigs/kindnet: cmd/cni-kindnet.
    "cni-kindnet",
];
/// Name prefix of kindnetd's tables: kindnet-network-policies, -ipmasq, -dnscache, -fastpath, -nat64, -nflog
/// (kubernetes-sigs/kindnet: pkg/*).
const TABLE_PREFIX: &str = "kindnet-";

/// Name prefixes of ipsets.
/// - kube-proxy in IPVS mode: pkg/proxy/ipvs/ipset.go; KUBE-6- for IPv6.
/// - kube-router: KUBE-SRC-, KUBE-DST-, kube-router-; inet6: for IPv6.
/// - Calico: `cali`, the IP version, and a character for main or temporary sets (felix/ipsets/ipset_defs.go).
/// - Cilium: pkg/datapath/ipset.
const SET_PREFIXES: [&str; 7] =
    ["KUBE-", "inet6:KUBE-", "kube-router-", "inet6:kube-router-", "cali4", "cali6", "cilium_node_set_v"];

fn begins_with_any(name: &str, prefixes: &[&str]) -> bool {
    prefixes.iter().any(|prefix| name.starts_with(prefix))
}

pub(super) fn is_own_interface(name: &str) -> bool {
    INTERFACES.contains(&name) || begins_with_any(name, &INTERFACE_PREFIXES)
}

pub(super) fn is_own_chain(name: &str) -> bool {
    CHAINS.contains(&name) || begins_with_any(name, &CHAIN_PREFIXES)
}

pub(super) fn is_own_table(name: &str) -> bool {
    TABLES.contains(&name) || name.starts_with(TABLE_PREFIX)
}

pub(super) fn is_own_set(name: &str) -> bool {
    begins_with_any(name, &SET_PREFIXES)
}

/// Whether a rule's comment or ipset shows that the rule belongs to the pod network.
pub(super) fn is_own_by_mark(rule: &str) -> bool {
    COMMENTS.iter().any(|comment| rule.contains(&format!(" --comment \"{comment}")))
        || SETS_OF_RULES.iter().any(|set| rule.contains(&format!(" --match-set {set}")))
}
