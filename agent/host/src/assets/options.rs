//! How things are downloaded.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::cache::Cache;
use crate::error::Result;
use crate::root::Root;
use kops_agent_net::{Buckets, LocationClient};

#[derive(Clone)]
pub struct Downloads {
    pub(super) client: LocationClient,
    pub(super) buckets: Option<Arc<dyn Buckets>>,
    pub(super) timeouts: DownloadTimeouts,
    pub(super) largest: u64,
    /// The most that is taken, in bytes, of a server that does not say how much it sends.
    pub(super) largest_unsized: u64,
    cache: Option<PathBuf>,
    cache_limit: u64,
    pub(super) at_once: usize,
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

    pub fn timeouts(self, timeouts: DownloadTimeouts) -> Downloads {
        Downloads { timeouts, ..self }
    }

    pub(crate) fn open_cache(&self, root: &Root) -> Result<Cache> {
        Cache::open(root, self.cache.as_deref())
    }

    /// Removes from the cache, where there is one, what neither these downloads nor the ones wanted before need.
    pub(crate) fn trim_cache(&self, root: &Root, wanted: &BTreeSet<&str>) -> Result<()> {
        match Cache::open_existing(root, self.cache.as_deref())? {
            Some(cache) => cache.trim(wanted, self.cache_limit),
            None => Ok(()),
        }
    }
}
