//! Requests to other machines while a plan is applied.

use kops_agent_cluster::lifecycle_action::{Completion, LifecycleAction};
use kops_agent_pki::PemPair;
use kops_agent_plan::resource::DiscoveryRegistration;
use kops_agent_spec::failure::{Failure, Kind};

#[async_trait::async_trait]
pub trait Remote: Send + Sync {
    /// Asks the cloud to assign this machine an IPv6 prefix for its pods.
    async fn assign_ipv6_prefix(&self) -> Result<(), Failure>;

    /// Whether this implementation knows that the prefix is assigned. If not, each plan contains the request for a
    /// prefix until the cloud reports a prefix.
    fn has_assigned_ipv6_prefix(&self) -> bool {
        false
    }

    /// Registers with a discovery service under the name in the certificate of `identity`. `identity` also has the CA
    /// certificate, after the machine's certificate.
    async fn register(&self, registration: &DiscoveryRegistration, identity: &PemPair)
    -> Result<(), Failure>;

    /// Tells the cloud that this machine is ready, if a lifecycle hook waits for that.
    async fn complete_lifecycle_action(&self, action: &LifecycleAction) -> Result<Completion, Failure>;
}

/// Refuses every request to other machines.
pub(crate) struct NoRemote;

fn no_connection() -> Failure {
    Failure::new(Kind::Other, "this program sends no requests to other machines")
}

#[async_trait::async_trait]
impl Remote for NoRemote {
    async fn assign_ipv6_prefix(&self) -> Result<(), Failure> {
        Err(no_connection())
    }

    async fn register(&self, _: &DiscoveryRegistration, _: &PemPair) -> Result<(), Failure> {
        Err(no_connection())
    }

    async fn complete_lifecycle_action(&self, _: &LifecycleAction) -> Result<Completion, Failure> {
        Err(no_connection())
    }
}
