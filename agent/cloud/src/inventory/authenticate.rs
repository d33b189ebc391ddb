//! The proof of a machine that its cloud lists by id: the machine sends its id, and answers the call-back at its address. The bootstrap
//! client handles the call-back.

use reqwest::header::HeaderValue;

use super::{Bootstrap, Listed};
use crate::authenticate::{AuthenticationError, Authenticator};

#[derive(Debug)]
pub(crate) struct IdAuthenticator {
    token: HeaderValue,
}

impl IdAuthenticator {
    /// Creates the authenticator for a machine. `id` is the machine's id, as its metadata service reports it.
    pub(crate) fn new<M: Listed>(id: &str) -> Result<IdAuthenticator, AuthenticationError> {
        let Bootstrap { token, fact, .. } = M::BOOTSTRAP;
        let no_id = || AuthenticationError::NoId { machine: token.machine, fact, value: id.to_owned() };
        let token = token.token(id).ok().and_then(|token| HeaderValue::try_from(token).ok());
        Ok(IdAuthenticator { token: token.ok_or_else(no_id)? })
    }
}

#[async_trait::async_trait]
impl Authenticator for IdAuthenticator {
    async fn token(&self, _body: &[u8]) -> Result<HeaderValue, AuthenticationError> {
        Ok(self.token.clone())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use kops_agent_cluster::identity::digital_ocean::Droplet;
    use kops_agent_cluster::identity::hetzner::HetznerServer;
    use kops_agent_cluster::identity::linode::LinodeInstance;
    use kops_agent_cluster::identity::openstack::OpenstackServer;
    use kops_agent_cluster::identity::scaleway::ScalewayServer;

    use super::*;

    async fn says_its_id_or_nothing<M: Listed>(token: &str, fact: &str) {
        let known = IdAuthenticator::new::<M>(M::BOOTSTRAP.token.form.example()).unwrap();
        assert_eq!(known.token(b"").await.unwrap(), token);
        for id in ["", "4711\n", "server"] {
            let error = IdAuthenticator::new::<M>(id).unwrap_err();
            assert!(error.to_string().contains(fact), "{error}");
        }
    }

    #[tokio::test]
    async fn a_machine_sends_its_id_or_reports_that_it_has_none() {
        says_its_id_or_nothing::<LinodeInstance>("x-linode-instance-id 4711", "cloud.linode.id").await;
        let token = "x-scaleway-instance-server-id 5c89f7b6-01a0-4eaa-ac03-85cd43d82eeb";
        says_its_id_or_nothing::<ScalewayServer>(token, "cloud.scaleway.serverID").await;
        let token = "x-openstack-id 5c89f7b6-01a0-4eaa-ac03-85cd43d82eeb";
        says_its_id_or_nothing::<OpenstackServer>(token, "cloud.openstack.serverID").await;
        says_its_id_or_nothing::<HetznerServer>("x-hetzner-id 4711", "cloud.hetzner.instanceID").await;
        says_its_id_or_nothing::<Droplet>("x-digitalocean-droplet-id 4711", "cloud.digitalOcean.dropletID")
            .await;
    }
}
