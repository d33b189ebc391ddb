//! Facts that cost more than a question to the metadata service: asked for only where a node is decided by them, once its
//! configuration is known.

use std::time::Duration;

use kops_agent_plan::facts::{AwsFacts, Facts, OpenstackFacts};
use kops_agent_plan::resolve::Inputs;
use kops_agent_plan::spec::CloudProvider;

use super::aws::instance_types::{self, InstanceTypeError};
use super::metadata::MetadataService;
use super::openstack;
use super::remembered::RememberedFacts;
use kops_agent_net::retry::Retries;

/// For an answer that a node can do without.
const SHORT: Retries = Retries {
    deadline: Duration::from_secs(15),
    attempt: Duration::from_secs(5),
    first_pause: Duration::from_millis(500),
    longest_pause: Duration::from_secs(4),
};

/// Adds to the facts what this node's configuration makes it depend on besides. What an earlier run was told
/// is not asked for again.
///
/// # Errors
/// If the node cannot be decided without it, and the cloud does not tell.
pub async fn complete(inputs: &mut Inputs, remembered: &RememberedFacts) -> Result<(), InstanceTypeError> {
    if inputs.wants_instance_type()
        && let Some(aws) = &mut inputs.facts.cloud.aws
    {
        learn_instance_type(aws, remembered, Retries::default()).await?;
    }
    if inputs.wants_openstack_address() {
        learn_openstack_address(&mut inputs.facts, openstack::ENDPOINT, remembered).await;
    }
    Ok(())
}

/// Adds to the facts everything that the cloud tells, whatever depends on it. What it does not tell is left out with a
/// warning.
pub async fn complete_for_show(facts: &mut Facts, provider: CloudProvider, remembered: &RememberedFacts) {
    if let Some(aws) = &mut facts.cloud.aws
        && let Err(error) = learn_instance_type(aws, remembered, SHORT).await
    {
        log::warn!("networkInterfaces and gpu are left out: {error}");
    }
    if provider == CloudProvider::Openstack {
        learn_openstack_address(facts, openstack::ENDPOINT, remembered).await;
    }
}

async fn learn_instance_type(
    aws: &mut AwsFacts,
    remembered: &RememberedFacts,
    retries: Retries,
) -> Result<(), InstanceTypeError> {
    let told = match remembered.instance_type(aws) {
        Some(remembered) => remembered,
        None => instance_types::of_region(&aws.region, &aws.instance_type, retries).await?,
    };
    aws.complete(told);
    Ok(())
}

/// A server with a config drive may have no metadata service, and works without the address, as upstream's does. One that
/// had it keeps it.
async fn learn_openstack_address(facts: &mut Facts, endpoint: &str, remembered: &RememberedFacts) {
    let asked = async {
        let service = MetadataService::new(endpoint, SHORT)?;
        openstack::observe(&service).await
    };
    let error = match asked.await {
        Ok(told) => {
            facts.cloud.openstack = Some(told);
            return;
        }
        Err(error) => error,
    };
    facts.cloud.openstack = match remembered.openstack_address(facts) {
        Some(address) => {
            log::warn!("{error}; this machine's address is taken to be {address}, as it was told before");
            Some(OpenstackFacts { local_ipv4: address.to_owned() })
        }
        None => {
            log::warn!("{error}; the API server's certificate gets no address of this machine");
            None
        }
    };
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use kops_agent_plan::facts::Interface;

    use super::*;
    use kops_agent_tests::test_server::{TestServer, text};

    async fn address(facts: &Facts, status: u16, remembered: &RememberedFacts) -> Option<String> {
        let server = TestServer::start(move |_| async move { Ok(text(status, "10.0.0.5")) }).await;
        let mut facts = facts.clone();
        learn_openstack_address(&mut facts, &server.url, remembered).await;
        facts.cloud.openstack.map(|openstack| openstack.local_ipv4)
    }

    #[tokio::test]
    async fn the_address_of_an_openstack_server_stays_while_its_metadata_service_refuses() {
        let nothing = RememberedFacts::default();
        let addresses = vec!["10.0.0.5/24".into()];
        let interfaces = vec![Interface { name: "ens3".into(), addresses, ..Interface::default() }];
        let facts = Facts { interfaces, ..Facts::default() };
        assert_eq!(address(&facts, 403, &nothing).await, None);
        assert_eq!(address(&facts, 200, &nothing).await.unwrap(), "10.0.0.5");

        let mut told = facts.clone();
        told.cloud.openstack = Some(OpenstackFacts { local_ipv4: "10.0.0.5".into() });
        let remembered = nothing.clone().with(&told, None);
        assert_eq!(address(&facts, 403, &remembered).await.unwrap(), "10.0.0.5");
        assert_eq!(address(&Facts::default(), 403, &remembered).await, None, "it is another machine's");
    }
}
