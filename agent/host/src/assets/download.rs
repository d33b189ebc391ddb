//! Downloading: several at once, gone on with after a break, and verified byte by byte as they come.

use std::path::PathBuf;
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBuilder};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use reqwest::header::{CONTENT_RANGE, RANGE};
use reqwest::{Response, StatusCode, Url};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use super::cache::{Cache, Part};
use super::for_each_piece;
use super::progress::Progress;
use crate::error::{Error, Result};

/// Why something could not be downloaded.
#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    /// It is not what it should be.
    #[error(
        "{url} is not what it should be: expected SHA-256 {expected}, got {got} in {size} bytes{hint}; nothing of it was kept"
    )]
    WrongHash {
        /// From where.
        url: String,
        /// The hash that it should have.
        expected: String,
        /// The hash that it has.
        got: String,
        /// How much came.
        size: u64,
        /// What it looks like.
        hint: &'static str,
    },
    /// It did not come, and trying again cannot help.
    #[error("cannot download {url}: {reason}")]
    Refused {
        /// From where.
        url: String,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// It did not come, as often as it was tried.
    #[error(
        "cannot download {url}: {reason} (tried {attempts} times); what has come is kept, and the next run goes on from there"
    )]
    GaveUp {
        /// From where.
        url: String,
        /// What went wrong the last time.
        reason: String,
        /// How often it was tried.
        attempts: usize,
    },
    /// An archive lacks something.
    #[error("the archive {url} has no file {member}; it has {present}")]
    NoMember {
        /// The archive.
        url: String,
        /// What it lacks.
        member: String,
        /// Some of what it has.
        present: String,
    },
    /// An archive cannot be read.
    #[error("cannot unpack {url}: {reason}")]
    BadArchive {
        /// The archive.
        url: String,
        /// What is wrong.
        reason: String,
    },
}

/// How things are downloaded.
pub struct Downloads {
    client: reqwest::Client,
    cache: Option<PathBuf>,
    at_once: usize,
    attempts: usize,
    stalled_after: Duration,
    pause: Duration,
}

/// Something to download.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Request {
    /// Lower-case hexadecimal SHA-256.
    pub(crate) sha256: String,
    /// From where: the first, and if that does not have it, the next.
    pub(crate) urls: Vec<String>,
}

impl Request {
    /// What it is called in the cache and towards people.
    pub(crate) fn url(&self) -> &str {
        self.urls.first().map_or("", String::as_str)
    }
}

/// How an attempt ended that may be worth another.
enum Trouble {
    /// Another attempt may go better.
    Passing(String),
    /// Another attempt cannot help.
    Lasting(String),
    /// This machine is at fault.
    Own(Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        Trouble::Own(error)
    }
}

impl From<std::io::Error> for Trouble {
    fn from(error: std::io::Error) -> Trouble {
        Trouble::Lasting(crate::error::explain(&error))
    }
}

impl Downloads {
    /// Downloads with this client: four at once, six attempts each, half a minute of silence before
    /// one is given up.
    pub fn new(client: reqwest::Client) -> Downloads {
        Downloads {
            client,
            cache: None,
            at_once: 4,
            attempts: 6,
            stalled_after: Duration::from_secs(30),
            pause: Duration::from_millis(500),
        }
    }

    /// Keeps downloads in this directory rather than in `/var/cache/nodeup` below the root.
    pub fn cache(self, path: impl Into<PathBuf>) -> Downloads {
        Downloads { cache: Some(path.into()), ..self }
    }

    /// How often a download is tried before it is given up, at least once; an attempt that brought
    /// something does not count.
    pub fn attempts(self, attempts: usize) -> Downloads {
        Downloads { attempts: attempts.max(1), ..self }
    }

    /// How long a server may be silent, and how long the first pause before another attempt is.
    pub fn patience(self, stalled_after: Duration, pause: Duration) -> Downloads {
        Downloads { stalled_after, pause, ..self }
    }

