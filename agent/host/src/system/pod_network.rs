//! What the network of pods leaves on a machine when nothing of it runs any more: interfaces, and the rules of kube-proxy,
//! kubelet and the network plugins. Only what bears a name that they alone give is theirs; an operator's own rules and
//! interfaces are never touched, whatever changes between looking and removing.

use std::collections::BTreeSet;
use std::time::Duration;

use super::commands::{ask, run};
use super::tether::Tether;
use crate::error::Result;

/// For how long another program may hold the lock of iptables.
const RULES_LOCKED_FOR: Duration = Duration::from_secs(300);

/// Interfaces by their whole names: the bridge plugin's and kubenet's bridges, kube-proxy's and kube-router's dummies,
/// that of NodeLocal DNSCache, Calico's tunnels and Weave's.
const INTERFACES: [&str; 11] = [
    "cni0",
    "cbr0",
    "kube-ipvs0",
    "kube-bridge",
    "kube-dummy-if",
    "nodelocaldns",
    "vxlan.calico",
    "vxlan-v6.calico",
    "wireguard.cali",
    "wg-v6.cali",
    "weave",
];
/// The others by how their names begin: flannel's, Cilium's, and Calico's to each pod.
const INTERFACE_PREFIXES: [&str; 3] = ["flannel", "cilium_", "cali"];
/// kube-proxy's interface in IPVS mode, which has the addresses of all services (pkg/proxy/ipvs/proxier.go).
const IPVS: &str = "kube-ipvs0";

/// Chains of iptables by how their names begin: kube-proxy's, kubelet's and kube-router's; Calico's; Cilium's; flannel's;
/// those of the CNI plugins portmap and bridge; the Amazon VPC CNI's; Weave's.
const CHAIN_PREFIXES: [&str; 9] = [
    "KUBE-",
    "cali-",
    "CILIUM_",
    "OLD_CILIUM_",
    "FLANNEL-",
    "CNI-",
    "AWS-SNAT-CHAIN-",
    "AWS-CONNMARK-CHAIN-",
    "WEAVE-",
];
/// That of kubenet on kOps' nodes (nodeup/pkg/model/containerd.go), and Weave's first.
const CHAINS: [&str; 2] = ["IP-MASQ", "WEAVE"];
/// NodeLocal DNSCache has rules and no chains (cmd/node-cache/app/cache_app.go).
const COMMENTS: [&str; 1] = ["NodeLocal DNS Cache:"];
/// iptables in each of its forms: whichever pods used may not be the one that is the default by now.
const IPTABLES: [&str; 6] =
    ["iptables", "iptables-nft", "iptables-legacy", "ip6tables", "ip6tables-nft", "ip6tables-legacy"];
/// Tables of nftables: kube-proxy's (pkg/proxy/nftables/proxier.go), flannel's, and those of the CNI plugins portmap and
/// bridge.
const TABLES: [&str; 5] =
    ["kube-proxy", "flannel-ipv4", "flannel-ipv6", "cni_hostport", "cni_plugins_masquerade"];

/// What is left of the network of pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct PodNetworkLeft {
    /// Network interfaces, by name.
    pub interfaces: Vec<String>,
    /// What has rules, each as a few words for people.
    pub rules: Vec<String>,
}

/// The network of pods.
pub trait PodNetwork: Send + Sync {
    /// What is left of it.
    ///
    /// # Errors
    /// The machine cannot be looked at.
    fn left(&self) -> Result<PodNetworkLeft>;

    /// Removes all of that which is there by now. What cannot be removed is returned, each with why: a restart of the
    /// machine ends all of it.
    fn remove(&self) -> Vec<String>;
}

/// This machine's.
pub struct Machine;

impl PodNetwork for Machine {
    fn left(&self) -> Result<PodNetworkLeft> {
        let mut rules = Vec::new();
        for program in IPTABLES {
            let Some(saved) = saved(program) else { continue };
            let chains = own_chains(&saved).len();
            if removal(&saved).is_some() {
                rules.push(format!("{chains} chains of {program}"));
            }
        }
        rules.extend(own_tables().into_iter().map(|table| format!("the table {table} of nftables")));
        let interfaces = own_interfaces()?;
        if interfaces.iter().any(|name| name == IPVS) {
            rules.push("the services of IPVS at addresses of kube-ipvs0".to_owned());
        }
        Ok(PodNetworkLeft { interfaces, rules })
    }

    fn remove(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut note = |outcome: Result<()>| problems.extend(outcome.err().map(|error| error.to_string()));
        for program in IPTABLES {
            let Some(removal) = saved(program).and_then(|saved| removal(&saved)) else { continue };
            let restore = format!("{program}-restore");
            let (tether, _leash) = Tether::new(RULES_LOCKED_FOR);
            note(tether.feed(&[&restore, "--noflush", "--wait"], &mut removal.as_bytes()));
        }
        for table in own_tables() {
            let mut command = vec!["nft", "delete", "table"];
            command.extend(table.split(' '));
            note(run(&command).map(drop));
        }
        let interfaces = own_interfaces();
        if interfaces.as_ref().is_ok_and(|interfaces| interfaces.iter().any(|name| name == IPVS)) {
            remove_ipvs_services(&mut note);
        }
        match interfaces {
            Ok(interfaces) => {
                for name in interfaces {
                    note(run(&["ip", "link", "delete", "dev", &name]).map(drop));
                }
            }
            Err(error) => note(Err(error)),
        }
        problems
    }
}

