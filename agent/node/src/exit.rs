//! Exit codes of errors, and which errors allow a retry.

use kops_agent_plan::resolve::Problems;
use kops_agent_process::exit::{WrongConfiguration, WrongUsage};
use kops_agent_source::bootstrap_client::BootstrapError;
use kops_agent_spec::{HashMismatch, SpecError};
use kops_agent_store::StoreError;

pub use kops_agent_process::exit::{CONFIGURATION, CONVERGED, DIFFERENT, FAILED, USAGE};

use kops_agent_source::SpecDiffers;

/// The exit code for an error, from the causes in its chain.
pub fn code_of(error: &anyhow::Error) -> u8 {
    let is_usage = |cause: &(dyn std::error::Error + 'static)| {
        cause.is::<WrongUsage>() || matches!(cause.downcast_ref(), Some(StoreError::BadMirror { .. }))
    };
    if error.chain().any(is_usage) {
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

/// Whether no retry in this process can succeed, because its own flags or environment are wrong. Everything else may
/// change while a machine waits: the store's files, its permissions, and the user-data.
pub fn is_final(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        matches!(cause.downcast_ref(), Some(StoreError::BadMirror { .. } | StoreError::BadSettings(_)))
    })
}

/// Whether pods can run here despite the failure. The next run of the timer, or the run at the next boot, retries. A
/// run at boot ends, unless images are missing ([`misses_images`]): other stages of the boot wait for its end, and must
/// not wait for a unit that never starts.
pub fn leaves_a_working_node(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.downcast_ref().is_some_and(kops_agent_host::Error::leaves_a_working_node))
}

/// Whether the node lacks only images, which pods may need. Upstream's nodeup retries to load and pull them forever
/// (upup/pkg/fi/executor.go, cmd/nodeup/main.go).
pub fn misses_images(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.downcast_ref().is_some_and(kops_agent_host::Error::misses_images))
}
