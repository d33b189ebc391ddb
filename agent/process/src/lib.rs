//! Services for every long run of the agent, on a node and on a control plane. The services are logs, the report of a panic, stop signals,
//! the status for systemd, the output of results and errors, exit codes, and which program listens on a port.

pub mod exit;
pub mod logging;
pub mod output;
pub mod panics;
pub mod port;
pub mod program;
pub mod service_manager;
pub mod stop;
pub mod version;
