//! OpenStack, whose servers are asked for an address where a node is decided by it.

mod facts;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use kops_agent_plan::resolve::Inputs;
use kops_agent_spec::CloudProvider;
use kops_agent_spec::facts::{Facts, OpenstackFacts};

use crate::aws::instance_types::InstanceTypeError;
use crate::metadata::MetadataService;
use crate::remembered::RememberedFacts;
use crate::{Cloud, WITHOUT_WAITING};

/// OpenStack.
pub(crate) struct Openstack;

/// The metadata service is asked once it is known that a node is decided by its answer, not before.
impl Cloud for Openstack {
    fn provider(&self) -> CloudProvider {
        CloudProvider::Openstack
    }

    fn complete<'a>(
        &'a self,
        inputs: &'a mut Inputs,
        remembered: &'a RememberedFacts,
    ) -> BoxFuture<'a, Result<(), InstanceTypeError>> {
        async {
            if inputs.wants_openstack_address() {
                learn_address(&mut inputs.facts, facts::ENDPOINT, remembered).await;
            }
            Ok(())
        }
        .boxed()
    }

    fn complete_for_show<'a>(
        &'a self,
        facts: &'a mut Facts,
        remembered: &'a RememberedFacts,
    ) -> BoxFuture<'a, ()> {
        learn_address(facts, facts::ENDPOINT, remembered).boxed()
    }
}

/// A server with a config drive may have no metadata service, and works without the address, as upstream's does. One that
/// had it keeps it.
async fn learn_address(facts: &mut Facts, endpoint: &str, remembered: &RememberedFacts) {
    let asked = async {
        let service = MetadataService::new(endpoint, WITHOUT_WAITING)?;
        facts::observe(&service).await
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
    use kops_agent_spec::facts::Interface;

    use super::*;
    use kops_agent_tests::test_server::{TestServer, text};

    async fn address(facts: &Facts, status: u16, remembered: &RememberedFacts) -> Option<String> {
        let server = TestServer::start(move |_| async move { Ok(text(status, "10.0.0.5")) }).await;
        let mut facts = facts.clone();
        learn_address(&mut facts, &server.url, remembered).await;
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
