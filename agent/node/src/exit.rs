//! Exit codes of errors.

pub use kops_agent_process::exit::{CONFIGURATION, CONVERGED, DIFFERENT, FAILED, USAGE};
use kops_agent_spec::failure::Remedy;

use crate::failure::kind_of;

pub fn code_of(error: &anyhow::Error) -> u8 {
    match kind_of(error).remedy() {
        Remedy::Again => FAILED,
        Remedy::Configuration | Remedy::Environment => CONFIGURATION,
        Remedy::Usage => USAGE,
    }
}
