//! All downloads of a run: learns their sizes, checks the free space, and then downloads several at the same
//! time.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::future;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use tokio::sync::mpsc;

use super::cache::Cache;
use super::fetching::Fetching;
use super::options::Downloads;
use super::progress::Progress;
use super::request::Request;
use super::run::{DownloadFacts, Run};
use super::servers::Servers;
use super::staging::Ready;
use crate::error::{Error, Result};
use crate::root::Root;

/// How many requests for the size of a download run concurrently.
const ASKED_AT_ONCE: usize = 16;

impl Downloads {
    /// Fetches all requests into the cache and makes the wanted files from them. On success, every download is verified, and the files are
    /// on the disk. Returns the first error, after all writers have ended. Parts that were already downloaded stay in the cache.
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
        // Wait for the last writer. Nothing is ever sent: the channel closes when the last writer drops its sender.
        let _ = idle.recv().await;
        fetched
    }

    /// Fetches each of these requests into the cache, even if another request fails. Returns the error of each failed request, by hash.
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
        // Wait for the last writer.
        let _ = idle.recv().await;
        failed
    }
}

impl Run<'_> {
    async fn all(&self, requests: Vec<Request>) -> Result<Vec<Ready>> {
        let mut known: Vec<(Request, DownloadFacts)> = stream::iter(requests)
            .map(|request| async move {
                let known = self.ask(&request).await?;
                Ok::<_, crate::Error>((request, known))
            })
            .buffered(ASKED_AT_ONCE)
            .try_collect()
            .await?;
        let sizes = |known: &[(Request, DownloadFacts)]| -> Vec<(Request, u64)> {
            known.iter().filter_map(|(request, known)| Some((request.clone(), known.size?))).collect()
        };
        if self.check_space(&sizes(&known)).is_err() {
            // A mirror may state a wrong size, so ask the other mirrors, too.
            for (request, known) in &mut known {
                self.ask_others(request, known).await;
            }
            self.check_space(&sizes(&known))?;
        }
        // The longest downloads start first, so that the run does not wait for them at the end.
        known.sort_by_key(|(request, known)| {
            let size = known.size.unwrap_or(u64::MAX);
            Reverse(if request.is_unpacked() { size.saturating_mul(2) } else { size })
        });
        let made: Vec<Vec<Ready>> = stream::iter(known)
            .map(|(request, known)| Fetching::new(self, request, known).run())
            .buffer_unordered(self.downloads.at_once)
            .try_collect()
            .await?;
        Ok(made.into_iter().flatten().collect())
    }
}
