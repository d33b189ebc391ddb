//! Containers of Azure Blob Storage, by its REST API and as the machine's managed identity.
//!
//! No library of Microsoft's: what is needed of it are three requests, and their libraries bring an HTTP client of their own.
//!
//! A URL is `azureblob://ACCOUNT/CONTAINER/KEY`. Older kOps wrote `azureblob://CONTAINER/KEY`, with the account in
//! `AZURE_STORAGE_ACCOUNT`, which newer kOps refuses to run with (upstream: `buildAzureBlobPath` in util/pkg/vfs/context.go).
//! So where that variable is set, a URL that does not begin with its account is an older one.
//!
//! Source: Azure Storage REST API, "Get Blob", "Get Blob Properties", "List Blobs", "Blob service error codes"; upstream's
//! `util/pkg/vfs/azureblob.go` and `azureclient.go`.

mod listing;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::future::ready;
use std::time::Duration;

use kops_agent_net::Location;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use reqwest::header::{AUTHORIZATION, CONTENT_LENGTH, HeaderMap, HeaderValue};
use reqwest::{Client, Method, Response, StatusCode, Url};

use super::backend::{Asked, Backend, Misspelt, Opening, Place, Setup, Split};
use super::{LARGEST_FILE, StoreError, common, distinct};
use kops_agent_cloud::azure::tokens::{STORAGE, Tokens};
use kops_agent_net::causes::in_one_line;
use kops_agent_net::http;
use kops_agent_net::retry::{GaveUp, Retries};
use kops_agent_net::tls;
use listing::Page;

/// The variable with the account of all URLs, of older kOps.
const ACCOUNT_VARIABLE: &str = "AZURE_STORAGE_ACCOUNT";
/// The variable with the URL of the account's blob service, as `az storage` reads it.
const ENDPOINT_VARIABLE: &str = "AZURE_STORAGE_SERVICE_ENDPOINT";
/// What comes after the account in the name of its server.
const DOMAIN: &str = "blob.core.windows.net";
/// The version of the API; older ones take no tokens.
const VERSION: HeaderValue = HeaderValue::from_static("2021-12-02");
/// The header with the name of an error, which answers without a body have, too.
const ERROR_CODE: &str = "x-ms-error-code";
/// The timeout of asking for a blob's size.
const SIZE_TIMEOUT: Duration = Duration::from_secs(20);
/// The blobs of a page that are asked for.
const PAGE: &str = "1000";
/// The longest page that is read, in bytes: a blob has some 1 KiB.
const LONGEST_PAGE: u64 = 4 * 1024 * 1024;
/// More pages than a state store could have.
const MOST_PAGES: usize = 1000;

/// Every container.
#[derive(Debug)]
pub(super) struct AzureBlob {
    client: Client,
    /// The account's blob service, if the environment says where; else each account has its own.
    endpoint: Option<String>,
    /// The account of URLs that name none.
    account: Option<String>,
    retries: Retries,
    tokens: Tokens,
}

pub(crate) fn open(setup: Setup) -> Opening {
    Box::pin(ready(AzureBlob::new(setup.retries).map(|blob| Box::new(blob) as Box<dyn Backend>)))
}

/// `ACCOUNT/CONTAINER` are the bucket; of an older URL it is the container.
pub(crate) fn split(rest: &str) -> Result<Split<'_>, Misspelt> {
    split_beside(rest, set(ACCOUNT_VARIABLE).as_deref())
}

fn split_beside<'a>(rest: &'a str, account: Option<&str>) -> Result<Split<'a>, Misspelt> {
    let example = "ACCOUNT/CONTAINER/CLUSTER";
    let first = rest.split('/').next().unwrap_or_default();
    let container_at = match account {
        Some(account) if account != first => 0,
        _ if is_account(first) => first.len() + 1,
        _ => {
            let problem =
                "it does not begin with a storage account, which has 3 to 24 small letters and digits";
            return Err(Misspelt { problem, example });
        }
    };
    let container = rest.get(container_at..).unwrap_or_default().split('/').next().unwrap_or_default();
    if container.is_empty() {
        return Err(Misspelt { problem: "it names no container", example });
    }
    let (bucket, key) = rest.split_at(container_at + container.len());
    Ok(Split { bucket, key: key.trim_start_matches('/') })
}

