//! Caches the answers of name servers for a few seconds. A run opens many connections to one store at the same time.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::error::NameError;

/// How long addresses are cached. The cloud may change the addresses of its services every few seconds.
const USED_FOR: Duration = Duration::from_secs(5);
/// Maximum number of names in the cache. A run needs fewer names. A controller that runs for months may need more
/// names.
const MOST_NAMES: usize = 64;

type Looked = Result<Vec<IpAddr>, NameError>;
/// The result of the last query, and the time of the query. The lock is held while a query runs.
type Last = Arc<tokio::sync::Mutex<Option<(Instant, Looked)>>>;

pub(super) struct Answers(Mutex<BTreeMap<String, Last>>);

impl Answers {
    pub(super) const fn new() -> Answers {
        Answers(Mutex::new(BTreeMap::new()))
    }

    /// The addresses of a name: from a running query, from the cache, or from a new query. If the running query
    /// fails, all its callers get the error. Errors are not cached.
    pub(super) async fn get<F: Future<Output = Looked>>(
        &self,
        name: &str,
        ask: impl FnOnce() -> F,
    ) -> Looked {
        let since = Instant::now();
        let last = self.entry(name);
        let mut last = last.lock().await;
        if let Some((at, looked)) = &*last
            && (*at >= since || looked.is_ok() && at.elapsed() < USED_FOR)
        {
            return looked.clone();
        }
        let looked = ask().await;
        *last = Some((Instant::now(), looked.clone()));
        looked
    }

    fn entry(&self, name: &str) -> Last {
        let mut answers = self.0.lock();
        if answers.len() >= MOST_NAMES && !answers.contains_key(name) {
            // Clearing the cache does not affect a running query, because the query holds its own reference to its
            // entry.
            answers.clear();
        }
        Arc::clone(answers.entry(name.to_owned()).or_default())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn failure() -> NameError {
        NameError { name: "a".into(), reason: "no name server answers".into(), is_not_there: false }
    }

    #[tokio::test]
    async fn concurrent_lookups_of_a_name_share_one_query() {
        let (answers, asked) = (Answers::new(), AtomicUsize::new(0));
        let ask = |looked: Looked| {
            let asked = &asked;
            move || async move {
                asked.fetch_add(1, Ordering::SeqCst);
                tokio::task::yield_now().await;
                looked
            }
        };
        let address = Ok(vec![IpAddr::from([10, 0, 0, 1])]);
        let failed = Err(failure());
        let (first, second) =
            tokio::join!(answers.get("a", ask(failed.clone())), answers.get("a", ask(address.clone())));
        assert_eq!((first, second, asked.load(Ordering::SeqCst)), (failed.clone(), failed, 1));
        assert_eq!(answers.get("a", ask(address.clone())).await, address, "a failure is not cached");
        assert_eq!(answers.get("a", ask(Err(failure()))).await, address, "addresses are");
        assert_eq!(asked.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn the_cache_is_bounded() {
        let answers = Answers::new();
        for number in 0..10 * MOST_NAMES {
            answers.get(&number.to_string(), || async { Ok(vec![]) }).await.unwrap();
        }
        assert!(answers.0.lock().len() <= MOST_NAMES);
    }
}
