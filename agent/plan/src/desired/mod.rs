//! From a [`NodeConfig`] to everything the node must have. Cannot fail: what could has been found in
//! [`crate::resolve`].
//!
//! A file for each component, each with one `add` that writes its resources into the state and reads
//! like the component's own documentation. A component knows another's paths only through `paths`.

mod azure;
mod certificates;
mod etc_hosts;
mod etcd_manager;
mod file_assets;
mod firewall;
mod flags;
mod hooks;
mod images;
mod kernel_modules;
mod kube_scheduler;
mod leader_election;
mod linode;
mod logrotate;
mod networking;
mod ntp;
mod packages;
mod paths;
mod pod;
mod sysctls;
mod unit_file;
mod update_service;
mod volumes;

use crate::resolve::NodeConfig;
use crate::resource::{Conflict, DesiredState};

/// Everything this node must have.
///
/// # Errors
/// The resources that a user's own fileAssets, hooks or units describe differently from kOps.
pub fn desired(node: &NodeConfig) -> Result<DesiredState, Vec<Conflict>> {
    let mut state = DesiredState::default();
    for add in [
        azure::add,
        etc_hosts::add,
        etcd_manager::add,
        firewall::add,
        hooks::add,
        images::add,
        kernel_modules::add,
        kube_scheduler::add,
        linode::add,
        logrotate::add,
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
    state.checked()
}
