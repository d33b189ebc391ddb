//! Requests to other machines while a plan is applied.

use std::future::Future;
use std::pin::Pin;

use kops_agent_pki::PemPair;
use kops_agent_plan::lifecycle_action::{Completion, LifecycleAction};
use kops_agent_plan::resource::DiscoveryRegistration;

use super::health::Asking;

/// A pending report to the instance group that this machine is ready. The error says why the report failed.
pub type Telling<'a> = Pin<Box<dyn Future<Output = Result<Completion, String>> + Send + 'a>>;

pub trait Remote: Send + Sync {
    /// Asks the cloud to assign this machine an IPv6 prefix for its pods.
    fn assign_ipv6_prefix(&self) -> Asking<'_>;

    /// Whether the prefix is already assigned, if this implementation knows. Otherwise the caller leaves the request
    /// out of the plan once the cloud reports a prefix.
    fn has_assigned_ipv6_prefix(&self) -> bool {
        false
    }

    /// Registers with a discovery service under the name in the certificate of `identity`. The certificate is followed
    /// by its CA's certificate.
    fn register<'a>(&'a self, registration: &'a DiscoveryRegistration, identity: &'a PemPair) -> Asking<'a>;

    /// Tells the cloud that this machine is ready, if a lifecycle hook waits for that.
    fn complete_lifecycle_action<'a>(&'a self, action: &'a LifecycleAction) -> Telling<'a>;
}

/// Refuses every request to other machines.
pub(crate) struct NoRemote;

const NO_CONNECTION: &str = "this program has no connection to others";

impl NoRemote {
    fn refuse(&self) -> Asking<'_> {
        Box::pin(async { Err(NO_CONNECTION.to_owned()) })
    }
}

impl Remote for NoRemote {
    fn assign_ipv6_prefix(&self) -> Asking<'_> {
        self.refuse()
    }

    fn register<'a>(&'a self, _: &'a DiscoveryRegistration, _: &'a PemPair) -> Asking<'a> {
        self.refuse()
    }

    fn complete_lifecycle_action<'a>(&'a self, _: &'a LifecycleAction) -> Telling<'a> {
        Box::pin(async { Err(NO_CONNECTION.to_owned()) })
    }
}
