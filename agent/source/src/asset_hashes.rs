//! Finds the SHA-256 of downloads whose hash is in no configuration: in a file, or from the publishers of the downloads.
//!
//! kOps contains a table of hashes. The agent has no such table and requests hashes, so it never installs an
//! unverified file. TLS protects a requested hash on its way from the server: the cluster's mirror if it has one,
//! else the publisher. Plain HTTP does not protect the hash, and the agent logs a warning. `NodeupConfigHash`, if the
//! boot config has it, proves all hashes together. If this proof fails, hashes from a mirror are not used.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures_util::{StreamExt as _, stream};
use kops_agent_net::{Location, LocationClient, NOT_FOLLOWED, causes, http, tls};
use kops_agent_plan::derive::{AssetHashes, AssetUrl, KnownHashes};
use kops_agent_spec::digest::parse_sha256;
use kops_agent_spec::facts::Architecture;
use kops_agent_spec::failure::{Failure, Kind};
use kops_agent_spec::urls::shown_url;
use kops_agent_store::{Store, StoreError};
use reqwest::{Method, StatusCode, Url};

use crate::failure::kind_of;

#[derive(Clone, Debug, Default)]
pub struct HashSource {
    /// The hashes that earlier runs found, by URL.
    remembered: BTreeMap<String, String>,
    asks_publishers: bool,
}

impl HashSource {
    /// A source that has no hashes and sends no request.
    pub fn offline() -> HashSource {
        HashSource::default()
    }

    /// A source with only the hashes that earlier runs found. It sends no request.
    pub fn offline_with(remembered: BTreeMap<String, String>) -> HashSource {
        HashSource { remembered, asks_publishers: false }
    }

    /// Requests missing hashes from mirrors and publishers.
    pub fn publishers(remembered: BTreeMap<String, String>) -> HashSource {
        HashSource { remembered, asks_publishers: true }
    }

    pub fn remembered(&self) -> KnownHashes {
        let mut hashes = KnownHashes::default();
        self.remembered.iter().for_each(|(url, sha256)| hashes.insert(url, sha256));
        hashes
    }
}

/// The hashes in a file with lines of the form `sha256  URL`. Empty if `path` is `None`.
pub fn read_file(path: Option<&Path>) -> Result<KnownHashes> {
    let Some(path) = path else { return Ok(KnownHashes::default()) };
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("reading --asset-hashes {}", path.display()))?;
    let hashes = KnownHashes::parse(&text)
        .map_err(|error| Failure::new(Kind::FileUnreadable, format!("{}: {error}", path.display())))?;
    Ok(hashes)
}

const AT_ONCE: usize = 8;
/// How long requests to busy servers are retried, in total for all hashes. The time is short, because a machine may be waiting for its
/// configuration from kops-controller.
const BUSY_FOR: Duration = Duration::from_secs(20);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);
/// The maximum size of a list of hashes, in bytes. A longer response is no list of hashes.
const LONGEST_ANSWER: usize = 1 << 20;

/// Receives each hash as soon as a server sends it.
#[derive(Debug)]
pub struct Told<'a> {
    /// The known hashes, by the URL of the download.
    pub known: &'a mut KnownHashes,
    /// For messages: the URLs of downloads whose hash came over plain http, or from the mirror that serves the download. A hash from a
    /// server on this machine does not count.
    pub by_mirrors: &'a mut Vec<String>,
}

