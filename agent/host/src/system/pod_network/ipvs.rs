//! Finds the IPVS services of kube-proxy and kube-router. Both put the addresses of their services on an interface of
//! their own. Only node ports are at addresses of the machine (kubernetes/kubernetes: pkg/proxy/ipvs/README.md).

use std::collections::BTreeSet;

/// The flag of `ipvsadm` for a service's protocol.
type Protocol = &'static str;

/// The addresses and ports that distinguish the IPVS services of the pod network from the IPVS services of an operator.
#[derive(Debug, Default)]
pub(super) struct Own {
    pub(super) addresses: BTreeSet<String>,
    /// Node ports: services at every address of the machine.
    pub(super) node_ports: BTreeSet<(Protocol, String)>,
}

/// The addresses in the output of `ip -oneline address show` (`7: kube-ipvs0    inet 10.0.0.1/32 scope global …`).
pub(super) fn addresses(shown: &str) -> BTreeSet<String> {
    let address = |line: &str| {
        let mut words = line.split_whitespace().skip_while(|word| !word.starts_with("inet"));
        Some(words.nth(1)?.split('/').next()?.to_owned())
    };
    shown.lines().filter_map(address).collect()
}

/// The node ports in the output of `ipset save`: `add KUBE-NODE-PORT-TCP 30080`, and for SCTP `add
/// KUBE-NODE-PORT-SCTP-HASH 192.0.2.1,sctp:30080` (pkg/proxy/ipvs/ipset.go).
pub(super) fn node_ports(saved: &str) -> BTreeSet<(Protocol, String)> {
    let port = |line: &str| {
        let mut words = line.split(' ');
        let (Some("add"), set, entry) = (words.next(), words.next()?, words.next()?) else { return None };
        let set = set.strip_prefix("KUBE-")?;
        let set = set.strip_prefix("6-").unwrap_or(set).strip_prefix("NODE-PORT-")?;
        let protocol = match set.strip_prefix("LOCAL-").unwrap_or(set) {
            "TCP" => "-t",
            "UDP" => "-u",
            // ipset names have a maximum length, so the kube-proxy name for SCTP may be cut off.
            sctp if sctp.starts_with("SCTP") => "--sctp-service",
            _ => return None,
        };
        Some((protocol, entry.rsplit(':').next()?.to_owned()))
    };
    saved.lines().filter_map(port).collect()
}

/// The pod network's services in the output of `ipvsadm --save` (`-A -t 10.0.0.1:443 -s rr`). Each service is a
/// protocol flag, and an address with a port.
pub(super) fn services<'a>(saved: &'a str, own: &Own) -> Vec<(&'a str, &'a str)> {
    let service = |line: &'a str| match line.split(' ').collect::<Vec<_>>().as_slice() {
        ["-A", protocol, place, ..] => {
            let (address, port) = place.rsplit_once(':')?;
            let address = address.trim_start_matches('[').trim_end_matches(']');
            let is_node_port = || own.node_ports.iter().any(|(of, own)| of == protocol && own == port);
            (own.addresses.contains(address) || is_node_port()).then_some((*protocol, *place))
        }
        _ => None,
    };
    saved.lines().filter_map(service).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_kube_proxys_by_its_address_or_its_node_port() {
        let shown = "7: kube-ipvs0    inet 100.64.0.1/32 scope global kube-ipvs0\\       valid_lft forever\n\
                     7: kube-ipvs0    inet6 fd00::1/128 scope global\n";
        let sets = "create KUBE-NODE-PORT-TCP bitmap:port range 0-65535\nadd KUBE-NODE-PORT-TCP 30080\n\
                    add KUBE-6-NODE-PORT-LOCAL-UDP 30053\nadd KUBE-NODE-PORT-SCTP-HASH 192.0.2.7,sctp:30090\n\
                    add KUBE-CLUSTER-IP 100.64.0.9,tcp:80\nadd mine 80\n";
        let saved = "-A -t 100.64.0.1:443 -s rr\n-a -t 100.64.0.1:443 -r 10.0.0.9:443 -m -w 1\n\
                     -A -u [fd00::1]:53 -s rr\n-A -t 192.0.2.7:80 -s wrr\n-A -t 192.0.2.7:30080 -s rr\n\
                     -A -u 192.0.2.7:30080 -s rr\n-A -u [2001:db8::7]:30053 -s rr\n\
                     -A --sctp-service 192.0.2.7:30090 -s rr\n-A -f 7 -s rr\n";
        let own = Own { addresses: addresses(shown), node_ports: node_ports(sets) };
        let expected = [
            ("-t", "100.64.0.1:443"),
            ("-u", "[fd00::1]:53"),
            ("-t", "192.0.2.7:30080"),
            ("-u", "[2001:db8::7]:30053"),
            ("--sctp-service", "192.0.2.7:30090"),
        ];
        assert_eq!(services(saved, &own), expected);
    }
}
