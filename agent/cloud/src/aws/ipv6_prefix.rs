//! Assigns an IPv6 prefix to this EC2 instance for its pods. The instance itself requests the prefix from EC2.
//!
//! Source: upup/pkg/fi/nodeup/nodetasks/prefix.go.

use std::time::Duration;

use thiserror::Error;

use super::ec2::Ec2;
use super::facts::{INTERFACE_ID, IPV6_PREFIX, Imds, item_of_interface};
use super::query::text_of;
use crate::api::ApiError;
use crate::metadata::MetadataError;
use kops_agent_net::retry::Retries;
use kops_agent_spec::failure::{Failing, Kind};

#[derive(Debug, Error)]
pub(crate) enum PrefixError {
    /// The metadata service does not name the network interface.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// EC2 does not assign a prefix.
    #[error(transparent)]
    Ec2(#[from] ApiError),
    /// EC2 reports success, but its response has no prefix.
    #[error("EC2 answers AssignIpv6Addresses without a prefix; does the subnet have an IPv6 range?")]
    NoneGiven,
}

impl Failing for PrefixError {
    fn kind(&self) -> Kind {
        match self {
            PrefixError::Metadata(error) => error.kind(),
            PrefixError::Ec2(error) => error.kind(),
            PrefixError::NoneGiven => Kind::CloudRefused,
        }
    }
}

/// Assigns a prefix to the primary interface of this instance, unless the interface has a prefix already. Returns the prefix.
pub(crate) async fn assign(
    endpoint: &str,
    ec2: Option<Ec2>,
    retries: Retries,
) -> Result<String, PrefixError> {
    let imds = Imds::at(endpoint, retries)?;
    let mac = imds.get_needed("mac").await?;
    let interface = imds.get_needed(&item_of_interface(&mac, INTERFACE_ID)).await?;
    let ec2 = match ec2 {
        Some(ec2) => ec2,
        None => Ec2::of_node(&imds.get_needed("placement/region").await?).await?,
    };
    let attempt = || ask(&imds, &mac, &ec2, &interface);
    let worth_trying_for = |failure: &PrefixError| match failure {
        PrefixError::Ec2(error) if error.may_pass() => Duration::MAX,
        _ => Duration::ZERO,
    };
    let given = retries.run("asking EC2 for an IPv6 prefix", attempt, worth_trying_for).await;
    let given = given.map_err(|gave_up| gave_up.error)?;
    // Waits until the metadata service shows the prefix, because the next run reads the prefix from this service.
    let is_told = || async {
        match present(&imds, &mac).await {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err("the metadata service does not list it yet".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    };
    if let Err(gave_up) = retries.run("the new IPv6 prefix", is_told, |_| Duration::MAX).await {
        log::warn!(
            "EC2 assigned the IPv6 prefix {given} to the network interface {interface}, but {}",
            gave_up.error
        );
    }
    Ok(given)
}

/// Requests a prefix once. First checks whether an earlier request succeeded although its response was lost. Without this check, EC2 would
/// assign a second prefix.
async fn ask(imds: &Imds, mac: &str, ec2: &Ec2, interface: &str) -> Result<String, PrefixError> {
    if let Some(prefix) = present(imds, mac).await? {
        return Ok(prefix);
    }
    let parameters = [("NetworkInterfaceId", interface), ("Ipv6PrefixCount", "1")];
    let answer = ec2.query("AssignIpv6Addresses", &parameters).await?;
    text_of(&answer, "item").filter(|prefix| !prefix.is_empty()).ok_or(PrefixError::NoneGiven)
}

async fn present(imds: &Imds, mac: &str) -> Result<Option<String>, MetadataError> {
    let prefixes = imds.get(&item_of_interface(mac, IPV6_PREFIX)).await?.unwrap_or_default();
    Ok(prefixes.lines().map(str::trim).find(|prefix| !prefix.is_empty()).map(str::to_owned))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::super::ec2::tests::ec2;
    use super::super::facts::observe;
    use super::*;
    use kops_agent_net::retry::FAST;
    use kops_agent_tests::fake_imds::FakeImds;
    use kops_agent_tests::test_server::{HangUp, TestServer, text};

    const PREFIX: &str = "2001:db8:1234:1a00:9691::/80";
    const GIVEN: &str = "<AssignIpv6AddressesResponse><assignedIpv6Addresses/><assignedIpv6PrefixSet><item>\
                         2001:db8:1234:1a00:9691::/80</item></assignedIpv6PrefixSet></AssignIpv6AddressesResponse>";

    /// A stand-in for EC2 that assigns a prefix and counts requests. Its first response gets lost.
    async fn giving(imds: &Arc<FakeImds>) -> (TestServer, Arc<AtomicU32>) {
        let (imds, asked) = (imds.clone(), Arc::new(AtomicU32::new(0)));
        let count = asked.clone();
        let server = TestServer::start(move |_| {
            imds.give_prefix(PREFIX);
            let is_first = count.fetch_add(1, Ordering::SeqCst) == 0;
            async move { if is_first { Err(HangUp) } else { Ok(text(200, GIVEN)) } }
        })
        .await;
        (server, asked)
    }

    #[tokio::test]
    async fn a_prefix_is_requested_once_even_if_the_response_is_lost() {
        let imds = Arc::new(FakeImds::start(&[]).await);
        let (server, asked) = giving(&imds).await;
        assert_eq!(observe(&imds.url(), FAST).await.unwrap().ipv6_prefix, "");
        let given = assign(&imds.url(), Some(ec2(&server.url, "the-secret")), FAST).await.unwrap();
        assert_eq!((given.as_str(), asked.load(Ordering::SeqCst)), (PREFIX, 1));
        assert_eq!(observe(&imds.url(), FAST).await.unwrap().ipv6_prefix, PREFIX);
        assign(&imds.url(), Some(ec2(&server.url, "the-secret")), FAST).await.unwrap();
        assert_eq!(asked.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn requests_that_ec2_rejects_are_not_retried() {
        let imds = FakeImds::start(&[]).await;
        let refusal = "<Response><Errors><Error><Code>UnauthorizedOperation</Code><Message>No</Message></Error>\
                       </Errors></Response>";
        let server = TestServer::start(move |_| async move { Ok(text(403, refusal)) }).await;
        let error = assign(&imds.url(), Some(ec2(&server.url, "the-secret")), FAST).await.unwrap_err();
        assert!(
            error.to_string().contains("grant this machine's role the permission ec2:AssignIpv6Addresses"),
            "{error}"
        );
        let server = TestServer::start(|_| async { Ok(text(200, "<AssignIpv6AddressesResponse/>")) }).await;
        let error = assign(&imds.url(), Some(ec2(&server.url, "the-secret")), FAST).await.unwrap_err();
        assert!(matches!(error, PrefixError::NoneGiven), "{error}");
    }
}
