//! Checks whether servers have the downloads. It requests headers or one byte, and downloads no file.

use std::time::{SystemTime, UNIX_EPOCH};

use futures_util::{StreamExt as _, stream};
use kops_agent_net::{Buckets as _, Location, LocationClient, NOT_FOLLOWED, http};
use kops_agent_plan::doctor::{Download, Outcome};
use kops_agent_spec::urls::shown_url;
use kops_agent_store::Store;
use reqwest::header::{ACCEPT, CONTENT_LENGTH, RANGE};
use reqwest::{Method, Response, StatusCode, Url};

use super::deadline::{QUESTION, with_timeout};
use super::node::WantedDownload;

/// Maximum number of downloads that are checked at the same time.
const AT_ONCE: usize = 8;
/// The header `Accept` for files of any kind.
const ANYTHING: &str = "*/*";

/// A download, its size, and the clocks of its servers.
pub(super) struct CheckedDownload {
    /// The first URL of the download.
    pub(super) url: String,
    pub(super) download: Download,
    /// The size of the download in bytes. `None` if no server reports it.
    pub(super) size: Option<u64>,
    /// The host and port of each server, and how many seconds its clock is ahead of this machine's clock.
    pub(super) clocks: Vec<(String, i64)>,
}

pub(super) async fn ask(store: &Store, wanted: &[WantedDownload]) -> Vec<CheckedDownload> {
    let client = LocationClient::new().map_err(|error| error.to_string());
    let asking = wanted.iter().map(|wanted| ask_for(store, client.as_ref(), wanted, Outcome::Fails));
    stream::iter(asking).buffered(AT_ONCE).collect().await
}

/// Asks the servers of a file, one after another, until one has the file. Returns the URL and the outcome of each
/// asked server. The outcome is unknown if a server refuses this machine.
pub async fn servers_of_file(
    store: &Store,
    client: &LocationClient,
    urls: Vec<String>,
) -> Vec<(String, Outcome)> {
    let wanted = WantedDownload { urls, is_there: false };
    ask_for(store, Ok(client), &wanted, Outcome::Unknown).await.download.servers
}

/// Asks the servers of a download until one has the download. `refused` makes the outcome for a server that refuses
/// this machine.
async fn ask_for(
    store: &Store,
    client: Result<&LocationClient, &String>,
    wanted: &WantedDownload,
    refused: fn(String) -> Outcome,
) -> CheckedDownload {
    let url = wanted.urls.first().cloned().unwrap_or_default();
    let name = shown_url(&url).rsplit('/').next().unwrap_or_default().to_owned();
    let download = Download { name, is_there: wanted.is_there, servers: Vec::new() };
    let mut of_url = CheckedDownload { url, download, size: None, clocks: Vec::new() };
    for url in &wanted.urls {
        let outcome = match client {
            Ok(client) => of_url.head(store, client, url, refused).await,
            Err(why) => Outcome::Fails(why.clone()),
        };
        let is_served = outcome == Outcome::Answers;
        of_url.download.servers.push((shown_url(url), outcome));
        if is_served {
            break;
        }
    }
    of_url
}

impl CheckedDownload {
    async fn head(
        &mut self,
        store: &Store,
        client: &LocationClient,
        url: &str,
        refused: fn(String) -> Outcome,
    ) -> Outcome {
        let location = match located(store, url, refused).await {
            Ok(location) => location,
            Err(outcome) => return outcome,
        };
        if location.url.scheme() == "file" {
            return of_file(&location.url);
        }
        let answer = match with_timeout(QUESTION, request(client, &location)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) if error.is_timeout() => {
                return Outcome::Unknown("it takes too long to answer".to_owned());
            }
            Ok(Err(error)) => return Outcome::Fails(http::innermost_cause(error)),
            Err(why) => return Outcome::Unknown(why.into()),
        };
        if let Some((host, ahead)) = clock_of(&answer) {
            self.clocks.push((host, ahead));
        }
        let length =
            answer.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        let outcome = of_status(answer.status(), refused);
        if outcome == Outcome::Answers {
            self.size = location.size.or(length).filter(|_| answer.status() == StatusCode::OK);
        }
        outcome
    }
}

async fn located(store: &Store, url: &str, refused: fn(String) -> Outcome) -> Result<Location, Outcome> {
    if !store.locates(url) {
        let url = Url::parse(url).map_err(|error| Outcome::Fails(error.to_string()))?;
        return Ok(Location::new(url));
    }
    match with_timeout(QUESTION, store.locate(url)).await {
        Ok(Ok(location)) => Ok(location),
        Ok(Err(error)) if error.is_refused => Err(refused(error.reason)),
        Ok(Err(error)) => Err(Outcome::Fails(error.reason)),
        Err(why) => Err(Outcome::Unknown(why.into())),
    }
}

fn of_file(url: &Url) -> Outcome {
    match url.to_file_path().map(|path| path.exists()) {
        Ok(true) => Outcome::Answers,
        Ok(false) => Outcome::Fails("there is no such file".to_owned()),
        Err(()) => Outcome::Fails("it names no file of this machine".to_owned()),
    }
}

/// Requests the headers of a file. For a signed URL of a bucket, uses GET, because the signature allows nothing else.
async fn request(client: &LocationClient, location: &Location) -> Result<Response, reqwest::Error> {
    match location.has_headers() || location.url.query().is_some() {
        true => first_byte(client, location, ANYTHING).await,
        false => headers(client, location, ANYTHING).await,
    }
}

/// Requests headers with HEAD. If the server does not support HEAD, requests the first byte with GET. `accept` is the
/// value of the `Accept` header.
pub(super) async fn headers(
    client: &LocationClient,
    location: &Location,
    accept: &'static str,
) -> Result<Response, reqwest::Error> {
    let answer = client.request(Method::HEAD, location).header(ACCEPT, accept).send().await?;
    match answer.status() {
        StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => {
            first_byte(client, location, accept).await
        }
        _ => Ok(answer),
    }
}

async fn first_byte(
    client: &LocationClient,
    location: &Location,
    accept: &'static str,
) -> Result<Response, reqwest::Error> {
    client.request(Method::GET, location).header(ACCEPT, accept).header(RANGE, "bytes=0-0").send().await
}

/// The host and port of the server that answered, and how many seconds its clock is ahead of this machine's clock.
pub(super) fn clock_of(answer: &Response) -> Option<(String, i64)> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs();
    let ahead = http::date_of(answer)?.saturating_sub(i64::try_from(now).ok()?);
    Some((answer.url().authority().rsplit('@').next()?.to_owned(), ahead))
}

/// The outcome for an HTTP status. `refused` makes the outcome for a server that refuses this machine.
pub(super) fn of_status(status: StatusCode, refused: fn(String) -> Outcome) -> Outcome {
    match status {
        StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => {
            refused(format!("it answers {status}: the file may exist, but this machine may not read it"))
        }
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => {
            Outcome::Unknown(format!("it answers {status}"))
        }
        status if status.is_success() => Outcome::Answers,
        status if status.is_redirection() => {
            Outcome::Fails(format!("it answers {status}, and {NOT_FOLLOWED}"))
        }
        status if status.is_server_error() => Outcome::Unknown(format!("it answers {status}")),
        status => Outcome::Fails(format!("it answers {status}")),
    }
}
