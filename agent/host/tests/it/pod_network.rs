//! The firewall part of a reset against the real iptables (both kinds), nftables, ipset and ip. Each test has its own
//! network namespace. Remains of kube-proxy and network plugins are removed, and an operator's rules stay byte for
//! byte.
//!
//! IPVS needs kernel support. Without it, a stand-in replaces `ipvsadm`.
#![allow(clippy::unwrap_used)]

mod scene;

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use kops_agent_host::system::pod_network::{Machine, PodNetwork as _, PodNetworkLeft};

use scene::{
    ALL_PROGRAMS, feed, in_a_network_of_its_own, ipsets, left_elsewhere, left_in_iptables, more_ipsets,
    only_programs, operators_rules, sh, shown, stand_in,
};

#[test]
fn remains_of_pods_are_removed_and_an_operators_rules_stay_byte_for_byte() {
    in_a_network_of_its_own(|| {
        ipsets();
        operators_rules();
        // iptables creates the built-in chains of a table at its first use and never removes them. So each table is
        // used before the first comparison.
        for program in ["iptables-nft", "ip6tables-nft", "iptables-legacy", "ip6tables-legacy"] {
            for table in ["raw", "mangle"] {
                sh(&format!(
                    "{program} -t {table} -A PREROUTING -m mark --mark 0x7 -j ACCEPT; {program} -t {table} -A OUTPUT -m mark --mark 0x7 -j ACCEPT"
                ));
            }
            sh(&format!("{program} -t nat -A OUTPUT -m mark --mark 0x7 -j ACCEPT"));
        }
        let mut before: String = shown();
        for set in ["kube-router-svip", "kube-router-pod-subnets", "kube-router-node-ips"] {
            before = before.replace(&format!("{set}\ninet6:{set}\n"), "");
        }
        for kind in ["nft", "legacy"] {
            left_in_iptables(&format!("iptables-{kind}-restore"), "100.96.0.0/11", "100.64.0.10/32", "");
            left_in_iptables(
                &format!("ip6tables-{kind}-restore"),
                "fd00:96::/64",
                "fd00:64::a/128",
                "inet6:",
            );
        }
        more_ipsets();
        left_elsewhere();
        let full = shown();

        let machine = Machine::default();
        let left = machine.left().unwrap();
        assert_eq!(shown(), full, "the search changed something");
        assert_eq!(left.unknown, Vec::<String>::new());
        for what in ["iptables-nft", "ip6tables-legacy", "ip kube-proxy", "calico-arp", "kube-router-svip"] {
            assert!(left.rules.iter().any(|rule| rule.contains(what)), "{what}: {:?}", left.rules);
        }
        // Two programs show the same rules, but the plan lists these rules only once.
        assert_eq!(
            left.rules.iter().filter(|rule| rule.contains(" chains of ip")).count(),
            4,
            "{:?}",
            left.rules
        );

        let problems = machine.remove();
        let ipvs = problems.iter().all(|problem| problem.contains("ipvs"));
        assert!(ipvs, "{problems:#?}");
        pretty_assertions(&shown(), &before);
        assert_eq!(machine.left().unwrap(), PodNetworkLeft::default());
    });
}

/// Compares line by line, so that a failure prints only the lines that differ.
#[track_caller]
fn pretty_assertions(now: &str, before: &str) {
    let gone: Vec<&str> = before.lines().filter(|line| !now.contains(line)).collect();
    let new: Vec<&str> = now.lines().filter(|line| !before.contains(line)).collect();
    assert_eq!((gone, new), (Vec::<&str>::new(), Vec::new()), "gone, and new");
    assert_eq!(now, before);
}

#[test]
fn the_chain_of_the_administrators_own_rules_stays() {
    in_a_network_of_its_own(|| {
        feed(
            "iptables-nft-restore",
            "*filter\n:FORWARD ACCEPT [0:0]\n:CNI-FORWARD - [0:0]\n:CNI-ADMIN - [0:0]\n-A FORWARD -j CNI-FORWARD\n\
             -A CNI-FORWARD -j CNI-ADMIN\n-A CNI-ADMIN -s 192.0.2.66/32 -j DROP\nCOMMIT\n",
        );
        let machine = Machine::default();
        assert_eq!(machine.remove(), Vec::<String>::new());
        let saved = sh("iptables-nft-save");
        assert!(
            saved.contains("-A CNI-ADMIN -s 192.0.2.66/32 -j DROP") && !saved.contains("CNI-FORWARD"),
            "{saved}"
        );
        assert_eq!(machine.left().unwrap(), PodNetworkLeft::default());
    });
}

