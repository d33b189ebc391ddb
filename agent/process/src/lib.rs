//! What every long run of the agent has, on a node and on a control plane: it is asked to stop, tells systemd how it goes,
//! says what went wrong, and ends with a code.

pub mod exit;
pub mod output;
pub mod program;
pub mod service_manager;
pub mod stop;
pub mod version;
