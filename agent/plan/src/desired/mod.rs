//! From a [`NodeConfig`] to everything the node must have. Cannot fail: what could has been found in
//! [`crate::resolve`].
//!
//! A file for each component, each with one `add` that writes its resources into the state and reads
//! like the component's own documentation. A component knows another's paths only through `paths`.

mod certificates;
mod cloud_config;
mod container_os_directories;
mod containerd;
mod crictl;
mod environment_file;
mod etcd_manager;
mod flags;
mod gvisor;
mod ipv6_prefix;
mod kube_proxy;
mod kube_scheduler;
mod kubectl;
mod kubelet;
mod leader_election;
mod logrotate;
mod nerdctl;
mod nvidia;
mod openstack_cloud_config;
mod paths;
mod pod;
mod unit_file;
mod warm_pool;

use crate::resolve::NodeConfig;
use crate::resource::{Conflict, DesiredState};

/// Everything this node must have.
///
/// # Errors
/// The resources that a user's own fileAssets, hooks or units describe differently from kOps.
pub fn desired(node: &NodeConfig) -> Result<DesiredState, Vec<Conflict>> {
    let mut state = DesiredState::default();
    for add in [
        cloud_config::add,
        container_os_directories::add,
        containerd::add,
        crictl::add,
        etcd_manager::add,
        gvisor::add,
        ipv6_prefix::add,
        kube_proxy::add,
        kube_scheduler::add,
        kubectl::add,
        kubelet::add,
        logrotate::add,
        nerdctl::add,
        nvidia::add,
        warm_pool::add,
    ] {
        add(node, &mut state);
    }
    state.checked()
}
