//! The proof of a machine whose cloud knows it by a number: it says the number, and answers the call-back at its address, which
//! the client of the bootstrap server sees to.

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use reqwest::header::HeaderValue;

use super::{Bootstrap, Listed};
use crate::authenticate::{AuthenticationError, Authenticator};

/// Says a machine's number.
#[derive(Debug)]
pub(crate) struct NumberAuthenticator {
    token: HeaderValue,
}

impl NumberAuthenticator {
    /// For the machine of this number, as its metadata service writes it.
    ///
    /// # Errors
    /// If it is no number of a machine.
    pub(crate) fn of<M: Listed>(number: &str) -> Result<NumberAuthenticator, AuthenticationError> {
        let Bootstrap { token, fact, .. } = M::BOOTSTRAP;
        let no_number =
            || AuthenticationError::NoNumber { machine: token.machine, fact, value: number.to_owned() };
        let token = token.token(number).ok().and_then(|token| HeaderValue::try_from(token).ok());
        Ok(NumberAuthenticator { token: token.ok_or_else(no_number)? })
    }
}

impl Authenticator for NumberAuthenticator {
    fn token<'a>(&'a self, _body: &'a [u8]) -> BoxFuture<'a, Result<HeaderValue, AuthenticationError>> {
        async { Ok(self.token.clone()) }.boxed()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use kops_agent_plan::identity::digital_ocean::Droplet;
    use kops_agent_plan::identity::hetzner::HetznerServer;

    use super::*;

    async fn says_its_number_or_nothing<M: Listed>(token: &str, fact: &str) {
        let known = NumberAuthenticator::of::<M>("4711").unwrap();
        assert_eq!(known.token(b"").await.unwrap(), token);
        for number in ["", "4711\n", "server"] {
            let error = NumberAuthenticator::of::<M>(number).unwrap_err();
            assert!(error.to_string().contains(fact), "{error}");
        }
    }

    #[tokio::test]
    async fn a_machine_says_its_number_or_nothing() {
        says_its_number_or_nothing::<HetznerServer>("x-hetzner-id 4711", "cloud.hetzner.instanceID").await;
        says_its_number_or_nothing::<Droplet>(
            "x-digitalocean-droplet-id 4711",
            "cloud.digitalOcean.dropletID",
        )
        .await;
    }
}
