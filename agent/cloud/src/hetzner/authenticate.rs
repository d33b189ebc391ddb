//! The proof of a machine on Hetzner Cloud: it says its number, and answers the call-back at its address, which
//! the client of the bootstrap server sees to.

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use kops_agent_plan::bootstrap::hetzner_token;
use kops_agent_spec::facts::HetznerFacts;
use reqwest::header::HeaderValue;

use crate::authenticate::{AuthenticationError, Authenticator};

/// Says a server's number.
#[derive(Debug)]
pub(crate) struct HetznerAuthenticator {
    token: HeaderValue,
}

impl HetznerAuthenticator {
    /// For the machine of these facts.
    ///
    /// # Errors
    /// If they do not have its number.
    pub(crate) fn of(facts: Option<&HetznerFacts>) -> Result<HetznerAuthenticator, AuthenticationError> {
        let id = facts.map(|facts| facts.instance_id.as_str()).unwrap_or_default();
        let token = hetzner_token::token(id).ok().and_then(|token| HeaderValue::try_from(token).ok());
        let token = token.ok_or_else(|| AuthenticationError::NoServerId(id.to_owned()))?;
        Ok(HetznerAuthenticator { token })
    }
}

impl Authenticator for HetznerAuthenticator {
    fn token<'a>(&'a self, _body: &'a [u8]) -> BoxFuture<'a, Result<HeaderValue, AuthenticationError>> {
        async { Ok(self.token.clone()) }.boxed()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn a_server_says_its_number_or_nothing() {
        let facts = |id: &str| HetznerFacts { instance_id: id.into(), ..HetznerFacts::default() };
        let known = HetznerAuthenticator::of(Some(&facts("4711"))).unwrap();
        assert_eq!(known.token(b"").await.unwrap(), "x-hetzner-id 4711");
        for facts in [None, Some(&facts("")), Some(&facts("4711\n")), Some(&facts("server"))] {
            let error = HetznerAuthenticator::of(facts).unwrap_err();
            assert!(error.to_string().contains("cloud.hetzner.instanceID"), "{error}");
        }
    }
}
