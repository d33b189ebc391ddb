//! Containers of OpenStack's object storage (Swift) or of a compatible server (Ceph's RADOS gateway), by a login to
//! Keystone.
//!
//! Source: Object Storage API v1, "Get object content and metadata", "Show object metadata", "Show container details and list
//! objects"; upstream's `util/pkg/vfs/swiftfs.go`.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::future::ready;
use std::time::Duration;

use kops_agent_net::{Location, Said};
use percent_encoding::{AsciiSet, utf8_percent_encode};
use reqwest::header::{CONTENT_LENGTH, HeaderMap, HeaderName};
use reqwest::{Client, Method, Response, StatusCode, Url};
use serde::Deserialize;

use super::backend::{Backend, BackendFuture, LARGEST_FILE, Opening, Place, Setup};
use super::error::StoreError;
use super::failure::{Failure, body, store_error};
use super::names::{RESERVED, common, directly_below, prefix};
use kops_agent_cloud::api::ApiError;
use kops_agent_cloud::calls::CloudCalls;
use kops_agent_cloud::inventory::Session;
use kops_agent_cloud::openstack::keystone::{AUTH_TOKEN, Keystone};
use kops_agent_cloud::openstack::settings::Settings;
use kops_agent_net::retry::{GaveUp, Retries};

/// The type of the object storage in Keystone's catalog.
const OBJECT_STORE: &str = "object-store";
/// Headers in every response of Swift. A 403 or 404 from another server, such as a proxy, lacks them.
const TRANSACTION: [&str; 2] = ["x-trans-id", "x-openstack-request-id"];
/// Timeout of a request for an object's size.
const SIZE_TIMEOUT: Duration = Duration::from_secs(20);
/// Number of objects per page.
const PAGE: &str = "1000";
/// The maximum size of a page of a list, in bytes. One object takes about 300 bytes.
const LONGEST_PAGE: u64 = 4 * 1024 * 1024;
/// The maximum number of pages of a list. No state store has so many pages.
const MOST_PAGES: usize = 1000;

/// A backend for all Swift containers of an OpenStack project.
#[derive(Debug)]
pub(super) struct Swift {
    client: Client,
    keystone: Keystone,
    retries: Retries,
}

/// An entry of a list: an object, or the common prefix of several objects up to a `/`.
#[derive(Deserialize)]
struct Entry {
    #[serde(default)]
    name: String,
    #[serde(default)]
    hash: String,
    #[serde(default)]
    subdir: String,
}

impl Entry {
    fn name(&self) -> &str {
        if self.subdir.is_empty() { &self.name } else { &self.subdir }
    }
}

pub(crate) fn open(setup: Setup) -> Opening {
    Box::pin(ready(Swift::new(setup.retries).map(|swift| Box::new(swift) as Box<dyn Backend>)))
}

pub(crate) fn rights(container: &str, _: &str) -> String {
    format!(
        "a role in the project of the container {container} that may read and list the container, or an ACL that allows both to its user"
    )
}

impl Backend for Swift {
    fn read<'a>(&'a self, file: &'a Place) -> BackendFuture<'a, Vec<u8>> {
        Box::pin(async move {
            let path = object(file)?;
            let failed = match self.get(file, &path, LARGEST_FILE).await {
                Ok((_, bytes)) => return Ok(bytes),
                Err(gave_up) => gave_up,
            };
            // Swift gives the same answer for a missing object and for a missing container.
            let is_absent = matches!(failed.error, Failure::Absent);
            if is_absent
                && matches!(
                    self.send(Method::HEAD, &container(file)?, SIZE_TIMEOUT).await,
                    Err(Failure::Absent)
                )
            {
                return Err(file.wrong_bucket());
            }
            Err(store_error(file, failed))
        })
    }

    fn list<'a>(&'a self, folder: &'a Place) -> BackendFuture<'a, Vec<String>> {
        Box::pin(async move {
            let below = prefix(folder);
            let mut names = Vec::new();
            self.pages(folder, &below, &[("delimiter", "/")], |entry| {
                names.push(entry.name().to_owned());
                true
            })
            .await?;
            Ok(directly_below(&below, names))
        })
    }

