//! All downloads of a run: how large they are, whether there is room, and then several at once.

use std::collections::BTreeMap;
use std::future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use reqwest::Url;
use tokio::sync::mpsc;

use super::attempt::{self, Trouble};
use super::cache::Cache;
use super::fetching::Fetching;
use super::progress::Progress;
use super::servers::Servers;
use super::space::{Space, nearest, unpacked};
use super::staging::{Ready, Want};
use crate::error::{Error, Result};
use crate::root::Root;
use kops_agent_net::{Buckets, Location, LocationClient};

/// How many servers are asked at a time how large their files are.
const ASKED_AT_ONCE: usize = 16;

/// How things are downloaded.
#[derive(Clone)]
pub struct Downloads {
    pub(super) client: LocationClient,
    buckets: Option<Arc<dyn Buckets>>,
    pub(super) timeouts: DownloadTimeouts,
    pub(super) largest: u64,
    /// The most that is taken, in bytes, of a server that does not say how much it sends.
    pub(super) largest_unsized: u64,
    cache: Option<PathBuf>,
    cache_limit: u64,
    at_once: usize,
}

/// Deadlines, pauses and stall detection of downloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DownloadTimeouts {
    /// A download fails once none of its mirrors has brought it further for so long.
    pub give_up_after: Duration,
    /// The pause after all mirrors have failed; each later one is about twice as long, up to half a minute.
    pub pause: Duration,
    /// An answer stands still if less than `least` bytes come while so much time is spent waiting for them.
    pub stalled_after: Duration,
    /// The bytes that have to come in that time.
    pub least: u64,
    /// An answer is slow if less than `least_unless_slow` bytes come while so much time is spent waiting for them. A slow
    /// mirror is left for the next one as long as one of the others has not failed, so that it cannot hold a download for days.
    pub slow_after: Duration,
    /// The bytes that have to come in that time.
    pub least_unless_slow: u64,
}

impl Default for DownloadTimeouts {
    fn default() -> DownloadTimeouts {
        DownloadTimeouts {
            give_up_after: Duration::from_secs(5 * 60),
            pause: Duration::from_millis(500),
            stalled_after: Duration::from_secs(30),
            least: 128 * 1024,
            slow_after: Duration::from_secs(60),
            least_unless_slow: 60 * 256 * 1024,
        }
    }
}

/// Something to download.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// Lower-case hexadecimal SHA-256.
    pub(crate) sha256: String,
    /// From where: the first, and if that does not have it, the next.
    pub(crate) urls: Vec<String>,
    /// What is made of it at once. It stays in the cache besides.
    pub(crate) wants: Vec<Want>,
}

impl Request {
    /// Its name in the cache and in messages.
    pub(crate) fn name(&self) -> &str {
        self.urls.first().map_or("", String::as_str)
    }

    fn is_unpacked(&self) -> bool {
        self.wants.iter().any(|want| want.member.is_some())
    }

    fn unpacked(&self, size: u64) -> u64 {
        let wholes = self.wants.iter().filter(|want| want.member.is_none()).count();
        unpacked(size, wholes, self.is_unpacked())
    }
}

impl Downloads {
    /// Downloads with this client, four at once, into `/var/cache/nodeup` below the root.
    pub fn new(client: LocationClient) -> Downloads {
        Downloads {
            client,
            buckets: None,
            timeouts: DownloadTimeouts::default(),
            largest: 8 << 30,
            largest_unsized: 1 << 30,
            cache: None,
            cache_limit: 4 << 30,
            at_once: 4,
        }
    }

    /// Downloads objects of buckets too.
    pub fn buckets(self, buckets: Arc<dyn Buckets>) -> Downloads {
        Downloads { buckets: Some(buckets), ..self }
    }

    /// Keeps downloads in this directory rather than in `/var/cache/nodeup` below the root.
    pub fn cache(self, path: impl Into<PathBuf>) -> Downloads {
        Downloads { cache: Some(path.into()), ..self }
    }

    /// Keeps no more than so many bytes of downloads between runs; 4 GiB unless told otherwise.
    pub fn cache_limit(self, bytes: u64) -> Downloads {
        Downloads { cache_limit: bytes, ..self }
    }