/// What a program of iptables has; `None` where there is no such program, or it cannot do anything here.
fn saved(program: &str) -> Option<String> {
    printed(&[&format!("{program}-save")])
}

/// What a program prints that may not be there.
fn printed(command: &[&str]) -> Option<String> {
    ask(command).ok().filter(|outcome| outcome.status.success()).map(|outcome| outcome.stdout)
}

fn own_interfaces() -> Result<Vec<String>> {
    // Asked of the kernel, as the network namespace of the caller has them.
    Ok(pod_interfaces(&run(&["ip", "-oneline", "link", "show"])?))
}

/// The interfaces of pods among those that `ip -oneline link show` prints (`4: cali1@if3: <BROADCAST> …`).
fn pod_interfaces(shown: &str) -> Vec<String> {
    let name =
        |line: &str| line.split(": ").nth(1).map(|name| name.split('@').next().unwrap_or(name).to_owned());
    let is_own = |name: &String| {
        INTERFACES.contains(&name.as_str())
            || INTERFACE_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
    };
    shown.lines().filter_map(name).filter(is_own).collect()
}

/// The tables of nftables that are pods', as `ip kube-proxy`.
fn own_tables() -> Vec<String> {
    pod_tables(&printed(&["nft", "list", "tables"]).unwrap_or_default())
}

fn pod_tables(shown: &str) -> Vec<String> {
    let table = |line: &str| line.trim().strip_prefix("table ").map(str::to_owned);
    let is_own = |table: &String| table.split(' ').nth(1).is_some_and(|name| TABLES.contains(&name));
    shown.lines().filter_map(table).filter(is_own).collect()
}

fn is_own_chain(name: &str) -> bool {
    CHAINS.contains(&name) || CHAIN_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// The chains of pods in what `iptables-save` prints, each with its table.
fn own_chains(saved: &str) -> BTreeSet<(&str, &str)> {
    let mut table = "";
    let mut chains = BTreeSet::new();
    for line in saved.lines() {
        if let Some(name) = line.strip_prefix('*') {
            table = name;
        } else if let Some(chain) = line.strip_prefix(':').and_then(|line| line.split(' ').next())
            && is_own_chain(chain)
        {
            chains.insert((table, chain));
        }
    }
    chains
}

/// What `iptables-restore --noflush` is fed to take away the chains of pods and every rule that leads there, and nothing
/// else; `None` where there is neither. A rule that has gone meanwhile makes it do nothing of its table.
fn removal(saved: &str) -> Option<String> {
    let chains = own_chains(saved);
    let mut script = String::new();
    let mut table = "";
    let mut rules = Vec::new();
    for line in saved.lines() {
        if let Some(name) = line.strip_prefix('*') {
            table = name;
            rules.clear();
        } else if let Some(rule) = line.strip_prefix("-A ") {
            let chain = rule.split(' ').next().unwrap_or_default();
            if !chains.contains(&(table, chain)) && is_own_rule(rule) {
                rules.push(rule);
            }
        } else if line == "COMMIT" {
            let own: Vec<&str> =
                chains.iter().filter(|(of, _)| *of == table).map(|(_, chain)| *chain).collect();
            if own.is_empty() && rules.is_empty() {
                continue;
            }
            script.push_str(&format!("*{table}\n"));
            // To name a chain empties it.
            own.iter().for_each(|chain| script.push_str(&format!(":{chain} - [0:0]\n")));
            rules.iter().for_each(|rule| script.push_str(&format!("-D {rule}\n")));
            own.iter().for_each(|chain| script.push_str(&format!("-X {chain}\n")));
            script.push_str("COMMIT\n");
        }
    }
    (!script.is_empty()).then_some(script)
}

/// Whether a rule of somebody else's chain leads to a chain of pods, or is theirs by its comment.
fn is_own_rule(rule: &str) -> bool {
    let rule_itself = without_quoted(rule);
    let words: Vec<&str> = rule_itself.split(' ').collect();
    let leads = |pair: &[&str]| matches!(pair, ["-j" | "-g", chain] if is_own_chain(chain));
    let comments = COMMENTS.iter().any(|comment| rule.contains(&format!("--comment \"{comment}")));
    comments || words.windows(2).any(leads)
}

/// A rule without what its comments say.
fn without_quoted(rule: &str) -> String {
    rule.replace("\\\"", "").split('"').step_by(2).collect()
}

fn remove_ipvs_services(note: &mut impl FnMut(Result<()>)) {
    let shown = printed(&["ip", "-oneline", "address", "show", "dev", IPVS]).unwrap_or_default();
    let addresses = addresses(&shown);
    let Some(services) = printed(&["ipvsadm", "--save", "--numeric"]) else { return };
    for service in ipvs_services(&services, &addresses) {
        note(run(&["ipvsadm", "--delete-service", service.0, service.1]).map(drop));
    }
}

/// The addresses that `ip -oneline address show` prints (`7: kube-ipvs0    inet 10.0.0.1/32 scope global …`).
fn addresses(shown: &str) -> BTreeSet<String> {
    let address = |line: &str| {
        let mut words = line.split_whitespace().skip_while(|word| !word.starts_with("inet"));
        Some(words.nth(1)?.split('/').next()?.to_owned())
    };
    shown.lines().filter_map(address).collect()
}

/// The services at some addresses among those that `ipvsadm --save` prints (`-A -t 10.0.0.1:443 -s rr`), each as the flag
/// of its protocol and its place.
fn ipvs_services<'a>(saved: &'a str, addresses: &BTreeSet<String>) -> Vec<(&'a str, &'a str)> {
    let service = |line: &'a str| match line.split(' ').collect::<Vec<_>>().as_slice() {
        ["-A", protocol, place, ..] => {
            let address = place.rsplit_once(':')?.0.trim_start_matches('[').trim_end_matches(']');
            addresses.contains(address).then_some((*protocol, *place))
        }
        _ => None,
    };
    saved.lines().filter_map(service).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_of_pods_are_told_from_others() {
        let shown = "1: lo: <LOOPBACK,UP> mtu 65536\n2: eth0: <UP>\n3: cni0: <UP>\n4: cali12ab@if3: <UP>\n\
                     5: flannel.1: <UP>\n6: cilium_host@cilium_net: <UP>\n7: lxcbr0: <UP>\n8: docker0: <UP>\n\
                     9: kube-ipvs0: <NOARP>\n10: nodelocaldns: <UP>\n11: weave-mine: <UP>\n12: cni0-mine: <UP>\n";
        assert_eq!(
            pod_interfaces(shown),
            ["cni0", "cali12ab", "flannel.1", "cilium_host", "kube-ipvs0", "nodelocaldns"]
        );
    }

    const SAVED: &str = r#"# Generated by iptables-save v1.8.9 (nf_tables)