    /// Returns the hashes of objects as versions. Swift lists the names with a prefix in byte order. So this method lists the names that
    /// begin with the common prefix of `first` and `last`, and stops after `last`.
    fn versions<'a>(
        &'a self,
        folder: &'a Place,
        first: &'a str,
        last: &'a str,
    ) -> BackendFuture<'a, BTreeMap<String, String>> {
        Box::pin(async move {
            let below = prefix(folder);
            let mut versions = BTreeMap::new();
            self.pages(folder, &format!("{below}{}", common(first, last)), &[], |entry| {
                let Some(name) = entry.name.strip_prefix(&below) else { return true };
                if (first..=last).contains(&name) {
                    versions.insert(name.to_owned(), entry.hash.clone());
                }
                name <= last
            })
            .await?;
            Ok(versions)
        })
    }

    fn locate<'a>(&'a self, file: &'a Place) -> BackendFuture<'a, Location> {
        Box::pin(async move {
            let path = object(file)?;
            let asked = self.send(Method::HEAD, &path, SIZE_TIMEOUT).await;
            let (session, answer) = asked.map_err(|failure| failure.after_one_try(file))?;
            // For an answer without a body, reqwest reports no length, so the size is read from the header. If the size is unknown, the
            // download still works.
            let size = answer.headers().get(CONTENT_LENGTH).and_then(|size| size.to_str().ok()?.parse().ok());
            let url = Url::parse(&at(&session, &path)).map_err(|_| file.bad_url("it names no object"))?;
            let headers = HeaderMap::from_iter([(HeaderName::from_static(AUTH_TOKEN), session.token)]);
            Ok(Location::new(url).with_headers(headers).of_size(size))
        })
    }
}

impl Swift {
    /// Makes a backend for the object storage of the OpenStack project that the environment variables name.
    pub(super) fn new(retries: Retries) -> Result<Swift, StoreError> {
        let settings =
            Settings::of_environment().map_err(|error| StoreError::BadSettings(error.to_string()))?;
        Swift::with_settings(settings, retries)
    }

    fn with_settings(settings: Settings, retries: Retries) -> Result<Swift, StoreError> {
        let unusable = |error: &dyn std::error::Error| StoreError::BadSettings(error.to_string());
        let client = settings.client().map_err(|error| unusable(&error))?;
        let keystone = match Keystone::new(settings, OBJECT_STORE, CloudCalls::default()) {
            Err(ApiError::NoCaBundle(none)) => return Err(none.into()),
            made => made.map_err(|error| unusable(&error))?,
        };
        Ok(Swift { client, keystone: keystone.within(retries.attempt), retries })
    }

    /// Reads a list page by page, until `take` returns false.
    async fn pages(
        &self,
        folder: &Place,
        prefix: &str,
        parameters: &[(&str, &str)],
        mut take: impl FnMut(&Entry) -> bool + Send,
    ) -> Result<(), StoreError> {
        let container = container(folder)?;
        let mut marker = String::new();
        for _ in 0..MOST_PAGES {
            let query = form_urlencoded::Serializer::new(String::new())
                .extend_pairs([("format", "json"), ("limit", PAGE), ("prefix", prefix)])
                .extend_pairs(parameters)
                .extend_pairs((!marker.is_empty()).then_some(("marker", marker.as_str())))
                .finish();
            let list = format!("{container}?{query}");
            let (status, bytes) =
                self.get(folder, &list, LONGEST_PAGE).await.map_err(|failed| match failed.error {
                    Failure::Absent => folder.wrong_bucket(),
                    _ => store_error(folder, failed),
                })?;
            if status == StatusCode::NO_CONTENT {
                return Ok(());
            }
            let page: Vec<Entry> =
                serde_json::from_slice(&bytes).map_err(|_| folder.no_list("it is not a list of entries"))?;
            // A page may be short although more pages follow. So only an empty page marks the end of the list.
            let Some(last) = page.last() else { return Ok(()) };
            if last.name() == marker || last.name().is_empty() {
                return Err(folder.no_end());
            }
            if !page.iter().all(&mut take) {
                return Ok(());
            }
            marker = last.name().to_owned();
        }
        Err(folder.no_end())
    }

