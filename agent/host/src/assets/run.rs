//! The shared part of all downloads of a run: looks up URLs, learns sizes, and checks the free space.

use std::time::Instant;

use reqwest::Url;
use tokio::sync::mpsc;

use super::attempt::{self, Trouble};
use super::cache::Cache;
use super::options::Downloads;
use super::progress::Progress;
use super::request::Request;
use super::servers::Servers;
use super::space::{Space, nearest};
use crate::error::Result;
use crate::root::Root;
use kops_agent_net::Location;

/// All downloads of one run.
pub(super) struct Run<'a> {
    pub(super) downloads: &'a Downloads,
    pub(super) root: &'a Root,
    pub(super) cache: &'a Cache,
    pub(super) servers: &'a Servers,
    pub(super) progress: &'a dyn Progress,
    /// Each writer holds a clone. The channel closes when the last writer ends.
    pub(super) busy: mpsc::Sender<()>,
}

/// The known facts about a download before it starts.
#[derive(Default)]
pub(super) struct DownloadFacts {
    pub(super) size: Option<u64>,
    /// The URL whose server stated the size, the result of the URL lookup, and the time of the lookup.
    pub(super) location: Option<(String, Location, Instant)>,
}

impl Run<'_> {
    /// Asks the servers of a download for the size, one after another, until a server answers.
    pub(super) async fn ask(&self, request: &Request) -> Result<DownloadFacts> {
        if let Some((_, size)) = self.cache.get(&request.sha256, request.name())? {
            return Ok(DownloadFacts { size: Some(size), location: None });
        }
        let urls: Vec<&str> = request.urls.iter().map(String::as_str).collect();
        for url in self.servers.to_try(&urls) {
            // Skip this URL. The download reports its error.
            let Ok(location) = self.locate(url).await else { continue };
            match attempt::size(&self.downloads.client, &location, self.downloads.timeouts.stalled_after)
                .await
            {
                // A size above the limit counts as unknown, because another mirror may state a smaller size.
                Ok(size) => {
                    let size = size.filter(|size| *size <= self.downloads.largest);
                    return Ok(DownloadFacts {
                        size,
                        location: Some((url.to_owned(), location, Instant::now())),
                    });
                }
                Err(Trouble::Unreachable(_)) => self.servers.dead(url),
                Err(_) => {}
            }
        }
        Ok(DownloadFacts::default())
    }

    /// Also asks the other mirrors for the size, and uses the smallest size. The download shows whether the smallest size is right.
    pub(super) async fn ask_others(&self, request: &Request, known: &mut DownloadFacts) {
        let asked = known.location.as_ref().map(|(url, ..)| url.clone());
        for url in request.urls.iter().filter(|url| asked.as_ref().is_some_and(|asked| asked != *url)) {
            let Ok(location) = self.locate(url).await else { continue };
            let client = &self.downloads.client;
            let size = attempt::size(client, &location, self.downloads.timeouts.stalled_after).await;
            if let (Ok(Some(size)), Some(least)) = (size, known.size)
                && size < least
            {
                *known = DownloadFacts {
                    size: Some(size),
                    location: Some((url.clone(), location, Instant::now())),
                };
            }
        }
    }

    /// Finds out how to request a URL.
    pub(super) async fn locate(&self, url: &str) -> Result<Location, Trouble> {
        let parsed =
            Url::parse(url).map_err(|error| Trouble::Lasting(format!("it is not a URL: {error}")))?;
        match (parsed.scheme(), &self.downloads.buckets) {
            ("http" | "https" | "file", _) => Ok(Location::new(parsed)),
            (_, Some(buckets)) if buckets.locates(url) => {
                buckets.locate(url).await.map_err(|not| match not.may_pass {
                    true => Trouble::Passing(not.reason),
                    false => Trouble::Lasting(not.reason),
                })
            }
            (other, _) => Err(Trouble::Lasting(format!("{other}:// is not supported for downloads yet"))),
        }
    }

    /// Checks that there is space for the missing bytes of these downloads, and for the files that are made from the downloads.
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
            // A file is moved from the cache to its final path. If this path is on another file system, the file is copied and also needs
            // space on that file system.
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
