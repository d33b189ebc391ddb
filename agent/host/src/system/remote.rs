//! What a node asks of others over the network while a plan is applied.

use kops_agent_plan::lifecycle_action::LifecycleAction;
use kops_agent_plan::resource::DiscoveryRegistration;

use crate::health::Asking;
use kops_agent_pki::PemPair;

/// Those others.
pub trait Remote: Send + Sync {
    /// Has the cloud give this machine a range of IPv6 addresses for its pods.
    fn assign_ipv6_prefix(&self) -> Asking<'_>;

    /// Whether it has done so, where that can be told here; else whoever has asked the cloud tells it.
    fn has_assigned_ipv6_prefix(&self) -> bool {
        false
    }

    /// Registers with a discovery service, as whom a certificate says. The certificate is followed by that of its
    /// authority.
    fn register<'a>(&'a self, registration: &'a DiscoveryRegistration, identity: &'a PemPair) -> Asking<'a>;

    /// Tells the cloud that this machine is ready, where a lifecycle hook holds it until then.
    fn complete_lifecycle_action<'a>(&'a self, action: &'a LifecycleAction) -> Asking<'a>;
}

/// Nobody to ask.
pub(crate) struct Nobody;

impl Nobody {
    fn refuse(&self) -> Asking<'_> {
        Box::pin(async { Err("whoever runs this has no connection to others".to_owned()) })
    }
}

impl Remote for Nobody {
    fn assign_ipv6_prefix(&self) -> Asking<'_> {
        self.refuse()
    }

    fn register<'a>(&'a self, _: &'a DiscoveryRegistration, _: &'a PemPair) -> Asking<'a> {
        self.refuse()
    }

    fn complete_lifecycle_action<'a>(&'a self, _: &'a LifecycleAction) -> Asking<'a> {
        self.refuse()
    }
}
