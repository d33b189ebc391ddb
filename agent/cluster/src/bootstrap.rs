//! How a machine without access to the state store becomes a node: the machine sends a request to kops-controller, which answers machines
//! that the cloud verifies.
//!
//! This module has the formats of the protocol. Clients and servers, including kOps' own programs, must agree on them byte for byte.
//! [`message`] has requests and responses. Each kind of machine has its own proof of identity: [`aws_token`], [`azure_token`],
//! [`gce_token`], [`host_token`] (machines without a cloud), and [`id_token`] (clouds that list machines by id). [`challenge`] is the
//! call-back. [`certificates`] and [`node_config`] decide the response. [`renewal`] is kops-agent's own extension: a working node gets
//! new certificates.

pub mod aws_token;
pub mod azure_token;
pub mod certificates;
pub mod challenge;
pub mod gce_token;
pub mod host_token;
pub mod id_token;
pub mod message;
pub mod node_config;
pub mod renewal;
mod signed_claim;

/// The port of kops-controller (upstream: `pkg/wellknownports/wellknownports.go`).
pub const PORT: u16 = 3988;

/// The URL of kops-controller at a name or address.
pub fn server_url(host: &str) -> String {
    match host.contains(':') {
        true => format!("https://[{host}]:{PORT}/"),
        false => format!("https://{host}:{PORT}/"),
    }
}

/// The DNS name of kops-controller in a cluster. kops-controller's certificate contains this name.
pub fn server_name(cluster: &str) -> String {
    format!("kops-controller.internal.{cluster}")
}
