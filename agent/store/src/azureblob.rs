//! Containers of Azure Blob Storage, by its REST API, with the machine's managed identity.
//!
//! This module does not use Microsoft's libraries: the agent needs three requests, and the libraries bring their own HTTP
//! client.
//!
//! A URL is `azureblob://ACCOUNT/CONTAINER/KEY`. Older kOps wrote `azureblob://CONTAINER/KEY`, with the account in
//! `AZURE_STORAGE_ACCOUNT`. Newer kOps refuses to run with that variable (upstream: `buildAzureBlobPath` in
//! util/pkg/vfs/context.go). So if the variable is set, a URL that does not begin with the variable's account has the
//! older form.
//!
//! Source: Azure Storage REST API, "Get Blob", "Get Blob Properties", "List Blobs", "Blob service error codes"; upstream's
//! `util/pkg/vfs/azureblob.go` and `azureclient.go`.

mod listing;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::future::ready;
use std::time::Duration;

use kops_agent_net::{Location, Said};
use reqwest::header::{AUTHORIZATION, CONTENT_LENGTH, HeaderMap, HeaderValue};
use reqwest::{Client, Method, Response, StatusCode, Url};

use super::backend::{Backend, BackendFuture, LARGEST_FILE, Misspelt, Opening, Place, Setup, Split};
use super::error::StoreError;
use super::failure::{Failure, body, store_error};
use super::names::{common, directly_below, escaped, prefix};
use kops_agent_cloud::azure::tokens::{STORAGE, Tokens};
use kops_agent_net::http;
use kops_agent_net::retry::Retries;
use kops_agent_net::tls;
use listing::Page;

/// The variable with the storage account for URLs of the older form, which name no account. Older kOps releases set the variable.
const ACCOUNT_VARIABLE: &str = "AZURE_STORAGE_ACCOUNT";
/// The variable with the URL of the account's blob service, as `az storage` reads it.
const ENDPOINT_VARIABLE: &str = "AZURE_STORAGE_SERVICE_ENDPOINT";
/// The groups of variables. Each variable is a separate group, because it has an effect without the others.
pub(super) const VARIABLES: &[&[&str]] = &[&[ACCOUNT_VARIABLE], &[ENDPOINT_VARIABLE]];
/// The domain of Azure's servers. The server of an account is `ACCOUNT.blob.core.windows.net`.
const DOMAIN: &str = "blob.core.windows.net";
/// The version of the API. Older versions do not accept tokens.
const VERSION: HeaderValue = HeaderValue::from_static("2021-12-02");
/// The header with Azure's name for an error. Responses without a body also have this header.
const ERROR_CODE: &str = "x-ms-error-code";
/// Timeout of a request for a blob's size.
const SIZE_TIMEOUT: Duration = Duration::from_secs(20);
/// Number of blobs per page.
const PAGE: &str = "1000";
/// The maximum size of a page of a list, in bytes. One blob takes about 1 KiB.
const LONGEST_PAGE: u64 = 4 * 1024 * 1024;
/// The maximum number of pages of a list. No state store has so many pages.
const MOST_PAGES: usize = 1000;

#[derive(Debug)]
pub(super) struct AzureBlob {
    client: Client,
    /// The URL of the blob service from the environment. `None` if each account has its own server.
    endpoint: Option<String>,
    /// The storage account for URLs that name no account.
    account: Option<String>,
    retries: Retries,
    tokens: Tokens,
}

pub(crate) fn open(setup: Setup) -> Opening {
    Box::pin(ready(AzureBlob::new(setup.retries).map(|blob| Box::new(blob) as Box<dyn Backend>)))
}

/// Splits a URL. The bucket is `ACCOUNT/CONTAINER`. In older URLs, the bucket is only the container.
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
                "it does not begin with a storage account, which has 3 to 24 lowercase letters and digits";
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

