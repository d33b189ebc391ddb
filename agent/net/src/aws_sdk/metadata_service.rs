//! By which of its two addresses EC2's metadata service is asked.
//!
//! Without a setting every AWS tool takes that of IPv4. To reach it EC2 gives also a machine of an IPv6-only subnet an IPv4 address, by
//! DHCP, of no use for anything else; not every image takes it. The machine has no way to the first then, and the other one is asked,
//! which kOps turns on for machines of subnets with IPv6 addresses.
//!
//! Source: `pkg/model/awsmodel/autoscalinggroup.go` (`HTTPProtocolIPv6`); the EC2 User Guide, "Access instance metadata for an EC2
//! instance"; the AWS SDKs' reference, "IMDS credential provider".

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use aws_config::default_provider::credentials::DefaultCredentialsChain;
use aws_config::environment::region::EnvironmentVariableRegionProvider;
use aws_config::imds::client::EndpointMode;
use aws_config::imds::region::ImdsRegionProvider;
use aws_config::meta::region::RegionProviderChain;
use aws_config::profile::ProfileFileRegionProvider;
use aws_config::provider_config::ProviderConfig;
use aws_config::{ConfigLoader, imds};
use aws_sdk_s3::config::{Region, SharedHttpClient};

const OF_IPV4: IpAddr = IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254));
const OF_IPV6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254));
const PORT: u16 = 80;

/// Whether it is to be asked by IPv6: because `AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE` says so, or because it says nothing and this
/// machine has a way to that address only.
pub fn is_asked_by_ipv6(variable: impl Fn(&str) -> Option<String>) -> bool {
    decide(variable, has_way_to)
}

fn decide(variable: impl Fn(&str) -> Option<String>, has_way_to: impl Fn(IpAddr) -> bool) -> bool {
    let mode = variable("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE").filter(|mode| !mode.is_empty());
    match mode {
        Some(mode) => mode.eq_ignore_ascii_case("ipv6"),
        None => !has_way_to(OF_IPV4) && has_way_to(OF_IPV6),
    }
}

/// Connecting a socket for datagrams looks the way up, and sends nothing.
fn has_way_to(address: IpAddr) -> bool {
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    UdpSocket::bind((any, 0)).and_then(|socket| socket.connect((address, PORT))).is_ok()
}

/// Has the SDK ask by IPv6 what it asks the metadata service for: the region, unless there is one, and credentials. All that comes
/// before in the SDK's own order comes before here.
pub(super) async fn by_ipv6(
    loader: ConfigLoader,
    client: SharedHttpClient,
    region: Option<Region>,
) -> ConfigLoader {
    let config = ProviderConfig::without_region().with_http_client(client);
    let metadata = imds::Client::builder().configure(&config).endpoint_mode(EndpointMode::IpV6).build();
    let region = match region {
        Some(region) => Some(region),
        None => {
            let of_metadata = ImdsRegionProvider::builder().imds_client(metadata.clone()).build();
            let chain = RegionProviderChain::first_try(EnvironmentVariableRegionProvider::new());
            let of_profile = ProfileFileRegionProvider::builder().configure(&config).build();
            chain.or_else(of_profile).or_else(of_metadata).region().await
        }
    };
    let credentials = DefaultCredentialsChain::builder().configure(config).imds_client(metadata);
    loader.credentials_provider(credentials.region(region.clone()).build().await).region(region)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_asked_where_there_is_a_way_unless_the_environment_says_where() {
        for (mode, ways, by_ipv6) in [
            (None, [true, true], false),
            (None, [true, false], false),
            (None, [false, true], true),
            // It may still come.
            (None, [false, false], false),
            (Some(""), [false, true], true),
            (Some("IPv4"), [false, true], false),
            (Some("IPv6"), [true, false], true),
        ] {
            let has_way_to = |address: IpAddr| ways[usize::from(address.is_ipv6())];
            let decided = decide(|_| mode.map(str::to_owned), has_way_to);
            assert_eq!(decided, by_ipv6, "{mode:?} {ways:?}");
        }
    }

    #[test]
    fn there_is_a_way_where_nothing_listens() {
        assert!(has_way_to(Ipv4Addr::LOCALHOST.into()));
    }
}
