//! The proof of a droplet: it says its number, and answers the call-back at its address, which the client of the bootstrap server
//! sees to.

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use kops_agent_plan::bootstrap::digital_ocean_token;
use kops_agent_spec::facts::DigitalOceanFacts;
use reqwest::header::HeaderValue;

use crate::authenticate::{AuthenticationError, Authenticator};

/// Says a droplet's number.
#[derive(Debug)]
pub(super) struct DigitalOceanAuthenticator {
    token: HeaderValue,
}

impl DigitalOceanAuthenticator {
    /// For the machine of these facts.
    ///
    /// # Errors
    /// If they do not have its number.
    pub(super) fn of(
        facts: Option<&DigitalOceanFacts>,
    ) -> Result<DigitalOceanAuthenticator, AuthenticationError> {
        let id = facts.map(|facts| facts.droplet_id.as_str()).unwrap_or_default();
        let token = digital_ocean_token::token(id).ok().and_then(|token| HeaderValue::try_from(token).ok());
        let token = token.ok_or_else(|| AuthenticationError::NoDropletId(id.to_owned()))?;
        Ok(DigitalOceanAuthenticator { token })
    }
}

impl Authenticator for DigitalOceanAuthenticator {
    fn token<'a>(&'a self, _body: &'a [u8]) -> BoxFuture<'a, Result<HeaderValue, AuthenticationError>> {
        async { Ok(self.token.clone()) }.boxed()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn a_droplet_says_its_number_or_nothing() {
        let facts = |id: &str| DigitalOceanFacts { droplet_id: id.into(), ..DigitalOceanFacts::default() };
        let known = DigitalOceanAuthenticator::of(Some(&facts("4711"))).unwrap();
        assert_eq!(known.token(b"").await.unwrap(), "x-digitalocean-droplet-id 4711");
        for facts in [None, Some(&facts("")), Some(&facts("4711\n")), Some(&facts("droplet"))] {
            let error = DigitalOceanAuthenticator::of(facts).unwrap_err();
            assert!(error.to_string().contains("cloud.digitalOcean.dropletID"), "{error}");
        }
    }
}
