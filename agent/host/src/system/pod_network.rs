//! Finds and removes the remains of the pod network after all pods ended: interfaces, and the rules of kube-proxy,
//! kubelet and the network plugins. A remnant is known by a name that only these programs use (`names`). An operator's
//! own rules and interfaces are never touched, even if they change between the search and the removal.
//!
//! Every program has a timeout. If a program fails, its area is not taken as empty: it is reported as unknown.

mod iptables;
mod ipvs;
mod names;

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use super::commands::{Outcome, failed, refused};
use super::deadline::ask_within;
use crate::error::Result;
use iptables::{own_chains, removal};
use ipvs::Own;
use names::{is_own_interface, is_own_set, is_own_table};

/// All variants of iptables. The search uses all of them, because the default variant may have changed since the pods
/// used iptables. In each IP family, the default program comes last. It is a link to the `-nft` or `-legacy` variant, and
/// is skipped if both variants are installed.
const IPTABLES: [&str; 6] =
    ["iptables-nft", "iptables-legacy", "iptables", "ip6tables-nft", "ip6tables-legacy", "ip6tables"];
/// The suffixes of the two specific variants of iptables.
const KINDS: [&str; 2] = ["-nft", "-legacy"];
const TABLES_OF_IPTABLES: [&str; 5] = ["filter", "nat", "mangle", "raw", "security"];
/// For each IP family: the file in which the kernel lists the legacy tables in use, and the iptables program.
const LEGACY: [(&str, &str); 2] = [("ip_tables_names", "iptables"), ("ip6_tables_names", "ip6tables")];
/// The name of the nf_tables variant in the first line of `iptables-save`.
const NEWER_KIND: &str = "(nf_tables)";

#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct PodNetworkLeft {
    pub interfaces: Vec<String>,
    /// The rules and sets, each in a few words for people.
    pub rules: Vec<String>,
    /// The parts that could not be checked, each with the reason. These parts may contain more remains of the pod
    /// network.
    pub unknown: Vec<String>,
}

pub trait PodNetwork: Send + Sync {
    /// Lists the remains of the pod network.
    fn left(&self) -> Result<PodNetworkLeft>;

    /// Searches for the remains of the pod network and removes them. Returns the remains that cannot be removed, each
    /// with the reason. A reboot of the machine removes all remains.
    fn remove(&self) -> Vec<String>;
}

/// Finds and removes the pod network in the caller's network namespace.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// Timeout of one program.
    pub program_within: Duration,
    /// How long iptables waits for its lock, in whole seconds. Must be less than `program_within`.
    pub lock_within: Duration,
}

impl Default for Machine {
    /// Timeouts for a machine with ten thousand rules, where each program takes seconds.
    fn default() -> Machine {
        Machine { program_within: Duration::from_secs(30), lock_within: Duration::from_secs(10) }
    }
}

impl PodNetwork for Machine {
    fn left(&self) -> Result<PodNetworkLeft> {
        let seen = self.search();
        let mut rules: Vec<String> = seen
            .removals
            .iter()
            .map(|removal| format!("{} chains of {}", removal.chains, removal.program))
            .collect();
        rules.extend(seen.tables.iter().map(|table| format!("the table {table} of nftables")));
        rules.extend(seen.sets.iter().map(|set| format!("the set {set} of ipset")));
        if !seen.services.is_empty() {
            rules.push(format!("{} services of IPVS", seen.services.len()));
        }
        Ok(PodNetworkLeft { interfaces: seen.interfaces, rules, unknown: seen.unknown })
    }

    fn remove(&self) -> Vec<String> {
        let seen = self.search();
        let mut problems = seen.unknown;
        let mut note = |outcome: Result<()>| problems.extend(outcome.err().map(|error| error.to_string()));
        for removal in &seen.removals {
            note(self.restore(removal));
        }
        for table in &seen.tables {
            let command = ["nft", "delete", "table"].into_iter().chain(table.split(' '));
            note(self.run(&command.collect::<Vec<_>>()));
        }
        for (protocol, place) in &seen.services {
            note(self.run(&["ipvsadm", "--delete-service", protocol, place]));
        }
        self.destroy(&seen.sets).into_iter().for_each(&mut note);
        for name in &seen.interfaces {
            note(self.delete_link(name));
        }
        problems
    }
}

