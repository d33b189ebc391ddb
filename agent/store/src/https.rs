//! Files on a web server, read by URL and without credentials: a published folder of a cluster, and channels of add-ons
//! with their manifests.
//!
//! Source: `readHTTPLocation` in util/pkg/vfs/context.go. Upstream reads boot configs, channels and manifests from web servers, but does
//! not support a ConfigBase on a web server (`BuildVfsPath`).

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::future::ready;

use kops_agent_net::causes::innermost;
use kops_agent_net::http;
use kops_agent_net::retry::Retries;
use kops_agent_net::tls;
use kops_agent_net::{Location, Said};
use reqwest::{Client, Response, StatusCode, Url};

use super::backend::{Backend, BackendFuture, LARGEST_FILE, Misspelt, Opening, Place, Setup, Split};
use super::error::StoreError;
use super::failure::{Failure, body, store_error};

#[derive(Debug)]
struct Https {
    client: Client,
    scheme: &'static str,
    retries: Retries,
}

pub(crate) fn open(setup: Setup) -> Opening {
    Box::pin(ready(Https::new(&setup).map(|https| Box::new(https) as Box<dyn Backend>)))
}

/// Splits `HOST/PATH`. Rejects a URL with a login or a query, because messages and records of runs would show the URL.
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
    fn read<'a>(&'a self, file: &'a Place) -> BackendFuture<'a, Vec<u8>> {
        Box::pin(async move {
            let url = address(file)?;
            let attempt = || self.get(url.clone());
            let asked = self.retries.run(&file.url, attempt, Failure::retried_for).await;
            asked.map_err(|gave_up| store_error(file, gave_up))
        })
    }

    fn list<'a>(&'a self, folder: &'a Place) -> BackendFuture<'a, Vec<String>> {
        Box::pin(ready(Err(self.no_lists(folder))))
    }

    fn versions<'a>(
        &'a self,
        folder: &'a Place,
        _: &'a str,
        _: &'a str,
    ) -> BackendFuture<'a, BTreeMap<String, String>> {
        Box::pin(ready(Err(self.no_lists(folder))))
    }

    fn locate<'a>(&'a self, file: &'a Place) -> BackendFuture<'a, Location> {
        Box::pin(ready(address(file).map(Location::new)))
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
        body(granted(answer).await?, LARGEST_FILE).await
    }
}

fn of_transport(error: reqwest::Error) -> Failure {
    match error.is_redirect() {
        true => Failure::Redirected(innermost(&error.without_url()).to_string()),
        false => Failure::of_transport(error),
    }
}

/// Returns a successful response, and converts any other response into a failure.
async fn granted(answer: Response) -> Result<Response, Failure> {
    Err(match answer.status() {
        StatusCode::OK => return Ok(answer),
        StatusCode::NOT_FOUND => Failure::Absent,
        StatusCode::FORBIDDEN => Failure::Forbidden { said: Said::from_answer(answer).await, advice: None },
        status @ StatusCode::UNAUTHORIZED => {
            Failure::Credentials(format!("{status}; it wants a login, but kops-agent sends no login"))
        }
        status => Failure::of_status(status, &Said::from_answer(answer).await, ""),
    })
}

fn address(file: &Place) -> Result<Url, StoreError> {
    let url = file.url.clone();
    Url::parse(&url).map_err(|error| StoreError::BadUrl { url, problem: error.to_string() })
}
