//! The error of a request that a machine makes to its cloud.

use std::error::Error;
use std::fmt;

use kops_agent_spec::CloudProvider;
use kops_agent_spec::failure::{Failing, Kind};
use thiserror::Error;

/// Why a machine's request to its cloud failed. The request was for a fact or for an action.
#[derive(Debug, Error)]
pub enum CloudError {
    /// kops-agent supports this action only on other clouds. The cloud itself may offer it.
    #[error("kops-agent cannot {action} on {provider}")]
    Unsupported { provider: CloudProvider, action: &'static str },
    /// The metadata service has no item for a URL `metadata://`.
    #[error("{url}: {problem}")]
    NoMetadata { url: String, problem: &'static str },
    /// The cloud cannot be reached, or rejects the request. The inner error has the whole message.
    #[error(transparent)]
    Failed(OfOneCloud),
}

/// The error of a cloud's client, with its [`Kind`].
#[derive(Debug)]
pub struct OfOneCloud {
    kind: Kind,
    error: Box<dyn Error + Send + Sync>,
}

impl OfOneCloud {
    pub(crate) fn new(error: impl Failing + Send + Sync + 'static) -> OfOneCloud {
        OfOneCloud { kind: error.kind(), error: Box::new(error) }
    }
}

impl Failing for OfOneCloud {
    fn kind(&self) -> Kind {
        self.kind
    }
}

impl fmt::Display for OfOneCloud {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl Error for OfOneCloud {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.source()
    }
}

impl CloudError {
    pub(crate) fn new(error: impl Failing + Send + Sync + 'static) -> CloudError {
        CloudError::Failed(OfOneCloud::new(error))
    }
}

impl Failing for CloudError {
    fn kind(&self) -> Kind {
        match self {
            CloudError::Unsupported { .. } | CloudError::NoMetadata { .. } => Kind::CloudUnsupported,
            CloudError::Failed(error) => error.kind(),
        }
    }
}