    /// Sends a GET request to a path below the object storage's endpoint, and retries it after transient failures.
    async fn get(
        &self,
        what: &Place,
        path: &str,
        largest: u64,
    ) -> Result<(StatusCode, Vec<u8>), GaveUp<Failure>> {
        let attempt = || async {
            let (_, answer) = self.send(Method::GET, path, self.retries.attempt).await?;
            Ok((answer.status(), body(answer, largest).await?))
        };
        self.retries.run(&what.url, attempt, Failure::retried_for).await
    }

    /// Sends a request. If the server rejects the token, sends the request once more with a new token, because the old token may be
    /// revoked.
    async fn send(
        &self,
        method: Method,
        path: &str,
        limit: Duration,
    ) -> Result<(Session, Response), Failure> {
        let (session, answer) = self.send_once(method.clone(), path, limit).await?;
        if answer.status() != StatusCode::UNAUTHORIZED {
            return Ok((session, granted(answer).await?));
        }
        self.keystone.forget(&session.token).await;
        let (session, answer) = self.send_once(method, path, limit).await?;
        Ok((session, granted(answer).await?))
    }

    async fn send_once(
        &self,
        method: Method,
        path: &str,
        limit: Duration,
    ) -> Result<(Session, Response), Failure> {
        let session = self.keystone.session().await.map_err(no_login)?;
        let request = self.client.request(method, at(&session, path));
        let request = request.header(AUTH_TOKEN, session.token.clone()).timeout(limit);
        Ok((session, request.send().await.map_err(Failure::of_transport)?))
    }
}

fn no_login(error: ApiError) -> Failure {
    let problem = error.to_string();
    match error {
        error if error.is_configuration() => Failure::Settings(problem),
        error if error.may_pass() => Failure::Passing(problem),
        _ => Failure::Credentials(problem),
    }
}

/// Returns a successful response, and converts any other response into a failure. Another server, such as a proxy, may also send a 404. So
/// only a 404 from Swift itself counts as a missing object.
async fn granted(answer: Response) -> Result<Response, Failure> {
    let is_swifts = TRANSACTION.iter().any(|name| answer.headers().contains_key(*name));
    Err(match (answer.status(), answer.status().as_u16()) {
        (StatusCode::OK | StatusCode::NO_CONTENT, _) => return Ok(answer),
        (StatusCode::NOT_FOUND, _) if is_swifts => Failure::Absent,
        (StatusCode::UNAUTHORIZED, _) => Failure::Credentials(
            "401, for a token that Keystone has just given; check that the login of OS_… is for this cloud"
                .into(),
        ),
        (StatusCode::FORBIDDEN, _) => {
            let nobodys = "this is no answer of Swift: check the proxy, DNS and the object storage of Keystone's catalog";
            let advice = (!is_swifts).then(|| nobodys.to_owned());
            Failure::Forbidden { said: Said::from_answer(answer).await, advice }
        }
        // Swift answers 498 if it limits the rate of requests.
        (status, 498) => Failure::Passing(format!("it answers {status}")),
        (status, _) => {
            let said = Said::from_answer(answer).await;
            Failure::of_status(status, &said, "is this the object storage of Keystone's catalog?")
        }
    })
}

/// The URL of a path below the endpoint.
fn at(session: &Session, path: &str) -> String {
    format!("{}{path}", session.endpoint.trim_end_matches('/'))
}

/// The path of a place's container. Fails if a part of the path is `.` or `..`, because HTTP clients resolve these parts.
fn container(place: &Place) -> Result<String, StoreError> {
    let parts = place.key.split('/').chain([place.bucket.as_str()]);
    match parts.into_iter().any(|part| matches!(part, "." | "..")) {
        true => Err(place.bad_url("a part of it is \".\" or \"..\"")),
        false => Ok(format!("/{}", escaped(&place.bucket))),
    }
}

/// The path of a place's object. Fails if a part of the path is `.` or `..`.
fn object(place: &Place) -> Result<String, StoreError> {
    Ok(format!("{}/{}", container(place)?, escaped(&place.key)))
}

/// Escapes a name for a path. Slashes stay, because a proxy in front of Swift may reject escaped slashes.
fn escaped(name: &str) -> String {
    const ALL_BUT_SLASHES: &AsciiSet = &RESERVED.remove(b'/');
    utf8_percent_encode(name, ALL_BUT_SLASHES).to_string()
}
