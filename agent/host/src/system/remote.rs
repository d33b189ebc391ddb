//! What a node asks of others over the network while a plan is applied.

use std::future::Future;
use std::pin::Pin;

use kops_agent_pki::PemPair;
use kops_agent_plan::lifecycle_action::{Completion, LifecycleAction};
use kops_agent_plan::resource::DiscoveryRegistration;

use super::health::Asking;

/// Telling the group that holds a machine that it is ready; the problem where it could not be told.
pub type Telling<'a> = Pin<Box<dyn Future<Output = Result<Completion, String>> + Send + 'a>>;

pub trait Remote: Send + Sync {
    /// Has the cloud give this machine a range of IPv6 addresses for its pods.
    fn assign_ipv6_prefix(&self) -> Asking<'_>;

    /// Whether it has done so, where that can be told here; else the program that has asked the cloud tells it.
    fn has_assigned_ipv6_prefix(&self) -> bool {
        false
    }

    /// Registers with a discovery service, under the name that a certificate has. The certificate is followed by that of its
    /// authority.
    fn register<'a>(&'a self, registration: &'a DiscoveryRegistration, identity: &'a PemPair) -> Asking<'a>;

    /// Tells the cloud that this machine is ready, where a lifecycle hook holds it until then.
    fn complete_lifecycle_action<'a>(&'a self, action: &'a LifecycleAction) -> Telling<'a>;
}

/// No connection to others.
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