#[derive(Default)]
struct Seen {
    removals: Vec<Removal>,
    tables: Vec<String>,
    /// The protocol flag and the address of each IPVS service.
    services: Vec<(String, String)>,
    sets: Vec<String>,
    interfaces: Vec<String>,
    unknown: Vec<String>,
}

/// The script that removes the chains and rules of one iptables program.
struct Removal {
    program: &'static str,
    chains: usize,
    script: String,
    /// Whether a rule refers to an ipset of the pod network.
    asks_for_sets: bool,
}

enum CommandResult {
    Printed(String),
    NotInstalled,
    /// The program failed with this message.
    Refused(String),
    /// The program could not be started or timed out, for this reason.
    Failed(String),
}

impl Machine {
    fn search(&self) -> Seen {
        let mut seen = Seen::default();
        self.search_iptables(&mut seen);
        match self.ask(&["nft", "list", "tables"]) {
            CommandResult::Printed(shown) => seen.tables = pod_tables(&shown),
            CommandResult::NotInstalled => seen.unknown.push(not_installed("nft", "the tables of nftables")),
            CommandResult::Failed(problem) | CommandResult::Refused(problem) => seen.unknown.push(problem),
        }
        match self.ask(&["ip", "-oneline", "link", "show"]) {
            CommandResult::Printed(shown) => seen.interfaces = pod_interfaces(&shown),
            CommandResult::NotInstalled => seen.unknown.push(not_installed("ip", "network interfaces")),
            CommandResult::Failed(problem) | CommandResult::Refused(problem) => seen.unknown.push(problem),
        }
        let mut node_ports = BTreeSet::new();
        match self.ask(&["ipset", "save"]) {
            CommandResult::Printed(saved) => {
                seen.sets = pod_sets(&saved);
                node_ports = ipvs::node_ports(&saved);
            }
            CommandResult::NotInstalled if seen.removals.iter().any(|removal| removal.asks_for_sets) => {
                seen.unknown.push(not_installed("ipset", "the ipset sets in the rules of pods"));
            }
            CommandResult::NotInstalled => {}
            CommandResult::Failed(problem) | CommandResult::Refused(problem) => seen.unknown.push(problem),
        }
        self.search_ipvs(node_ports, &mut seen);
        seen
    }

    fn search_iptables(&self, seen: &mut Seen) {
        let mut legacy_shown = BTreeSet::new();
        let mut installed = Vec::new();
        for program in IPTABLES {
            let family = family(program);
            // The default program is a link to one of the two variants. If both variants are installed, the search has
            // already used them, so the default program is skipped.
            if program == family && KINDS.iter().all(|kind| installed.contains(&format!("{family}{kind}"))) {
                continue;
            }
            let Some(saved) = self.saved(program, &mut seen.unknown) else { continue };
            installed.push(program.to_owned());
            if saved.lines().any(|line| line.starts_with("# Generated by") && !line.contains(NEWER_KIND)) {
                legacy_shown.insert(family);
            }
            let Some(script) = removal(&saved) else { continue };
            if seen
                .removals
                .iter()
                .any(|other| family == self::family(other.program) && other.script == script)
            {
                continue;
            }
            let asks_for_sets = saved.lines().any(asks_for_own_set);
            let chains = own_chains(&saved).len();
            seen.removals.push(Removal { program, chains, script, asks_for_sets });
        }
        for (names, family) in LEGACY {
            // `/proc/thread-self/net` shows the network namespace of this thread. The programs that the thread starts
            // share that namespace.
            let tables = fs::read_to_string(format!("/proc/thread-self/net/{names}")).unwrap_or_default();
            let failed =
                seen.unknown.iter().any(|problem| problem.contains(&format!("{family}-legacy-save")));
            if !tables.trim().is_empty() && !legacy_shown.contains(family) && !failed {
                let what = format!("the kernel's legacy iptables tables ({})", one_line(&tables));
                seen.unknown.push(not_installed(&format!("{family}-legacy"), &what));
            }
        }
    }

