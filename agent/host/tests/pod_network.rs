//! A reset's firewall part against the real iptables (both kinds), nftables, ipset and ip, in a network namespace of each
//! test's own: what kube-proxy and network plugins leave goes, and an operator's rules beside it stay byte for byte.
//!
//! IPVS takes a kernel that has it; where there is none, a stand-in takes `ipvsadm`'s place.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use kops_agent_host::system::pod_network::{Machine, PodNetwork as _, PodNetworkLeft};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

const NONE: Option<&str> = None;
/// Where this machine's programs can still be found while [`only_programs`] hides them.
const ALL_PROGRAMS: &str = "/mnt";

/// Runs `test` in a network of its own, with a `/run` and a `/usr/local/sbin` that go with it; not where that may not be made.
fn in_a_network_of_its_own(test: impl FnOnce() + Send) {
    let run = || {
        if unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET).is_err() {
            return;
        }
        mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE).unwrap();
        // The lock of iptables is a file in /run, and other tests have theirs.
        for memory in ["/run", "/usr/local/sbin"] {
            mount(Some("tmpfs"), memory, Some("tmpfs"), MsFlags::empty(), NONE).unwrap();
        }
        test();
    };
    if let Err(panic) = std::thread::scope(|scope| scope.spawn(run).join()) {
        std::panic::resume_unwind(panic);
    }
}