    /// The directory in which downloads are kept, if not the default.
    pub(crate) fn cache_path(&self) -> Option<&std::path::Path> {
        self.cache.as_deref()
    }

    /// Fetches everything into the cache, and returns once all of it is verified.
    pub(crate) async fn fetch(
        &self,
        cache: &Cache,
        requests: Vec<Request>,
        progress: &dyn Progress,
    ) -> Result<()> {
        stream::iter(requests)
            .map(|request| async move { self.fetch_one(cache, &request, progress).await })
            .buffer_unordered(self.at_once)
            .try_collect()
            .await
    }

    async fn fetch_one(&self, cache: &Cache, request: &Request, progress: &dyn Progress) -> Result<()> {
        let name = request.url();
        if self.is_cached(cache, request).await? {
            return Ok(());
        }
        let mut failed = None;
        for url in &request.urls {
            match self.fetch_from(url, cache, request, progress).await {
                Ok(()) => {
                    progress.download_finished(name);
                    return Ok(());
                }
                Err(Error::Download(error)) => failed = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(failed
            .unwrap_or_else(|| DownloadError::Refused { url: name.into(), reason: "no URL is given".into() })
            .into())
    }

    async fn is_cached(&self, cache: &Cache, request: &Request) -> Result<bool> {
        let (cache, request) = (cache.clone(), request.clone());
        let hashing = spawn_blocking(move || cache.holds(&request.sha256, request.url()));
        // A panic there is one here.
        hashing.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
    }

    async fn fetch_from(
        &self,
        url: &str,
        cache: &Cache,
        request: &Request,
        progress: &dyn Progress,
    ) -> Result<()> {
        let mut part = cache.part(&request.sha256, request.url())?;
        if part.size() > 0 && part.sha256() == request.sha256 {
            return finish(part).await;
        }
        let mut pauses = self.pauses();
        let mut attempts = 0;
        loop {
            attempts += 1;
            let before = part.size();
            match self.attempt(url, request.url(), &mut part, progress).await {
                Ok(()) if part.sha256() == request.sha256 => return finish(part).await,
                // What was there before may have been wrong from the start.
                Ok(()) if before > 0 => {
                    part.clear()?;
                    progress
                        .download_retried(request.url(), "what an earlier attempt had brought is not right");
                }
                Ok(()) => return Err(wrong_hash(url, request, part)?.into()),
                Err(Trouble::Own(error)) => return Err(error),
                Err(Trouble::Lasting(reason)) => {
                    return Err(DownloadError::Refused { url: url.into(), reason }.into());
                }
                Err(Trouble::Passing(reason)) => {
                    let pause = if part.size() > before {
                        (pauses, attempts) = (self.pauses(), 0);
                        Some(self.pause)
                    } else {
                        pauses.next()
                    };
                    let Some(pause) = pause else {
                        return Err(DownloadError::GaveUp { url: url.into(), reason, attempts }.into());
                    };
                    progress.download_retried(request.url(), &reason);
                    sleep(pause).await;
                }
            }
        }
    }

    fn pauses(&self) -> impl Iterator<Item = Duration> + use<> {
        ExponentialBuilder::default()
            .with_min_delay(self.pause)
            .with_max_delay(Duration::from_secs(30))
            .with_max_times(self.attempts - 1)
            .with_jitter()
            .build()
    }

    /// Brings what is missing of a download.
    async fn attempt(
        &self,
        url: &str,
        name: &str,
        part: &mut Part,
        progress: &dyn Progress,
    ) -> std::result::Result<(), Trouble> {
        let parsed =
            Url::parse(url).map_err(|error| Trouble::Lasting(format!("it is not a URL: {error}")))?;
        match parsed.scheme() {
            "http" | "https" => self.attempt_http(parsed, name, part, progress).await,
            "file" => copy_file(&parsed, name, part, progress),
            other => Err(Trouble::Lasting(format!("{other}:// is not supported for downloads yet"))),
        }
    }

    async fn attempt_http(
        &self,
        url: Url,
        name: &str,
        part: &mut Part,
        progress: &dyn Progress,
    ) -> std::result::Result<(), Trouble> {
        let mut request = self.client.get(url);
        if part.size() > 0 {
            request = request.header(RANGE, format!("bytes={}-", part.size()));
        }
        let stalled =
            || Trouble::Passing(format!("the server was silent for {} s", self.stalled_after.as_secs()));
        let mut response = timeout(self.stalled_after, request.send())
            .await
            .map_err(|_| stalled())?
            .map_err(|error| Trouble::Passing(root_cause(&error)))?;
        match response.status() {
            StatusCode::OK => part.clear()?,
            StatusCode::PARTIAL_CONTENT if begins_at(&response) == Some(part.size()) => {}
            StatusCode::PARTIAL_CONTENT => {
                part.clear()?;
                return Err(Trouble::Passing("the server sent another part than it was asked for".into()));
            }
            // There is nothing after what is there: it is whole, or wrong.
            StatusCode::RANGE_NOT_SATISFIABLE if part.size() > 0 => return Ok(()),
            status => return Err(refusal(status)),
        }
        let total = response.content_length().map(|rest| rest + part.size());
        progress.download_started(name, total, part.size());
        loop {
            let piece = timeout(self.stalled_after, response.chunk()).await.map_err(|_| stalled())?;
            match piece.map_err(|error| Trouble::Passing(root_cause(&error)))? {
                Some(bytes) => {
                    part.write(&bytes)?;
                    progress.download_advanced(name, bytes.len() as u64);
                }
                None => break,
            }
        }
        match total {
            Some(total) if part.size() < total => {
                Err(Trouble::Passing(format!("it ended after {} of {total} bytes", part.size())))
            }
            _ => Ok(()),
        }
    }
}

/// Where the server says that its part begins (RFC 9110, section 14.4).
fn begins_at(response: &Response) -> Option<u64> {
    let range = response.headers().get(CONTENT_RANGE)?.to_str().ok()?;
    range.strip_prefix("bytes ")?.split('-').next()?.parse().ok()
}

fn refusal(status: StatusCode) -> Trouble {
    let said = format!("the server answered {status}");
    match status {
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS | StatusCode::TOO_EARLY => {
            Trouble::Passing(said)
        }
        status if status.is_server_error() => Trouble::Passing(said),
        _ => Trouble::Lasting(said),
    }
}

/// The innermost error: the outer ones repeat the URL, which the message names already.
fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

fn copy_file(
    url: &Url,
    name: &str,
    part: &mut Part,
    progress: &dyn Progress,
) -> std::result::Result<(), Trouble> {
    let path =
        url.to_file_path().map_err(|()| Trouble::Lasting("it names no file of this machine".into()))?;
    let mut file = std::fs::File::open(path)?;
    part.clear()?;
    progress.download_started(name, file.metadata().ok().map(|metadata| metadata.len()), 0);
    for_each_piece(&mut file, |bytes| {
        progress.download_advanced(name, bytes.len() as u64);
        part.write(bytes).map_err(Trouble::Own)
    })?;
    Ok(())
}

/// Syncing a large file takes a while, and other downloads go on meanwhile.
async fn finish(part: Part) -> Result<()> {
    let syncing = spawn_blocking(move || part.keep());
    syncing.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}

fn wrong_hash(url: &str, request: &Request, mut part: Part) -> Result<DownloadError> {
    let beginning = String::from_utf8_lossy(&part.beginning()).trim_start().to_ascii_lowercase();
    let is_html = ["<!doctype html", "<html", "<head", "<?xml"].iter().any(|tag| beginning.starts_with(tag));
    let hint = match part.size() {
        _ if is_html => " (a proxy or mirror answered with an HTML page)",
        0 => " (the answer was empty)",
        _ => "",
    };
    let (got, size) = (part.sha256(), part.size());
    part.discard()?;
    Ok(DownloadError::WrongHash { url: url.into(), expected: request.sha256.clone(), got, size, hint })
}
