//! The error of a request that a machine makes to its cloud.

use std::error::Error;

use kops_agent_spec::CloudProvider;
use thiserror::Error;

/// Why a cloud did not provide a fact to its machine, or did not do something for it.
#[derive(Debug, Error)]
pub enum CloudError {
    /// kops-agent supports this action only on other clouds. The cloud itself may offer it.
    #[error("kops-agent cannot {action} on {provider}")]
    Unsupported { provider: CloudProvider, action: &'static str },
    /// A URL `metadata://` names nothing that the metadata service has.
    #[error("{url}: {problem}")]
    NoMetadata { url: String, problem: &'static str },
    /// The cloud cannot be reached, or rejects the request. The inner error has the whole message.
    #[error(transparent)]
    Failed(Box<dyn Error + Send + Sync>),
}

impl CloudError {
    /// Wraps an error of one cloud.
    pub(crate) fn new(error: impl Error + Send + Sync + 'static) -> CloudError {
        CloudError::Failed(Box::new(error))
    }
}
