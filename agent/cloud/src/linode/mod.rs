//! Linode, of whose instances the metadata service is asked.

mod facts;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use kops_agent_net::retry::Retries;
use kops_agent_spec::CloudProvider;
use kops_agent_spec::facts::CloudFacts;

use crate::Cloud;
use crate::metadata::{MetadataError, MetadataService};

/// Linode.
pub(crate) struct Linode;

impl Cloud for Linode {
    fn provider(&self) -> CloudProvider {
        CloudProvider::Linode
    }

    fn observe<'a>(
        &'a self,
        facts: &'a mut CloudFacts,
        retries: Retries,
    ) -> BoxFuture<'a, Result<(), MetadataError>> {
        async move {
            let service = MetadataService::new(facts::ENDPOINT, retries)?;
            facts.linode = Some(facts::observe(&service).await?);
            Ok(())
        }
        .boxed()
    }
}