/// Whether Azure could have an account of this name, which becomes part of the name of a server.
fn is_account(name: &str) -> bool {
    (3..=24).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

pub(crate) fn rights(bucket: &str, _: &str) -> String {
    format!(
        "the role Storage Blob Data Reader on the container {bucket}, whose account's network rules have to admit this machine"
    )
}

impl Backend for AzureBlob {
    fn read<'a>(&'a self, file: &'a Place) -> Asked<'a, Vec<u8>> {
        Box::pin(async move { self.get(file, &self.address(file)?, LARGEST_FILE).await })
    }

    fn list<'a>(&'a self, folder: &'a Place) -> Asked<'a, Vec<String>> {
        Box::pin(async move {
            let below = match folder.key.trim_end_matches('/') {
                "" => String::new(),
                folder => format!("{folder}/"),
            };
            let mut names = Vec::new();
            self.pages(folder, &below, &[("delimiter", "/")], |page| {
                let all = page.blobs.into_iter().map(|blob| blob.name).chain(page.prefixes);
                names.extend(
                    all.filter_map(|name| Some(name.strip_prefix(&below)?.trim_end_matches('/').to_owned())),
                );
                true
            })
            .await?;
            Ok(distinct(names))
        })
    }

    /// By the blobs' ETags. Azure lists by a prefix, from its beginning; so the list is of what both names begin with, and is
    /// read no further than the last.
    fn versions<'a>(
        &'a self,
        folder: &'a Place,
        first: &'a str,
        last: &'a str,
    ) -> Asked<'a, BTreeMap<String, String>> {
        Box::pin(async move {
            let below = format!("{}/", folder.key.trim_end_matches('/'));
            let prefix = format!("{below}{}", common(first, last));
            let mut versions = BTreeMap::new();
            self.pages(folder, &prefix, &[], |page| {
                let mut goes_on = true;
                for blob in page.blobs {
                    let Some(name) = blob.name.strip_prefix(&below) else { continue };
                    goes_on = name <= last;
                    if (first..=last).contains(&name) {
                        versions.insert(name.to_owned(), blob.etag);
                    }
                }
                goes_on
            })
            .await?;
            Ok(versions)
        })
    }

    fn locate<'a>(&'a self, file: &'a Place) -> Asked<'a, Location> {
        Box::pin(async move {
            let address = self.address(file)?;
            let once = |error| GaveUp { error, attempts: 1, waited: Duration::ZERO };
            let asked = self.send(Method::HEAD, &address, SIZE_TIMEOUT).await;
            let answer = asked.map_err(|failure| store_error(file, once(failure)))?;
            // Of an answer without a body the client knows no length. Without it the download goes as well.
            let size = answer.headers().get(CONTENT_LENGTH).and_then(|size| size.to_str().ok()?.parse().ok());
            let token =
                self.tokens.header().await.map_err(|error| no_token(&file.url, &error.to_string()))?;
            let headers = HeaderMap::from_iter([(AUTHORIZATION, token), (version_header(), VERSION)]);
            let url = Url::parse(&address).map_err(|_| bad_url(file, "it names no blob"))?;
            Ok(Location::of(url).with_headers(headers).of_size(size))
        })
    }
}

