//! Why a file of a state store cannot be read, and the remedy.

use std::io;
use std::time::Duration;

use thiserror::Error;

use kops_agent_net::aws_sdk::SetupError;
use kops_agent_net::tls::NoCaBundle;
use kops_agent_spec::failure::{Failing, Kind};

#[derive(Debug, Error)]
pub enum StoreError {
    #[error(
        "{url} does not exist{place}; check the ConfigBase, and whether `kops update cluster --yes` has written the store"
    )]
    NotFound {
        url: String,
        /// The path at which the agent looked for the file. The text is empty, or begins with a space.
        place: String,
    },
    #[error("{url}: access denied (403): {}{advice}", as_cause(said))]
    Forbidden {
        url: String,
        /// The store's own message. It may be empty.
        said: String,
        advice: String,
    },
    #[error("{url}: the store refuses this machine's credentials: {problem}")]
    Credentials {
        url: String,
        /// The cause and the remedy. The text never contains the credentials.
        problem: String,
    },
    #[error("{url}: there is no bucket {bucket:?} (404); check the ConfigBase or --config-base")]
    WrongBucket { url: String, bucket: String },
    /// The store gives no response, or an invalid response.
    #[error(
        "{url}: the store cannot be reached: {cause} ({attempts} attempts in {} s); check the network, DNS and proxy",
        waited.as_secs_f32().round()
    )]
    Unreachable {
        url: String,
        cause: String,
        attempts: u32,
        /// The total time of all attempts.
        waited: Duration,
    },
    /// The store answers with an error that no other variant describes.
    #[error("{url}: the store answers {status} {code}: {message}")]
    Refused {
        url: String,
        status: u16,
        /// The store's error code. It may be empty.
        code: String,
        /// The store's message. It may be empty.
        message: String,
    },
    #[error(
        "{url}: the answer is a web page instead of this file ({said}); a proxy or captive portal may answer \
         in place of the store. Check the network, the proxy and DNS"
    )]
    Page {
        url: String,
        /// The text at the beginning of the web page.
        said: String,
    },
    #[error("{url} is larger than {} MiB, so it is no file of kOps; check the URL", super::backend::LARGEST_FILE / 1024 / 1024)]
    TooLarge { url: String },
    #[error("{url:?} is no URL of a state store: {problem}")]
    BadUrl {
        url: String,
        /// The problem, and the correct form.
        problem: String,
    },
    #[error(
        "{url}: {scheme}:// stores are not supported yet; supported are {}; copy the store to a folder and use --store-mirror \
         URL=DIR",
        supported
    )]
    Unsupported {
        url: String,
        scheme: String,
        /// The supported schemes, as a list for the message.
        supported: String,
    },
    #[error(
        "{url}: {scheme}:// is no state store of a node: {reason}; or copy the store to a folder \
         and use --store-mirror URL=DIR"
    )]
    NeverRead {
        url: String,
        scheme: &'static str,
        /// The cause and the remedy.
        reason: &'static str,
    },
    /// The agent needs the list of a folder, but this kind of store has no lists.
    #[error(
        "{url}: the list of this folder is needed, but {scheme}:// stores have no lists; use a store \
         that has lists, or copy this store to a folder and use --store-mirror URL=DIR"
    )]
    NoLists { url: String, scheme: &'static str },
    #[error("--store-mirror {argument}: use the form URL=DIR, such as s3://BUCKET=/srv/state")]
    BadMirror { argument: String },
    /// The environment variables for a store are incomplete or wrong.
    #[error("the store's settings in the environment are wrong: {0}")]
    BadSettings(String),
    #[error(transparent)]
    NoCaBundle(#[from] NoCaBundle),
    /// A file of this machine cannot be read.
    #[error("cannot read {url}{place}: {source}")]
    Io {
        url: String,
        /// The path at which the agent looked for the file. The text is empty, or begins with a space.
        place: String,
        source: io::Error,
    },
}

/// The store's message, with a semicolon after it for the text that follows. Empty if the store sent no message.
fn as_cause(said: &str) -> String {
    if said.is_empty() { String::new() } else { format!("the store says \"{said}\"; ") }
}

impl From<SetupError> for StoreError {
    fn from(error: SetupError) -> StoreError {
        StoreError::BadSettings(error.to_string())
    }
}

impl Failing for StoreError {
    fn kind(&self) -> Kind {
        match self {
            StoreError::NotFound { .. } => Kind::StoreNotFound,
            StoreError::Forbidden { .. } => Kind::StoreForbidden,
            StoreError::Credentials { .. } => Kind::StoreCredentials,
            StoreError::WrongBucket { .. } => Kind::StoreWrongBucket,
            StoreError::Unreachable { .. } => Kind::StoreUnreachable,
            StoreError::Refused { .. } => Kind::StoreRefused,
            StoreError::Page { .. } => Kind::StorePage,
            StoreError::TooLarge { .. } => Kind::StoreTooLarge,
            StoreError::BadUrl { .. } => Kind::StoreUrl,
            StoreError::Unsupported { .. } | StoreError::NeverRead { .. } => Kind::StoreUnsupported,
            StoreError::NoLists { .. } => Kind::StoreNoLists,
            StoreError::BadMirror { .. } => Kind::StoreMirror,
            StoreError::BadSettings(_) => Kind::StoreSettings,
            StoreError::NoCaBundle(error) => error.kind(),
            StoreError::Io { .. } => Kind::StoreFile,
        }
    }
}