/// Requests the missing hashes of these downloads, for one architecture or for both. A hash may stay unknown because no server can be
/// reached, or because a server is busy. The function then still requests all other hashes, and fails at the end. A hash that no server
/// knows is no error here: the code that needs the hash reports it.
pub async fn learn_missing(
    store: &Store,
    source: &HashSource,
    assets: Vec<AssetUrl>,
    architecture: Option<Architecture>,
    told: Told<'_>,
) -> Result<()> {
    if !source.asks_publishers {
        return Ok(());
    }
    let missing: Vec<AssetUrl> = assets
        .into_iter()
        .filter(|asset| architecture.is_none_or(|architecture| asset.architecture == architecture))
        .filter(|asset| {
            asset.sha256.is_none() && told.known.sha256(&asset.canonical_url, &asset.download_url).is_none()
        })
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    tls::require_ca_bundle_for(missing.iter().map(|asset| asset.download_url.as_str()))
        .context("asking for the hashes of downloads")?;
    let client = LocationClient::new()?;
    let began = Instant::now();
    let mut answers = stream::iter(missing)
        .map(|asset| {
            let client = client.clone();
            async move {
                let what = format!("the SHA-256 of {}", shown_url(&asset.download_url));
                let busy_for = BUSY_FOR.saturating_sub(began.elapsed());
                let hash = store
                    .retries()
                    .run(&what, || ask(&client, store, &asset), |unanswered| unanswered.retried_for(busy_for))
                    .await
                    .map_err(|gave_up| gave_up.error.about(&asset));
                (asset.download_url, hash)
            }
        })
        .buffer_unordered(AT_ONCE);
    let mut unproven: Vec<String> = Vec::new();
    let mut unanswered = None;
    while let Some((url, answer)) = answers.next().await {
        match answer {
            Ok(Some(Answer { sha256, is_proven, is_of_mirror })) => {
                told.known.insert(&url, &sha256);
                if !is_proven {
                    unproven.push(shown_url(&url));
                }
                if is_of_mirror {
                    told.by_mirrors.push(shown_url(&url));
                }
            }
            Ok(None) => {
                log::warn!(
                    "no server has the SHA-256 of {}; give the hash with --asset-hashes",
                    shown_url(&url)
                )
            }
            Err(error) => unanswered = unanswered.or(Some(error)),
        }
    }
    if !unproven.is_empty() {
        log::warn!(
            "the SHA-256 of these downloads came over plain http, where any hop can change both the hash and \
             the download. Serve the mirror over https, or give the hashes with --asset-hashes: {}",
            unproven.join(", ")
        );
    }
    unanswered.map_or(Ok(()), Err)
}

struct Answer {
    sha256: String,
    /// Whether the hash was protected in transit: it came over TLS, or from a server on this machine.
    is_proven: bool,
    is_of_mirror: bool,
}

struct List {
    text: String,
    /// Whether the list of hashes was protected in transit: it came over TLS, or from a server on this machine.
    is_proven: bool,
}

/// Whether a response from this URL is protected in transit: TLS proves the server's name, or the server is on this machine. `url` is the
/// URL of an HTTP request, and not the URL of a bucket.
fn is_protected(url: &Url) -> bool {
    url.scheme() != "http" || is_loopback_server(url)
}

fn is_loopback_server(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

/// The request for a hash failed, because no server can be reached, or because a server is busy.
#[derive(Debug)]
enum Unanswered {
    /// The server may have a list of hashes, but cannot serve the list now.
    Busy(Failure),
    Failed(anyhow::Error),
}

impl From<StoreError> for Unanswered {
    fn from(error: StoreError) -> Unanswered {
        Unanswered::Failed(error.into())
    }
}

impl From<reqwest::Error> for Unanswered {
    fn from(error: reqwest::Error) -> Unanswered {
        Unanswered::Failed(error.into())
    }
}

impl Unanswered {
    /// How long the request is retried. A request to a busy server is retried for `busy_for`. If a name cannot be resolved, the request is
    /// retried without limit, because name servers may not answer early in a boot. Other failures are not retried, so that an operator who
    /// plans without a network does not wait.
    fn retried_for(&self, busy_for: Duration) -> Duration {
        match self {
            Unanswered::Busy(_) => busy_for,
            Unanswered::Failed(error) if kind_of(error) == Kind::NameUnresolved => Duration::MAX,
            Unanswered::Failed(_) => Duration::ZERO,
        }
    }

    fn about(self, asset: &AssetUrl) -> anyhow::Error {
        let error = match self {
            Unanswered::Busy(failure) => anyhow::Error::new(failure),
            Unanswered::Failed(error) => error,
        };
        error.context(format!(
            "asking for the SHA-256 of {}, because no configuration contains it; check the network, or give the \
             hash with --asset-hashes",
            shown_url(&asset.download_url)
        ))
    }
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unanswered::Busy(failure) => write!(f, "{failure}"),
            Unanswered::Failed(error) => f.write_str(&causes::in_one_line(error.as_ref())),
        }
    }
}

