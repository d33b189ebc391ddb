//! Machines that an operator has enrolled as `Host` objects of the API server (`kops toolbox enroll`). In a cluster of any cloud there
//! may be some beside that cloud's own, where the configuration has `server.pki`.
//!
//! One list of the API server answers all that want to know one of them.

mod verify;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use kops_agent_plan::identity::host::Host;
use thiserror::Error;
use tokio::time::Instant;

pub use verify::HostVerifier;

use crate::singleflight::Singleflight;

/// How old a list may be that has the `Host` of a Node; and one that does not, where it was asked for after the Node was there.
const LISTED_FOR: Duration = Duration::from_secs(10);
/// How old a list may be where an unverified request says that there is such a `Host`: made-up names cost no request each. A
/// machine that was enrolled since retries.
const CLAIMED_FOR: Duration = Duration::from_secs(5);

/// The API server does not tell of its `Host` objects.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the API server does not list the Hosts of kops-system: {0}")]
pub struct HostsUnavailable(pub String);

/// What lists `Host` objects.
pub trait Hosts: Send + Sync {
    /// All of them, as they are now.
    fn list(&self) -> BoxFuture<'static, Result<Vec<Host>, HostsUnavailable>>;
}

/// The machines that were enrolled. What has a share in it asks together.
pub struct Enrolled {
    hosts: Arc<dyn Hosts>,
    listed: Singleflight<BTreeMap<String, Host>, HostsUnavailable>,
}

impl fmt::Debug for Enrolled {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Enrolled").finish_non_exhaustive()
    }
}

impl Enrolled {
    pub fn of(hosts: Arc<dyn Hosts>) -> Enrolled {
        Enrolled { hosts, listed: Singleflight::default() }
    }

    /// The one of that name; `None` if none was enrolled under it some seconds ago.
    ///
    /// # Errors
    /// If the API server does not tell.
    pub async fn claimed(&self, name: &str) -> Result<Option<Host>, Arc<HostsUnavailable>> {
        Ok(self.list(CLAIMED_FOR).await?.get(name).cloned())
    }

    /// The one of the Node of that name, which was there at `since` already: a list that was asked for later decides that there
    /// is none, however many Nodes want to know.
    ///
    /// # Errors
    /// If the API server does not tell.
    pub async fn of_node(&self, name: &str, since: Instant) -> Result<Option<Host>, Arc<HostsUnavailable>> {
        if let Some(host) = self.list(LISTED_FOR).await?.get(name) {
            return Ok(Some(host.clone()));
        }
        Ok(self.list(LISTED_FOR.min(since.elapsed())).await?.get(name).cloned())
    }

    async fn list(&self, longest: Duration) -> Result<Arc<BTreeMap<String, Host>>, Arc<HostsUnavailable>> {
        let hosts = self.hosts.clone();
        let by_name = |hosts: Vec<Host>| hosts.into_iter().map(|host| (host.name.clone(), host)).collect();
        self.listed.get(longest, move || async move { hosts.list().await.map(by_name) }).await
    }
}

/// Hosts for tests, which may fail.
#[cfg(any(test, feature = "testing"))]
pub mod testing {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::FutureExt as _;
    use parking_lot::Mutex;

    use super::{BoxFuture, Host, Hosts, HostsUnavailable};

    /// What there is, or why that is not told.
    #[derive(Debug)]
    pub struct KnownHosts {
        known: Mutex<Result<Vec<Host>, HostsUnavailable>>,
        lists: AtomicUsize,
    }

    impl KnownHosts {
        pub fn of(hosts: Vec<Host>) -> KnownHosts {
            KnownHosts { known: Mutex::new(Ok(hosts)), lists: AtomicUsize::new(0) }
        }

        /// These, or this problem, from now on.
        pub fn set(&self, known: Result<Vec<Host>, HostsUnavailable>) {
            *self.known.lock() = known;
        }

        /// How often they were listed.
        pub fn lists(&self) -> usize {
            self.lists.load(Ordering::SeqCst)
        }
    }

    impl Hosts for KnownHosts {
        fn list(&self) -> BoxFuture<'static, Result<Vec<Host>, HostsUnavailable>> {
            let known = self.known.lock().clone();
            self.lists.fetch_add(1, Ordering::SeqCst);
            async move { known }.boxed()
        }
    }
}
