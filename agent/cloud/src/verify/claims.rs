//! Limits how often a cloud is asked for requests whose claims are not proven yet.
//!
//! A request can name any machine. If the cloud must be asked for a request, the request takes one of a few places. A true
//! claim frees its place immediately, and a lie keeps its place for some seconds. The addresses take turns, and no address has
//! many places. So lies wait behind each other, and an honest machine waits behind one lie of each liar. All lies together cost
//! a small part of the requests that the cloud permits a project.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::metrics::gauge::Gauge;
use tokio::runtime::Handle;
use tokio::time::sleep;

use super::admission::{Admission, Admitted, Limits};
use super::{Origin, Refusal};

/// With [`KEPT_FOR`], these limits permit three false claims per second from all addresses together, and one per second from each address.
const LIMITS: Limits = Limits {
    at_once: 10,
    at_once_of_one: 3,
    waiting_of_one: 8,
    at_once_of_claim: 3,
    waiting_of_claim: 8,
    waiting: 4096,
    // This timeout is longer than `KEPT_FOR`, and shorter than the timeout of a whole verification (8 seconds).
    timeout: Duration::from_secs(5),
};
/// How long a request keeps its place after the request ends, if it has not proven that it comes from the machine that it claims.
const KEPT_FOR: Duration = Duration::from_secs(3);

pub struct Claims {
    places: Arc<Admission>,
    kept_for: Duration,
}

/// The place of a request with an unproven claim. Unless [`Claim::believed`] frees the place, it stays taken for `kept_for` after this
/// value is dropped.
pub struct Claim {
    place: Option<Admitted>,
    kept_for: Duration,
}

impl Default for Claims {
    fn default() -> Claims {
        Claims::new(LIMITS, KEPT_FOR)
    }
}

impl Claims {
    fn new(limits: Limits, kept_for: Duration) -> Claims {
        Claims { places: Admission::new(limits, Gauge::default()), kept_for }
    }

    /// Takes a place for a request, unless `claim` is already the place of this request. Fails if too many requests wait, or if no place is
    /// free in time.
    pub async fn enter(&self, origin: Origin, claim: &mut Option<Claim>) -> Result<(), Refusal> {
        if claim.is_none() {
            let place = self.places.enter(origin).await?;
            *claim = Some(Claim { place: Some(place), kept_for: self.kept_for });
        }
        Ok(())
    }
}

impl Claim {
    /// Frees the place immediately, because the claim is true.
    pub fn believed(mut self) {
        self.place = None;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let Some(place) = self.place.take() else { return };
        let kept_for = self.kept_for;
        // Without a Tokio runtime, the server admits no more requests, so the place is freed immediately.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                sleep(kept_for).await;
                drop(place);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use futures_util::FutureExt as _;

    use super::*;

    fn origin(last: u8) -> Origin {
        Origin::from_address([10, 0, 0, last].into())
    }

    async fn enter(claims: &Claims, from: u8) -> Result<Claim, Refusal> {
        let mut claim = None;
        claims.enter(origin(from), &mut claim).await?;
        Ok(claim.unwrap())
    }

    #[tokio::test]
    async fn a_false_claim_keeps_its_place_and_a_true_claim_frees_it() {
        let one = Limits { at_once: 1, at_once_of_one: 1, timeout: Duration::from_millis(20), ..LIMITS };
        let claims = Claims::new(one, Duration::from_secs(600));
        for _ in 0..100 {
            enter(&claims, 1).await.unwrap().believed();
        }
        drop(enter(&claims, 1).await.unwrap());
        assert_eq!(enter(&claims, 2).await.err().unwrap().reason, "QueuedTooLong");

        let claims =
            Claims::new(Limits { timeout: Duration::from_secs(60), ..one }, Duration::from_millis(30));
        drop(enter(&claims, 1).await.unwrap());
        assert!(enter(&claims, 2).now_or_never().is_none(), "not yet");
        assert!(enter(&claims, 2).await.is_ok());
    }

    #[tokio::test]
    async fn a_request_takes_only_one_place() {
        let claims = Claims::new(Limits { at_once: 1, ..LIMITS }, KEPT_FOR);
        let mut claim = None;
        for _ in 0..2 {
            claims.enter(origin(1), &mut claim).now_or_never().unwrap().unwrap();
        }
    }

    #[tokio::test]
    async fn false_claims_from_one_address_leave_places_for_others() {
        let claims = Claims::default();
        for _ in 0..LIMITS.at_once_of_one {
            drop(enter(&claims, 1).now_or_never().unwrap().unwrap());
        }
        assert!(enter(&claims, 1).now_or_never().is_none());
        assert!(enter(&claims, 2).now_or_never().is_some_and(|place| place.is_ok()));
        // A false claim costs at most two requests: a list and a key. All false claims within a second cost less than a third of the 25
        // requests that Google permits in a second.
        let lies = LIMITS.at_once as f64 / KEPT_FOR.as_secs_f64();
        assert!(2.0 * lies < 25.0 / 3.0);
    }
}