*filter
:INPUT ACCEPT [10:100]
:FORWARD DROP [0:0]
:MINE - [0:0]
:KUBE-FORWARD - [0:0]
:cali-FORWARD - [0:0]
-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT
-A INPUT -d 169.254.20.10/32 -p udp -m comment --comment "NodeLocal DNS Cache: allow DNS traffic" -j ACCEPT
-A FORWARD -m comment --comment "cali:wUHhoiAYhphO9Mso" -j cali-FORWARD
-A FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
-A FORWARD -m comment --comment "not to -j KUBE-FORWARD" -j MINE
-A MINE -s 10.0.0.0/8 -g cali-FORWARD
-A KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT
-A cali-FORWARD -j KUBE-FORWARD
COMMIT
*nat
:PREROUTING ACCEPT [0:0]
-A PREROUTING -p tcp -j REDIRECT --to-ports 8080
COMMIT
"#;

    #[test]
    fn chains_of_pods_go_and_no_rule_of_the_operators() {
        let removal = removal(SAVED).unwrap();
        let expected = r#"*filter
:KUBE-FORWARD - [0:0]
:cali-FORWARD - [0:0]
-D INPUT -d 169.254.20.10/32 -p udp -m comment --comment "NodeLocal DNS Cache: allow DNS traffic" -j ACCEPT
-D FORWARD -m comment --comment "cali:wUHhoiAYhphO9Mso" -j cali-FORWARD
-D FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
-D MINE -s 10.0.0.0/8 -g cali-FORWARD
-X KUBE-FORWARD
-X cali-FORWARD
COMMIT
"#;
        assert_eq!(removal, expected);
        assert_eq!(super::removal("*nat\n:PREROUTING ACCEPT [0:0]\nCOMMIT\n"), None);
    }

    #[test]
    fn tables_of_nftables_are_told_by_their_whole_names() {
        let shown =
            "table inet filter\ntable ip kube-proxy\ntable ip6 kube-proxy\ntable ip kube-proxy-mine\n";
        assert_eq!(pod_tables(shown), ["ip kube-proxy", "ip6 kube-proxy"]);
    }

    #[test]
    fn services_of_ipvs_are_kube_proxys_where_their_address_is() {
        let shown = "7: kube-ipvs0    inet 100.64.0.1/32 scope global kube-ipvs0\\       valid_lft forever\n\
                     7: kube-ipvs0    inet6 fd00::1/128 scope global\n";
        let saved = "-A -t 100.64.0.1:443 -s rr\n-a -t 100.64.0.1:443 -r 10.0.0.9:443 -m -w 1\n\
                     -A -u [fd00::1]:53 -s rr\n-A -t 192.0.2.7:80 -s wrr\n";
        let services = ipvs_services(saved, &addresses(shown));
        assert_eq!(services, [("-t", "100.64.0.1:443"), ("-u", "[fd00::1]:53")]);
    }
}
