//! Why a file of a state store cannot be had, and what to do about it.

use std::io;
use std::time::Duration;

use thiserror::Error;

use kops_agent_net::aws_sdk::SetupError;
use kops_agent_net::tls::NoCaBundle;

/// Why a file of a state store cannot be had.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The store answers, but has no such file.
    #[error(
        "{url} does not exist{place}; check the ConfigBase, and whether `kops update cluster --yes` has written the store"
    )]
    NotFound {
        url: String,
        /// Where else it was looked for; empty, or begins with a space.
        place: String,
    },
    /// The store refuses this machine this file.
    #[error("{url}: access denied (403): {}{advice}", as_cause(said))]
    Forbidden {
        url: String,
        /// The store's own words about it; may be empty.
        said: String,
        advice: String,
    },
    /// The store does not accept this machine's credentials.
    #[error("{url}: the store refuses this machine's credentials: {problem}")]
    Credentials {
        url: String,
        /// What is wrong with them, and what to do. Never the credentials.
        problem: String,
    },
    /// There is no such bucket.
    #[error("{url}: there is no bucket {bucket:?} (404); check the ConfigBase or --config-base")]
    WrongBucket { url: String, bucket: String },
    /// No answer, or none that is one.
    #[error(
        "{url}: the store cannot be reached: {cause} ({attempts} attempts in {} s); check the network, DNS and proxy",
        waited.as_secs_f32().round()
    )]
    Unreachable {
        url: String,
        cause: String,
        /// How often it was tried.
        attempts: u32,
        /// For how long it was tried.
        waited: Duration,
    },
    /// The store answers with another error.
    #[error("{url}: the store answers {status} {code}: {message}")]
    Refused {
        url: String,
        status: u16,
        /// S3's name of the error; may be empty.
        code: String,
        /// S3's explanation; may be empty.
        message: String,
    },
    /// A web page came in the place of the file.
    #[error(
        "{url}: a web page comes instead of this file ({said}): something between this machine and the store answers in its \
         place, as a proxy or a captive portal does; check the network, the proxy and DNS"
    )]
    Page {
        url: String,
        /// The text at the page's beginning.
        said: String,
    },
    /// The file is none of kOps'.
    #[error("{url} is larger than {} MiB, so it is no file of kOps; check the URL", super::limits::LARGEST_FILE / 1024 / 1024)]
    TooLarge { url: String },
    #[error("{url:?} is no URL of a state store: {problem}")]
    BadUrl {
        url: String,
        /// What is wrong, and how it should be.
        problem: String,
    },
    /// The URL means a store that cannot be read yet.
    #[error(
        "{url}: {scheme}:// stores are not supported yet; supported are {}, and any from a folder by --store-mirror URL=DIR",
        supported
    )]
    Unsupported {
        url: String,
        scheme: String,
        /// Those that can be read.
        supported: String,
    },
    /// The URL means something that a node's files are never read from, for a reason.
    #[error(
        "{url}: {scheme}:// is no state store of a node: {reason}; or give a copy by --store-mirror URL=DIR"
    )]
    NeverRead {
        url: String,
        scheme: &'static str,
        /// Why, and what to do.
        reason: &'static str,
    },
    /// What is in a folder has to be known, and this kind of store does not tell.
    #[error(
        "{url}: what is in this folder has to be known, and {scheme}:// stores have no lists; use a store that has, or a copy \
         by --store-mirror URL=DIR"
    )]
    NoLists { url: String, scheme: &'static str },
    /// `--store-mirror` is not what it should be.
    #[error("--store-mirror {argument}: write URL=DIR, as in s3://BUCKET=/srv/state")]
    BadMirror { argument: String },
    /// The variables for a store are incomplete.
    #[error("the environment's settings of the store are wrong: {0}")]
    BadSettings(String),
    /// TLS needs a CA bundle, and this host has none.
    #[error(transparent)]
    NoCaBundle(#[from] NoCaBundle),
    /// This machine cannot read the file.
    #[error("cannot read {url}{place}: {source}")]
    Io {
        url: String,
        /// Where it was looked for; empty, or begins with a space.
        place: String,
        source: io::Error,
    },
}

/// A store's own words, where it has said something, as the beginning of a sentence.
fn as_cause(said: &str) -> String {
    if said.is_empty() { String::new() } else { format!("the store says \"{said}\"; ") }
}

impl From<SetupError> for StoreError {
    fn from(error: SetupError) -> StoreError {
        StoreError::BadSettings(error.to_string())
    }
}

impl StoreError {
    /// Whether it is the configuration that is wrong, so that trying again cannot help. A role can
    /// be given permissions, and a network can come up; a bucket that does not exist stays so.
    pub fn is_configuration(&self) -> bool {
        match self {
            StoreError::NotFound { .. }
            | StoreError::WrongBucket { .. }
            | StoreError::TooLarge { .. }
            | StoreError::BadUrl { .. }
            | StoreError::Unsupported { .. }
            | StoreError::NeverRead { .. }
            | StoreError::NoLists { .. }
            | StoreError::BadMirror { .. }
            | StoreError::BadSettings(_) => true,
            StoreError::Forbidden { .. }
            | StoreError::Page { .. }
            | StoreError::Credentials { .. }
            | StoreError::Unreachable { .. }
            | StoreError::Refused { .. }
            | StoreError::NoCaBundle(_)
            | StoreError::Io { .. } => false,
        }
    }
}
