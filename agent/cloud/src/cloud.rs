//! What each cloud does for the rest of the program.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use kops_agent_net::retry::Retries;
use kops_agent_plan::lifecycle_action::{Completion, LifecycleAction};
use kops_agent_plan::resolve::Inputs;
use kops_agent_spec::facts::{CloudFacts, Facts};
use kops_agent_spec::{CloudProvider, KopsControllerOptions};

use crate::authenticate::{AuthenticationError, Authenticator};
use crate::calls::CloudCalls;
use crate::control_plane::{ControlPlane, ControlPlaneError};
use crate::error::CloudError;
use crate::hosts::Enrolled;
use crate::metadata::MetadataError;
use crate::remembered::RememberedFacts;
use crate::tpm::OpenTpm;

/// For an answer that a node can do without.
pub(crate) const WITHOUT_WAITING: Retries = Retries {
    deadline: Duration::from_secs(15),
    attempt: Duration::from_secs(5),
    first_pause: Duration::from_millis(500),
    longest_pause: Duration::from_secs(4),
};

/// A cloud. What it does not define is nothing, for there is nothing to ask.
pub trait Cloud: Send + Sync {
    fn provider(&self) -> CloudProvider;

    /// The variables of the environment that it takes to ask its API: in groups, each of which counts where its first variable is
    /// set. By default there is none.
    fn variables(&self) -> &'static [&'static [&'static str]] {
        &[]
    }

    /// Asks the metadata service about this machine, and writes the answers into the cloud's part of the facts. By default
    /// nothing is asked: nothing that is decided depends on it.
    ///
    /// # Errors
    /// If the service cannot be asked, or is another cloud's.
    fn observe<'a>(
        &'a self,
        facts: &'a mut CloudFacts,
        retries: Retries,
    ) -> BoxFuture<'a, Result<(), MetadataError>> {
        let _ = (facts, retries);
        async { Ok(()) }.boxed()
    }

    /// Adds to the facts what this node's configuration makes it depend on besides, and what costs more than a question to the
    /// metadata service. What an earlier run was told is not asked for again.
    ///
    /// # Errors
    /// If the node cannot be decided without it, and the cloud does not tell.
    fn complete<'a>(
        &'a self,
        inputs: &'a mut Inputs,
        remembered: &'a RememberedFacts,
    ) -> BoxFuture<'a, Result<(), CloudError>> {
        let _ = (inputs, remembered);
        async { Ok(()) }.boxed()
    }

    /// Adds to the facts everything that the cloud tells, whatever depends on it. What it does not tell is left out with a
    /// warning.
    fn complete_for_show<'a>(
        &'a self,
        facts: &'a mut Facts,
        remembered: &'a RememberedFacts,
    ) -> BoxFuture<'a, ()> {
        let _ = (facts, remembered);
        async {}.boxed()
    }

    /// Gets this machine a range of IPv6 addresses for its pods, if it has none, and says which.
    ///
    /// # Errors
    /// If it cannot be asked for, or is not given.
    fn assign_ipv6_prefix(&self) -> BoxFuture<'_, Result<String, CloudError>> {
        not_offered(self.provider(), "range of IPv6 addresses")
    }

    /// The id of this machine, by which a group may hold it until it is ready.
    ///
    /// # Errors
    /// If the metadata service cannot be asked.
    fn instance_id(&self) -> BoxFuture<'_, Result<String, CloudError>> {
        not_offered(self.provider(), "lifecycle hook")
    }

    /// Tells the group that holds a machine until it is ready that it is. `uptime` is for how long it has run.
    ///
    /// # Errors
    /// If the group could not be told before the retries ended.
    fn complete_lifecycle_action<'a>(
        &'a self,
        action: &'a LifecycleAction,
        uptime: Duration,
    ) -> BoxFuture<'a, Result<Completion, CloudError>> {
        let _ = (action, uptime);
        not_offered(self.provider(), "lifecycle hook")
    }

    /// What proves to kops-controller which machine this is.
    ///
    /// # Errors
    /// If it cannot be set up.
    fn authenticator<'a>(
        &'a self,
        machine: Machine<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn Authenticator>, AuthenticationError>>;

    /// Whether kops-controller calls a machine back before it believes it, which has to listen for that (upstream:
    /// `pkg/apis/kops/model/features.go`).
    fn calls_back(&self) -> bool {
        false
    }

    /// The machines of the cluster that a configuration of kops-controller is for. Questions to the API are counted in `calls`.
    /// `hosts` are those that were enrolled at the API server.
    ///
    /// # Errors
    /// If the configuration or the environment is wrong, or a client cannot be set up.
    fn for_control_plane<'a>(
        &'a self,
        options: &'a KopsControllerOptions,
        calls: CloudCalls,
        hosts: &'a Arc<Enrolled>,
    ) -> BoxFuture<'a, Result<Arc<dyn ControlPlane>, ControlPlaneError>>;
}

/// The answer of a cloud whose machines have no such thing.
fn not_offered<T: Send + 'static>(
    provider: CloudProvider,
    what: &'static str,
) -> BoxFuture<'static, Result<T, CloudError>> {
    async move { Err(CloudError::NotOffered { provider, what }) }.boxed()
}

/// A machine that is to prove itself.
#[derive(Clone, Copy)]
pub struct Machine<'a> {
    /// What its cloud says of it.
    pub facts: &'a CloudFacts,
    pub tpm: &'a Arc<dyn OpenTpm>,
    /// What it is called (`uname -n`).
    pub hostname: &'a str,
    /// Where its files are.
    pub root: &'a Path,
}
