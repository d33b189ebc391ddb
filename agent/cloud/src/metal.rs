//! Machines outside any cloud: their `Host` objects of the API server identify them ([`crate::hosts`]).

pub mod authenticate;
pub mod identify;

use std::sync::Arc;

use kops_agent_spec::{CloudProvider, KopsControllerOptions};

use crate::authenticate::{AuthenticationError, Authenticator};
use crate::calls::CloudCalls;
use crate::cloud::{Cloud, Machine};
use crate::control_plane::{ControlPlane, ControlPlaneError};
use crate::hosts::Enrolled;
use authenticate::HostAuthenticator;
use identify::HostControlPlane;

/// The provider of machines outside any cloud.
pub(crate) struct Metal;

#[async_trait::async_trait]
impl Cloud for Metal {
    fn provider(&self) -> CloudProvider {
        CloudProvider::Metal
    }

    async fn authenticator(
        &self,
        machine: Machine<'_>,
    ) -> Result<Box<dyn Authenticator>, AuthenticationError> {
        let authenticator = HostAuthenticator::new(machine.root, machine.hostname)?;
        Ok(Box::new(authenticator))
    }

    async fn for_control_plane(
        &self,
        _options: &KopsControllerOptions,
        _calls: CloudCalls,
        hosts: &Arc<Enrolled>,
    ) -> Result<Arc<dyn ControlPlane>, ControlPlaneError> {
        Ok(Arc::new(HostControlPlane { hosts: hosts.clone() }))
    }
}
