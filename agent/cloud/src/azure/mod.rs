//! Microsoft Azure, of whose machines the metadata service is asked.

mod facts;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use kops_agent_net::retry::Retries;
use kops_agent_spec::CloudProvider;
use kops_agent_spec::facts::CloudFacts;

use crate::Cloud;
use crate::metadata::{MetadataError, MetadataService};

/// Microsoft Azure.
pub(crate) struct Azure;

impl Cloud for Azure {
    fn provider(&self) -> CloudProvider {
        CloudProvider::Azure
    }

    fn observe<'a>(
        &'a self,
        facts: &'a mut CloudFacts,
        retries: Retries,
    ) -> BoxFuture<'a, Result<(), MetadataError>> {
        async move {
            let service = MetadataService::new(facts::ENDPOINT, retries)?;
            facts.azure = Some(facts::observe(&service).await?);
            Ok(())
        }
        .boxed()
    }
}
