//! Machines outside any cloud: their `Host` objects of the API server identify them ([`crate::hosts`]).

pub mod authenticate;
pub mod identify;

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
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

impl Cloud for Metal {
    fn provider(&self) -> CloudProvider {
        CloudProvider::Metal
    }

    fn authenticator<'a>(
        &'a self,
        machine: Machine<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn Authenticator>, AuthenticationError>> {
        async move {
            let authenticator = HostAuthenticator::of(machine.root, machine.hostname)?;
            Ok(Box::new(authenticator) as Box<dyn Authenticator>)
        }
        .boxed()
    }

    fn for_control_plane<'a>(
        &'a self,
        _options: &'a KopsControllerOptions,
        _calls: CloudCalls,
        hosts: &'a Arc<Enrolled>,
    ) -> BoxFuture<'a, Result<Arc<dyn ControlPlane>, ControlPlaneError>> {
        async { Ok(Arc::new(HostControlPlane { hosts: hosts.clone() }) as Arc<dyn ControlPlane>) }.boxed()
    }
}
