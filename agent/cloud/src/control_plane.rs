//! What the control plane of a cluster asks its cloud: which machine a Node is, and whether a machine that asks to become one
//! may.

use std::error::Error;
use std::fmt::Display;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use kops_agent_plan::identity::{Identity, Refusal};
use kops_agent_plan::labels::ObservedNode;
use kops_agent_plan::pod_ranges::PodRangeProblem;
use kops_agent_spec::KopsControllerServerOptions;
use thiserror::Error;
use tokio::time::Instant;

use crate::api::ApiError;
use crate::verify::{LoadBalancing, MachinePrefix, Verifier};

/// Why it is not known which machine a Node is.
#[derive(Clone, Debug)]
pub enum NotIdentified {
    /// Its kubelet has not said yet which instance it is.
    NotYet,
    /// It is not believed.
    Refused(Refusal),
    /// The cloud could not be asked.
    Unavailable(String),
}

impl NotIdentified {
    /// A cloud that answers with this error, or not at all.
    pub(crate) fn unavailable(error: impl Display) -> NotIdentified {
        NotIdentified::Unavailable(error.to_string())
    }
}

impl From<Refusal> for NotIdentified {
    fn from(refusal: Refusal) -> NotIdentified {
        NotIdentified::Refused(refusal)
    }
}

/// Why the pods of a Node get no addresses.
#[derive(Clone, Debug)]
pub enum NoPodRanges {
    /// It is not known which machine the Node is.
    NotIdentified(NotIdentified),
    /// Its machine has none for them.
    Lacking(PodRangeProblem),
    /// Machines of this cloud never have any.
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

/// Why a cloud cannot be asked about the machines of a cluster.
#[derive(Debug, Error)]
pub enum ControlPlaneError {
    /// The configuration or the environment has to change before trying again can help.
    #[error("{0}")]
    Configuration(String),
    /// Something that was needed first could not be done.
    #[error("{doing}")]
    Failed {
        doing: &'static str,
        #[source]
        cause: Box<dyn Error + Send + Sync>,
    },
    /// The client of its API cannot be set up.
    #[error(transparent)]
    Client(Box<dyn Error + Send + Sync>),
}

impl ControlPlaneError {
    /// What failed while this was being done.
    pub(crate) fn failed<E: Error + Send + Sync + 'static>(doing: &'static str) -> impl FnOnce(E) -> Self {
        move |cause| ControlPlaneError::Failed { doing, cause: Box::new(cause) }
    }

    /// The same of a list that cannot be asked for, which may be a matter of the configuration.
    pub(crate) fn of_list(doing: &'static str) -> impl FnOnce(ApiError) -> Self {
        move |error| match error.is_configuration() {
            true => ControlPlaneError::Configuration(error.to_string()),
            false => ControlPlaneError::failed(doing)(error),
        }
    }

    /// A client that cannot be set up.
    pub(crate) fn client<E: Error + Send + Sync + 'static>(cause: E) -> Self {
        ControlPlaneError::Client(Box::new(cause))
    }
}

/// The machines of one cluster, as their cloud's API tells of them. One value serves the controller of nodes and the bootstrap
/// server, so that both ask together.
pub trait ControlPlane: Send + Sync {
    /// Identifies a Node by the instance that its `spec.providerID` names, which is not empty. The Node was there at `since`
    /// already: an answer that was asked for later decides.
    ///
    /// # Errors
    /// If the Node is not believed, or the cloud cannot be asked.
    fn identify<'a>(
        &'a self,
        node: &'a ObservedNode,
        since: Instant,
    ) -> BoxFuture<'a, Result<Identity, NotIdentified>>;

    /// The ranges of addresses that the pods of a Node get: those that its instance has for them by now. The Node is
    /// identified for that as [`ControlPlane::identify`] does, and what is asked at the same time is asked together.
    ///
    /// # Errors
    /// If the Node is not believed, its instance has no such range, or the cloud cannot be asked.
    fn pod_ranges<'a>(
        &'a self,
        node: &'a ObservedNode,
        since: Instant,
    ) -> BoxFuture<'a, Result<Vec<String>, NoPodRanges>> {
        let _ = (node, since);
        async { Err(NoPodRanges::NeverGiven) }.boxed()
    }

    /// What verifies machines that bootstrap; `None` if the server's configuration does not name this cloud.
    ///
    /// # Errors
    /// If a client that it takes cannot be set up.
    fn verifier<'a>(
        &'a self,
        server: &'a KopsControllerServerOptions,
    ) -> BoxFuture<'a, Result<Option<Box<dyn Verifier>>, ControlPlaneError>>;

    /// Whether Nodes say which instance they are (`spec.providerID`). Until one does, nothing is asked about it.
    fn names_instances(&self) -> bool {
        true
    }

    /// Whether kOps' own kops-controller labels Nodes here, so that beside it labels are to be its own.
    fn is_labelled_by_upstream(&self) -> bool {
        true
    }

    /// How many leading bits of an IPv6 address are one machine's own in this cloud.
    fn machine_prefix(&self) -> MachinePrefix {
        MachinePrefix::NETWORK
    }

    /// What stands before the bootstrap server in this cloud.
    fn load_balancing(&self) -> LoadBalancing {
        LoadBalancing::None
    }
}
