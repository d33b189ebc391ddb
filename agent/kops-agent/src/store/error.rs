//! Why a file of the state store could not be read, in words for the person who has to change something.

use std::time::Duration;

/// A failed read of the state store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no such file.
    #[error("{url} does not exist in the state store; check the name, and that `kops update cluster --yes` has been run")]
    NotFound {
        /// URL of the file.
        url: String,
    },
    /// The store refuses this machine. S3 also refuses to say whether a file exists to those who may not list the bucket.
    #[error(
        "access to {url} is denied: {problem}; the instance's role (or the credentials in the environment) must \
         allow reading it, and a file that does not exist looks the same to those who may not list the bucket"
    )]
    Forbidden {
        /// URL of the file.
        url: String,
        /// What the store said.
        problem: String,
    },
    /// There is no such bucket.
    #[error("reading {url}: there is no bucket {bucket}; check ConfigBase in the boot config, or --config-base")]
    NoBucket {
        /// URL of the file.
        url: String,
        /// The bucket that it names.
        bucket: String,
    },
    /// The store did not answer, or not in time.
    #[error("{url} could not be read within {} seconds: {problem}", deadline.as_secs())]
    Unreachable {
        /// URL of the file.
        url: String,
        /// How long was tried.
        deadline: Duration,
        /// What went wrong last.
        problem: String,
    },
    /// The URL is of no store.
    #[error("{url:?} is no URL of a state store: {problem}")]
    BadUrl {
        /// The URL.
        url: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A kind of store that this agent cannot read.
    #[error("{scheme}:// stores are not supported yet (reading {url}); supported are s3:// and file://, and --store-mirror URL=DIR")]
    Unsupported {
        /// URL of the file.
        url: String,
        /// Its scheme.
        scheme: String,
    },
    /// A folder or file of this machine could not be read.
    #[error("reading {path}: {source}")]
    Io {
        /// The file or folder.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The settings with which the store is reached are wrong.
    #[error("reaching {url}: {problem}")]
    Settings {
        /// URL of the file.
        url: String,
        /// What is wrong, and what to set.
        problem: String,
    },
}

impl StoreError {
    /// Whether somebody has to change something before trying again can help.
    pub fn is_configuration(&self) -> bool {
        matches!(
            self,
            StoreError::NotFound { .. }
                | StoreError::NoBucket { .. }
                | StoreError::BadUrl { .. }
                | StoreError::Unsupported { .. }
                | StoreError::Settings { .. }
        )
    }
}
