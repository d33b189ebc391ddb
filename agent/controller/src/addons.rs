//! Applies add-ons in place of kOps' channels pod. `reading` reads channels and manifests from the state store;
//! `kops_agent_cluster::addons` decides which add-ons are due; `updating` changes the cluster.
//!
//! `kops-agent addons` opens a [`Scene`]. [`status`], [`diff`], [`apply`], [`recreate`] and [`remove`] are its verbs.
//! [`run_service`] is the loop that replaces the pod.

pub mod apply;
mod applying;
mod authority;
mod channels;
pub mod diff;
mod images;
mod installed;
mod marking;
mod objects;
mod pruning;
mod reading;
pub mod recreate;
pub mod remove;
mod resources;
mod running;
mod states;
pub mod status;
mod updating;

pub use channels::ChannelOptions;
pub use images::images;
#[cfg(test)]
pub use running::metrics::tests::every_metric;
pub use running::{ServiceOptions, run as run_service};
pub use states::Scene;