/// Whether Azure allows an account with this name. The check matters because the name becomes part of a host name.
fn is_account(name: &str) -> bool {
    (3..=24).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

pub(crate) fn rights(bucket: &str, _: &str) -> String {
    format!(
        "the role Storage Blob Data Reader on the container {bucket}, and let the account's network rules admit this machine"
    )
}

impl Backend for AzureBlob {
    fn read<'a>(&'a self, file: &'a Place) -> BackendFuture<'a, Vec<u8>> {
        Box::pin(async move { self.get(file, &self.address(file)?, LARGEST_FILE).await })
    }

    fn list<'a>(&'a self, folder: &'a Place) -> BackendFuture<'a, Vec<String>> {
        Box::pin(async move {
            let below = prefix(folder);
            let mut names = Vec::new();
            self.pages(folder, &below, &[("delimiter", "/")], |page| {
                names.extend(page.blobs.into_iter().map(|blob| blob.name).chain(page.prefixes));
                true
            })
            .await?;
            Ok(directly_below(&below, names))
        })
    }

    /// Returns the ETags of blobs as versions. Azure cannot list a range of names. So this method lists the names that begin with the
    /// common prefix of `first` and `last`, and stops after `last`.
    fn versions<'a>(
        &'a self,
        folder: &'a Place,
        first: &'a str,
        last: &'a str,
    ) -> BackendFuture<'a, BTreeMap<String, String>> {
        Box::pin(async move {
            let below = prefix(folder);
            let mut versions = BTreeMap::new();
            self.pages(folder, &format!("{below}{}", common(first, last)), &[], |page| {
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

    fn locate<'a>(&'a self, file: &'a Place) -> BackendFuture<'a, Location> {
        Box::pin(async move {
            let address = self.address(file)?;
            let asked = self.send(Method::HEAD, &address, SIZE_TIMEOUT).await;
            let answer = asked.map_err(|failure| failure.after_one_try(file))?;
            // For an answer without a body, reqwest reports no length, so the size is read from the header. If the size is unknown, the
            // download still works.
            let size = answer.headers().get(CONTENT_LENGTH).and_then(|size| size.to_str().ok()?.parse().ok());
            let token = self.token().await.map_err(|failure| failure.after_one_try(file))?;
            let headers = HeaderMap::from_iter([(AUTHORIZATION, token), (version_header(), VERSION)]);
            let url = Url::parse(&address).map_err(|_| file.bad_url("it names no blob"))?;
            Ok(Location::new(url).with_headers(headers).of_size(size))
        })
    }
}

impl AzureBlob {
    /// Makes a backend for all accounts of Azure's public cloud, or for the blob service in `AZURE_STORAGE_SERVICE_ENDPOINT`.
    pub(super) fn new(retries: Retries) -> Result<AzureBlob, StoreError> {
        let endpoint = set(ENDPOINT_VARIABLE).map(|url| url.trim_end_matches('/').to_owned());
        tls::require_ca_bundle_for([endpoint.as_deref().unwrap_or("https://")])?;
        let unusable = |error: &dyn std::error::Error| StoreError::BadSettings(error.to_string());
        let tokens = Tokens::of_environment(STORAGE, retries).map_err(|error| unusable(&error))?;
        let client = http::client().map_err(|error| unusable(&error))?;
        Ok(AzureBlob { client, endpoint, account: set(ACCOUNT_VARIABLE), retries, tokens })
    }

    /// Reads a list page by page, until `take` returns false.
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
            let mut page = listing::parse(&bytes).map_err(|problem| folder.no_list(problem))?;
            marker = std::mem::take(&mut page.next_marker);
            if !take(page) || marker.is_empty() {
                return Ok(());
            }
        }
        Err(folder.no_end())
    }

    /// The URL of a place's container.
    fn container(&self, place: &Place) -> Result<String, StoreError> {
        let account = self.account.as_deref().unwrap_or_default();
        let (account, container) = place.bucket.split_once('/').unwrap_or((account, &place.bucket));
        if !is_account(account) {
            return Err(place.bad_url("AZURE_STORAGE_ACCOUNT is not the name of a storage account"));
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

    /// Sends a GET request, and retries it after transient failures.
    async fn get(&self, what: &Place, address: &str, largest: u64) -> Result<Vec<u8>, StoreError> {
        let attempt =
            || async { body(self.send(Method::GET, address, self.retries.attempt).await?, largest).await };
        let asked = self.retries.run(&what.url, attempt, Failure::retried_for).await;
        asked.map_err(|gave_up| store_error(what, gave_up))
    }

    /// Sends a request. If the server rejects the token, sends the request once more with a new token, because the old token may be
    /// revoked.
    async fn send(&self, method: Method, address: &str, limit: Duration) -> Result<Response, Failure> {
        let answer = self.send_once(method.clone(), address, limit).await?;
        if answer.status() != StatusCode::UNAUTHORIZED {
            return granted(answer).await;
        }
        self.tokens.forget().await;
        granted(self.send_once(method, address, limit).await?).await
    }

    async fn send_once(&self, method: Method, address: &str, limit: Duration) -> Result<Response, Failure> {
        let request = self.client.request(method, address).header(AUTHORIZATION, self.token().await?);
        let request = request.header(version_header(), VERSION).timeout(limit);
        request.send().await.map_err(Failure::of_transport)
    }

    async fn token(&self) -> Result<HeaderValue, Failure> {
        self.tokens.header().await.map_err(|error| {
            Failure::Credentials(format!("cannot get a token of the machine's managed identity: {error}"))
        })
    }
}

/// The value of an environment variable. `None` if the variable is unset or empty.
fn set(variable: &str) -> Option<String> {
    std::env::var(variable).ok().filter(|value| !value.is_empty())
}

fn version_header() -> reqwest::header::HeaderName {
    reqwest::header::HeaderName::from_static("x-ms-version")
}

/// Azure's name for the error, such as `BlobNotFound`. Empty if the response has no such name, for example because it is from another
/// server.
fn error_code(answer: &Response) -> String {
    let code = answer.headers().get(ERROR_CODE).and_then(|code| code.to_str().ok()).unwrap_or_default();
    code.chars().filter(char::is_ascii_alphanumeric).take(64).collect()
}

/// Returns a successful response, and converts any other response into a failure. A 404 means that the blob is missing only if the response
/// has Azure's error name, because another server, such as a proxy, may also send a 404.
async fn granted(answer: Response) -> Result<Response, Failure> {
    let (status, code) = (answer.status(), error_code(&answer));
    if status == StatusCode::OK {
        return Ok(answer);
    }
    // A response to HEAD has no body, so Azure's error message is missing. The headers do not contain it either.
    let said = Said { code, ..Said::from_answer(answer).await };
    Err(match (status.as_u16(), said.code.as_str()) {
        (404, "BlobNotFound") => Failure::Absent,
        (404, "ContainerNotFound") => Failure::NoBucket,
        (401, _) | (403, "AuthenticationFailed") => Failure::Credentials(format!(
            "{} {}; is this machine's identity one of the account's tenant, and is its clock right?",
            status.as_u16(),
            said.in_words()
        )),
        (403, _) => Failure::Forbidden { advice: advice(&said.code).map(str::to_owned), said },
        (409, "BlobArchived" | "BlobBeingRehydrated") => {
            let hint = "it is in the archive tier: set the blob's tier to Hot, and exempt the state store from lifecycle rules";
            Failure::of_status(status, &said, hint)
        }
        (409, _) => {
            let hint = "the state of the container or of the blob does not allow reading";
            Failure::of_status(status, &said, hint)
        }
        _ => Failure::of_status(status, &said, "is this the name of a blob?"),
    })
}

/// Advice for a 403 with this error code of Azure. `None` for all other codes, such as `AuthorizationPermissionMismatch`, which means that
/// a role is missing.
fn advice(code: &str) -> Option<&'static str> {
    match code {
        "" => Some("this is no answer of Azure's storage: check the proxy and DNS"),
        "AuthorizationFailure" | "AuthorizationSourceIPMismatch" => Some(
            "the network rules of the storage account have to admit this machine's subnet or address, or its private endpoint",
        ),
        "AccountIsDisabled" => Some("the storage account is disabled: is its subscription active?"),
        "AuthorizationProtocolMismatch" => Some("use https"),
        code if code.starts_with("KeyVault") => Some(
            "the storage account is encrypted by a key of a vault: enable the key, and let the account's identity use it (role Key Vault \
             Crypto Service Encryption User)",
        ),
        _ => None,
    }
}