/// An operator's own nftables chains are in a table that iptables also uses. iptables cannot read the second of the
/// tested rules, so `iptables-save` fails for a table with that rule.
#[test]
fn nftables_chains_in_a_table_of_iptables_stay_and_block_no_other_table() {
    for (rule, is_readable) in
        [("tcp dport { 22, 443 } counter accept", true), ("meta mark set 0x1 accept", false)]
    {
        in_a_network_of_its_own(move || {
            sh(&format!(
                "nft -f - <<'END'
table ip filter {{ chain input {{ type filter hook input priority filter - 5; policy accept; tcp dport 22 accept; }}; chain mine {{ {rule}; }}; }}
END
                iptables-nft -N KUBE-FORWARD; iptables-nft -A FORWARD -j KUBE-FORWARD
                iptables-nft -t nat -N KUBE-SERVICES; iptables-nft -t nat -A PREROUTING -j KUBE-SERVICES"
            ));
            let mine = || sh("nft list chain ip filter input; nft list chain ip filter mine");
            let before = mine();
            let problems = Machine::default().remove();
            assert_eq!(mine(), before);
            let after = sh("nft list ruleset");
            assert!(!after.contains("KUBE-SERVICES"), "{after}");
            assert_eq!(after.contains("KUBE-FORWARD"), !is_readable, "{after}");
            assert_eq!(problems.len(), usize::from(!is_readable), "{problems:?}");
            assert!(is_readable || problems[0].contains("iptables-nft-save --table filter"), "{problems:?}");
        });
    }
}

#[test]
fn a_set_in_an_operators_rule_stays_and_is_reported() {
    in_a_network_of_its_own(|| {
        sh("ipset create cali40all-hosts-net hash:net; ipset create KUBE-CLUSTER-IP hash:ip,port
            iptables-nft -A INPUT -m set --match-set cali40all-hosts-net src -j ACCEPT");
        let problems = Machine::default().remove();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(
            problems[0].contains("cali40all-hosts-net") && problems[0].contains("in use"),
            "{problems:?}"
        );
        assert_eq!(sh("ipset list -name"), "cali40all-hosts-net\n");
        assert!(sh("iptables-nft-save").contains("--match-set cali40all-hosts-net src -j ACCEPT"));
    });
}

#[test]
fn a_locked_iptables_times_out_and_is_reported() {
    in_a_network_of_its_own(|| {
        sh("iptables-legacy -N KUBE-FORWARD; iptables-legacy -A FORWARD -j KUBE-FORWARD");
        let lock = fs::File::create("/run/xtables.lock").unwrap();
        lock.lock().unwrap();
        let began = Instant::now();
        let machine = Machine { lock_within: Duration::from_secs(1), ..Machine::default() };
        let problems = machine.remove();
        assert!(began.elapsed() < Duration::from_secs(400), "{:?}", began.elapsed());
        assert!(problems.iter().any(|problem| problem.contains("xtables lock")), "{problems:?}");
        assert!(sh("iptables-legacy-save").contains("KUBE-FORWARD"));
        drop(lock);
        assert_eq!(machine.remove(), Vec::<String>::new());
        assert_eq!(machine.left().unwrap(), PodNetworkLeft::default());
    });
}

#[test]
fn a_program_that_hangs_times_out_and_blocks_nothing_else() {
    in_a_network_of_its_own(|| {
        sh(
            "iptables-nft -N KUBE-FORWARD; ip6tables-legacy -N KUBE-FORWARD; nft add table ip kube-proxy; ip link add cni0 type bridge",
        );
        // The child of the first program keeps the program's output open. The second program ignores SIGTERM.
        stand_in("iptables-legacy-save", "sleep 600 & echo $$ $! >>/run/started; wait");
        stand_in("nft", "trap '' TERM; echo $$ >>/run/started; while :; do sleep 600; done");
        let machine = Machine { program_within: Duration::from_secs(10), ..Machine::default() };
        let began = Instant::now();
        let left = machine.left().unwrap();
        assert!(began.elapsed() < Duration::from_secs(300), "{:?}", began.elapsed());
        let of = |name: &str| {
            left.unknown.iter().any(|unknown| unknown.contains(name) && unknown.contains("not ended"))
        };
        assert!(of("iptables-legacy-save") && of("nft"), "{left:?}");
        assert_eq!(left.interfaces, ["cni0"]);

        let problems = machine.remove();
        assert!(began.elapsed() < Duration::from_secs(400), "{:?}", began.elapsed());
        assert_eq!(problems.len(), 2, "{problems:?}");
        let now = sh("iptables-nft-save; ip6tables-legacy-save; ip link show");
        assert!(!now.contains("KUBE-FORWARD") && !now.contains("cni0"), "{now}");
        // All started processes have ended.
        let started = fs::read_to_string("/run/started").unwrap();
        assert_eq!(started.split_whitespace().count(), 6, "{started}");
        for process in started.split_whitespace() {
            let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
            let state = status.lines().find(|line| line.starts_with("State:")).unwrap_or("State: gone");
            assert!(
                state.contains("gone") || state.contains("zombie") || state.contains("dead"),
                "{process}: {state}"
            );
        }
    });
}

#[test]
fn a_missing_program_is_reported_if_it_may_be_needed() {
    in_a_network_of_its_own(|| {
        sh("iptables-legacy -N KUBE-FORWARD; iptables-nft -N KUBE-SERVICES; ipset create KUBE-CLUSTER-IP hash:ip,port
            iptables-nft -A KUBE-SERVICES -m set --match-set KUBE-CLUSTER-IP dst,dst -j ACCEPT; ip link add kube-ipvs0 type bridge");
        only_programs(&["iptables-nft-save", "iptables-nft-restore", "ip"]);
        let machine = Machine::default();
        let unknown = machine.left().unwrap().unknown;
        let mut missing = vec!["iptables-legacy", "nft", "ipset"];
        // A kernel without IPVS has no services to remove. So a missing ipvsadm is reported only if the kernel has
        // IPVS.
        missing.extend(fs::exists("/proc/thread-self/net/ip_vs").unwrap().then_some("ipvsadm"));
        for name in &missing {
            let names = |unknown: &&String| unknown.contains(&format!("{name} is not installed"));
            assert_eq!(unknown.iter().filter(names).count(), 1, "{name}: {unknown:#?}");
        }
        let problems = machine.remove();
        // The missing programs are the only problems. Remains are removed unless their removal needs a missing program.
        assert_eq!(problems, unknown);
        let left = sh(&format!(
            "{ALL_PROGRAMS}/xtables-nft-multi iptables-nft-save; {ALL_PROGRAMS}/ipset list -name"
        ));
        assert_eq!(
            left.lines().filter(|line| line.contains("KUBE-")).collect::<Vec<_>>(),
            ["KUBE-CLUSTER-IP"]
        );
        assert!(!sh("ip link show").contains("kube-ipvs0"));
    });
}

#[test]
fn without_firewall_programs_and_rules_only_nftables_is_unknown() {
    in_a_network_of_its_own(|| {
        only_programs(&["ip"]);
        let left = Machine::default().left().unwrap();
        assert!(left.rules.is_empty() && left.interfaces.is_empty(), "{left:?}");
        let said = |name: &str| {
            left.unknown.iter().any(|unknown| unknown.starts_with(&format!("{name} is not installed")))
        };
        assert!(left.unknown.len() == 1 && said("nft"), "nft alone shows what is in nftables: {left:?}");
    });
}

/// A program in place of `ipvsadm`, for a kernel without IPVS. It stores services in a file, in the format of
/// `--save`.
const IPVSADM: &str = r#"services=/run/ipvs; touch $services
case $1 in
--save) cat $services ;;
--delete-service) grep -vF -- "-A $2 $3 " $services | grep -vF -- "-a $2 $3 " >$services.new; mv $services.new $services ;;
-A | -a) echo "$*" >>$services ;;
esac"#;

