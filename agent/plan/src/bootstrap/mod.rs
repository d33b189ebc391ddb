//! How a machine that has no access to the state store becomes a node: it asks kops-controller, which answers machines that the
//! cloud vouches for.
//!
//! Here is what both sides must agree on, byte for byte, with kOps' own programs as well as with ours: [`message`] is
//! what they say to each other, [`aws_token`] how a machine on AWS proves its identity, [`azure_token`] how one on Azure does, [`gce_token`] how one on GCE does,
//! [`host_token`] how one of no cloud does, [`id_token`] what one says in a cloud that lists machines by ids, and
//! [`challenge`] how one is called back. [`certificates`] and [`node_config`] decide what it is given. [`renewal`] is ours alone: how a node that is at work gets it again.

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

/// The URL of the kops-controller at a name or an address.
pub fn server_url(host: &str) -> String {
    match host.contains(':') {
        true => format!("https://[{host}]:{PORT}/"),
        false => format!("https://{host}:{PORT}/"),
    }
}

/// The name that kops-controller has within its cluster, and in its certificate.
pub fn server_name(cluster: &str) -> String {
    format!("kops-controller.internal.{cluster}")
}
