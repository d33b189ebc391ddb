//! The proof of identity that a machine sends to kops-controller. Each cloud has its own.

use reqwest::header::HeaderValue;
use thiserror::Error;

use crate::metadata::MetadataError;
use crate::tpm::TpmFailure;
use kops_agent_net::aws_sdk::SetupError;
use kops_agent_net::tls::NoCaBundle;
use kops_agent_spec::failure::{Failing, Kind};

#[derive(Debug, Error)]
pub enum AuthenticationError {
    /// AWS requests need a region, and the facts have no region.
    #[error("the facts of this machine have no AWS region (cloud.aws.region)")]
    NoRegion,
    /// GCE identifies an instance by project, zone and name, and at least one of them is missing in the facts.
    #[error(
        "the facts of this machine do not name its instance (cloud.gce has the project {project:?}, the zone \
         {zone:?} and the name {name:?})"
    )]
    NoInstance { project: String, zone: String, name: String },
    /// The TPM of a GCE instance does not sign.
    #[error(transparent)]
    Tpm(#[from] TpmFailure),
    /// The cloud identifies machines by id, and the facts have no valid id.
    #[error("the facts of this machine have no valid {machine} id ({fact} is {value:?})")]
    NoId {
        /// The cloud's word for a machine, such as `droplet`.
        machine: &'static str,
        /// The path of the id in the facts.
        fact: &'static str,
        value: String,
    },
    /// Azure identifies a machine by its resource id, and the facts have no valid resource id.
    #[error("the facts of this machine have no valid resource id (cloud.azure.resourceID is {value:?})")]
    NoResourceId { value: String },
    /// A machine outside any cloud signs with its own key, and this machine has no usable key.
    #[error(
        "cannot use this machine's key {file}: {why}; `kops toolbox enroll` creates the key and its Host object"
    )]
    MachineKey {
        /// The expected path of the key.
        file: String,
        why: String,
    },
    /// OpenStack identifies a server by the id in its metadata, and neither metadata source provides it.
    #[error(
        "cannot find the id of this server: not on a config drive ({drive}), not at the metadata service ({service})"
    )]
    NoServerMetadata {
        /// Why the config drive does not provide the id.
        drive: String,
        /// Why the metadata service does not provide the id.
        service: MetadataError,
    },
    #[error(
        "no AWS credentials to sign a request: {0}; give the instance the role of its group, as kOps does, and \
         access to its metadata service"
    )]
    NoCredentials(String),
    #[error("{0}")]
    NotSigned(String),
    /// The STS endpoint in the environment is not a valid URL.
    #[error("{variable} is {value:?}, which is not a URL")]
    Endpoint { variable: String, value: String },
    /// The credentials come from a TLS server, and this host has no CA bundle.
    #[error(transparent)]
    NoCaBundle(#[from] NoCaBundle),
    #[error("the AWS settings in the environment are wrong: {0}")]
    Settings(#[from] SetupError),
}

impl Failing for AuthenticationError {
    fn kind(&self) -> Kind {
        match self {
            AuthenticationError::NoRegion
            | AuthenticationError::NoInstance { .. }
            | AuthenticationError::NoId { .. }
            | AuthenticationError::NoResourceId { .. }
            | AuthenticationError::NoServerMetadata { .. } => Kind::IdentityUnknown,
            AuthenticationError::Tpm(_)
            | AuthenticationError::MachineKey { .. }
            | AuthenticationError::NoCredentials(_)
            | AuthenticationError::NotSigned(_) => Kind::IdentityUnproven,
            AuthenticationError::Endpoint { .. } => Kind::IdentityEndpoint,
            AuthenticationError::NoCaBundle(error) => error.kind(),
            AuthenticationError::Settings(_) => Kind::CloudSettings,
        }
    }
}

/// Proves to kops-controller which machine this is.
#[async_trait::async_trait]
pub trait Authenticator: Send + Sync {
    /// The value of `Authorization` for a request with this body. Each value is valid for one request.
    async fn token(&self, body: &[u8]) -> Result<HeaderValue, AuthenticationError>;

    /// Called after every server was asked once, if no server accepted the token and at least one rejected it. If the token format depends
    /// on the kOps release, the next token has a different format.
    fn refused(&self) {}
}
