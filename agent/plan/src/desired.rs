//! Builds the desired state of a node from its [`NodeConfig`]. [`crate::resolve`] has already
//! checked the configuration, so only conflicts between resources can fail here.
//!
//! Each component has a file with one function `add`, which adds the component's resources to the state. A
//! component knows another component's paths only through `paths`.

mod addons_service;
mod azure;
mod certificates;
mod cloud_config;
mod container_os_directories;
mod containerd;
mod controller_service;
mod discovery_service;
mod environment_file;
mod etc_hosts;
mod etcd_manager;
mod file_assets;
mod firewall;
mod flags;
mod follow_service;
mod gvisor;
mod hooks;
mod images;
mod ipv6_prefix;
mod kernel_modules;
pub(crate) mod kops_channels;
mod kops_controller;
mod kube_apiserver;
mod kube_apiserver_healthcheck;
mod kube_controller_manager;
mod kube_proxy;
mod kube_scheduler;
mod kubectl;
mod kubelet;
mod linode;
mod logrotate;
mod networking;
#[cfg(test)]
mod node_tests;
mod ntp;
mod nvidia;
mod openstack_cloud_config;
mod own_service;
mod packages;
pub(crate) mod paths;
mod pod;
mod protokube;
mod runtime_commands;
mod secrets;
mod serving;
mod sysctls;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod testing;
mod unit_file;
mod update_service;
mod upkeep;
mod volumes;

use crate::resolve::NodeConfig;
use crate::resource::{Conflict, DesiredState};

pub(crate) use addons_service::MIRROR as ADDONS_MIRROR;
pub use addons_service::{AddonsService, UNIT as ADDONS_UNIT};
pub use controller_service::{
    CONF as CONTROLLER_CONF, ControllerService, KUBECONFIG as CONTROLLER_KUBECONFIG, UNIT as CONTROLLER_UNIT,
};
pub use follow_service::{FollowService, UNIT as FOLLOW_UNIT};
use kops_channels::AppliedBy;
pub use kops_controller::NODE_AUTHORITIES;
use kube_apiserver::Published;
pub use openstack_cloud_config::LOGIN_VARIABLE;
pub use own_service::own_resources;
pub use paths::{BOOT_CONFIG, CONTAINERD_REGISTRIES, KUBELET_KUBECONFIG, PACKAGED_PROGRAM};
pub use protokube::UNIT as PROTOKUBE_UNIT;
pub use upkeep::Upkeep;

/// kops-agent's own services, in addition to kOps' components.
#[derive(Clone, Copy, Debug, Default)]
pub struct Services<'a> {
    pub controller: Option<&'a ControllerService>,
    pub addons: Option<&'a AddonsService>,
    /// The service that follows rollouts. Every machine may have it.
    pub follow: Option<&'a FollowService>,
    /// Timers for a kops-agent that no package installed. A machine of any role can have these timers.
    pub upkeep: Option<&'a Upkeep>,
}

/// Returns the desired state of this node. Fails with the resources that a user's own fileAssets, hooks or units
/// describe differently from kOps.
pub fn desired(node: &NodeConfig) -> Result<DesiredState, Vec<Conflict>> {
    desired_with(node, Services::default())
}

pub fn desired_with(node: &NodeConfig, services: Services<'_>) -> Result<DesiredState, Vec<Conflict>> {
    let is_served = services.controller.is_some_and(|service| service.serves_machines);
    let published = match is_served && node.is_control_plane() {
        true => Published::ApiServerAndBootstrapServer,
        false => Published::ApiServer,
    };
    let applied_by = match services.addons.is_some() && node.is_control_plane() {
        true => AppliedBy::Service,
        false => AppliedBy::Kops,
    };
    let mut state = DesiredState::default();
    kube_apiserver::add(node, published, &mut state);
    kops_channels::add(node, applied_by, &mut state);
    protokube::add(node, applied_by, &mut state);
    add_kops_components(node, &mut state);
    if let Some(service) = services.controller {
        controller_service::add(node, service, &mut state);
    }
    if let Some(service) = services.addons {
        addons_service::add(node, service, &mut state);
    }
    if let Some(service) = services.follow {
        follow_service::add(node, service, &mut state);
    }
    if let Some(upkeep) = services.upkeep {
        upkeep::add(node, upkeep, &mut state);
    }
    state.restart_by_drop_ins();
    state.checked()
}

/// Adds kOps' own components, except those that kops-agent's services change.
fn add_kops_components(node: &NodeConfig, state: &mut DesiredState) {
    for add in [
        cloud_config::add,
        container_os_directories::add,
        containerd::add,
        runtime_commands::add_crictl,
        discovery_service::add,
        etcd_manager::add,
        gvisor::add,
        ipv6_prefix::add,
        kops_controller::add,
        kube_apiserver_healthcheck::add,
        kube_controller_manager::add,
        kube_proxy::add,
        kube_scheduler::add,
        kubectl::add,
        kubelet::add,
        logrotate::add,
        runtime_commands::add_nerdctl,
        nvidia::add,
        secrets::add,
        azure::add,
        etc_hosts::add,
        firewall::add,
        hooks::add,
        images::add,
        kernel_modules::add,
        linode::add,
        networking::add,
        ntp::add,
        packages::add,
        sysctls::add,
        update_service::add,
        volumes::add,
        // This component is last, because `file_assets` does not change directories that other components
        // describe.
        file_assets::add,
    ] {
        add(node, state);
    }
}
