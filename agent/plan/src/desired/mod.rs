//! From a [`NodeConfig`] to everything the node must have. Cannot fail: what could has been found in
//! [`crate::resolve`].
//!
//! A file for each component, each with one `add` that writes its resources into the state and reads
//! like the component's own documentation. A component knows another's paths only through `paths`.

mod azure;
mod certificates;
mod cloud_config;
mod container_os_directories;
mod containerd;
mod controller_service;
mod crictl;
mod discovery_service;
mod environment_file;
mod etc_hosts;
mod etcd_manager;
mod file_assets;
mod firewall;
mod flags;
mod gvisor;
mod hooks;
mod images;
mod ipv6_prefix;
mod kernel_modules;
mod keypair;
mod kops_channels;
mod kops_controller;
mod kube_apiserver;
mod kube_apiserver_healthcheck;
mod kube_controller_manager;
mod kube_proxy;
mod kube_scheduler;
mod kubectl;
mod kubelet;
mod leader_election;
mod linode;
mod logrotate;
mod nerdctl;
mod networking;
#[cfg(test)]
mod node_tests;
mod ntp;
mod nvidia;
mod openstack_cloud_config;
mod packages;
pub(crate) mod paths;
mod pod;
mod secrets;
mod serving;
mod sysctls;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod testing;
mod unit_file;
mod update_service;
mod volumes;
mod warm_pool;

use crate::resolve::NodeConfig;
use crate::resource::{Conflict, DesiredState};

pub use controller_service::{ControllerService, UNIT as CONTROLLER_UNIT};
use kube_apiserver::Published;
pub use paths::CONTAINERD_REGISTRIES;

/// Everything this node must have.
///
/// # Errors
/// The resources that a user's own fileAssets, hooks or units describe differently from kOps.
pub fn desired(node: &NodeConfig) -> Result<DesiredState, Vec<Conflict>> {
    let mut state = without_services_of_ours(node, Published::ApiServer);
    state.restart_by_drop_ins();
    state.checked()
}

/// The same, and on a control-plane machine control-plane mode as a service.
///
/// # Errors
/// As [`desired`]'s.
pub fn desired_with_controller(
    node: &NodeConfig,
    service: &ControllerService,
) -> Result<DesiredState, Vec<Conflict>> {
    let published = match service.serves_machines && node.is_control_plane() {
        true => Published::ApiServerAndBootstrapServer,
        false => Published::ApiServer,
    };
    let mut state = without_services_of_ours(node, published);
    controller_service::add(node, service, &mut state);
    state.restart_by_drop_ins();
    state.checked()
}

/// What kOps itself has a node have.
fn without_services_of_ours(node: &NodeConfig, published: Published) -> DesiredState {
    let mut state = DesiredState::default();
    kube_apiserver::add(node, published, &mut state);
    for add in [
        cloud_config::add,
        container_os_directories::add,
        containerd::add,
        crictl::add,
        discovery_service::add,
        etcd_manager::add,
        gvisor::add,
        ipv6_prefix::add,
        kops_channels::add,
        kops_controller::add,
        kube_apiserver_healthcheck::add,
        kube_controller_manager::add,
        kube_proxy::add,
        kube_scheduler::add,
        kubectl::add,
        kubelet::add,
        logrotate::add,
        nerdctl::add,
        nvidia::add,
        secrets::add,
        warm_pool::add,
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
        // Last: the directories of others are theirs.
        file_assets::add,
    ] {
        add(node, &mut state);
    }
    state
}