impl AzureBlob {
    /// The accounts of Azure's public cloud, or the one whose blob service `AZURE_STORAGE_SERVICE_ENDPOINT` names.
    ///
    /// # Errors
    /// If there can be no HTTP client, or the server is to be reached by TLS, but this host has no CA bundle.
    pub(super) fn new(retries: Retries) -> Result<AzureBlob, StoreError> {
        let endpoint = set(ENDPOINT_VARIABLE).map(|url| url.trim_end_matches('/').to_owned());
        tls::require_ca_bundle_for([endpoint.as_deref().unwrap_or("https://")])?;
        let unusable = |error: &dyn std::error::Error| StoreError::BadSettings(error.to_string());
        let tokens = Tokens::of_environment(STORAGE, retries).map_err(|error| unusable(&error))?;
        let client = http::client().map_err(|error| unusable(&error))?;
        Ok(AzureBlob { client, endpoint, account: set(ACCOUNT_VARIABLE), retries, tokens })
    }

    /// Reads a list page by page, until `take` has enough of it.
    async fn pages(
        &self,
        folder: &Place,
        prefix: &str,
        parameters: &[(&str, &str)],
        mut take: impl FnMut(Page) -> bool + Send,
    ) -> Result<(), StoreError> {
        let container = self.container(folder)?;
        let mut marker = String::new();
        for _ in 0..MOST_PAGES {
            let query = form_urlencoded::Serializer::new(String::new())
                .extend_pairs([("restype", "container"), ("comp", "list"), ("maxresults", PAGE)])
                .append_pair("prefix", prefix)
                .extend_pairs(parameters)
                .extend_pairs((!marker.is_empty()).then_some(("marker", marker.as_str())))
                .finish();
            let bytes = self.get(folder, &format!("{container}?{query}"), LONGEST_PAGE).await?;
            let mut page = listing::parse(&bytes).map_err(|problem| no_list(folder, &problem))?;
            marker = std::mem::take(&mut page.next_marker);
            if !take(page) || marker.is_empty() {
                return Ok(());
            }
        }
        Err(no_list(folder, "its pages have no end"))
    }

    /// The URL of a place's container.
    fn container(&self, place: &Place) -> Result<String, StoreError> {
        let account = self.account.as_deref().unwrap_or_default();
        let (account, container) = place.bucket.split_once('/').unwrap_or((account, &place.bucket));
        if !is_account(account) {
            return Err(bad_url(place, "AZURE_STORAGE_ACCOUNT is not the name of a storage account"));
        }
        let service = match &self.endpoint {
            Some(endpoint) => endpoint.clone(),
            None => format!("https://{account}.{DOMAIN}"),
        };
        Ok(format!("{service}/{}", escaped(container)))
    }

    fn address(&self, blob: &Place) -> Result<String, StoreError> {
        Ok(format!("{}/{}", self.container(blob)?, escaped(&blob.key)))
    }

    /// What is at an address, asked for again where that helps.
    async fn get(&self, what: &Place, address: &str, largest: u64) -> Result<Vec<u8>, StoreError> {
        let deadline = |failure: &Failure| match failure {
            Failure::Passing(_) => Duration::MAX,
            Failure::NoToken(_) | Failure::Status(..) | Failure::TooLarge => Duration::ZERO,
        };
        let attempt =
            || async { read(self.send(Method::GET, address, self.retries.attempt).await?, largest).await };
        let asked = self.retries.run(&what.url, attempt, deadline).await;
        asked.map_err(|gave_up| store_error(what, gave_up))
    }

    async fn send(&self, method: Method, address: &str, limit: Duration) -> Result<Response, Failure> {
        let mut code = String::new();
        for is_last in [false, true] {
            let token = self.tokens.header().await.map_err(|error| Failure::NoToken(error.to_string()))?;
            let request = self.client.request(method.clone(), address).header(AUTHORIZATION, token);
            let request = request.header(version_header(), VERSION).timeout(limit);
            let answer = request.send().await.map_err(of_transport)?;
            code = error_code(&answer);
            match answer.status() {
                StatusCode::OK => return Ok(answer),
                // A token may be revoked before its end.
                StatusCode::UNAUTHORIZED if !is_last => self.tokens.forget().await,
                status if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
                    return Err(Failure::Passing(
                        format!("it answers {status} {code}").trim_end().to_owned(),
                    ));
                }
                status => return Err(Failure::Status(status, code)),
            }
        }
        Err(Failure::Status(StatusCode::UNAUTHORIZED, code))
    }
}

