//! How the process ends.

use kops_agent_bootstrap_client::BootstrapError;
use kops_agent_plan::resolve::Problems;
use kops_agent_process::exit::{WrongConfiguration, WrongUsage};
use kops_agent_spec::{HashMismatch, SpecError};
use kops_agent_store::StoreError;

pub use kops_agent_process::exit::{CONFIGURATION, CONVERGED, DIFFERENT, FAILED, USAGE};

use crate::source::SpecDiffers;

/// The code for an error, from what lies at its bottom.
pub fn code_of(error: &anyhow::Error) -> u8 {
    if error.chain().any(|cause| cause.is::<WrongUsage>()) {
        return USAGE;
    }
    let wrong = error.chain().any(|cause| {
        cause.is::<Problems>()
            || cause.is::<SpecError>()
            || cause.is::<HashMismatch>()
            || cause.is::<SpecDiffers>()
            || cause.is::<WrongConfiguration>()
            || cause.downcast_ref::<BootstrapError>().is_some_and(BootstrapError::is_configuration)
            || cause.downcast_ref::<StoreError>().is_some_and(StoreError::is_configuration)
            || cause
                .downcast_ref::<kops_agent_host::Error>()
                .is_some_and(kops_agent_host::Error::is_configuration)
    });
    if wrong { CONFIGURATION } else { FAILED }
}

/// Whether no later try of the same process can end otherwise: what is wrong is in its own flags or environment. All else
/// may change while a machine waits: what the store has, which machines may read it, and what its user-data is.
pub fn is_final(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        matches!(cause.downcast_ref(), Some(StoreError::BadMirror { .. } | StoreError::BadSettings(_)))
    })
}

/// Whether what failed keeps no pod from this machine and is tried again by the next run that is due: the timer's, or the
/// next boot's. Other stages of the boot wait for this run's end, and must not wait for a unit that never starts.
pub fn leaves_a_working_node(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.downcast_ref().is_some_and(kops_agent_host::Error::leaves_a_working_node))
}

/// Whether only images are missing of a node, which pods may need: upstream's nodeup tries for ever to load and to pull
/// them (upup/pkg/fi/executor.go, cmd/nodeup/main.go).
pub fn misses_images(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.downcast_ref().is_some_and(kops_agent_host::Error::misses_images))
}