/// Runs a script that must succeed, and returns what it prints.
#[track_caller]
fn sh(script: &str) -> String {
    let output = Command::new("bash").args(["-euc", script]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{script}: {said} (tests/run installs what is missing)");
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn feed(program: &str, input: &str) {
    let mut child = Command::new(program)
        .args(["--noflush"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("tests/run installs it");
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "{program}: {input}");
}

/// A program that does this, found before the real one.
fn stand_in(name: &str, script: &str) {
    let path = format!("/usr/local/sbin/{name}");
    fs::write(&path, format!("#!/bin/bash\n{script}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// From here on there are no other programs of this machine's administrator than these.
fn only_programs(names: &[&str]) {
    let bind = MsFlags::MS_BIND | MsFlags::MS_REC;
    mount(Some("/usr/sbin"), ALL_PROGRAMS, NONE, bind, NONE).unwrap();
    mount(Some("tmpfs"), "/usr/sbin", Some("tmpfs"), MsFlags::empty(), NONE).unwrap();
    for name in names {
        // Each form of iptables is one program that goes by its name.
        let program = match *name {
            name if name.contains("-nft") => "xtables-nft-multi",
            name if name.contains("-legacy") => "xtables-legacy-multi",
            name => name,
        };
        symlink(format!("{ALL_PROGRAMS}/{program}"), format!("/usr/sbin/{name}")).unwrap();
    }
}

/// All that can be seen of the rules and links of this network.
fn shown() -> String {
    sh("for kind in nft legacy; do for family in ip ip6; do ${family}tables-$kind-save --counters | grep -v '^#' || true; done; done
        nft --numeric list ruleset; ipset list -name; ip -oneline link show | cut -d ' ' -f 2")
}

/// Rules of an operator's in the chains that every machine has, in a chain of its own, and in tables of its own. Some have
/// words of the pods' network.
fn operators_rules() {
    for kind in ["iptables-nft", "iptables-legacy"] {
        let v6 = kind.replacen("ip", "ip6", 1);
        for (program, localhost, network) in
            [(kind, "127.0.0.1/32", "192.0.2.0/24"), (&v6, "::1/128", "2001:db8::/32")]
        {
            feed(
                &format!("{program}-restore"),
                &format!(
                    r#"*filter
:INPUT DROP [0:0]
:FORWARD DROP [0:0]
:OUTPUT ACCEPT [0:0]
:MINE - [0:0]
:DOCKER-USER - [0:0]
-A INPUT -s {localhost} -m comment --comment "not to -j KUBE-FORWARD, nor \"quoted\"" -j ACCEPT
-A INPUT -p tcp -m tcp --dport 22 -m conntrack --ctstate NEW -m comment --comment KUBE-FORWARD -j ACCEPT
-A FORWARD -j DOCKER-USER
-A FORWARD -m set --match-set mine src -j MINE
-A MINE -s {network} -g DOCKER-USER
COMMIT
*nat
:PREROUTING ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
-A PREROUTING -p tcp -m tcp --dport 80 -m addrtype --dst-type LOCAL -j REDIRECT --to-ports 8080
-A POSTROUTING -s {network} -j MASQUERADE
COMMIT
"#
                )
                .replace(
                    "--match-set mine",
                    if program.starts_with("ip6") { "--match-set mine6" } else { "--match-set mine" },
                ),
            );
        }
    }
    sh("nft -f - <<'END'
table inet firewall {
    set admins { type ipv4_addr; elements = { 192.0.2.1, 192.0.2.2 }; }
    chain input { type filter hook input priority filter; policy accept; ip saddr @admins tcp dport { 22, 443 } counter accept; };
}
table ip kube-proxy-mine { chain services { accept; }; }
table netdev mine { }
END
        ip link add mine0 type bridge; ip link add veth-mine type veth peer name cni0-mine");
}

/// What pods' network leaves in iptables, by its sources (agent/host/src/system/pod_network/names.rs), in one family.
fn left_in_iptables(program: &str, pods: &str, service: &str, set_prefix: &str) {
    let rules = format!(
        r#"*mangle
:KUBE-IPTABLES-HINT - [0:0]
:KUBE-KUBELET-CANARY - [0:0]
:KUBE-PROXY-CANARY - [0:0]
:CILIUM_PRE_mangle - [0:0]
:cali-PREROUTING - [0:0]
:cali-from-host-endpoint - [0:0]
-A PREROUTING -m comment --comment "cilium-feeder: CILIUM_PRE_mangle" -j CILIUM_PRE_mangle
-A PREROUTING -m comment --comment "cali:6gwbT8clXdHdC1b1" -j cali-PREROUTING
-A PREROUTING -i eth0 -m comment --comment "AWS, primary ENI" -m addrtype --dst-type LOCAL --limit-iface-in -j CONNMARK --set-xmark 0x80/0x80
-A PREROUTING -i eni+ -m comment --comment "AWS, primary ENI" -j CONNMARK --restore-mark --nfmask 0x80 --ctmask 0x80
-A CILIUM_PRE_mangle ! -o lo -m socket --transparent -m comment --comment "cilium: any->pod redirect proxied traffic to host proxy" -j MARK --set-xmark 0x200/0xffffffff
-A cali-PREROUTING -m comment --comment "cali:6BJqBjBC7crtA-7-" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A cali-PREROUTING -m comment --comment "cali:wNH7KsA3ILKJBsY9" -j cali-from-host-endpoint
COMMIT
*raw
:cali-OUTPUT - [0:0]
:CILIUM_OUTPUT_raw - [0:0]
-A PREROUTING -d {service} -p udp -m udp --dport 53 -m comment --comment "NodeLocal DNS Cache: skip conntrack" -j CT --notrack
-A OUTPUT -m comment --comment "cali:tVnHkvAo15HuiPy0" -j cali-OUTPUT
-A OUTPUT -m comment --comment "cilium-feeder: CILIUM_OUTPUT_raw" -j CILIUM_OUTPUT_raw
COMMIT
*filter
:KUBE-EXTERNAL-SERVICES - [0:0]
:KUBE-FIREWALL - [0:0]
:KUBE-FORWARD - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-PROXY-FIREWALL - [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-NODE-PORT - [0:0]
:KUBE-IPVS-FILTER - [0:0]
:KUBE-ROUTER-INPUT - [0:0]
:KUBE-POD-FW-ABCDEFGHIJKLMNOP - [0:0]
:KUBE-NWPLCY-DEFAULT - [0:0]
:FLANNEL-FWD - [0:0]
:CNI-FORWARD - [0:0]
:CNI-ADMIN - [0:0]
:CNI-ISOLATION-STAGE-1 - [0:0]
:cali-FORWARD - [0:0]
:cali-pri-kns.default - [0:0]
-A INPUT -m comment --comment "kube-router netpol" -j KUBE-ROUTER-INPUT
-A INPUT -m conntrack --ctstate NEW -m comment --comment "kubernetes load balancer firewall" -j KUBE-PROXY-FIREWALL
-A INPUT -m comment --comment "kubernetes health check service ports" -j KUBE-NODEPORTS
-A INPUT -m comment --comment "kubernetes ipvs access filter" -j KUBE-IPVS-FILTER
-A INPUT -j KUBE-FIREWALL
-A INPUT -d {service} -p tcp -m tcp --dport 53 -m comment --comment "NodeLocal DNS Cache: allow DNS traffic" -j ACCEPT
-A FORWARD -m comment --comment "cali:wUHhoiAYhphO9Mso" -j cali-FORWARD
-A FORWARD -j CNI-ISOLATION-STAGE-1
-A FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
-A FORWARD -m conntrack --ctstate NEW -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A FORWARD -m comment --comment "CNI firewall plugin rules" -j CNI-FORWARD
-A FORWARD -m comment --comment "flanneld forward" -j FLANNEL-FWD
-A FORWARD -s {pods} -m comment --comment "flanneld forward" -j ACCEPT
-A KUBE-FIREWALL ! -s {service} -d {service} -m comment --comment "block incoming localnet connections" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP
-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP
-A KUBE-FORWARD -m comment --comment "kubernetes forwarding rules" -m mark --mark 0x4000/0x4000 -j ACCEPT
-A KUBE-ROUTER-INPUT -m set --match-set {set_prefix}kube-router-svip dst -j KUBE-POD-FW-ABCDEFGHIJKLMNOP
-A KUBE-POD-FW-ABCDEFGHIJKLMNOP -j KUBE-NWPLCY-DEFAULT
-A FLANNEL-FWD -s {pods} -m comment --comment "flanneld forward" -j ACCEPT
-A CNI-FORWARD -m comment --comment "CNI firewall plugin admin overrides" -j CNI-ADMIN
-A CNI-ISOLATION-STAGE-1 -j RETURN
-A cali-FORWARD -i cali+ -m comment --comment "cali:8ZoYfO5HKXWbB3pk" -j cali-pri-kns.default
COMMIT
*nat
:KUBE-MARK-MASQ - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-SVC-NPX46M4PTMTKRN6Y - [0:0]
:KUBE-SEP-57KPRZ3JQVENLNBR - [0:0]
:FLANNEL-POSTRTG - [0:0]
:CNI-HOSTPORT-DNAT - [0:0]
:CNI-HOSTPORT-SETMARK - [0:0]
:CNI-HOSTPORT-MASQ - [0:0]
:CNI-DN-0123456789abcdef01234 - [0:0]
:CNI-0123456789abcdef01234567 - [0:0]
:IP-MASQ - [0:0]
:KIND-MASQ-AGENT - [0:0]
:AWS-SNAT-CHAIN-0 - [0:0]
:AWS-CONNMARK-CHAIN-0 - [0:0]
:OLD_CILIUM_POST_nat - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
-A PREROUTING -i eni+ -m comment --comment "AWS, outbound connections" -j AWS-CONNMARK-CHAIN-0
-A PREROUTING -m comment --comment "AWS, CONNMARK" -j CONNMARK --restore-mark --nfmask 0x80 --ctmask 0x80
-A OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
-A POSTROUTING -m comment --comment "CNI portfwd requiring masquerade" -j CNI-HOSTPORT-MASQ
-A POSTROUTING -s {pods} -m comment --comment "name: \"cbr0\" id: \"0123456789ab\"" -j CNI-0123456789abcdef01234567
-A POSTROUTING -m comment --comment "flanneld masq" -j FLANNEL-POSTRTG
-A POSTROUTING -s {pods} -d {pods} -m comment --comment "flanneld masq" -j RETURN
-A POSTROUTING -m comment --comment "ip-masq: ensure nat POSTROUTING directs all non-LOCAL destination traffic to our custom IP-MASQ chain" -m addrtype ! --dst-type LOCAL -j IP-MASQ
-A POSTROUTING -m addrtype ! --dst-type LOCAL -m comment --comment "kind-masq-agent: ensure nat POSTROUTING directs all non-LOCAL destination traffic to our custom KIND-MASQ-AGENT chain" -j KIND-MASQ-AGENT
-A POSTROUTING -m comment --comment "AWS SNAT CHAIN" -j AWS-SNAT-CHAIN-0
-A POSTROUTING -m set --match-set {set_prefix}kube-router-pod-subnets src -m set ! --match-set {set_prefix}kube-router-pod-subnets dst -m set ! --match-set {set_prefix}kube-router-node-ips dst -j MASQUERADE
-A KUBE-SERVICES -d {service} -p tcp -m comment --comment "default/kubernetes:https cluster IP" -m tcp --dport 443 -j KUBE-SVC-NPX46M4PTMTKRN6Y
-A KUBE-SERVICES -m comment --comment "kubernetes service nodeports; NOTE: this must be the last rule in this chain" -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS
-A KUBE-SVC-NPX46M4PTMTKRN6Y -m comment --comment "default/kubernetes:https" -m statistic --mode random --probability 0.50000000000 -j KUBE-SEP-57KPRZ3JQVENLNBR
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE --random-fully
-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name: \"cbr0\" id: \"0123456789ab\"" -m multiport --dports 8080 -j CNI-DN-0123456789abcdef01234
-A CNI-HOSTPORT-SETMARK -m comment --comment "CNI portfwd masquerade mark" -j MARK --set-xmark 0x2000/0x2000
-A CNI-0123456789abcdef01234567 -d {pods} -m comment --comment "name: \"cbr0\" id: \"0123456789ab\"" -j ACCEPT
-A IP-MASQ -m comment --comment "ip-masq: outbound traffic is subject to MASQUERADE (must be last in chain)" -j MASQUERADE
-A AWS-CONNMARK-CHAIN-0 -m comment --comment "AWS, CONNMARK" -j CONNMARK --set-xmark 0x80/0x80
COMMIT
"#
    );
    feed(program, &rules);
}

/// What kube-proxy and network plugins leave in nftables, links and ipsets.
fn left_elsewhere() {
    sh("nft -f - <<'END'
table ip kube-proxy { chain services { }; chain nat-prerouting { type nat hook prerouting priority dstnat; policy accept; jump services; }; }
table ip6 kube-proxy { chain services { }; }
table ip flannel-ipv4 { chain postrtg { type nat hook postrouting priority srcnat; policy accept; }; }
table ip6 flannel-ipv6 { }
table ip cni_hostport { }
table ip6 cni_hostport { }
table inet cni_plugins_masquerade { }
table ip calico { }
table ip6 calico { }
table arp calico-arp { }
table ip kube-router-filter-ipv4 { }
table ip6 kube-router-filter-ipv6 { }
table inet kindnet-network-policies { }
table inet kindnet-ipmasq { }
END
        for link in cni0 cbr0 kube-bridge kube-ipvs0 nodelocaldns flannel.1 flannel-v6.1 vxlan.calico; do ip link add $link type bridge; done
        ip link add cilium_host type veth peer name cilium_net
        ip link add bpfin.cali type veth peer name bpfout.cali
        ip link add cali0123456789a type veth peer name eth0-of-pod");
}

fn ipsets() {
    sh("ipset create mine hash:ip; ipset create mine6 hash:ip family inet6
        for set in kube-router-svip kube-router-pod-subnets kube-router-node-ips; do
            ipset create $set hash:net timeout 0; ipset create inet6:$set hash:net family inet6 timeout 0
        done");
}

fn more_ipsets() {
    sh("ipset create KUBE-CLUSTER-IP hash:ip,port; ipset create KUBE-6-CLUSTER-IP hash:ip,port family inet6
        ipset create KUBE-NODE-PORT-TCP bitmap:port range 0-65535
        ipset create KUBE-SRC-ABCDEFGHIJKLMNOP hash:ip; ipset create inet6:KUBE-DST-ABCDEFGHIJKLMNOP hash:ip family inet6
        ipset create cali40masq-ipam-pools hash:net; ipset create cali60s:qMt7iLlGDhvLnCjM0l9nzxb hash:net family inet6
        ipset create cilium_node_set_v4 hash:ip");
}

#[test]
fn what_pods_left_goes_and_an_operators_rules_stay_byte_for_byte() {
    in_a_network_of_its_own(|| {
        ipsets();
        operators_rules();
        // A table that was used keeps its built-in chains.
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
        assert_eq!(shown(), full, "to look changes nothing");
        assert_eq!(left.unknown, Vec::<String>::new());
        for what in ["iptables-nft", "ip6tables-legacy", "ip kube-proxy", "calico-arp", "kube-router-svip"] {
            assert!(left.rules.iter().any(|rule| rule.contains(what)), "{what}: {:?}", left.rules);
        }
        // One set of rules is shown once, though two programs show it.
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

/// By line: both are long.
#[track_caller]
fn pretty_assertions(now: &str, before: &str) {
    let gone: Vec<&str> = before.lines().filter(|line| !now.contains(line)).collect();
    let new: Vec<&str> = now.lines().filter(|line| !before.contains(line)).collect();
    assert_eq!((gone, new), (Vec::<&str>::new(), Vec::new()), "gone, and new");
    assert_eq!(now, before);
}

#[test]
fn a_chain_of_the_administrators_own_rules_stays_with_them() {
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

/// An operator's own chains of nftables in a table that iptables has too. A rule there that iptables cannot read ends
/// `iptables-save` with an error for that table.
#[test]
fn chains_of_nftables_in_a_table_of_iptables_stay_and_keep_no_other_table_from_going() {
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
fn a_set_that_an_operators_rule_asks_for_stays_and_is_named() {
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
fn a_locked_iptables_is_waited_for_and_then_named() {
    in_a_network_of_its_own(|| {
        sh("iptables-legacy -N KUBE-FORWARD; iptables-legacy -A FORWARD -j KUBE-FORWARD");
        let lock = fs::File::create("/run/xtables.lock").unwrap();
        lock.lock().unwrap();
        let began = Instant::now();
        let machine = Machine { lock_within: Duration::from_secs(1), ..Machine::default() };
        let problems = machine.remove();
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        assert!(problems.iter().any(|problem| problem.contains("xtables lock")), "{problems:?}");
        assert!(sh("iptables-legacy-save").contains("KUBE-FORWARD"));
        drop(lock);
        assert_eq!(machine.remove(), Vec::<String>::new());
        assert_eq!(machine.left().unwrap(), PodNetworkLeft::default());
    });
}

#[test]
fn a_program_that_hangs_has_a_deadline_and_keeps_nothing_else_from_going() {
    in_a_network_of_its_own(|| {
        sh(
            "iptables-nft -N KUBE-FORWARD; ip6tables-legacy -N KUBE-FORWARD; nft add table ip kube-proxy; ip link add cni0 type bridge",
        );
        // One that has started another, which holds its output open.
        stand_in("iptables-legacy-save", "sleep 600 & echo $$ $! >>/run/started; wait");
        stand_in("nft", "trap '' TERM; echo $$ >>/run/started; while :; do sleep 600; done");
        let machine = Machine { program_within: Duration::from_millis(700), ..Machine::default() };
        let began = Instant::now();
        let left = machine.left().unwrap();
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        let of = |name: &str| {
            left.unknown.iter().any(|unknown| unknown.contains(name) && unknown.contains("not ended"))
        };
        assert!(of("iptables-legacy-save") && of("nft"), "{left:?}");
        assert_eq!(left.interfaces, ["cni0"]);

        let problems = machine.remove();
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        assert_eq!(problems.len(), 2, "{problems:?}");
        let now = sh("iptables-nft-save; ip6tables-legacy-save; ip link show");
        assert!(!now.contains("KUBE-FORWARD") && !now.contains("cni0"), "{now}");
        // Nothing that was started is left running.
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
fn a_missing_program_is_named_where_there_may_be_something_for_it() {
    in_a_network_of_its_own(|| {
        sh("iptables-legacy -N KUBE-FORWARD; iptables-nft -N KUBE-SERVICES; ipset create KUBE-CLUSTER-IP hash:ip,port
            iptables-nft -A KUBE-SERVICES -m set --match-set KUBE-CLUSTER-IP dst,dst -j ACCEPT; ip link add kube-ipvs0 type bridge");
        only_programs(&["iptables-nft-save", "iptables-nft-restore", "ip"]);
        let machine = Machine::default();
        let unknown = machine.left().unwrap().unknown;
        let mut missing = vec!["iptables-legacy", "nft", "ipset"];
        // A kernel without IPVS has no services.
        missing.extend(fs::exists("/proc/thread-self/net/ip_vs").unwrap().then_some("ipvsadm"));
        for name in &missing {
            let names = |unknown: &&String| unknown.contains(&format!("{name} is not installed"));
            assert_eq!(unknown.iter().filter(names).count(), 1, "{name}: {unknown:#?}");
        }
        let problems = machine.remove();
        // What is there is taken away all the same.
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
fn a_machine_without_any_firewall_program_and_without_rules_has_only_what_cannot_be_known() {
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

/// `ipvsadm` where the kernel has no IPVS: keeps services in a file, in the form that `--save` prints.
const IPVSADM: &str = r#"services=/run/ipvs; touch $services
case $1 in
--save) cat $services ;;
--delete-service) grep -vF -- "-A $2 $3 " $services | grep -vF -- "-a $2 $3 " >$services.new; mv $services.new $services ;;
-A | -a) echo "$*" >>$services ;;
esac"#;

#[test]
fn services_of_kube_proxy_and_kube_router_go_and_an_operators_stay() {
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
