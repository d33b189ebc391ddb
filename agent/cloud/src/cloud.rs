//! The features of a cloud that the rest of the program uses.

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

/// Retries for a response that a node can do without.
pub(crate) const WITHOUT_WAITING: Retries = Retries {
    deadline: Duration::from_secs(15),
    attempt: Duration::from_secs(5),
    first_pause: Duration::from_millis(500),
    longest_pause: Duration::from_secs(4),
};

/// A cloud. A method with a default body does nothing or returns an error, for clouds that do not have the feature.
pub trait Cloud: Send + Sync {
    fn provider(&self) -> CloudProvider;

    /// The environment variables that requests to the cloud's API need, in groups. A group counts if its first variable is set.
    /// By default there are no variables.
    fn variables(&self) -> &'static [&'static [&'static str]] {
        &[]
    }

    /// Asks the metadata service about this machine, and writes the responses into the cloud's facts. The default asks nothing,
    /// for clouds whose facts the configuration does not use.
    ///
    /// # Errors
    /// If the service cannot be reached, or belongs to another cloud.
    fn observe<'a>(
        &'a self,
        facts: &'a mut CloudFacts,
        retries: Retries,
    ) -> BoxFuture<'a, Result<(), MetadataError>> {
        let _ = (facts, retries);
        async { Ok(()) }.boxed()
    }

    /// Adds facts that this node's configuration depends on, and that cost more than a request to the metadata service. Facts
    /// from an earlier run are reused.
    ///
    /// # Errors
    /// If the configuration depends on a fact that the cloud does not provide.
    fn complete<'a>(
        &'a self,
        inputs: &'a mut Inputs,
        remembered: &'a RememberedFacts,
    ) -> BoxFuture<'a, Result<(), CloudError>> {
        let _ = (inputs, remembered);
        async { Ok(()) }.boxed()
    }

    /// Adds all facts that the cloud provides, even if the configuration does not depend on them. A warning reports each
    /// missing fact.
    fn complete_for_show<'a>(
        &'a self,
        facts: &'a mut Facts,
        remembered: &'a RememberedFacts,
    ) -> BoxFuture<'a, ()> {
        let _ = (facts, remembered);
        async {}.boxed()
    }

    /// Assigns a range of IPv6 addresses for pods to this machine, unless it has one already. Returns the range.
    fn assign_ipv6_prefix(&self) -> BoxFuture<'_, Result<String, CloudError>> {
        not_offered(self.provider(), "range of IPv6 addresses")
    }

    /// The id of this machine, by which its group may hold it until it is ready.
    fn instance_id(&self) -> BoxFuture<'_, Result<String, CloudError>> {
        not_offered(self.provider(), "lifecycle hook")
    }

    /// Reports to the group of a machine that the machine is ready, so that the group no longer holds it. `uptime` is the time
    /// since its start.
    ///
    /// # Errors
    /// The last error, after all retries.
    fn complete_lifecycle_action<'a>(
        &'a self,
        action: &'a LifecycleAction,
        uptime: Duration,
    ) -> BoxFuture<'a, Result<Completion, CloudError>> {
        let _ = (action, uptime);
        not_offered(self.provider(), "lifecycle hook")
    }

    /// Creates the authenticator that proves to kops-controller which machine this is.
    fn authenticator<'a>(
        &'a self,
        machine: Machine<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn Authenticator>, AuthenticationError>>;

    /// Whether kops-controller calls a machine back before it trusts it. The machine then has to listen for the call (upstream:
    /// `pkg/apis/kops/model/features.go`).
    fn calls_back(&self) -> bool {
        false
    }

    /// Access to the machines of the cluster that kops-controller is configured for. Requests to the API are counted in
    /// `calls`. `hosts` are the machines that are enrolled at the API server.
    ///
    /// # Errors
    /// If the configuration or the environment is wrong, or a client cannot be created.
    fn for_control_plane<'a>(
        &'a self,
        options: &'a KopsControllerOptions,
        calls: CloudCalls,
        hosts: &'a Arc<Enrolled>,
    ) -> BoxFuture<'a, Result<Arc<dyn ControlPlane>, ControlPlaneError>>;
}

/// The error of a cloud that does not have a feature.
fn not_offered<T: Send + 'static>(
    provider: CloudProvider,
    what: &'static str,
) -> BoxFuture<'static, Result<T, CloudError>> {
    async move { Err(CloudError::NotOffered { provider, what }) }.boxed()
}

/// A machine that has to prove its identity.
#[derive(Clone, Copy)]
pub struct Machine<'a> {
    /// The facts from its cloud.
    pub facts: &'a CloudFacts,
    pub tpm: &'a Arc<dyn OpenTpm>,
    /// The name of the machine (`uname -n`).
    pub hostname: &'a str,
    /// The root directory of the machine.
    pub root: &'a Path,
}