/// Requests the hash from the files beside the download, and from the lists of the release. Asks first the mirror, then the publisher.
///
/// If no server gives the hash, returns `None`. In two cases, returns the first failure instead, because the failure may be temporary: no
/// server answers, or the first failure is that a server is busy.
async fn ask(client: &LocationClient, store: &Store, asset: &AssetUrl) -> Result<Option<Answer>, Unanswered> {
    let has_mirror = asset.canonical_url != asset.download_url;
    let is_local = Url::parse(&asset.download_url).is_ok_and(|url| is_loopback_server(&url));
    let mut urls = vec![(&asset.download_url, has_mirror && !is_local)];
    if has_mirror {
        urls.push((&asset.canonical_url, false));
    }
    let mut unreachable = None;
    let mut answered = false;
    for (url, vouches_for_itself) in urls {
        let Some((folder, name)) = url.rsplit_once('/') else { continue };
        let lists = [".sha256", ".sha256sum"].map(|suffix| format!("{url}{suffix}"));
        let releases = ["SHA256SUMS", "runc.sha256sum"].map(|list| format!("{folder}/{list}"));
        for list in lists.into_iter().chain(releases) {
            match get(client, store, &list).await {
                Ok(found) => {
                    answered = true;
                    let hash = found.and_then(|found| Some((hash_of(&found.text, name)?, found.is_proven)));
                    if let Some((sha256, is_proven)) = hash {
                        log::debug!("{} has the SHA-256 of {}", shown_url(&list), shown_url(name));
                        let is_of_mirror = vouches_for_itself || !is_proven;
                        return Ok(Some(Answer { sha256, is_proven, is_of_mirror }));
                    }
                }
                Err(error) => {
                    // The first error is kept, because it usually comes from the mirror and helps the user most.
                    unreachable = unreachable.or(Some(error));
                    // Requests for this server's other lists would fail, too.
                    break;
                }
            }
        }
    }
    match unreachable {
        Some(error) if !answered || matches!(error, Unanswered::Busy(_)) => Err(error),
        _ => Ok(None),
    }
}

