//! A network with remains of pods and with rules of an operator.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::{Command, Stdio};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

const NONE: Option<&str> = None;
/// The folder that still has this machine's programs while [`only_programs`] hides them.
pub(super) const ALL_PROGRAMS: &str = "/mnt";

/// Runs `test` with its own network namespace, `/run` and `/usr/local/sbin`. Does nothing if the user may not create
/// them.
pub(super) fn in_a_network_of_its_own(test: impl FnOnce() + Send) {
    let run = || {
        if unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET).is_err() {
            return;
        }
        mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE).unwrap();
        // The lock of iptables is a file in /run, so each test needs its own /run.
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
pub(super) fn sh(script: &str) -> String {
    let output = Command::new("bash").args(["-euc", script]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{script}: {said} (tests/run installs what is missing)");
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
pub(super) fn feed(program: &str, input: &str) {
    let mut child = Command::new(program)
        .args(["--noflush"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("tests/run installs it");
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "{program}: {input}");
}

/// Places a script before the real program of the same name in the search path.
pub(super) fn stand_in(name: &str, script: &str) {
    let path = format!("/usr/local/sbin/{name}");
    fs::write(&path, format!("#!/bin/bash\n{script}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Hides all programs in /usr/sbin except `names`.
pub(super) fn only_programs(names: &[&str]) {
    let bind = MsFlags::MS_BIND | MsFlags::MS_REC;
    mount(Some("/usr/sbin"), ALL_PROGRAMS, NONE, bind, NONE).unwrap();
    mount(Some("tmpfs"), "/usr/sbin", Some("tmpfs"), MsFlags::empty(), NONE).unwrap();
    for name in names {
        // iptables is one program for each variant. This program behaves according to the name by which it is called.
        let program = match *name {
            name if name.contains("-nft") => "xtables-nft-multi",
            name if name.contains("-legacy") => "xtables-legacy-multi",
            name => name,
        };
        symlink(format!("{ALL_PROGRAMS}/{program}"), format!("/usr/sbin/{name}")).unwrap();
    }
}

/// All rules and links in this network namespace.
pub(super) fn shown() -> String {
    sh("for kind in nft legacy; do for family in ip ip6; do ${family}tables-$kind-save --counters | grep -v '^#' || true; done; done
        nft --numeric list ruleset; ipset list -name; ip -oneline link show | cut -d ' ' -f 2")
}

/// Creates an operator's rules, in the built-in chains, in the operator's own chain, and in the operator's own tables.
/// Some rules contain names of the pod network.
pub(super) fn operators_rules() {
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

/// Creates remains of the pod network in iptables, for one address family. Source of the names:
/// agent/host/src/system/pod_network/names.rs.
pub(super) fn left_in_iptables(program: &str, pods: &str, service: &str, set_prefix: &str) {
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

/// Creates remains of kube-proxy and network plugins in nftables, links and ipsets.
pub(super) fn left_elsewhere() {
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

pub(super) fn ipsets() {
    sh("ipset create mine hash:ip; ipset create mine6 hash:ip family inet6
        for set in kube-router-svip kube-router-pod-subnets kube-router-node-ips; do
            ipset create $set hash:net timeout 0; ipset create inet6:$set hash:net family inet6 timeout 0
        done");
}

pub(super) fn more_ipsets() {
    sh("ipset create KUBE-CLUSTER-IP hash:ip,port; ipset create KUBE-6-CLUSTER-IP hash:ip,port family inet6
        ipset create KUBE-NODE-PORT-TCP bitmap:port range 0-65535
        ipset create KUBE-SRC-ABCDEFGHIJKLMNOP hash:ip; ipset create inet6:KUBE-DST-ABCDEFGHIJKLMNOP hash:ip family inet6
        ipset create cali40masq-ipam-pools hash:net; ipset create cali60s:qMt7iLlGDhvLnCjM0l9nzxb hash:net family inet6
        ipset create cilium_node_set_v4 hash:ip");
}
