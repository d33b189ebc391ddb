//! From a [`NodeConfig`] to everything the node must have. Cannot fail: what could has been found in
//! [`crate::resolve`].
//!
//! A file for each component, each with one `add` that writes its resources into the state and reads
//! like the component's own documentation. A component knows another's paths only through `paths`.

mod certificates;
mod etcd_manager;
mod flags;
mod kube_scheduler;
mod leader_election;
mod logrotate;
mod paths;
mod pod;
mod unit_file;

use crate::resolve::NodeConfig;
use crate::resource::{Conflict, DesiredState};

/// Everything this node must have.
///
/// # Errors
/// The resources that a user's own fileAssets, hooks or units describe differently from kOps.
pub fn desired(node: &NodeConfig) -> Result<DesiredState, Vec<Conflict>> {
    let mut state = DesiredState::default();
    for add in [etcd_manager::add, kube_scheduler::add, logrotate::add] {
        add(node, &mut state);
    }
    state.checked()
}