/// Reads the list of hashes at a URL. `None` if the server does not have the list, or if the response cannot be a list of hashes.
async fn get(client: &LocationClient, store: &Store, url: &str) -> Result<Option<List>, Unanswered> {
    let location = match store.locate_download(url).await {
        Ok(Some(location)) if location.url.scheme() == "file" => {
            return Ok(read_list(&location.url).map(|text| List { text, is_proven: true }));
        }
        Ok(Some(location)) => location,
        Ok(None) => Location::new(Url::parse(url).context("it is not a URL").map_err(Unanswered::Failed)?),
        // A bucket gives the same error for a missing and for a forbidden object, unless this machine may list the bucket's objects. So a
        // list of hashes that this machine may not read counts as missing.
        Err(StoreError::NotFound { .. } | StoreError::Forbidden { .. }) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let request = client.request(Method::GET, &location).timeout(REQUEST_TIMEOUT);
    let answer = request.send().await.map_err(reqwest::Error::without_url)?;
    if location.has_headers() && answer.status().is_redirection() {
        let problem = format!("the server answered {}, and {NOT_FOLLOWED}", answer.status());
        return Err(Unanswered::Failed(Failure::new(Kind::HashesUnknown, problem).into()));
    }
    let status = answer.status();
    if http::is_temporary(status) {
        let problem = format!("the server answered {status} for {}", shown_url(url));
        return Err(Unanswered::Busy(Failure::new(Kind::HashesUnknown, problem)));
    }
    // The list of hashes does not count as missing, because only the proxy refused the request. The server may have the list.
    if status == StatusCode::PROXY_AUTHENTICATION_REQUIRED {
        let problem = format!("the proxy answered {status} for {}", shown_url(url));
        return Err(Unanswered::Failed(Failure::new(Kind::HashesUnknown, problem).into()));
    }
    if !status.is_success() {
        return Ok(None);
    }
    let is_proven = is_protected(&location.url) && is_protected(answer.url());
    let body = http::body(answer, LONGEST_ANSWER).await.map_err(reqwest::Error::without_url)?;
    Ok(body.and_then(|body| String::from_utf8(body).ok()).map(|text| List { text, is_proven }))
}

/// Reads a list of hashes from a local file. A `file` URL means that a local folder replaces a bucket. `None` if the file cannot be read.
fn read_list(url: &reqwest::Url) -> Option<String> {
    let file = std::fs::File::open(url.to_file_path().ok()?).ok()?;
    let mut text = String::new();
    file.take(LONGEST_ANSWER as u64).read_to_string(&mut text).ok()?;
    Some(text)
}

/// The hash of the file `name` in a list with lines of the form `hash  name`. If the first line has only a hash, this hash belongs to the
/// file `name`.
fn hash_of(text: &str, name: &str) -> Option<String> {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty()).map(str::split_whitespace);
    let of_line = |mut words: std::str::SplitWhitespace<'_>| {
        Some((words.next()?.to_owned(), words.next().map(str::to_owned)))
    };
    let (first_hash, first_name) = of_line(lines.next()?)?;
    let names = |listed: &Option<String>| {
        listed
            .as_deref()
            .is_some_and(|listed| listed.trim_start_matches('*').rsplit('/').next() == Some(name))
    };
    let hash = if first_name.is_none() || names(&first_name) {
        first_hash
    } else {
        lines.filter_map(of_line).find(|(_, listed)| names(listed))?.0
    };
    parse_sha256(&hash)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn over_plain_http_only_hashes_of_this_machine_are_proven() {
        let vouches = |url: &str| is_protected(&url.parse().unwrap());
        for url in ["https://dl.k8s.io/a", "http://127.0.0.1:8080/a", "http://[::1]/a"] {
            assert!(vouches(url), "{url}");
        }
        for url in
            ["http://mirror/a", "http://10.0.0.1/a", "http://localhost.example.com/a", "HTTP://mirror/a"]
        {
            assert!(!vouches(url), "{url}");
        }
    }

    #[test]
    fn a_busy_server_is_asked_again() {
        let busy = Failure::new(Kind::HashesUnknown, "the server answered 503 Service Unavailable");
        assert_eq!(Unanswered::Busy(busy).retried_for(BUSY_FOR), BUSY_FOR);
        let refused = anyhow::anyhow!("the connection was refused");
        assert_eq!(Unanswered::Failed(refused).retried_for(BUSY_FOR), Duration::ZERO);
    }

    #[test]
    fn a_name_that_cannot_be_resolved_is_looked_up_again() {
        let unresolved = Failure::new(Kind::NameUnresolved, "no name server answers");
        let unresolved = anyhow::Error::new(unresolved).context("the request");
        assert_eq!(Unanswered::Failed(unresolved).retried_for(BUSY_FOR), Duration::MAX);
    }

    #[test]
    fn a_hash_is_found_on_its_own_and_in_a_list() {
        let (a, b) = ("a".repeat(64), "b".repeat(64));
        assert_eq!(hash_of(&a, "kubelet"), Some(a.clone()));
        assert_eq!(hash_of(&format!("{a}  kubelet\n"), "kubelet"), Some(a.clone()));
        assert_eq!(hash_of(&format!("{a} *dir/x\n{b}  ./runc.amd64\n"), "runc.amd64"), Some(b.clone()));
        assert_eq!(hash_of(&format!("{a}  other\n"), "kubelet"), None);
        assert_eq!(hash_of("<html>not found</html>", "kubelet"), None);
        assert_eq!(hash_of("", "kubelet"), None);
    }
}