    /// Takes no download that is larger than so many bytes; 8 GiB unless told otherwise.
    pub fn largest(self, bytes: u64) -> Downloads {
        Downloads { largest: bytes, ..self }
    }

    /// Downloads with these timeouts.
    pub fn timeouts(self, timeouts: DownloadTimeouts) -> Downloads {
        Downloads { timeouts, ..self }
    }

    /// Opens the cache.
    pub(crate) fn open_cache(&self, root: &Root) -> Result<Cache> {
        Cache::open(root, self.cache.as_deref())
    }

    /// Removes from the cache, where there is one, what neither these downloads nor the ones wanted before need.
    pub(crate) fn trim_cache(&self, root: &Root, wanted: &std::collections::BTreeSet<&str>) -> Result<()> {
        let cache: Option<&Path> = self.cache.as_deref();
        match Cache::open_existing(root, cache)? {
            Some(cache) => cache.trim(wanted, self.cache_limit),
            None => Ok(()),
        }
    }

    /// Fetches everything into the cache, and makes of it what is wanted of it. Returns once all of it is verified
    /// and whatever was made is on the disk.
    ///
    /// # Errors
    /// The first that cannot be had; what has come of the others is kept. All writing has ended by then.
    pub(crate) async fn fetch(
        &self,
        root: &Root,
        cache: &Cache,
        requests: Vec<Request>,
        progress: &dyn Progress,
    ) -> Result<Vec<Ready>> {
        let (busy, mut idle) = mpsc::channel(1);
        let servers = Servers::default();
        let run = Run { downloads: self, root, cache, servers: &servers, progress, busy };
        let fetched = run.all(requests).await;
        drop(run);
        // Nothing is ever sent: the channel closes when the last writer has ended.
        let _ = idle.recv().await;
        fetched
    }

    /// Fetches each of these into the cache, whatever becomes of the others. Returns the errors of the failed ones, by
    /// their hashes.
    pub(crate) async fn fetch_each(
        &self,
        root: &Root,
        cache: &Cache,
        requests: Vec<Request>,
        progress: &dyn Progress,
    ) -> BTreeMap<String, Error> {
        let (busy, mut idle) = mpsc::channel(1);
        let servers = Servers::default();
        let run = Run { downloads: self, root, cache, servers: &servers, progress, busy };
        let failed: BTreeMap<String, Error> = stream::iter(requests)
            .map(|request| {
                let (sha256, fetched) = (request.sha256.clone(), run.all(vec![request]));
                async move { Some((sha256, fetched.await.err()?)) }
            })
            .buffer_unordered(self.at_once)
            .filter_map(future::ready)
            .collect()
            .await;
        drop(run);
        // As above.
        let _ = idle.recv().await;
        failed
    }
}

/// All downloads of one run.
pub(super) struct Run<'a> {
    pub(super) downloads: &'a Downloads,
    root: &'a Root,
    pub(super) cache: &'a Cache,
    pub(super) servers: &'a Servers,
    pub(super) progress: &'a dyn Progress,
    /// Held by every writer.
    pub(super) busy: mpsc::Sender<()>,
}

/// What is known of a download before it is asked for.
#[derive(Default)]
pub(super) struct Known {
    pub(super) size: Option<u64>,
    /// By which URL that was learnt, how to ask there, and since when that is known.
    pub(super) location: Option<(String, Location, Instant)>,
}

