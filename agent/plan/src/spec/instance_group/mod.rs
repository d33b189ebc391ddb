//! An instance group: machines that are all configured alike.

mod instance_group_spec;

pub use instance_group_spec::*;
