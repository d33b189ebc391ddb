//! Machines that an operator has enrolled as `Host` objects of the API server (`kops toolbox enroll`). A cluster of any cloud
//! can have such machines, if its configuration has `server.pki`.
//!
//! One list of the API server answers all questions of some seconds.

mod verify;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kops_agent_cluster::identity::host::Host;
use thiserror::Error;
use tokio::time::Instant;

pub use verify::HostVerifier;

use crate::singleflight::Singleflight;

/// The maximum age of a list. A list proves that a Node has no `Host` only if it was requested when the Node already existed.
const LISTED_FOR: Duration = Duration::from_secs(10);
/// The maximum age of a list for an unverified request, so that requests for many made-up names share one list. A machine that was enrolled
/// after the list was requested must retry.
const CLAIMED_FOR: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("cannot list the Host objects in the namespace kops-system: {0}")]
pub struct HostsUnavailable(pub String);

#[async_trait::async_trait]
pub trait Hosts: Send + Sync {
    /// All current `Host` objects.
    async fn list(&self) -> Result<Vec<Host>, HostsUnavailable>;
}

/// The enrolled machines. Callers that share one `Enrolled` also share its requests.
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
    pub fn new(hosts: Arc<dyn Hosts>) -> Enrolled {
        Enrolled { hosts, listed: Singleflight::default() }
    }

    /// The `Host` with this name, from a list that is at most `CLAIMED_FOR` old; `None` if that list lacks it.
    pub async fn claimed(&self, name: &str) -> Result<Option<Host>, Arc<HostsUnavailable>> {
        Ok(self.list(CLAIMED_FOR).await?.get(name).cloned())
    }

    /// The `Host` of the Node with this name. `since` is a time at which the Node already existed. Only a list that was requested after
    /// `since` proves that the Node has no `Host`. One list answers the questions about all Nodes.
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

/// `Host` objects for tests. A test can replace the objects by an error.
#[cfg(any(test, feature = "testing"))]
pub mod testing {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use parking_lot::Mutex;

    use super::{Host, Hosts, HostsUnavailable};

    /// The `Host` objects, or why they cannot be listed.
    #[derive(Debug)]
    pub struct KnownHosts {
        known: Mutex<Result<Vec<Host>, HostsUnavailable>>,
        lists: AtomicUsize,
    }

    impl KnownHosts {
        pub fn new(hosts: Vec<Host>) -> KnownHosts {
            KnownHosts { known: Mutex::new(Ok(hosts)), lists: AtomicUsize::new(0) }
        }

        pub fn set(&self, known: Result<Vec<Host>, HostsUnavailable>) {
            *self.known.lock() = known;
        }

        /// How often the `Host` objects were listed.
        pub fn lists(&self) -> usize {
            self.lists.load(Ordering::SeqCst)
        }
    }

    #[async_trait::async_trait]
    impl Hosts for KnownHosts {
        async fn list(&self) -> Result<Vec<Host>, HostsUnavailable> {
            let known = self.known.lock().clone();
            self.lists.fetch_add(1, Ordering::SeqCst);
            known
        }
    }
}