impl Run<'_> {
    async fn all(&self, requests: Vec<Request>) -> Result<Vec<Ready>> {
        let mut known: Vec<(Request, Known)> = stream::iter(requests)
            .map(|request| async move {
                let known = self.ask(&request).await?;
                Ok::<_, crate::Error>((request, known))
            })
            .buffered(ASKED_AT_ONCE)
            .try_collect()
            .await?;
        let sizes = |known: &[(Request, Known)]| -> Vec<(Request, u64)> {
            known.iter().filter_map(|(request, known)| Some((request.clone(), known.size?))).collect()
        };
        if self.check_space(&sizes(&known)).is_err() {
            // One mirror's word does not keep the others from being asked.
            for (request, known) in &mut known {
                self.ask_others(request, known).await;
            }
            self.check_space(&sizes(&known))?;
        }
        // What takes longest comes first, for the end not to wait for it.
        known.sort_by_key(|(request, known)| {
            let size = known.size.unwrap_or(u64::MAX);
            std::cmp::Reverse(if request.is_unpacked() { size.saturating_mul(2) } else { size })
        });
        let made: Vec<Vec<Ready>> = stream::iter(known)
            .map(|(request, known)| Fetching::new(self, request, known).run())
            .buffer_unordered(self.downloads.at_once)
            .try_collect()
            .await?;
        Ok(made.into_iter().flatten().collect())
    }

    /// Asks how large a download is, of the first of its servers that answers.
    async fn ask(&self, request: &Request) -> Result<Known> {
        if let Some((_, size)) = self.cache.get(&request.sha256, request.name())? {
            return Ok(Known { size: Some(size), location: None });
        }
        let urls: Vec<&str> = request.urls.iter().map(String::as_str).collect();
        for url in self.servers.to_try(&urls) {
            // What is wrong with it shows when it is downloaded.
            let Ok(location) = self.locate(url).await else { continue };
            match attempt::size(&self.downloads.client, &location, self.downloads.timeouts.stalled_after)
                .await
            {
                // A size above the limit fails later; another mirror may have a smaller file.
                Ok(size) => {
                    let size = size.filter(|size| *size <= self.downloads.largest);
                    return Ok(Known { size, location: Some((url.to_owned(), location, Instant::now())) });
                }
                Err(Trouble::Unreachable(_)) => self.servers.dead(url),
                Err(_) => {}
            }
        }
        Ok(Known::default())
    }

    /// Asks the other mirrors of a download for its size, too, and believes the one that says the least: what is wrong
    /// with that shows when it is downloaded.
    async fn ask_others(&self, request: &Request, known: &mut Known) {
        let asked = known.location.as_ref().map(|(url, ..)| url.clone());
        for url in request.urls.iter().filter(|url| asked.as_ref().is_some_and(|asked| asked != *url)) {
            let Ok(location) = self.locate(url).await else { continue };
            let client = &self.downloads.client;
            let size = attempt::size(client, &location, self.downloads.timeouts.stalled_after).await;
            if let (Ok(Some(size)), Some(least)) = (size, known.size)
                && size < least
            {
                *known = Known { size: Some(size), location: Some((url.clone(), location, Instant::now())) };
            }
        }
    }

    /// How to ask for what is at a URL.
    pub(super) async fn locate(&self, url: &str) -> Result<Location, Trouble> {
        let parsed =
            Url::parse(url).map_err(|error| Trouble::Lasting(format!("it is not a URL: {error}")))?;
        match (parsed.scheme(), &self.downloads.buckets) {
            ("http" | "https" | "file", _) => Ok(Location::of(parsed)),
            (_, Some(buckets)) if buckets.locates(url) => {
                buckets.locate(url).await.map_err(|not| match not.may_pass {
                    true => Trouble::Passing(not.reason),
                    false => Trouble::Lasting(not.reason),
                })
            }
            (other, _) => Err(Trouble::Lasting(format!("{other}:// is not supported for downloads yet"))),
        }
    }

    /// # Errors
    /// There is no room for what is missing of these, and for what is made of them.
    pub(super) fn check_space(&self, sizes: &[(Request, u64)]) -> Result<()> {
        let mut space = Space::default();
        let cache = &self.cache.dir;
        for (request, size) in sizes {
            let size = *size;
            let is_there = self.cache.get(&request.sha256, request.name())?.is_some();
            let present =
                if is_there { size } else { self.cache.part_size(&request.sha256, request.name())? };
            let unpacked = request.unpacked(size);
            space.add(cache, size.saturating_sub(present).saturating_add(unpacked))?;
            // What is made moves to its place, but onto another file system it has to be copied.
            let mut devices = vec![cache.free_space()?.0];
            for want in &request.wants {
                let Some(dir) = nearest(self.root, &want.path)? else { continue };
                let (device, _) = dir.free_space()?;
                if !devices.contains(&device) {
                    devices.push(device);
                    space.add(&dir, unpacked)?;
                }
            }
        }
        Ok(space.check()?)
    }
}