#[test]
fn services_of_kube_proxy_and_kube_router_are_removed_and_an_operators_stay() {
    in_a_network_of_its_own(|| {
        let has_ipvs =
            Command::new("ipvsadm").arg("--save").output().is_ok_and(|output| output.status.success());
        if !has_ipvs {
            stand_in("ipvsadm", IPVSADM);
        }
        sh("for link in kube-ipvs0 kube-dummy-if; do ip link add $link type bridge; done
            ip address add 100.64.0.1/32 dev kube-ipvs0; ip -6 address add fd00::1/128 dev kube-ipvs0 nodad
            ip address add 100.64.0.2/32 dev kube-dummy-if
            ipset create KUBE-NODE-PORT-TCP bitmap:port range 0-65535; ipset add KUBE-NODE-PORT-TCP 30080
            ipset create KUBE-NODE-PORT-LOCAL-UDP bitmap:port range 0-65535; ipset add KUBE-NODE-PORT-LOCAL-UDP 30053
            ipvsadm -A -t 100.64.0.1:443 -s rr; ipvsadm -a -t 100.64.0.1:443 -r 10.0.0.9:443 -m -w 1
            ipvsadm -A -t '[fd00::1]:443' -s rr; ipvsadm -A -t 100.64.0.2:80 -s rr
            ipvsadm -A -t 192.0.2.7:30080 -s rr; ipvsadm -A -u 192.0.2.7:30053 -s rr
            ipvsadm -A -t 192.0.2.7:80 -s wrr; ipvsadm -a -t 192.0.2.7:80 -r 10.0.0.8:80 -m -w 1; ipvsadm -A -u 192.0.2.7:30080 -s rr");
        let machine = Machine::default();
        assert!(machine.left().unwrap().rules.iter().any(|rule| rule.contains("5 services of IPVS")));
        assert_eq!(machine.remove(), Vec::<String>::new());
        let mut left: Vec<String> = sh("ipvsadm --save --numeric").lines().map(str::to_owned).collect();
        left.retain(|line| line.starts_with("-A"));
        left.sort();
        assert_eq!(left, ["-A -t 192.0.2.7:80 -s wrr", "-A -u 192.0.2.7:30080 -s rr"]);
        assert_eq!(machine.left().unwrap(), PodNetworkLeft::default());
    });
}
