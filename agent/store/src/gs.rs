//! Buckets of Google Cloud Storage, by its JSON API, with the service account of the instance or of a key.
//!
//! This module does not use Google's libraries: the agent needs three requests, and the libraries bring their own TLS
//! and HTTP clients.
//!
//! Source: the Cloud Storage JSON API v1, `objects.get` and `objects.list`.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::future::ready;
use std::time::Duration;

use kops_agent_net::{Location, Said};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{Client, Response, StatusCode, Url};
use serde::Deserialize;

use super::backend::{Backend, BackendFuture, LARGEST_FILE, Opening, Place, Setup};
use super::error::StoreError;
use super::failure::{Failure, body, store_error};
use super::names::{directly_below, escaped, prefix};
use kops_agent_cloud::gce::service_account::READ_STORAGE;
use kops_agent_cloud::gce::tokens::Tokens;
use kops_agent_net::http;
use kops_agent_net::retry::Retries;
use kops_agent_net::tls;

const ENDPOINT: &str = "https://storage.googleapis.com/storage/v1";
/// Timeout of a request for an object's size.
const SIZE_TIMEOUT: Duration = Duration::from_secs(20);
/// The maximum size of a page of a list, in bytes. One page has a thousand names.
const LONGEST_LIST: u64 = 4 * 1024 * 1024;
/// The maximum number of pages of a list. The list of a state store never needs so many pages.
const MOST_PAGES: usize = 1000;
/// A header in every response of Google's storage. It shows whether a response is from Google. An error code cannot show this, because an
/// error in text form (`alt=media`) has no code.
const UPLOAD_ID: &str = "x-guploader-uploadid";
/// The maximum length of the response to a request for an object's size, in bytes.
const LARGEST_METADATA: u64 = 64 * 1024;

#[derive(Debug)]
pub(super) struct Gs {
    client: Client,
    /// The base URL of the storage API, which includes the API's version.
    endpoint: String,
    retries: Retries,
    tokens: Tokens,
}

/// A page of a list of objects.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Page {
    items: Vec<Item>,
    prefixes: Vec<String>,
    next_page_token: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Item {
    name: String,
    /// The generation of the object, which changes with every write.
    generation: String,
}

pub(crate) fn open(setup: Setup) -> Opening {
    Box::pin(ready(Gs::new(setup.retries).map(|gs| Box::new(gs) as Box<dyn Backend>)))
}

pub(crate) fn rights(bucket: &str, _: &str) -> String {
    format!(
        "storage.objects.get and storage.objects.list on the bucket {bucket} (role roles/storage.objectViewer); an instance also needs \
         the scope devstorage.read_only"
    )
}

impl Backend for Gs {
    fn read<'a>(&'a self, file: &'a Place) -> BackendFuture<'a, Vec<u8>> {
        Box::pin(async move {
            let address = format!("{}?alt=media", self.address(file));
            self.get(file, &address, LARGEST_FILE).await
        })
    }

    fn list<'a>(&'a self, folder: &'a Place) -> BackendFuture<'a, Vec<String>> {
        Box::pin(async move {
            let below = prefix(folder);
            let parameters = [("delimiter", "/"), ("fields", "items(name),prefixes,nextPageToken")];
            let pages = self.pages(folder, &below, &parameters).await?.into_iter();
            let names =
                pages.flat_map(|page| page.items.into_iter().map(|item| item.name).chain(page.prefixes));
            Ok(directly_below(&below, names.collect()))
        })
    }

    /// The version of an object is its generation.
    fn versions<'a>(
        &'a self,
        folder: &'a Place,
        first: &'a str,
        last: &'a str,
    ) -> BackendFuture<'a, BTreeMap<String, String>> {
        Box::pin(async move {
            let below = prefix(folder);
            // `endOffset` is exclusive. `last` followed by `!` is greater than `last`, so the list includes `last`.
            let (start, end) = (format!("{below}{first}"), format!("{below}{last}!"));
            let parameters = [
                ("startOffset", start.as_str()),
                ("endOffset", end.as_str()),
                ("fields", "items(name,generation),nextPageToken"),
            ];
            let mut versions = BTreeMap::new();
            for item in self.pages(folder, &below, &parameters).await?.into_iter().flat_map(|page| page.items)
            {
                let Some(name) = item.name.strip_prefix(&below) else { continue };
                if (first..=last).contains(&name) {
                    versions.insert(name.to_owned(), item.generation);
                }
            }
            Ok(versions)
        })
    }

    fn locate<'a>(&'a self, file: &'a Place) -> BackendFuture<'a, Location> {
        #[derive(Deserialize)]
        struct Metadata {
            size: String,
        }
        Box::pin(async move {
            let address = self.address(file);
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, self.token().await.map_err(|failure| failure.after_one_try(file))?);
            let asked = self.send(&format!("{address}?fields=size"), SIZE_TIMEOUT).await;
            let answer = asked.map_err(|failure| failure.after_one_try(file))?;
            // If the size is unknown, the download still works.
            let told = body(answer, LARGEST_METADATA).await.ok();
            let metadata = told.and_then(|told| serde_json::from_slice::<Metadata>(&told).ok());
            let size = metadata.and_then(|metadata| metadata.size.parse().ok());
            let address = Url::parse(&format!("{address}?alt=media"));
            let address = address.map_err(|_| file.bad_url("it names no object"))?;
            Ok(Location::new(address).with_headers(headers).of_size(size))
        })
    }
}

