//! What the pods' network needs of the node itself; the rest of it is addons of the cluster's.
//!
//! A file for each network. Flannel, GCE's and kindnet need no more than CNI plugins, if anything.
//!
//! Source: nodeup/pkg/model/networking.

mod amazon_vpc;
mod calico;
mod cilium;
mod cni_plugins;
mod eni_networking;
mod kube_router;

use crate::resolve::NodeConfig;
use crate::resource::DesiredState;

/// Adds what this cluster's network needs.
pub(super) fn add(node: &NodeConfig, state: &mut DesiredState) {
    for add in [amazon_vpc::add, calico::add, cilium::add, cni_plugins::add, kube_router::add] {
        add(node, state);
    }
}
