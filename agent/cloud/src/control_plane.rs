//! The requests of a cluster's control plane to its cloud: which machine a Node is, and whether a machine may become a Node.

use std::error::Error;
use std::fmt::Display;

use kops_agent_cluster::identity::{Identity, Refusal};
use kops_agent_cluster::labels::ObservedNode;
use kops_agent_cluster::pod_ranges::PodRangeProblem;
use kops_agent_spec::KopsControllerServerOptions;
use kops_agent_spec::failure::{Failing, Kind};
use thiserror::Error;
use tokio::time::Instant;

use crate::api::ApiError;
use crate::error::OfOneCloud;
use crate::verify::{LoadBalancing, MachinePrefix, Verifier};

/// Why the machine of a Node cannot be identified.
#[derive(Clone, Debug)]
pub enum NotIdentified {
    /// The Node does not name its instance yet.
    NotYet,
    Refused(Refusal),
    /// The request for the machine failed, or could not be sent, for example without credentials.
    Unavailable(String),
}

impl NotIdentified {
    /// Wraps the error of a cloud that rejects the request or does not respond.
    pub(crate) fn unavailable(error: impl Display) -> NotIdentified {
        NotIdentified::Unavailable(error.to_string())
    }
}

impl From<Refusal> for NotIdentified {
    fn from(refusal: Refusal) -> NotIdentified {
        NotIdentified::Refused(refusal)
    }
}

/// Why the pods of a Node get no address ranges.
#[derive(Clone, Debug)]
pub enum NoPodRanges {
    NotIdentified(NotIdentified),
    /// The machine has no address ranges for pods.
    Lacking(PodRangeProblem),
    /// Machines of this cloud never have address ranges for pods.
    NeverGiven,
}

impl From<NotIdentified> for NoPodRanges {
    fn from(why: NotIdentified) -> NoPodRanges {
        NoPodRanges::NotIdentified(why)
    }
}

impl From<PodRangeProblem> for NoPodRanges {
    fn from(problem: PodRangeProblem) -> NoPodRanges {
        NoPodRanges::Lacking(problem)
    }
}

/// Why the control plane has no access to the machines of a cluster.
#[derive(Debug, Error)]
pub enum ControlPlaneError {
    /// The configuration or the environment must change before a retry can succeed.
    #[error("{0}")]
    Configuration(String),
    /// The step `doing` failed while the access was set up.
    #[error("{doing}")]
    Failed {
        doing: &'static str,
        kind: Kind,
        #[source]
        cause: Box<dyn Error + Send + Sync>,
    },
    /// The client of the cloud's API cannot be created.
    #[error(transparent)]
    Client(OfOneCloud),
}

impl ControlPlaneError {
    /// Wraps an error of the step `doing`.
    pub(crate) fn failed<E: Failing + Send + Sync + 'static>(doing: &'static str) -> impl FnOnce(E) -> Self {
        move |cause| ControlPlaneError::Failed { doing, kind: cause.kind(), cause: Box::new(cause) }
    }

    /// Wraps an error of a client that lists machines. If only a change of the configuration helps, the result is
    /// [`ControlPlaneError::Configuration`].
    pub(crate) fn of_list(doing: &'static str) -> impl FnOnce(ApiError) -> Self {
        move |error| match error.is_configuration() {
            true => ControlPlaneError::Configuration(error.to_string()),
            false => ControlPlaneError::failed(doing)(error),
        }
    }

    /// Wraps the error of a client that cannot be created.
    pub(crate) fn client(cause: impl Failing + Send + Sync + 'static) -> Self {
        ControlPlaneError::Client(OfOneCloud::new(cause))
    }
}

impl Failing for ControlPlaneError {
    fn kind(&self) -> Kind {
        match self {
            ControlPlaneError::Configuration(_) => Kind::ControlPlaneSettings,
            ControlPlaneError::Failed { kind, .. } => *kind,
            ControlPlaneError::Client(error) => error.kind(),
        }
    }
}

/// Access to the machines of one cluster through their cloud's API. The node controller and the bootstrap server share one object, so that
/// they also share its requests.
#[async_trait::async_trait]
pub trait ControlPlane: Send + Sync {
    /// Identifies a Node by the instance in its `spec.providerID`. The providerID is not empty, and the Node existed at `since`. Only a
    /// response to a request after `since` proves that the instance is missing.
    async fn identify(&self, node: &ObservedNode, since: Instant) -> Result<Identity, NotIdentified>;

    /// The current address ranges of a Node's instance, for the pods of the Node. First identifies the Node, as [`ControlPlane::identify`]
    /// does. Concurrent calls share requests.
    async fn pod_ranges(&self, node: &ObservedNode, since: Instant) -> Result<Vec<String>, NoPodRanges> {
        let _ = (node, since);
        Err(NoPodRanges::NeverGiven)
    }

    /// The verifier for machines that bootstrap; `None` if the server's configuration does not name this cloud.
    async fn verifier(
        &self,
        server: &KopsControllerServerOptions,
    ) -> Result<Option<Box<dyn Verifier>>, ControlPlaneError>;

    /// Whether Nodes name their instance (`spec.providerID`). If so, a Node without `spec.providerID` causes no request.
    fn names_instances(&self) -> bool {
        true
    }

    /// Whether upstream's kops-controller labels Nodes of this cloud. If it does not, the cloud records no labels, so the controller always
    /// takes labels from the state store.
    fn is_labelled_by_upstream(&self) -> bool {
        true
    }

    /// The number of leading bits of an IPv6 address that identify one machine in this cloud.
    fn machine_prefix(&self) -> MachinePrefix {
        MachinePrefix::NETWORK
    }

    /// Whether machines may reach the bootstrap server through a load balancer in this cloud.
    fn load_balancing(&self) -> LoadBalancing {
        LoadBalancing::None
    }
}