impl Gs {
    /// Makes a backend for Google's storage, or for the endpoint in `CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE`.
    pub(super) fn new(retries: Retries) -> Result<Gs, StoreError> {
        let endpoint = std::env::var("CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE").unwrap_or_default();
        let endpoint = if endpoint.is_empty() { ENDPOINT } else { endpoint.trim_end_matches('/') };
        tls::require_ca_bundle_for([endpoint])?;
        let unusable = |error: &dyn std::error::Error| StoreError::BadSettings(error.to_string());
        let tokens = Tokens::of_application(READ_STORAGE, retries).map_err(|error| unusable(&error))?;
        let client = http::client().map_err(|error| unusable(&error))?;
        Ok(Gs { client, endpoint: endpoint.to_owned(), retries, tokens })
    }

    async fn pages(
        &self,
        folder: &Place,
        below: &str,
        parameters: &[(&str, &str)],
    ) -> Result<Vec<Page>, StoreError> {
        let mut pages = Vec::new();
        let mut token = String::new();
        for _ in 0..MOST_PAGES {
            let query = form_urlencoded::Serializer::new(String::new())
                .append_pair("prefix", below)
                .extend_pairs(parameters)
                .extend_pairs((!token.is_empty()).then_some(("pageToken", token.as_str())))
                .finish();
            let address = format!("{}/b/{}/o?{query}", self.endpoint, escaped(&folder.bucket));
            let bytes = match self.get(folder, &address, LONGEST_LIST).await {
                // If no object has the prefix, the list is empty. So a 404 means that the bucket is missing.
                Err(StoreError::NotFound { .. }) => return Err(folder.wrong_bucket()),
                answer => answer?,
            };
            let mut page: Page = serde_json::from_slice(&bytes).map_err(|error| folder.no_list(error))?;
            token = std::mem::take(&mut page.next_page_token);
            pages.push(page);
            if token.is_empty() {
                return Ok(pages);
            }
        }
        Err(folder.no_end())
    }

    fn address(&self, object: &Place) -> String {
        format!("{}/b/{}/o/{}", self.endpoint, escaped(&object.bucket), escaped(&object.key))
    }

    /// Sends a GET request, and retries it after transient failures.
    async fn get(&self, what: &Place, address: &str, largest: u64) -> Result<Vec<u8>, StoreError> {
        let attempt = || async { body(self.send(address, self.retries.attempt).await?, largest).await };
        let asked = self.retries.run(&what.url, attempt, Failure::retried_for).await;
        asked.map_err(|gave_up| store_error(what, gave_up))
    }

    /// Sends a request. If the server rejects the token, sends the request once more with a new token, because the old token may be
    /// revoked.
    async fn send(&self, address: &str, limit: Duration) -> Result<Response, Failure> {
        let answer = self.send_once(address, limit).await?;
        if answer.status() != StatusCode::UNAUTHORIZED {
            return self.granted(answer).await;
        }
        self.tokens.forget().await;
        self.granted(self.send_once(address, limit).await?).await
    }

    async fn send_once(&self, address: &str, limit: Duration) -> Result<Response, Failure> {
        let request = self.client.get(address).header(AUTHORIZATION, self.token().await?).timeout(limit);
        request.send().await.map_err(Failure::of_transport)
    }

    async fn token(&self) -> Result<HeaderValue, Failure> {
        self.tokens.header().await.map_err(|error| {
            Failure::Credentials(format!("cannot get a token of {}: {error}", self.tokens.whose()))
        })
    }

    /// Returns a successful response, and converts any other response into a failure.
    async fn granted(&self, answer: Response) -> Result<Response, Failure> {
        Err(match answer.status() {
            StatusCode::OK => return Ok(answer),
            StatusCode::NOT_FOUND => Failure::Absent,
            StatusCode::FORBIDDEN => {
                let is_googles = answer.headers().contains_key(UPLOAD_ID);
                forbidden(Said::from_answer(answer).await, is_googles)
            }
            status @ StatusCode::UNAUTHORIZED => {
                let whose = self.tokens.whose();
                Failure::Credentials(format!("{status}; does {whose} exist, and is it enabled?"))
            }
            status => {
                let said = Said::from_answer(answer).await;
                Failure::of_status(status, &said, "is this the name of an object?")
            }
        })
    }
}

/// Converts a 403 into a failure, with advice for its reason (source: "Cloud Storage: HTTP status and error codes for JSON"). If the
/// response has neither Google's header nor a code, it is from another server, such as a proxy.
fn forbidden(said: Said, is_googles: bool) -> Failure {
    let advice = match said.code.as_str() {
        "rateLimitExceeded" | "userRateLimitExceeded" | "quotaExceeded" => {
            return Failure::Passing(format!("it answers 403 {}", said.in_words()));
        }
        "accessNotConfigured" | "SERVICE_DISABLED" => Some("enable storage.googleapis.com in the project"),
        code if matches!(code, "accountDisabled" | "UserProjectAccountProblem")
            || said.mentions("billing account") =>
        {
            Some("the bucket's project has no active billing account; enable billing there")
        }
        code if code == "insufficientPermissions" || said.mentions("authentication scopes") => Some(
            "give this instance the scope devstorage.read_only or cloud-platform; stop the instance first",
        ),
        _ if said.mentions("vpcServiceControls") || said.mentions("organization's policy") => {
            Some("let the perimeter of VPC Service Controls around the bucket's project admit this machine")
        }
        _ if said.mentions("KMS") => Some(
            "let the bucket project's service agent of Cloud Storage use the key that encrypts the file (role \
             roles/cloudkms.cryptoKeyEncrypterDecrypter), and enable the key",
        ),
        "" if !is_googles && !said.message.is_empty() => Some(
            "this is no answer of Google's storage: check the proxy, DNS and CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE",
        ),
        _ => None,
    };
    Failure::Forbidden { said, advice: advice.map(str::to_owned) }
}
