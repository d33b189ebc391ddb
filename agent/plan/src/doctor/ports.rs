//! Checks whether other programs use the ports of a node's programs.
//!
//! Source: kubernetes' `cluster/ports/ports.go`; kOps' `pkg/wellknownports/wellknownports.go`.

use super::finding::{Finding, Seen};

const CHECK: &str = "ports";

/// A port of a node, with the programs that may listen on the port. The kernel cuts process names to 15
/// characters.
struct Port {
    number: u16,
    owners: &'static [&'static str],
}

const fn port(number: u16, owners: &'static [&'static str]) -> Port {
    Port { number, owners }
}

const NODE: [Port; 4] = [
    port(10248, &["kubelet"]),
    port(10250, &["kubelet"]),
    port(10249, &["kube-proxy"]),
    port(10256, &["kube-proxy", "cilium-agent", "calico-node"]),
];

const CONTROL_PLANE: [Port; 11] = [
    port(443, &["kube-apiserver"]),
    port(3990, &["kube-apiserver-"]),
    port(3988, &["kops-controller", "kops-agent"]),
    port(10257, &["kube-controller"]),
    port(10259, &["kube-scheduler"]),
    port(4001, &["etcd"]),
    port(4002, &["etcd"]),
    port(2380, &["etcd"]),
    port(2381, &["etcd"]),
    port(3996, &["etcd-manager"]),
    port(3997, &["etcd-manager"]),
];

/// A listening TCP socket.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listener {
    pub port: u16,
    /// The name and process id of the listener. `None` if the agent cannot see them.
    pub process: Option<(String, u32)>,
}

pub(super) fn findings(listeners: &Seen<Vec<Listener>>, is_control_plane: bool) -> Vec<Finding> {
    let listeners = match listeners {
        Ok(listeners) => listeners,
        Err(why) => {
            let what = format!("the used ports are unknown: {why}");
            return vec![Finding::unknown(CHECK, what, "run `ss -ltnp` as root")];
        }
    };
    let wanted: Vec<&Port> = NODE.iter().chain(CONTROL_PLANE.iter().filter(|_| is_control_plane)).collect();
    let mut findings: Vec<Finding> = wanted.iter().filter_map(|port| taken(port, listeners)).collect();
    if findings.is_empty() {
        findings.push(Finding::ok(
            CHECK,
            format!("no other program uses any of the {} ports of this node", wanted.len()),
        ));
    }
    findings
}

fn taken(port: &Port, listeners: &[Listener]) -> Option<Finding> {
    let mut unseen = None;
    for listener in listeners.iter().filter(|listener| listener.port == port.number) {
        let Port { number, owners } = port;
        match &listener.process {
            Some((name, _)) if owners.contains(&name.as_str()) => {}
            Some((name, process)) => {
                return Some(Finding::problem(
                    CHECK,
                    format!("port {number} of {} is used by {name} (process {process})", owners[0]),
                    format!("stop {name}, or make it listen on another port"),
                ));
            }
            None => {
                unseen = Some(Finding::unknown(
                    CHECK,
                    format!("port {number} of {} is used by a process that this user cannot see", owners[0]),
                    format!("run as root, or look with `ss -ltnp 'sport = :{number}'`"),
                ));
            }
        }
    }
    unseen
}
