//! The features of a cloud that the rest of the program uses.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kops_agent_cluster::fleet::ObservedMachine;
use kops_agent_cluster::lifecycle_action::{Completion, LifecycleAction};
use kops_agent_net::retry::{Pauses, Retries};
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

/// The retries of a request whose response is optional for this node.
pub(crate) const WITHOUT_WAITING: Retries = Retries {
    deadline: Duration::from_secs(15),
    attempt: Duration::from_secs(5),
    pauses: Pauses { first: Duration::from_millis(500), longest: Duration::from_secs(4) },
};

/// Selects the optional facts to get. Only some configurations need them, and getting them costs more than a request to the metadata
/// service.
#[derive(Clone, Copy, Debug)]
pub struct WantedFacts {
    /// The network interfaces and GPUs of the machine type.
    pub instance_type: bool,
    /// The machine's address, on clouds where only the metadata service reports the address.
    pub address: bool,
}

/// A cloud. A method with a default body does nothing or returns an error, for clouds that do not have the feature.
#[async_trait::async_trait]
pub trait Cloud: Send + Sync {
    fn provider(&self) -> CloudProvider;

    /// The environment variables that requests to the cloud's API need, in groups. A group has an effect only if its first
    /// variable is set. By default there are no variables.
    fn variables(&self) -> &'static [&'static [&'static str]] {
        &[]
    }

    /// Asks the metadata service about this machine, and writes the responses into the cloud's facts. The default asks nothing, because
    /// some clouds have no facts that the configuration uses. Fails if the service belongs to a different cloud.
    async fn observe(&self, facts: &mut CloudFacts, retries: Retries) -> Result<(), MetadataError> {
        let _ = (facts, retries);
        Ok(())
    }

    /// Returns the item at `path` of this machine's metadata, for a URL `metadata://CLOUD/PATH` (upstream: `ReadFile` in
    /// util/pkg/vfs/context.go). The path begins with a slash. `None` if the metadata service does not have the item. Fails if kOps does
    /// not support this path.
    async fn metadata(&self, path: &str, retries: Retries) -> Result<Option<String>, CloudError> {
        let _ = (path, retries);
        Err(CloudError::Unsupported { provider: self.provider(), action: "read metadata:// URLs" })
    }

    /// The type and the image of this machine, from its metadata service. By default, both are unknown.
    async fn machine(&self, retries: Retries) -> Result<ObservedMachine, MetadataError> {
        let _ = retries;
        Ok(ObservedMachine::new(None, None))
    }

    /// Adds the facts that `wanted` selects. This node's configuration depends on these facts. Facts from an earlier run are reused.
    async fn complete(
        &self,
        facts: &mut Facts,
        wanted: WantedFacts,
        remembered: &RememberedFacts,
    ) -> Result<(), CloudError> {
        let _ = (facts, wanted, remembered);
        Ok(())
    }

    /// Adds all facts that the cloud provides, even if the configuration does not depend on them. A warning reports each
    /// missing fact.
    async fn complete_for_show(&self, facts: &mut Facts, remembered: &RememberedFacts) {
        let _ = (facts, remembered);
    }

    /// Assigns a range of IPv6 addresses for pods to this machine, unless the machine has a range already. Returns the range.
    async fn assign_ipv6_prefix(&self) -> Result<String, CloudError> {
        Err(CloudError::Unsupported {
            provider: self.provider(),
            action: "request a range of IPv6 addresses",
        })
    }

    /// The id of this machine in its cloud. The lifecycle action names the machine by this id.
    async fn instance_id(&self) -> Result<String, CloudError> {
        Err(CloudError::Unsupported { provider: self.provider(), action: "complete lifecycle hooks" })
    }

    /// Completes the lifecycle action: tells the machine's group that the machine is ready, so that the group no longer holds the machine
    /// back. `uptime` is the time since the machine started. Returns the last error after all retries.
    async fn complete_lifecycle_action(
        &self,
        action: &LifecycleAction,
        uptime: Duration,
    ) -> Result<Completion, CloudError> {
        let _ = (action, uptime);
        Err(CloudError::Unsupported { provider: self.provider(), action: "complete lifecycle hooks" })
    }

    /// Creates the authenticator that proves to kops-controller which machine this is.
    async fn authenticator(
        &self,
        machine: Machine<'_>,
    ) -> Result<Box<dyn Authenticator>, AuthenticationError>;

    /// Whether kops-controller calls a machine back before it trusts the machine. If so, the machine listens for the call (upstream:
    /// `pkg/apis/kops/model/features.go`).
    fn calls_back(&self) -> bool {
        false
    }

    /// Access to the machines of the cluster that kops-controller is configured for. Requests to the API are counted in
    /// `calls`. `hosts` are the machines that are enrolled at the API server.
    async fn for_control_plane(
        &self,
        options: &KopsControllerOptions,
        calls: CloudCalls,
        hosts: &Arc<Enrolled>,
    ) -> Result<Arc<dyn ControlPlane>, ControlPlaneError>;
}

/// A machine that has to prove its identity.
#[derive(Clone, Copy)]
pub struct Machine<'a> {
    pub facts: &'a CloudFacts,
    pub tpm: &'a Arc<dyn OpenTpm>,
    /// The name of the machine (`uname -n`).
    pub hostname: &'a str,
    pub root: &'a Path,
}
