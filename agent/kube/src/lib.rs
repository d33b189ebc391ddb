//! Access to the API server, for both modes: clients by a kubeconfig or a service account, Leases, Events, lists and
//! watches, the Node of the machine itself, and the bootstrap servers of the control planes.

mod client;

pub mod api_error;
pub mod bootstrap_servers;
pub mod events;
pub mod failure;
pub mod lease;
pub mod list_pages;
pub mod node_api;
pub mod node_watch;
pub mod own_node;

pub use client::{
    ApiServers, Chosen, Kubeconfig, client, client_asking_once, client_of, client_without_login,
};
pub use kube::Client;
