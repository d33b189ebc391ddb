//! What is asked for: the machines of one cluster, where they are, page by page.

use reqwest::header::HeaderMap;

/// The header in which some APIs say how many machines there are on all pages.
const TOTAL: &str = "x-total-count";

/// A cluster, and where in its cloud it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    pub cluster: String,
    /// The zone that its machines are in; empty where the API lists all zones together.
    pub zone: String,
    /// The project that they are in; empty where a token is of one project only.
    pub project: String,
}

impl From<&str> for Scope {
    fn from(cluster: &str) -> Scope {
        Scope { cluster: cluster.to_owned(), ..Scope::default() }
    }
}

/// What selects the machines of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Where the list is, below the endpoint.
    pub path: String,
    /// Below what each machine is, where that is not below the list.
    pub machines: Option<&'static str>,
    pub parameters: Vec<(&'static str, String)>,
    /// A header of the request, by its name in lower case.
    pub header: Option<(&'static str, String)>,
}

/// Which page of a list was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageAt {
    /// Its number, from 1.
    pub number: u32,
    /// How many machines all pages have together, where the answer's header says so.
    pub total: Option<u64>,
}

/// A variable of the environment; `None` where it has nothing in it.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.trim().is_empty())
}

/// How many machines all pages have together, where the headers of an answer say so.
pub(super) fn total(headers: &HeaderMap) -> Option<u64> {
    headers.get(TOTAL)?.to_str().ok()?.trim().parse().ok()
}