/// A variable of the environment that is set to something.
fn set(variable: &str) -> Option<String> {
    std::env::var(variable).ok().filter(|value| !value.is_empty())
}

fn version_header() -> reqwest::header::HeaderName {
    reqwest::header::HeaderName::from_static("x-ms-version")
}

/// Azure's name of the error (`BlobNotFound`); empty where the answer has none, as those of others than Azure.
fn error_code(answer: &Response) -> String {
    let code = answer.headers().get(ERROR_CODE).and_then(|code| code.to_str().ok()).unwrap_or_default();
    code.chars().filter(char::is_ascii_alphanumeric).take(64).collect()
}

/// What went wrong in one attempt.
#[derive(Debug)]
enum Failure {
    /// It may work later.
    Passing(String),
    /// There is no token of the machine's managed identity.
    NoToken(String),
    /// Azure answers with this status, and this name of the error.
    Status(StatusCode, String),
    TooLarge,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Passing(problem) | Failure::NoToken(problem) => f.write_str(problem),
            Failure::Status(status, code) => write!(f, "it answers {status} {code}"),
            Failure::TooLarge => f.write_str("it is too large"),
        }
    }
}

fn of_transport(error: reqwest::Error) -> Failure {
    Failure::Passing(in_one_line(&error.without_url()))
}

async fn read(answer: Response, largest: u64) -> Result<Vec<u8>, Failure> {
    let largest = usize::try_from(largest).unwrap_or(usize::MAX);
    http::body(answer, largest).await.map_err(of_transport)?.ok_or(Failure::TooLarge)
}

/// What to tell the operator. Only what Azure says is not there is absent: a 404 without its name may be of something between.
fn store_error(blob: &Place, gave_up: GaveUp<Failure>) -> StoreError {
    let GaveUp { error, attempts, waited } = gave_up;
    let url = blob.url.clone();
    match error {
        Failure::Passing(cause) => StoreError::Unreachable { url, cause, attempts, waited },
        Failure::NoToken(problem) => no_token(url, &problem),
        Failure::TooLarge => StoreError::TooLarge { url },
        Failure::Status(status, code) => match (status.as_u16(), code.as_str()) {
            (404, "BlobNotFound") => StoreError::NotFound { url, place: String::new() },
            (404, "ContainerNotFound") => StoreError::WrongBucket { url, bucket: blob.bucket.clone() },
            (401, _) | (403, "AuthenticationFailed") => {
                let problem = format!(
                    "{} {code}; is this machine's identity one of the account's tenant?",
                    status.as_u16()
                );
                StoreError::Credentials { url, problem }
            }
            (403, _) => StoreError::Forbidden { url, rights: blob.rights.clone() },
            (409, _) => {
                let message = "the container or the blob is in a state in which it is not given".into();
                StoreError::Refused { url, status: 409, code, message }
            }
            (status, _) => {
                StoreError::Refused { url, status, code, message: "is this the name of a blob?".into() }
            }
        },
    }
}

fn no_token(url: impl Into<String>, problem: &str) -> StoreError {
    let problem = format!("there is no token of the machine's managed identity: {problem}");
    StoreError::Credentials { url: url.into(), problem }
}

fn no_list(folder: &Place, problem: &str) -> StoreError {
    let message = format!("what is no list of blobs: {problem}");
    StoreError::Refused { url: folder.url.clone(), status: 200, code: String::new(), message }
}

fn bad_url(place: &Place, problem: &str) -> StoreError {
    StoreError::BadUrl { url: place.url.clone(), problem: problem.to_owned() }
}

/// A name as one segment of a path (RFC 3986, section 2.3).
fn escaped(name: &str) -> PercentEncode<'_> {
    const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    utf8_percent_encode(name, RESERVED)
}
