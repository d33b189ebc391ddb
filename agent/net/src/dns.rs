//! Resolves names to addresses, for every HTTP client of this process.
//!
//! This module does not use getaddrinfo. In a static binary, glibc's getaddrinfo loads the host's libraries that
//! nsswitch.conf names, and these libraries may not fit the binary.

use std::net::{IpAddr, SocketAddr};

use hickory_resolver::config::LookupIpStrategy;
use hickory_resolver::proto::op::Query;
use hickory_resolver::proto::rr::{Name as DnsName, RecordType};
use hickory_resolver::{Hosts, TokioResolver};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

mod answers;
mod error;

use answers::Answers;

pub use error::NameError;

/// Resolves names. Reads `/etc/resolv.conf` and `/etc/hosts` for each query, because both may change early in a boot.
/// Concurrent requests share one query.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

impl SystemResolver {
    /// The addresses of a name, from a query or from a cache. The cache keeps an address for a few seconds.
    pub async fn lookup(name: &str) -> Result<Vec<IpAddr>, NameError> {
        static ANSWERS: Answers = Answers::new();
        ANSWERS.get(name, || SystemResolver::look_up_now(name)).await
    }

    async fn look_up_now(name: &str) -> Result<Vec<IpAddr>, NameError> {
        if let Some(addresses) = Hosts::from_system().ok().and_then(|hosts| listed(&hosts, name)) {
            return Ok(addresses);
        }
        let addresses = async {
            let mut builder = TokioResolver::builder_tokio()?;
            builder.options_mut().ip_strategy = LookupIpStrategy::Ipv6AndIpv4;
            Ok(builder.build()?.lookup_ip(name).await?.iter().collect())
        };
        addresses.await.map_err(|error| NameError::new(name, &error))
    }
}

/// The addresses of a name in `/etc/hosts`. If there are any, no name server is asked, even if all addresses are of
/// one IP family. getaddrinfo and Go follow the same rule (`hosts: files dns` in nsswitch.conf(5)). Hickory's
/// resolver would ask a name server for the other family, and would fail if the server does not answer.
fn listed(hosts: &Hosts, name: &str) -> Option<Vec<IpAddr>> {
    let name = DnsName::from_utf8(name.to_lowercase()).ok()?;
    let found = [RecordType::AAAA, RecordType::A]
        .iter()
        .filter_map(|kind| hosts.lookup_static_host(&Query::query(name.clone(), *kind)))
        .flat_map(|lookup| {
            lookup.answers().iter().filter_map(|answer| answer.data.ip_addr()).collect::<Vec<_>>()
        })
        .collect::<Vec<_>>();
    (!found.is_empty()).then_some(found)
}

impl Resolve for SystemResolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let addresses = SystemResolver::lookup(name.as_str()).await?;
            // The port 0 is a placeholder: reqwest takes the port from the URL.
            Ok(Box::new(addresses.into_iter().map(|address| SocketAddr::new(address, 0))) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_hosts_file_is_the_whole_answer_for_its_names() {
        let mut hosts = Hosts::default();
        let text =
            "127.0.0.1 localhost\n::1 localhost # both\n10.0.0.1 Kops-Controller.test kc\nfd00::1 six.test\n";
        hosts.read_hosts_conf(text.as_bytes()).unwrap();
        for (name, expected) in [
            ("kops-controller.TEST", Some(&["10.0.0.1"][..])),
            ("kc", Some(&["10.0.0.1"])),
            ("kc.", Some(&["10.0.0.1"])),
            ("six.test", Some(&["fd00::1"])),
            ("localhost", Some(&["::1", "127.0.0.1"])),
            ("other.test", None),
            ("", None),
        ] {
            let expected: Option<Vec<IpAddr>> =
                expected.map(|all| all.iter().map(|address| address.parse().unwrap()).collect());
            assert_eq!(listed(&hosts, name), expected, "{name}");
        }
    }

    #[tokio::test]
    async fn localhost_needs_no_name_server() {
        let addresses = SystemResolver::lookup("localhost").await.unwrap();
        assert!(!addresses.is_empty());
        assert!(addresses.iter().all(IpAddr::is_loopback), "{addresses:?}");
    }
}
