//! Options of downloads.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::cache::Cache;
use crate::error::Result;
use crate::root::Root;
use kops_agent_net::retry::{Backoff, Pauses};
use kops_agent_net::{Buckets, LocationClient};

#[derive(Clone)]
pub struct Downloads {
    pub(super) client: LocationClient,
    pub(super) buckets: Option<Arc<dyn Buckets>>,
    pub(super) timeouts: DownloadTimeouts,
    pub(super) largest: u64,
    /// The maximum size of a download whose server states no size, in bytes.
    pub(super) largest_unsized: u64,
    cache: Option<PathBuf>,
    cache_limit: u64,
    pub(super) at_once: usize,
}

/// Deadlines, pauses and stall detection of downloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DownloadTimeouts {
    /// A download fails if no mirror delivers at least `least` new bytes within this time.
    pub give_up_after: Duration,
    /// The first pause after all mirrors have failed. The pause then about doubles with each retry, up to 30 seconds.
    pub pause: Duration,
    /// An answer has stalled if fewer than `least` bytes come while the agent waits this long.
    pub stalled_after: Duration,
    /// A download has stalled if fewer bytes than this come during `stalled_after`.
    pub least: u64,
    /// An answer is slow if fewer than `least_unless_slow` bytes come while the agent waits this long. If another mirror has not failed
    /// yet, that mirror then replaces the slow mirror. So a slow mirror cannot delay a download for days.
    pub slow_after: Duration,
    /// An answer is slow if fewer bytes than this come during `slow_after`.
    pub least_unless_slow: u64,
}

/// The longest pause between retries, without jitter.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

impl DownloadTimeouts {
    /// The backoff of a download. It starts when the download starts, and restarts when new bytes arrive.
    pub(super) fn backoff(&self) -> Backoff<impl FnMut() -> Duration + use<>> {
        let pauses = Pauses { first: self.pause, longest: LONGEST_PAUSE };
        Backoff::new(self.give_up_after, pauses.jittered())
    }
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
    /// Downloads with this client, four files at the same time, into `/var/cache/nodeup` below the root.
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

    /// Also downloads objects in buckets.
    pub fn buckets(self, buckets: Arc<dyn Buckets>) -> Downloads {
        Downloads { buckets: Some(buckets), ..self }
    }

    /// Uses this cache directory instead of `/var/cache/nodeup` below the root.
    pub fn cache(self, path: impl Into<PathBuf>) -> Downloads {
        Downloads { cache: Some(path.into()), ..self }
    }

    /// Limits the size of the cache between runs, in bytes. The default is 4 GiB.
    pub fn cache_limit(self, bytes: u64) -> Downloads {
        Downloads { cache_limit: bytes, ..self }
    }

    /// Limits the size of one download, in bytes. The default is 8 GiB.
    pub fn largest(self, bytes: u64) -> Downloads {
        Downloads { largest: bytes, ..self }
    }

    pub fn timeouts(self, timeouts: DownloadTimeouts) -> Downloads {
        Downloads { timeouts, ..self }
    }

    pub(crate) fn open_cache(&self, root: &Root) -> Result<Cache> {
        Cache::open(root, self.cache.as_deref())
    }

    /// Removes downloads from an existing cache. Keeps the current (`wanted`) and the previous downloads.
    pub(crate) fn trim_cache(&self, root: &Root, wanted: &BTreeSet<&str>) -> Result<()> {
        match Cache::open_existing(root, self.cache.as_deref())? {
            Some(cache) => cache.trim(wanted, self.cache_limit),
            None => Ok(()),
        }
    }
}
