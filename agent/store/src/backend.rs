//! The interface of a store: each kind of store implements [`Backend`].

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;

use kops_agent_net::retry::Retries;
use kops_agent_net::{Location, Said};

use super::error::StoreError;
use super::s3::settings::S3Settings;

/// The maximum size of a file that is read, in bytes. kOps' files are far smaller. A file is held in memory while it is read.
pub const LARGEST_FILE: u64 = 8 * 1024 * 1024;

/// A file or a folder of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The requested URL, as messages show it.
    pub(crate) url: String,
    /// The bucket; empty if the store has no buckets.
    pub(crate) bucket: String,
    /// The key in its bucket without a leading slash, or a path on this machine.
    pub(crate) key: String,
    /// The permissions that a role needs to read this place.
    pub(crate) rights: String,
}

impl Place {
    pub(crate) fn bad_url(&self, problem: &str) -> StoreError {
        StoreError::BadUrl { url: self.url.clone(), problem: problem.to_owned() }
    }

    /// The error for a place to which the store itself denies access. Without other advice, the error names the missing permissions.
    pub(crate) fn forbidden(&self, said: &Said, advice: Option<String>) -> StoreError {
        let rights = || {
            format!(
                "this machine's role may not read it; give it {}. Check the URL, too: if a role may not list \
                 the folder, a store gives the same answer for a missing file",
                self.rights
            )
        };
        let advice = advice.unwrap_or_else(rights);
        StoreError::Forbidden { url: self.url.clone(), said: said.in_words(), advice }
    }

    /// The error for a bucket that does not exist.
    pub(crate) fn wrong_bucket(&self) -> StoreError {
        StoreError::WrongBucket { url: self.url.clone(), bucket: self.bucket.clone() }
    }

    /// The error for a response that is not a list of this folder.
    pub(crate) fn no_list(&self, problem: impl fmt::Display) -> StoreError {
        self.unusable(format!("the answer is not a list of objects: {problem}"))
    }

    /// The error for a list of this folder that never ends.
    pub(crate) fn no_end(&self) -> StoreError {
        self.unusable("a list whose pages have no end; is this the folder of a cluster?".to_owned())
    }

    fn unusable(&self, message: String) -> StoreError {
        StoreError::Refused { url: self.url.clone(), status: 200, code: String::new(), message }
    }
}

/// The part of a URL after `://`, split into bucket and key.
pub(crate) struct Split<'a> {
    /// The bucket; empty if the store has no buckets.
    pub(crate) bucket: &'a str,
    /// The key. It may have leading slashes, unless it is a path on this machine.
    pub(crate) key: &'a str,
}

/// The problem of a malformed URL, and an example of a correct part after `://`.
pub(crate) struct Misspelt {
    pub(crate) problem: &'static str,
    pub(crate) example: &'static str,
}

/// The inputs to set up a backend.
pub(crate) struct Setup {
    pub(crate) scheme: &'static str,
    pub(crate) retries: Retries,
    /// S3 settings that replace the settings of the environment.
    pub(crate) s3: Option<S3Settings>,
}

/// The future that sets up a backend.
pub(crate) type Opening = Pin<Box<dyn Future<Output = Result<Box<dyn Backend>, StoreError>> + Send>>;

/// The future of a store's response.
pub(crate) type BackendFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// A kind of store. Each method retries transient failures, up to the method's own deadline.
pub(crate) trait Backend: fmt::Debug + Send + Sync {
    /// Reads a file of at most [`LARGEST_FILE`] bytes.
    fn read<'a>(&'a self, file: &'a Place) -> BackendFuture<'a, Vec<u8>>;

    /// The names directly below a folder, sorted and without duplicates. Empty if the folder does not exist.
    fn list<'a>(&'a self, folder: &'a Place) -> BackendFuture<'a, Vec<String>>;

    /// The files below a folder whose relative paths lie between `first` and `last`, both included. The value of a file is a version text,
    /// which changes with the file's content.
    fn versions<'a>(
        &'a self,
        folder: &'a Place,
        first: &'a str,
        last: &'a str,
    ) -> BackendFuture<'a, BTreeMap<String, String>>;

    /// The HTTP request for a file, or its path on this machine.
    fn locate<'a>(&'a self, file: &'a Place) -> BackendFuture<'a, Location>;
}
