//! The threads that serve machines, and the limit of TLS handshakes that use the CPU at the same time.
//!
//! Any stranger can have a handshake computed, which takes one or two milliseconds of CPU. The Lease, the probes and the labelling of
//! Nodes run on the threads of `main`, so they never wait for a handshake. Handshakes use at most half of the server's own threads. The
//! other half serves requests whose handshake is done, and reads answers of the cloud and of the API server.

use std::future::poll_fn;
use std::pin::pin;
use std::task::ready;
use std::thread::available_parallelism;

use anyhow::{Context, Result};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Semaphore;

/// Threads that only the bootstrap server uses. They end when this value is dropped.
pub struct Threads(Option<Runtime>);

impl Threads {
    /// Starts as many threads as the machine has cores, at least two.
    pub fn start() -> Result<Threads> {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(count()).thread_name("bootstrap").enable_all();
        Ok(Threads(Some(builder.build().context("starting threads for machines that bootstrap")?)))
    }

    /// The handle that spawns tasks; `None` once the threads end.
    pub fn handle(&self) -> Option<&Handle> {
        self.0.as_ref().map(Runtime::handle)
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // `drop` runs on a thread of another runtime. Waiting for the threads here would block that thread.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

fn count() -> usize {
    available_parallelism().map_or(2, usize::from).max(2)
}

/// Limits how many TLS handshakes use the CPU at the same time.
pub struct Handshakes {
    turns: Semaphore,
}

impl Default for Handshakes {
    fn default() -> Handshakes {
        Handshakes::at_once(count() / 2)
    }
}

impl Handshakes {
    fn at_once(most: usize) -> Handshakes {
        Handshakes { turns: Semaphore::new(most) }
    }

    /// Runs a handshake. Each step of the handshake waits for a permit, and releases the permit when the step ends. So a peer that is
    /// silent between two steps delays no other peer.
    pub async fn run<F: Future>(&self, handshake: F) -> F::Output {
        let mut handshake = pin!(handshake);
        let mut turn = None;
        poll_fn(|context| {
            let waiting = turn.get_or_insert_with(|| Box::pin(self.turns.acquire()));
            let _turn = ready!(waiting.as_mut().poll(context));
            turn = None;
            handshake.as_mut().poll(context)
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::future::{pending, ready};
    use std::task::Poll;

    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn a_step_has_a_turn_and_a_silent_peer_has_none() {
        let handshakes = Handshakes::at_once(1);
        let step = || poll_fn(|_| Poll::Ready(handshakes.turns.available_permits()));
        assert_eq!(handshakes.run(step()).now_or_never(), Some(0), "its turn is taken while it computes");
        let mut silent = Box::pin(handshakes.run(pending::<()>()));
        assert_eq!(silent.as_mut().now_or_never(), None);
        assert_eq!(handshakes.run(ready(())).now_or_never(), Some(()), "a silent peer is no reason to wait");

        let taken = handshakes.turns.try_acquire().unwrap();
        let mut waiting = Box::pin(handshakes.run(ready(())));
        assert_eq!(waiting.as_mut().now_or_never(), None, "no more compute than have a turn");
        drop(taken);
        assert_eq!(waiting.as_mut().now_or_never(), Some(()));
    }
}
