//! Files of a web server, read by their URLs and without credentials: a cluster's folder that is published there, and channels
//! of add-ons and their manifests.
//!
//! Source: `readHTTPLocation` in util/pkg/vfs/context.go. Upstream reads boot configs, channels and manifests so, and has no
//! such ConfigBase (`BuildVfsPath`).

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::future::ready;
use std::time::Duration;

use kops_agent_net::Location;
use kops_agent_net::causes::{in_one_line, innermost};
use kops_agent_net::http;
use kops_agent_net::retry::{GaveUp, Retries};
use kops_agent_net::tls;
use reqwest::{Client, StatusCode, Url};

use super::LARGEST_FILE;
use super::backend::{Asked, Backend, Misspelt, Opening, Place, Setup, Split};
use super::error::StoreError;

/// How much of an error is told, in characters.
const LONGEST_MESSAGE: usize = 300;

/// Every web server.
#[derive(Debug)]
struct Https {
    client: Client,
    scheme: &'static str,
    retries: Retries,
}

pub(crate) fn open(setup: Setup) -> Opening {
    Box::pin(ready(Https::new(&setup).map(|https| Box::new(https) as Box<dyn Backend>)))
}

/// `HOST/PATH`. A login or a query would stand in every message and in the record of each run.
pub(crate) fn split(rest: &str) -> Result<Split<'_>, Misspelt> {
    let misspelt = |problem| Err(Misspelt { problem, example: "HOST/CLUSTER" });
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    match host {
        _ if rest.contains(['?', '#']) => misspelt("it has a query, which messages would show"),
        host if host.contains('@') => misspelt("it has a login in it, which messages would show"),
        "" => misspelt("it names no host"),
        host => Ok(Split { bucket: host, key: path }),
    }
}

pub(crate) fn rights(host: &str, _: &str) -> String {
    format!("read access without a login on the web server {host}")
}

impl Backend for Https {
    fn read<'a>(&'a self, file: &'a Place) -> Asked<'a, Vec<u8>> {
        Box::pin(async move {
            let url = address(file)?;
            let attempt = || self.get(url.clone());
            let asked = self.retries.run(&file.url, attempt, Failure::retried_for).await;
            asked.map_err(|gave_up| store_error(file, gave_up))
        })
    }

    fn list<'a>(&'a self, folder: &'a Place) -> Asked<'a, Vec<String>> {
        Box::pin(ready(Err(self.no_lists(folder))))
    }

    fn versions<'a>(
        &'a self,
        folder: &'a Place,
        _: &'a str,
        _: &'a str,
    ) -> Asked<'a, BTreeMap<String, String>> {
        Box::pin(ready(Err(self.no_lists(folder))))
    }

    fn locate<'a>(&'a self, file: &'a Place) -> Asked<'a, Location> {
        Box::pin(ready(address(file).map(Location::of)))
    }
}

impl Https {
    fn new(setup: &Setup) -> Result<Https, StoreError> {
        tls::require_ca_bundle_for([format!("{}://", setup.scheme).as_str()])?;
        let client = http::client().map_err(|error| StoreError::BadSettings(error.to_string()))?;
        Ok(Https { client, scheme: setup.scheme, retries: setup.retries })
    }

    fn no_lists(&self, folder: &Place) -> StoreError {
        StoreError::NoLists { url: folder.url.clone(), scheme: self.scheme }
    }

    async fn get(&self, url: Url) -> Result<Vec<u8>, Failure> {
        let answer = self.client.get(url).timeout(self.retries.attempt).send().await.map_err(of_transport)?;
        let largest = usize::try_from(LARGEST_FILE).unwrap_or(usize::MAX);
        match answer.status() {
            StatusCode::OK => {
                http::body(answer, largest).await.map_err(of_transport)?.ok_or(Failure::TooLarge)
            }
            status if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
                Err(Failure::Passing(format!("it answers {status}")))
            }
            status => Err(Failure::Status(status, http::said(answer, LONGEST_MESSAGE).await)),
        }
    }
}

/// What went wrong in one attempt.
#[derive(Debug)]
enum Failure {
    /// It may work later.
    Passing(String),
    /// It leads where it is not followed.
    Redirected(String),
    /// The server answers with this, and says this of it.
    Status(StatusCode, String),
    TooLarge,
}

impl Failure {
    fn retried_for(&self) -> Duration {
        match self {
            Failure::Passing(_) => Duration::MAX,
            Failure::Redirected(_) | Failure::Status(..) | Failure::TooLarge => Duration::ZERO,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Passing(problem) | Failure::Redirected(problem) => f.write_str(problem),
            Failure::Status(status, _) => write!(f, "it answers {status}"),
            Failure::TooLarge => f.write_str("it is too large"),
        }
    }
}

fn of_transport(error: reqwest::Error) -> Failure {
    let error = error.without_url();
    match error.is_redirect() {
        true => Failure::Redirected(innermost(&error).to_string()),
        false => Failure::Passing(in_one_line(&error)),
    }
}

fn address(file: &Place) -> Result<Url, StoreError> {
    let url = file.url.clone();
    Url::parse(&url).map_err(|error| StoreError::BadUrl { url, problem: error.to_string() })
}

/// What to tell the operator.
fn store_error(file: &Place, gave_up: GaveUp<Failure>) -> StoreError {
    let GaveUp { error, attempts, waited } = gave_up;
    let url = file.url.clone();
    match error {
        Failure::Passing(cause) => StoreError::Unreachable { url, cause, attempts, waited },
        Failure::Redirected(problem) => StoreError::BadUrl { url, problem },
        Failure::Status(StatusCode::NOT_FOUND, _) => StoreError::NotFound { url, place: String::new() },
        Failure::Status(StatusCode::FORBIDDEN, _) => {
            StoreError::Forbidden { url, rights: file.rights.clone() }
        }
        Failure::Status(status @ StatusCode::UNAUTHORIZED, _) => {
            let problem = format!("{status}; it wants a login, and is asked without any");
            StoreError::Credentials { url, problem }
        }
        Failure::Status(status, message) => {
            StoreError::Refused { url, status: status.as_u16(), code: String::new(), message }
        }
        Failure::TooLarge => StoreError::TooLarge { url },
    }
}
