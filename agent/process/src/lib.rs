//! Services for every long run of the agent, on a node and on a control plane. The services are stop signals, the status for systemd, the
//! output of results and errors, and exit codes.

pub mod exit;
pub mod output;
pub mod program;
pub mod service_manager;
pub mod stop;
pub mod version;
