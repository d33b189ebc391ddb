//! What a store does for the rest of the agent: each kind of store is one [`Backend`].

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;

use kops_agent_net::retry::Retries;
use kops_agent_net::{Location, Said};

use super::error::StoreError;
use super::s3::settings::S3Settings;

/// A file or a folder of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The URL that was asked for, as messages show it.
    pub(crate) url: String,
    /// The bucket; empty where a store has none.
    pub(crate) bucket: String,
    /// The key in its bucket, without a leading slash; or a path of this machine.
    pub(crate) key: String,
    /// What a role needs in order to read it.
    pub(crate) rights: String,
}

impl Place {
    pub(crate) fn bad_url(&self, problem: &str) -> StoreError {
        StoreError::BadUrl { url: self.url.clone(), problem: problem.to_owned() }
    }

    /// This machine may not read it, by the store's own words. Without other advice, rights are missing.
    pub(crate) fn forbidden(&self, said: &Said, advice: Option<String>) -> StoreError {
        let rights = || {
            format!(
                "this machine's role may not read it; give it {}. A store says the same of a file that does not exist to a role \
                 that may not list its folder; so check the URL, too",
                self.rights
            )
        };
        let advice = advice.unwrap_or_else(rights);
        StoreError::Forbidden { url: self.url.clone(), said: said.in_words(), advice }
    }

    /// There is no such bucket.
    pub(crate) fn wrong_bucket(&self) -> StoreError {
        StoreError::WrongBucket { url: self.url.clone(), bucket: self.bucket.clone() }
    }

    /// What came is no list of what is in this folder.
    pub(crate) fn no_list(&self, problem: impl fmt::Display) -> StoreError {
        self.unusable(format!("what is no list of objects: {problem}"))
    }

    /// The list of what is in this folder goes on and on.
    pub(crate) fn no_end(&self) -> StoreError {
        self.unusable("a list whose pages have no end; is this the folder of a cluster?".to_owned())
    }

    fn unusable(&self, message: String) -> StoreError {
        StoreError::Refused { url: self.url.clone(), status: 200, code: String::new(), message }
    }
}

/// What comes after `://`: a bucket, and a key in it.
pub(crate) struct Split<'a> {
    /// Empty where a store has no buckets.
    pub(crate) bucket: &'a str,
    /// May have leading slashes, if it is no path of this machine.
    pub(crate) key: &'a str,
}

/// What is wrong with a URL, and how the part after `://` is written.
pub(crate) struct Misspelt {
    pub(crate) problem: &'static str,
    pub(crate) example: &'static str,
}

/// With what a backend is set up.
pub(crate) struct Setup {
    /// The scheme that it is for.
    pub(crate) scheme: &'static str,
    pub(crate) retries: Retries,
    /// Other settings of S3 than the environment's.
    pub(crate) s3: Option<S3Settings>,
}

/// A backend being set up.
pub(crate) type Opening = Pin<Box<dyn Future<Output = Result<Box<dyn Backend>, StoreError>> + Send>>;

/// What a store is being asked for.
pub(crate) type Asked<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// One kind of store. Each method retries what may pass, and gives up by itself.
pub(crate) trait Backend: fmt::Debug + Send + Sync {
    /// A file, of [`super::limits::LARGEST_FILE`] bytes at most.
    fn read<'a>(&'a self, file: &'a Place) -> Asked<'a, Vec<u8>>;

    /// The names of what is directly below a folder, sorted, each once. A folder that is not there has none.
    fn list<'a>(&'a self, folder: &'a Place) -> Asked<'a, Vec<String>>;

    /// The files below a folder whose paths from there lie between two, `first` and `last` included, with a text that is
    /// another one for each content of a file.
    fn versions<'a>(
        &'a self,
        folder: &'a Place,
        first: &'a str,
        last: &'a str,
    ) -> Asked<'a, BTreeMap<String, String>>;

    /// How to ask for a file over HTTP, or where it is on this machine.
    fn locate<'a>(&'a self, file: &'a Place) -> Asked<'a, Location>;
}
