//! A value from the state store that requests share for a while.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

/// The last value that was read, with its time; `None` before the first read. A reader holds the lock, so concurrent requests share one
/// read (singleflight).
pub(super) struct Cached<T>(Mutex<Option<(Instant, T)>>);

impl<T> Default for Cached<T> {
    fn default() -> Cached<T> {
        Cached(Mutex::default())
    }
}

impl<T: Clone> Cached<T> {
    /// Returns the last value if it is younger than `ttl`, or else reads a new value. If the read fails, the last value stays.
    pub(super) async fn get<E>(
        &self,
        ttl: Duration,
        read: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let mut last = self.0.lock().await;
        if let Some((at, value)) = &*last
            && at.elapsed() < ttl
        {
            return Ok(value.clone());
        }
        let value = read.await?;
        *last = Some((Instant::now(), value.clone()));
        Ok(value)
    }

    /// Whether the last value is younger than `ttl`. False during a read.
    pub(super) fn is_fresh(&self, ttl: Duration) -> bool {
        self.0.try_lock().is_ok_and(|last| last.as_ref().is_some_and(|(at, _)| at.elapsed() < ttl))
    }
}
