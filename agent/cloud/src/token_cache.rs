//! A cache for tokens that expire: one request serves all callers until shortly before the token expires.

use std::time::{Duration, Instant};

use tokio::sync::Mutex;

/// A token is not used in this last part of its lifetime, because a caller may send several requests with one token. For example, a
/// download first requests the file's size.
const SPARE: Duration = Duration::from_secs(120);
/// The maximum lifetime of a token: a day. A longer lifetime in a response would overflow the clock.
const LONGEST_LIFE: Duration = Duration::from_secs(24 * 60 * 60);

/// The cached token of one service.
pub(crate) struct TokenCache<T>(Mutex<Option<Issued<T>>>);

/// A token, and when it must no longer be used.
pub(crate) struct Issued<T> {
    token: T,
    good_until: Instant,
}

impl<T> Issued<T> {
    /// A token that was requested at `asked`, with the lifetime that its issuer reports.
    pub(crate) fn new(token: T, asked: Instant, life: Duration) -> Issued<T> {
        Issued { token, good_until: asked + life.min(LONGEST_LIFE).saturating_sub(SPARE) }
    }
}

impl<T> Default for TokenCache<T> {
    fn default() -> TokenCache<T> {
        TokenCache(Mutex::new(None))
    }
}

impl<T: Clone> TokenCache<T> {
    /// The cached token if it may still be used, else a new token from `ask`. Concurrent callers share one request.
    pub(crate) async fn get<E>(&self, ask: impl Future<Output = Result<Issued<T>, E>>) -> Result<T, E> {
        let mut cached = self.0.lock().await;
        if let Some(issued) = cached.as_ref().filter(|issued| issued.good_until > Instant::now()) {
            return Ok(issued.token.clone());
        }
        let issued = ask.await?;
        Ok(cached.insert(issued).token.clone())
    }

    /// Drops the cached token if `is_refused` says that the token was rejected. The cache may already contain a newer token, which stays.
    pub(crate) async fn forget(&self, is_refused: impl FnOnce(&T) -> bool) {
        let mut cached = self.0.lock().await;
        if cached.as_ref().is_some_and(|issued| is_refused(&issued.token)) {
            *cached = None;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::convert::Infallible;

    use super::*;

    async fn get(cache: &TokenCache<&'static str>, token: &'static str, life: u64) -> &'static str {
        let issued = Issued::new(token, Instant::now(), Duration::from_secs(life));
        cache.get(async { Ok::<_, Infallible>(issued) }).await.unwrap()
    }

    #[tokio::test]
    async fn a_token_is_used_until_shortly_before_it_expires() {
        let cache = TokenCache::default();
        assert_eq!(get(&cache, "first", 119).await, "first");
        assert_eq!(get(&cache, "second", u64::MAX).await, "second");
        assert_eq!(get(&cache, "third", 3600).await, "second");
    }

    #[tokio::test]
    async fn only_a_rejected_token_is_replaced() {
        let cache = TokenCache::default();
        get(&cache, "first", 3600).await;
        cache.forget(|token| *token == "earlier").await;
        assert_eq!(get(&cache, "second", 3600).await, "first");
        cache.forget(|token| *token == "first").await;
        assert_eq!(get(&cache, "second", 3600).await, "second");
    }

    #[tokio::test]
    async fn a_failure_is_not_cached() {
        let cache = TokenCache::default();
        assert_eq!(cache.get(async { Err("busy") }).await, Err("busy"));
        assert_eq!(get(&cache, "first", 3600).await, "first");
    }
}