    /// The rules of an iptables program. `None` if the program is not installed. Parts that cannot be read are added
    /// to `unknown`.
    fn saved(&self, program: &str, unknown: &mut Vec<String>) -> Option<String> {
        let save = format!("{program}-save");
        match self.ask(&[&save]) {
            CommandResult::Printed(saved) => return Some(saved),
            CommandResult::NotInstalled => return None,
            CommandResult::Failed(problem) => {
                unknown.push(problem);
                return Some(String::new());
            }
            // iptables may fail on one table only, for example on an nftables rule that it cannot read. So each table
            // is read separately below.
            CommandResult::Refused(_) => {}
        }
        let mut all = String::new();
        for table in TABLES_OF_IPTABLES {
            match self.ask(&[&save, "--table", table]) {
                CommandResult::Printed(saved) => all.push_str(&saved),
                CommandResult::NotInstalled => {}
                CommandResult::Failed(problem) | CommandResult::Refused(problem) => unknown.push(problem),
            }
        }
        Some(all)
    }

    fn search_ipvs(&self, node_ports: BTreeSet<(&'static str, String)>, seen: &mut Seen) {
        let mut own = Own { addresses: BTreeSet::new(), node_ports };
        for interface in [names::IPVS, names::KUBE_ROUTER] {
            if seen.interfaces.iter().any(|name| name == interface) {
                match self.ask(&["ip", "-oneline", "address", "show", "dev", interface]) {
                    CommandResult::Printed(shown) => own.addresses.extend(ipvs::addresses(&shown)),
                    CommandResult::NotInstalled => {}
                    CommandResult::Failed(problem) | CommandResult::Refused(problem) => {
                        seen.unknown.push(problem)
                    }
                }
            }
        }
        if own.addresses.is_empty() && own.node_ports.is_empty() {
            return;
        }
        // The kernel creates this file when IPVS is first used.
        let has_ipvs = fs::exists("/proc/thread-self/net/ip_vs").unwrap_or(true);
        match self.ask(&["ipvsadm", "--save", "--numeric"]) {
            CommandResult::Printed(saved) => {
                let owned = |(protocol, place): (&str, &str)| (protocol.to_owned(), place.to_owned());
                seen.services = ipvs::services(&saved, &own).into_iter().map(owned).collect();
            }
            _ if !has_ipvs => {}
            CommandResult::NotInstalled => {
                seen.unknown.push(not_installed("ipvsadm", "the services of IPVS"))
            }
            CommandResult::Failed(problem) | CommandResult::Refused(problem) => seen.unknown.push(problem),
        }
    }

    /// Removes the chains and rules of one iptables program.
    fn restore(&self, removal: &Removal) -> Result<()> {
        let program = format!("{}-restore", removal.program);
        let wait = format!("--wait={}", self.lock_within.as_secs());
        self.fed(&[&program, "--noflush", &wait], removal.script.as_bytes())
    }

    /// Destroys ipsets. A set cannot be destroyed while it is a member of another set. So after one try for every set,
    /// the sets that failed are tried a second time.
    fn destroy(&self, sets: &[String]) -> Vec<Result<()>> {
        let destroy = |set: &&String| self.run(&["ipset", "destroy", set]);
        let again: Vec<&String> = sets.iter().filter(|set| destroy(set).is_err()).collect();
        again.iter().map(destroy).collect()
    }

    fn delete_link(&self, name: &str) -> Result<()> {
        let deleted = self.run(&["ip", "link", "delete", "dev", name]);
        // Deleting one end of a veth pair deletes the other end, too.
        let is_gone = || matches!(self.ask(&["ip", "link", "show", "dev", name]), CommandResult::Refused(problem) if problem.contains("does not exist"));
        if deleted.is_err() && is_gone() { Ok(()) } else { deleted }
    }

    fn ask(&self, command: &[&str]) -> CommandResult {
        match ask_within(command, b"", self.program_within) {
            Ok(Some(outcome)) if outcome.status.success() => CommandResult::Printed(outcome.stdout),
            Ok(Some(outcome)) => CommandResult::Refused(refused(command, &outcome).to_string()),
            Ok(None) => CommandResult::NotInstalled,
            Err(error) => CommandResult::Failed(error.to_string()),
        }
    }

    fn run(&self, command: &[&str]) -> Result<()> {
        self.fed(command, b"")
    }

    fn fed(&self, command: &[&str], input: &[u8]) -> Result<()> {
        let outcome: Option<Outcome> = ask_within(command, input, self.program_within)?;
        let outcome = outcome.ok_or_else(|| failed(command, "cannot be run: it is not installed".into()))?;
        if outcome.status.success() { Ok(()) } else { Err(refused(command, &outcome)) }
    }
}

fn not_installed(program: &str, what: &str) -> String {
    format!("{program} is not installed, so kops-agent cannot check {what}")
}

/// The address family of an iptables program: `ip6tables` for IPv6, `iptables` for IPv4.
fn family(program: &str) -> &'static str {
    if program.starts_with("ip6") { "ip6tables" } else { "iptables" }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(", ")
}

