//! Verifies machines on DigitalOcean: they say their number, DigitalOcean says which droplet that is and where, and what answers
//! the call-back at that address proves that it has asked.

use std::sync::Arc;

use kops_agent_plan::bootstrap::digital_ocean_token;
use kops_agent_plan::identity::Refusal as NoNode;
use kops_agent_plan::identity::digital_ocean::{certificate_names, identify};

use super::api::Droplets;
use crate::verify::{Examined, Presented, Refusal, VerifiedNode, Verifier, challenge_endpoint};

/// Verifies machines on DigitalOcean.
pub struct DigitalOceanVerifier {
    /// The droplets of the cluster.
    pub droplets: Arc<Droplets>,
}

impl DigitalOceanVerifier {
    async fn verify(&self, id: u64) -> Result<VerifiedNode, Refusal> {
        let listed = self.droplets.get(id).await;
        let droplet = listed.map_err(|error| Refusal::unavailable("DigitalOceanUnavailable", error))?;
        let droplet = droplet
            .ok_or_else(|| Refusal::of_instance(&NoNode::NoSuchInstance { instance: id.to_string() }))?;
        let identity =
            identify(&droplet, self.droplets.cluster()).map_err(|refusal| Refusal::of_instance(&refusal))?;
        // No machine is called back over the public network.
        let address = droplet.private_ips.first().ok_or_else(|| {
            let problem = format!("the droplet {id} is in no private network to be called back over");
            Refusal::not_verified("NoPrivateAddress", problem)
        })?;
        Ok(VerifiedNode {
            instance: format!("digitalocean://{id}"),
            node_name: droplet.node_name(),
            certificate_names: certificate_names(&droplet),
            instance_group: identity.instance_group,
            challenge_endpoint: challenge_endpoint(&address.to_string()),
        })
    }
}

impl Verifier for DigitalOceanVerifier {
    fn examine<'a>(&'a self, presented: &Presented<'_>) -> Option<Result<Examined<'a>, Refusal>> {
        let id = match digital_ocean_token::parse(presented.token)? {
            Ok(id) => id,
            Err(problem) => return Some(Err(Refusal::not_verified("MalformedToken", problem))),
        };
        Some(Ok(Examined::of_call_back(id, presented, Box::pin(self.verify(id)))))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::net::IpAddr;

    use kops_agent_tests::digital_ocean::{DigitalOcean, Droplet, Mood, TOKEN};

    use super::*;
    use crate::calls::CloudCalls;
    use crate::verify::Origin;

    const CLUSTER: &str = "c.example.com";

    fn droplet(cluster: &str) -> Droplet {
        Droplet::of_group(cluster, "nodes", "nodes-1", IpAddr::from([10, 10, 0, 2]))
    }

    fn verifier(api: &DigitalOcean) -> DigitalOceanVerifier {
        kops_agent_net::tls::install_provider();
        let droplets = Droplets::at(&api.url(), TOKEN, CLUSTER, CloudCalls::default()).unwrap();
        DigitalOceanVerifier { droplets: Arc::new(droplets) }
    }

    async fn verified(verifier: &DigitalOceanVerifier, token: &str) -> Result<VerifiedNode, Refusal> {
        let origin = Origin::of([10, 10, 0, 2].into());
        let presented = Presented { token, body: b"{}", origin, now: 0 };
        verifier.examine(&presented).unwrap()?.verification.await
    }

    #[tokio::test]
    async fn a_droplet_of_the_cluster_is_called_back_at_its_private_address() {
        let api = DigitalOcean::start().unwrap();
        api.put(4711, droplet(CLUSTER));
        let expected = VerifiedNode {
            instance: "digitalocean://4711".into(),
            node_name: "10.10.0.2".into(),
            certificate_names: vec!["10.10.0.2".into()],
            instance_group: "nodes".into(),
            challenge_endpoint: "10.10.0.2:3987".into(),
        };
        let verifier = verifier(&api);
        assert_eq!(verified(&verifier, "x-digitalocean-droplet-id 4711").await.unwrap(), expected);
        let presented =
            Presented { token: "x-hetzner-id 4711", body: b"", origin: Origin::of([1; 4].into()), now: 0 };
        assert!(verifier.examine(&presented).is_none());
    }

    #[tokio::test]
    async fn what_is_no_droplet_of_the_cluster_is_refused() {
        let api = DigitalOcean::start().unwrap();
        api.put(1, droplet("other.example.com"));
        api.put(2, Droplet { status: "off".into(), ..droplet(CLUSTER) });
        api.put(3, Droplet { private_ips: Vec::new(), ..droplet(CLUSTER) });
        let mut both = droplet(CLUSTER);
        both.tags.push("KubernetesCluster:other-example-com".into());
        api.put(4, both);
        let verifier = verifier(&api);
        for (id, reason) in [
            ("1", "InstanceNotFound"),
            ("2", "InstanceNotRunning"),
            ("3", "NoPrivateAddress"),
            ("4", "InstanceOfOtherCluster"),
            ("5", "InstanceNotFound"),
            ("05", "MalformedToken"),
            ("", "MalformedToken"),
        ] {
            let refusal = verified(&verifier, &format!("x-digitalocean-droplet-id {id}")).await.unwrap_err();
            assert_eq!(refusal.reason, reason, "{id}");
        }
        assert_eq!(api.calls(), 1);
    }

    #[tokio::test]
    async fn no_droplet_is_refused_for_good_while_the_api_fails() {
        let api = DigitalOcean::start().unwrap();
        api.put(1, droplet(CLUSTER));
        api.set_mood(Mood::Truncating);
        let refusal = verified(&verifier(&api), "x-digitalocean-droplet-id 1").await.unwrap_err();
        assert_eq!(refusal.reason, "DigitalOceanUnavailable");
        assert!(!refusal.message.contains(TOKEN));
    }
}
