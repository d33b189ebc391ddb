//! Refuses URLs from which no node may download a program.

use std::net::{Ipv4Addr, Ipv6Addr};

use kops_agent_spec::invalid::Invalid;
use url::{Host, Url};

/// Maximum length of a URL, in bytes.
const LONGEST: usize = 2048;
/// The URL schemes of web servers. In a URL with one of these schemes, clients read the host as a DNS name or an IP address.
const SERVERS: [&str; 2] = ["http", "https"];
/// The URL schemes of buckets (`agent/store/src/schemes.rs`).
const BUCKETS: [&str; 8] = ["azureblob", "do", "gs", "hos", "linode", "s3", "scw", "swift"];
/// Addresses of metadata services that are not link-local: of Azure, Alibaba Cloud and Oracle.
const METADATA_V4: [Ipv4Addr; 3] =
    [Ipv4Addr::new(168, 63, 129, 16), Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(192, 0, 0, 192)];
/// The beginnings of the IPv6 addresses of Amazon's and Google's metadata services.
const METADATA_V6: [[u16; 2]; 2] = [[0xfd00, 0x0ec2], [0xfd20, 0x00ce]];
/// The first part of an address of 6to4, which contains an IPv4 address (RFC 3056).
const SIX_TO_FOUR: u16 = 0x2002;
/// The prefix of IPv4 addresses behind a NAT64 (RFC 6052).
const NAT64: [u16; 6] = [0x64, 0xff9b, 0, 0, 0, 0];
const METADATA_NAMES: [&str; 5] =
    ["metadata", "metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal"];

/// Refuses a URL with credentials, and a URL that leads to the machine's own files or to its cloud's metadata service. The check prevents
/// only mistakes, because a host name may resolve to any address. The messages do not repeat the URL, because it may have a password.
pub(super) fn check(url: &str) -> Result<(), Invalid> {
    if url.len() > LONGEST || !url.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\') {
        return Err(Invalid::new(format!(
            "has more than {LONGEST} bytes, or a character that is not allowed; escape such a character with \
             %"
        )));
    }
    let (scheme, rest) =
        url.split_once("://").ok_or_else(|| Invalid::new("has no scheme such as https://"))?;
    if !SERVERS.contains(&scheme) && !BUCKETS.contains(&scheme) {
        return Err(Invalid::new(format!(
            "has an unsupported scheme; use one of {}, {}",
            SERVERS.join(", "),
            BUCKETS.join(", ")
        )));
    }
    if rest.starts_with('/') {
        return Err(Invalid::new("names no host or no file"));
    }
    let read = Url::parse(url).map_err(|error| Invalid::new(format!("is not valid: {error}")))?;
    let has_credentials = !read.username().is_empty() || read.password().is_some();
    if has_credentials || rest.split('/').next().is_some_and(|authority| authority.contains('@')) {
        return Err(Invalid::new("has credentials; leave them out"));
    }
    if read.query().is_some() || read.fragment().is_some() {
        return Err(Invalid::new("has a query or a fragment, which may be a credential; leave it out"));
    }
    let host = read.host().filter(|_| !read.path().trim_matches('/').is_empty());
    let host = host.ok_or_else(|| Invalid::new("names no host or no file"))?;
    match SERVERS.contains(&scheme) && is_metadata_service(&host) {
        true => {
            Err(Invalid::new("leads to a cloud's metadata service, or has an address in an unusual form"))
        }
        false => Ok(()),
    }
}

/// Whether a host is a metadata service. The URL parser has normalized numbers, escapes and the case of letters, as clients do.
fn is_metadata_service(host: &Host<&str>) -> bool {
    match host {
        Host::Ipv4(address) => address.is_link_local() || METADATA_V4.contains(address),
        Host::Ipv6(address) => is_metadata_v6(*address),
        Host::Domain(name) => METADATA_NAMES.contains(&name.trim_end_matches('.')),
    }
}

/// Whether an address is link-local, belongs to a metadata service, or contains an IPv4 address (mapped, compatible, 6to4 or NAT64). The
/// result is `false` for `::1`.
fn is_metadata_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    address.is_unicast_link_local()
        || address.to_ipv4().is_some_and(|_| address != Ipv6Addr::LOCALHOST)
        || segments[0] == SIX_TO_FOUR
        || METADATA_V6.iter().any(|service| segments[..2] == *service)
        || segments[..6] == NAT64
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn servers_and_buckets_that_nodes_may_reach_are_accepted() {
        for url in [
            "https://mirror.example.com/a/kops-agent",
            "http://10.0.0.1:8080/kops-agent",
            "http://127.0.0.1/kops-agent",
            "https://[2001:db8::1]:443/kops-agent",
            "s3://2852039166/kops-agent",
            "gs://bucket/folder/kops-agent",
        ] {
            assert_eq!(check(url), Ok(()), "{url}");
        }
    }

    #[test]
    fn other_urls_are_refused() {
        for (url, expected) in [
            ("mirror/kops-agent", "has no scheme"),
            ("https:/mirror/kops-agent", "has no scheme"),
            ("file:///tmp/kops-agent", "has an unsupported scheme"),
            ("FILE:///tmp/kops-agent", "has an unsupported scheme"),
            ("ftp://mirror/kops-agent", "has an unsupported scheme"),
            ("vault://mirror/kops-agent", "has an unsupported scheme"),
            ("https://user:sesame@mirror/kops-agent", "has credentials"),
            ("https://@mirror/kops-agent", "has credentials"),
            ("https:///user:sesame@mirror/kops-agent", "names no host or no file"),
            ("https://mirror/kops-agent?token=sesame", "has a query"),
            ("https://mirror/kops-agent#sesame", "has a query"),
            ("https:///kops-agent", "names no host or no file"),
            ("https://mirror", "names no host or no file"),
            ("s3://bucket/", "names no host or no file"),
            ("s3:///kops-agent", "names no host or no file"),
            ("https://mirror\\x/y", "character that is not allowed"),
            ("https://mirror:port/y", "is not valid"),
        ] {
            let refused = check(url).unwrap_err().to_string();
            assert!(refused.contains(expected) && !refused.contains("sesame"), "{url}: {refused}");
        }
    }

    #[test]
    fn no_spelling_of_a_metadata_service_is_accepted() {
        for host in [
            "169.254.169.254",
            "169.254.169.254.",
            "169.254.169.254%2e",
            "%31%36%39.254.169.254",
            "169.254.43518",
            "2852039166",
            "0xa9fea9fe",
            "0XA9FEA9FE",
            "0251.0376.0251.0376",
            "168.63.129.16",
            "100.100.100.200",
            "[fe80::1]",
            "192.0.0.192",
            "[fd00:ec2::254]",
            "[fd20:ce::254]",
            "[::a9fe:a9fe]",
            "[2002:a9fe:a9fe::]",
            "[::ffff:169.254.169.254]",
            "[64:ff9b::a9fe:a9fe]",
            "metadata",
            "metadata.google.internal.",
            "metadata.goog",
            "instance-data",
            "METADATA.google.internal",
        ] {
            let refused = check(&format!("http://{host}/x")).unwrap_err().to_string();
            assert!(refused.contains("metadata service"), "{host}: {refused}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_accepted_or_refused(url in ".{0,80}") {
            let _ = check(&url);
        }
    }
}