fn asks_for_own_set(rule: &str) -> bool {
    rule.split(" --match-set ").skip(1).any(|rest| is_own_set(rest.split(' ').next().unwrap_or_default()))
}

/// The pod interfaces in the output of `ip -oneline link show` (`4: cali1@if3: <BROADCAST> …`).
fn pod_interfaces(shown: &str) -> Vec<String> {
    let name =
        |line: &str| line.split(": ").nth(1).map(|name| name.split('@').next().unwrap_or(name).to_owned());
    shown.lines().filter_map(name).filter(|name| is_own_interface(name)).collect()
}

/// The nftables tables of the pod network, such as `ip kube-proxy`.
fn pod_tables(shown: &str) -> Vec<String> {
    let table = |line: &str| line.trim().strip_prefix("table ").map(str::to_owned);
    let is_own = |table: &String| table.split(' ').nth(1).is_some_and(is_own_table);
    shown.lines().filter_map(table).filter(is_own).collect()
}

/// The pod network's sets in the output of `ipset save` (`create KUBE-CLUSTER-IP hash:ip,port family inet …`).
fn pod_sets(saved: &str) -> Vec<String> {
    let name = |line: &str| line.strip_prefix("create ")?.split(' ').next().map(str::to_owned);
    saved.lines().filter_map(name).filter(|name| is_own_set(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_interfaces_of_pods_are_found() {
        let shown = "1: lo: <LOOPBACK,UP> mtu 65536\n2: eth0: <UP>\n3: cni0: <UP>\n4: cali12ab@if3: <UP>\n\
                     5: flannel.1: <UP>\n6: cilium_host@cilium_net: <UP>\n7: lxcbr0: <UP>\n8: docker0: <UP>\n\
                     9: kube-ipvs0: <NOARP>\n10: nodelocaldns: <UP>\n11: weave-mine: <UP>\n12: cni0-mine: <UP>\n";
        assert_eq!(
            pod_interfaces(shown),
            ["cni0", "cali12ab", "flannel.1", "cilium_host", "kube-ipvs0", "nodelocaldns"]
        );
    }

    #[test]
    fn tables_and_sets_of_pods_are_found_by_name() {
        let shown = "table inet filter\ntable ip kube-proxy\ntable ip6 kube-proxy\ntable ip kube-proxy-mine\n\
                     table arp calico-arp\ntable inet kindnet-ipmasq\n";
        assert_eq!(
            pod_tables(shown),
            ["ip kube-proxy", "ip6 kube-proxy", "arp calico-arp", "inet kindnet-ipmasq"]
        );
        let saved = "create mine hash:ip\nadd mine 10.0.0.1\ncreate KUBE-CLUSTER-IP hash:ip,port\ncreate calidad hash:ip\n\
                     create cali40s:abc hash:net\ncreate inet6:kube-router-svip hash:ip family inet6\n";
        assert_eq!(pod_sets(saved), ["KUBE-CLUSTER-IP", "cali40s:abc", "inet6:kube-router-svip"]);
    }
}
