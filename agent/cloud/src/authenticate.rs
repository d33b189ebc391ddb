//! The proof with which a machine asks kops-controller, by its cloud.

use futures_util::future::BoxFuture;
use reqwest::header::HeaderValue;
use thiserror::Error;

use crate::metadata::MetadataError;
use crate::tpm::TpmFailure;
use kops_agent_net::aws_sdk::SetupError;
use kops_agent_net::tls::NoCaBundle;

/// Why a machine has no proof.
#[derive(Debug, Error)]
pub enum AuthenticationError {
    /// AWS has regions, and this machine's is not known.
    #[error("the region of AWS is not among this machine's facts (cloud.aws.region)")]
    NoRegion,
    /// An instance of GCE is known by three names, and not all of this one's are.
    #[error(
        "a name of this instance is not among this machine's facts (cloud.gce has the project {project:?}, the zone {zone:?} \
         and the name {name:?})"
    )]
    NoInstance { project: String, zone: String, name: String },
    /// Its TPM does not sign for an instance of GCE.
    #[error(transparent)]
    Tpm(#[from] TpmFailure),
    /// The cloud knows machines by ids, and this one's is not known.
    #[error("the id of this {machine} is not among this machine's facts ({fact} is {value:?})")]
    NoId {
        /// What the cloud calls a machine.
        machine: &'static str,
        /// Where the id is among facts.
        fact: &'static str,
        value: String,
    },
    /// A machine of Azure is known by its resource id, and this one's is not known.
    #[error("the resource id of this machine is not among its facts (cloud.azure.resourceID is {value:?})")]
    NoResourceId { value: String },
    /// A machine of no cloud has a key, and this one has none that signs.
    #[error(
        "this machine's key {file} cannot be used: {why}; `kops toolbox enroll` makes it, and the Host that goes with it"
    )]
    MachineKey {
        /// Where it should be.
        file: String,
        why: String,
    },
    /// A server of OpenStack knows its id by its metadata, and neither source of them tells.
    #[error(
        "the id of this server is known neither by a config drive ({drive}) nor by the metadata service ({service})"
    )]
    NoServerMetadata {
        /// Why the config drive does not tell.
        drive: String,
        /// Why the metadata service does not.
        service: MetadataError,
    },
    /// There are no credentials.
    #[error(
        "there are no credentials to sign with: {0}; give the instance the role of its group, as kOps does, and let it \
         reach its metadata service"
    )]
    NoCredentials(String),
    /// The proof cannot be written.
    #[error("{0}")]
    NotSigned(String),
    /// The endpoint of STS is none.
    #[error("{variable} is {value:?}, which is no URL")]
    Endpoint { variable: String, value: String },
    /// Credentials come from a server that needs TLS.
    #[error(transparent)]
    NoCaBundle(#[from] NoCaBundle),
    /// No credentials can be asked for.
    #[error("the environment's settings of AWS are wrong: {0}")]
    Settings(#[from] SetupError),
}

impl AuthenticationError {
    /// Whether the configuration has to change before trying again can help.
    pub fn is_configuration(&self) -> bool {
        matches!(self, AuthenticationError::Endpoint { .. })
    }
}

/// Proves to kops-controller which machine this is.
pub trait Authenticator: Send + Sync {
    /// The value of the header `Authorization` for a request of this body. Each is good for one request.
    fn token<'a>(&'a self, body: &'a [u8]) -> BoxFuture<'a, Result<HeaderValue, AuthenticationError>>;

    /// Hears that servers have refused a token, and none has taken it. Where releases of kOps take different forms, the next token has another one.
    fn refused(&self) {}
}
