//! Decides whether machines can still bootstrap after a bootstrap server has left the cluster. Without a server no machine becomes a node,
//! and existing nodes do not notice.

/// A control plane, and whether machines can bootstrap there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ControlPlane {
    /// The name of its Node.
    pub node: String,
    /// The address of its bootstrap server. Empty if the Node reports none.
    pub address: String,
    /// Why no server accepts connections there. `None` if a server does, kops-agent's or kOps' own kops-controller.
    pub silent: Option<String>,
    /// Whether the node reports that the service of kops-agent's controller runs ([`crate::fleet::CONTROLLER`]).
    pub runs_controller: bool,
}

impl ControlPlane {
    /// The Node with the reason why no server answers there. `None` if a server answers.
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
    /// kops-agent's service. The machine remains a control plane, so kOps' own kops-controller may serve there.
    Service,
    /// The whole machine.
    Machine,
}

/// Another bootstrap server on the machine whose service leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherServer {
    Absent,
    /// A pod of kOps' own kops-controller or of kops-agent's controller is there. It cannot listen as long as the service has the port.
    /// kubelet restarts kops-controller until it can.
    Waits,
    /// kOps' own kops-controller listens.
    Listens,
}

/// Whether machines can bootstrap once a server has left, and why. `others` are all other control planes.
///
/// A pod that waits counts only on the cluster's only control plane: a minutes-long gap is unavoidable there. Elsewhere another
/// server must answer now. The error is the reason why no server would be left.
pub fn stay_served(leaving: Leaving, others: &[ControlPlane], here: OtherServer) -> Result<String, String> {
    if (leaving, here) == (Leaving::Service, OtherServer::Listens) {
        return Ok("kOps' kops-controller listens on this machine".to_owned());
    }
    if let Some(other) = others.iter().find(|other| other.silent.is_none()) {
        return Ok(format!("a server listens on {} ({})", other.node, other.address));
    }
    match (others, leaving, here) {
        ([], Leaving::Machine, _) => {
            Ok("this is the only control plane, so the cluster has no API server without it".to_owned())
        }
        ([], Leaving::Service, OtherServer::Waits) => {
            Ok("this is the only control plane, and the pod of another server waits here for the port"
                .to_owned())
        }
        ([], Leaving::Service, _) => {
            Err("this is the only control plane, and no pod of kOps' kops-controller is here".to_owned())
        }
        (silent, ..) => {
            let silent: Vec<String> = silent.iter().filter_map(ControlPlane::why_silent).collect();
            Err(format!(
                "no server listens on the other control planes: {}. If one of these machines no longer exists, delete its Node",
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

    const ALL: [OtherServer; 3] = [OtherServer::Absent, OtherServer::Waits, OtherServer::Listens];

    #[test]
    fn a_server_may_leave_if_another_control_plane_serves() {
        let others = [other("a", Some("refused")), other("b", None)];
        for here in ALL {
            for leaving in [Leaving::Service, Leaving::Machine] {
                let why = stay_served(leaving, &others, here);
                assert!(why.is_ok(), "{leaving:?} {here:?}: {why:?}");
            }
        }
        let why = stay_served(Leaving::Machine, &others, OtherServer::Absent);
        assert_eq!(why.as_deref(), Ok("a server listens on b (10.0.0.1:3988)"));
    }

    #[test]
    fn the_last_server_may_not_leave() {
        let nowhere = ControlPlane { node: "b".into(), silent: Some("none".into()), ..Default::default() };
        let others = [other("a", Some("refused")), nowhere];
        let expected =
            Err("no server listens on the other control planes: a (10.0.0.1:3988: refused), b (none). \
                 If one of these machines no longer exists, delete its Node"
                .to_owned());
        for here in [OtherServer::Absent, OtherServer::Waits] {
            for leaving in [Leaving::Service, Leaving::Machine] {
                assert_eq!(stay_served(leaving, &others, here), expected, "{leaving:?} {here:?}");
            }
        }
        // kops-controller goes on without the service, but not without the machine.
        assert!(stay_served(Leaving::Service, &others, OtherServer::Listens).is_ok());
        assert_eq!(stay_served(Leaving::Machine, &others, OtherServer::Listens), expected);
    }

    #[test]
    fn on_the_only_control_plane_another_pod_must_wait() {
        let service = ALL.map(|here| stay_served(Leaving::Service, &[], here).is_ok());
        assert_eq!(service, [false, true, true]);
        // The API server ends with its machine, and so does the cluster.
        assert!(ALL.iter().all(|here| stay_served(Leaving::Machine, &[], *here).is_ok()));
    }
}
