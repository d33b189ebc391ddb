//! Decides whether machines can still bootstrap after a bootstrap server has left the cluster. Without a server no machine becomes a node,
//! and existing nodes do not notice.

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ControlPlane {
    pub node: String,
    /// The address of the control plane's bootstrap server. Empty if the Node reports no address.
    pub address: String,
    /// Why no bootstrap server accepts connections on this control plane. `None` if kops-agent's server or kOps' own kops-controller
    /// accepts them.
    pub silent: Option<String>,
    /// Whether the node reports that the service of kops-agent's controller runs ([`crate::fleet::CONTROLLER`]).
    pub runs_controller: bool,
}

impl ControlPlane {
    /// The Node, with the reason why no server accepts connections on it. `None` if a server accepts connections.
    pub fn why_silent(&self) -> Option<String> {
        let why = self.silent.as_ref()?;
        Some(match self.address.as_str() {
            "" => format!("{} ({why})", self.node),
            address => format!("{} ({address}: {why})", self.node),
        })
    }
}

/// Which bootstrap server leaves the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaving {
    /// Only kops-agent's service leaves the cluster. Its machine remains a control plane, so kOps' own kops-controller may serve on it.
    Service,
    Machine,
}

/// Whether a bootstrap server may leave the cluster. The text of both variants is the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Departure {
    /// Machines can bootstrap at another server, or the cluster needs no bootstrap server any more.
    Allowed(String),
    /// After this server has left, no machine could bootstrap.
    Refused(String),
}

/// Another bootstrap server on the same machine as the server that leaves the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherServer {
    Absent,
    /// A pod of kOps' own kops-controller, or of kops-agent's controller, waits for the port on which kops-agent's service still listens.
    /// kubelet restarts the pod of kops-controller until kops-controller can listen.
    Waits,
    /// kOps' own kops-controller already listens.
    Listens,
}

/// Decides whether a server may leave. `others` are all other control planes.
///
/// A pod that waits for the server's port needs minutes until it listens. During this time, no server on this machine listens. This is
/// allowed only in a cluster with one control plane, where it cannot be avoided. In other clusters, another control plane must accept
/// connections now.
pub fn departure(leaving: Leaving, others: &[ControlPlane], here: OtherServer) -> Departure {
    if (leaving, here) == (Leaving::Service, OtherServer::Listens) {
        return Departure::Allowed("kOps' kops-controller listens on this machine".to_owned());
    }
    if let Some(other) = others.iter().find(|other| other.silent.is_none()) {
        return Departure::Allowed(format!(
            "a bootstrap server listens on {} ({})",
            other.node, other.address
        ));
    }
    match (others, leaving, here) {
        ([], Leaving::Machine, _) => {
            let why = "this is the only control plane, so the cluster has no API server without it";
            Departure::Allowed(why.to_owned())
        }
        ([], Leaving::Service, OtherServer::Waits) => {
            let why = "this is the only control plane, and the pod of another server waits here for the port";
            Departure::Allowed(why.to_owned())
        }
        ([], Leaving::Service, _) => {
            let why = "this is the only control plane, and no pod of kOps' kops-controller is here";
            Departure::Refused(why.to_owned())
        }
        (silent, ..) => {
            let silent: Vec<String> = silent.iter().filter_map(ControlPlane::why_silent).collect();
            Departure::Refused(format!(
                "no bootstrap server listens on the other control planes: {}. If one of these machines no longer exists, delete its Node",
                silent.join(", ")
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn other(node: &str, silent: Option<&str>) -> ControlPlane {
        let (node, address) = (node.to_owned(), "10.0.0.1:3988".to_owned());
        ControlPlane { node, address, silent: silent.map(str::to_owned), runs_controller: false }
    }

    fn may_leave(leaving: Leaving, others: &[ControlPlane], here: OtherServer) -> bool {
        matches!(departure(leaving, others, here), Departure::Allowed(_))
    }

    const ALL: [OtherServer; 3] = [OtherServer::Absent, OtherServer::Waits, OtherServer::Listens];

    #[test]
    fn a_server_may_leave_if_another_control_plane_serves() {
        let others = [other("a", Some("refused")), other("b", None)];
        for here in ALL {
            for leaving in [Leaving::Service, Leaving::Machine] {
                let allowed = Departure::Allowed(match (leaving, here) {
                    (Leaving::Service, OtherServer::Listens) => {
                        "kOps' kops-controller listens on this machine".to_owned()
                    }
                    _ => "a bootstrap server listens on b (10.0.0.1:3988)".to_owned(),
                });
                assert_eq!(departure(leaving, &others, here), allowed, "{leaving:?} {here:?}");
            }
        }
    }

    #[test]
    fn the_last_server_may_not_leave() {
        let nowhere = ControlPlane { node: "b".into(), silent: Some("none".into()), ..Default::default() };
        let others = [other("a", Some("refused")), nowhere];
        let why = "no bootstrap server listens on the other control planes: a (10.0.0.1:3988: refused), \
                   b (none). If one of these machines no longer exists, delete its Node";
        let refused = Departure::Refused(why.to_owned());
        for here in [OtherServer::Absent, OtherServer::Waits] {
            for leaving in [Leaving::Service, Leaving::Machine] {
                assert_eq!(departure(leaving, &others, here), refused, "{leaving:?} {here:?}");
            }
        }
        // If only kops-agent's service leaves, kOps' kops-controller still serves on this machine. If the machine leaves,
        // kops-controller leaves, too.
        assert!(may_leave(Leaving::Service, &others, OtherServer::Listens));
        assert_eq!(departure(Leaving::Machine, &others, OtherServer::Listens), refused);
    }

    #[test]
    fn on_the_only_control_plane_another_pod_must_wait() {
        let service = ALL.map(|here| may_leave(Leaving::Service, &[], here));
        assert_eq!(service, [false, true, true]);
        // Without its only control plane, the cluster ends, so no machine needs a bootstrap server.
        assert!(ALL.iter().all(|here| may_leave(Leaving::Machine, &[], *here)));
    }
}
