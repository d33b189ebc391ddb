//! The selection of machines: one cluster, its location, and a page.

use reqwest::header::HeaderMap;

/// The header in which some APIs report the number of machines on all pages.
const TOTAL: &str = "x-total-count";

/// A cluster, and its location in the cloud.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    pub cluster: String,
    /// The zone of the cluster's machines; empty if the API lists all zones together.
    pub zone: String,
    /// The project of the cluster's machines; empty if a token is for one project only.
    pub project: String,
}

impl From<&str> for Scope {
    fn from(cluster: &str) -> Scope {
        Scope { cluster: cluster.to_owned(), ..Scope::default() }
    }
}

/// The request that selects the machines of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// The path of the list, below the endpoint.
    pub path: String,
    /// The base path of the machines, if it differs from the path of the list. A machine's path is this path followed by the
    /// machine's id.
    pub machines: Option<&'static str>,
    pub parameters: Vec<(&'static str, String)>,
    /// A header of the request; its name is in lower case.
    pub header: Option<(&'static str, String)>,
}

/// Which page of a list was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageAt {
    /// The number of the page, from 1.
    pub number: u32,
    /// The number of machines on all pages, if the response header contains it.
    pub total: Option<u64>,
}

/// An environment variable; `None` if it is unset or blank.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.trim().is_empty())
}

/// The number of machines on all pages, if the response headers contain it.
pub(super) fn total(headers: &HeaderMap) -> Option<u64> {
    headers.get(TOTAL)?.to_str().ok()?.trim().parse().ok()
}
