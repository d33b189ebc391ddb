//! Objects of buckets that are read with credentials.

use std::fmt;
use std::pin::Pin;

use reqwest::Url;
use reqwest::header::HeaderMap;

/// The stores whose files can be downloaded with this machine's own credentials.
pub trait Buckets: Send + Sync {
    /// Whether this is the URL of such a file, by its scheme alone.
    fn locates(&self, url: &str) -> bool;

    /// How to ask for the object at a URL, for two minutes at least.
    fn locate<'a>(&'a self, url: &'a str) -> Locating<'a>;
}

/// An object being located.
pub type Locating<'a> = Pin<Box<dyn Future<Output = Result<Location, NotLocated>> + Send + 'a>>;

/// How to ask for an object over HTTP. It may hold a credential, so `Debug` shows nothing but the host.
#[derive(Clone)]
pub struct Location {
    /// Where to ask; may be signed.
    pub url: Url,
    /// What to say; may hold a token, so a request that says any of it follows no redirect.
    pub headers: HeaderMap,
    /// Its size in bytes, if that is known.
    pub size: Option<u64>,
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Location").field("host", &self.url.host_str()).finish_non_exhaustive()
    }
}

/// Why an object cannot be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotLocated {
    /// What is wrong, and what to do; without the URL.
    pub reason: String,
    /// Whether trying again may help.
    pub may_pass: bool,
}
