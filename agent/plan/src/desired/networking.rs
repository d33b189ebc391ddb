//! The node's resources for the pods' network. Addons of the cluster are the other part of a network.
//!
//! Each network has its own file. Flannel, GCE's network and kindnet need at most the CNI plugins.
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

pub(super) fn add(node: &NodeConfig, state: &mut DesiredState) {
    for add in [amazon_vpc::add, calico::add, cilium::add, cni_plugins::add, kube_router::add] {
        add(node, state);
    }
}
