//! The interface of a store: each kind of store implements [`Backend`].

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;

use kops_agent_net::retry::Retries;
use kops_agent_net::{Location, Said};

use super::error::StoreError;
use super::s3::settings::S3Settings;

/// The maximum size of a file, in bytes, because the agent holds the file in memory. kOps' files are far smaller.
pub const LARGEST_FILE: u64 = 8 * 1024 * 1024;

/// A file or a folder of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The requested URL, for display.
    pub(crate) url: String,
    /// The bucket. Empty if the store has no buckets.
    pub(crate) bucket: String,
    /// The key in the bucket without a leading slash, or a path on this machine.
    pub(crate) key: String,
    /// The permissions that a role needs to read this place.
    pub(crate) rights: String,
}

impl Place {
    pub(crate) fn bad_url(&self, problem: &str) -> StoreError {
        StoreError::BadUrl { url: self.url.clone(), problem: problem.to_owned() }
    }

    /// The error if the store itself denies access to this place. Without `advice`, the error names the missing permissions.
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

    /// The error if the place's bucket does not exist.
    pub(crate) fn wrong_bucket(&self) -> StoreError {
        StoreError::WrongBucket { url: self.url.clone(), bucket: self.bucket.clone() }
    }

    /// The error if a response is not a list of this folder.
    pub(crate) fn no_list(&self, problem: impl fmt::Display) -> StoreError {
        self.unusable(format!("the answer is not a list of objects: {problem}"))
    }

    /// The error if the list of this folder never ends.
    pub(crate) fn no_end(&self) -> StoreError {
        self.unusable("a list whose pages have no end; is this the folder of a cluster?".to_owned())
    }

    fn unusable(&self, message: String) -> StoreError {
        StoreError::Refused { url: self.url.clone(), status: 200, code: String::new(), message }
    }
}

/// The part of a URL after `://`, split into bucket and key.
pub(crate) struct Split<'a> {
    /// The bucket. Empty if the store has no buckets.
    pub(crate) bucket: &'a str,
    /// The key. It may have leading slashes, unless it is a path on this machine.
    pub(crate) key: &'a str,
}

/// The problem of a malformed URL, and a correct example of the part after `://`.
pub(crate) struct Misspelt {
    pub(crate) problem: &'static str,
    pub(crate) example: &'static str,
}

pub(crate) struct Setup {
    pub(crate) scheme: &'static str,
    pub(crate) retries: Retries,
    /// S3 settings that replace the settings of the environment.
    pub(crate) s3: Option<S3Settings>,
}

pub(crate) type Opening = Pin<Box<dyn Future<Output = Result<Box<dyn Backend>, StoreError>> + Send>>;

pub(crate) type BackendFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// A kind of store. Each method retries transient failures until its own deadline.
pub(crate) trait Backend: fmt::Debug + Send + Sync {
    /// Reads a file. Fails if the file has more than [`LARGEST_FILE`] bytes.
    fn read<'a>(&'a self, file: &'a Place) -> BackendFuture<'a, Vec<u8>>;

    /// The names directly below a folder, sorted and without duplicates. Empty if the folder does not exist.
    fn list<'a>(&'a self, folder: &'a Place) -> BackendFuture<'a, Vec<String>>;

    /// The files below a folder whose relative paths lie between `first` and `last`, both included. Returns a version text for
    /// each relative path. The version text changes with the file's content.
    fn versions<'a>(
        &'a self,
        folder: &'a Place,
        first: &'a str,
        last: &'a str,
    ) -> BackendFuture<'a, BTreeMap<String, String>>;

    /// The HTTP request for a file, or the file's path on this machine.
    fn locate<'a>(&'a self, file: &'a Place) -> BackendFuture<'a, Location>;
}
