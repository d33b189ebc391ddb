//! The cloud's last answer about a Node's identity, and how long that answer is valid.

use std::sync::Arc;
use std::time::Duration;

use kops_agent_cluster::identity::Identity;
use tokio::time::Instant;

/// The TTL of a confirmed identity. Instance ids are never reused, but tags may change. The TTL is shorter than the hour between two
/// resyncs, so an identity is not used for two resyncs.
const IDENTITY_TTL: Duration = Duration::from_secs(50 * 60);

/// The cloud's last answer about the identity of a Node.
#[derive(Debug, Default)]
pub(super) enum IdentityAnswer {
    #[default]
    Unknown,
    Believed {
        provider_id: String,
        identity: Arc<Identity>,
        until: Instant,
    },
    /// The cloud's last answer rejected the Node.
    Refused {
        provider_id: String,
        /// When the cloud was first asked about the Node with this providerID. The Node already existed at this time.
        since: Instant,
        is_definite: bool,
    },
}

impl IdentityAnswer {
    /// A confirmed identity under this providerID.
    pub(super) fn believed(provider_id: &str, identity: Arc<Identity>, now: Instant) -> IdentityAnswer {
        IdentityAnswer::Believed { provider_id: provider_id.to_owned(), identity, until: now + IDENTITY_TTL }
    }

    /// The identity, if it belongs to this providerID and is still valid.
    pub(super) fn identity(&self, of: &str, now: Instant) -> Option<&Arc<Identity>> {
        match self {
            IdentityAnswer::Believed { provider_id, identity, until }
                if provider_id == of && now < *until =>
            {
                Some(identity)
            }
            _ => None,
        }
    }

    /// The time of the first request in the current series of rejections of the Node with this providerID. `now` if the last answer was no
    /// such rejection.
    pub(super) fn asked_since(&self, of: &str, now: Instant) -> Instant {
        match self {
            IdentityAnswer::Refused { provider_id, since, .. } if provider_id == of => *since,
            _ => now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_stands_for_its_providerid_and_its_time() {
        let now = Instant::now();
        let identity_answer = IdentityAnswer::believed("a", Arc::default(), now);
        assert!(identity_answer.identity("a", now).is_some());
        assert!(identity_answer.identity("b", now).is_none(), "it says that it is another");
        assert!(identity_answer.identity("a", now + IDENTITY_TTL).is_none());
        assert_eq!(identity_answer.asked_since("a", now), now);
    }

    #[test]
    fn a_refusal_keeps_its_first_moment_for_its_providerid() {
        let (then, now) = (Instant::now(), Instant::now() + IDENTITY_TTL);
        let identity_answer =
            IdentityAnswer::Refused { provider_id: "a".into(), since: then, is_definite: false };
        assert_eq!(
            (identity_answer.asked_since("a", now), identity_answer.asked_since("b", now)),
            (then, now)
        );
        assert!(identity_answer.identity("a", then).is_none());
    }
}
