//! Why a cloud has not told or done what one of its machines needs.

use std::error::Error;

use kops_agent_spec::CloudProvider;
use thiserror::Error;

/// A cloud has not told or done what one of its machines needs.
#[derive(Debug, Error)]
pub enum CloudError {
    /// No machine of the cloud has that.
    #[error("machines of {provider} have no {what} to ask their cloud for")]
    NotOffered { provider: CloudProvider, what: &'static str },
    /// The cloud cannot be asked, or refuses. Inside: its own error, which says all of it.
    #[error(transparent)]
    Failed(Box<dyn Error + Send + Sync>),
}

impl CloudError {
    /// For an error of a cloud's own.
    pub(crate) fn of(error: impl Error + Send + Sync + 'static) -> CloudError {
        CloudError::Failed(Box::new(error))
    }
}
