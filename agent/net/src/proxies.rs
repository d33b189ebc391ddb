//! Selects the proxy of a request by the variables and rules of Go's HTTP clients (golang.org/x/net/http/httpproxy). kOps writes
//! `spec.networking.egressProxy` into these variables, and nodeup follows the same rules. Every client of this process uses this
//! module.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ipnet::IpNet;
use kops_agent_spec::failure::{Failing, Kind};
use percent_encoding::percent_decode_str;
use reqwest::Url;
use reqwest::header::HeaderValue;
use thiserror::Error;

/// The value of a proxy variable is not usable. The error does not quote the value, because the value may contain a
/// password.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ProxyError {
    #[error("{0} is not a URL; use a URL such as http://proxy.example.com:3128")]
    NoUrl(&'static str),
    #[error(
        "{0} names a proxy of {1}, but only proxies of http and https are supported; use a URL such as \
         http://proxy.example.com:3128"
    )]
    Unsupported(&'static str, String),
}

impl Failing for ProxyError {
    fn kind(&self) -> Kind {
        Kind::ProxySetting
    }
}

/// A proxy, for clients other than reqwest. This type has no `Debug`, because `authorization` contains a password.
#[derive(Clone)]
pub struct ProxyServer {
    /// The proxy's URL, without the login.
    pub url: String,
    /// The value of the `Proxy-Authorization` header. `None` if the URL has no login (RFC 7617).
    pub authorization: Option<HeaderValue>,
}

impl ProxyServer {
    /// The proxy in the environment for requests to this URL. `None` if such requests go directly to the server.
    pub fn of_environment(url: &str) -> Result<Option<ProxyServer>, ProxyError> {
        let Ok(url) = Url::parse(url) else { return Ok(None) };
        Ok(Proxies::of_environment()?.proxy_for(&url).map(ProxyServer::new))
    }

    /// The proxy in the value of a setting. `setting` is the name for error messages.
    pub fn parse(setting: &'static str, value: &str) -> Result<ProxyServer, ProxyError> {
        proxy(setting, value).map(|url| ProxyServer::new(&url))
    }

    fn new(url: &Url) -> ProxyServer {
        let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let (user, password) = (decoded(url.username()), decoded(url.password().unwrap_or_default()));
        let login = STANDARD.encode(format!("{user}:{password}"));
        let authorization = HeaderValue::from_str(&format!("Basic {login}")).ok().map(|mut value| {
            value.set_sensitive(true);
            value
        });
        let origin = url.origin().ascii_serialization();
        ProxyServer { url: origin, authorization: authorization.filter(|_| !user.is_empty()) }
    }
}

/// The proxies in an environment. This type has no `Debug`, because the URL of a proxy may contain a password.
#[derive(Clone, Default)]
pub(crate) struct Proxies {
    http: Option<Url>,
    https: Option<Url>,
    exceptions: Exceptions,
}

impl Proxies {
    /// The proxies in the environment of this process. `ALL_PROXY` is not read, because Go does not read it.
    pub(crate) fn of_environment() -> Result<Proxies, ProxyError> {
        Proxies::from_variables(|name| std::env::var(name).ok())
    }

    /// The proxies in the environment variables that `variable` reads.
    fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Proxies, ProxyError> {
        let set = |names: [&'static str; 2]| {
            let mut values = names.into_iter().filter_map(|name| Some((name, variable(name)?)));
            values.find(|(_, value)| !value.is_empty())
        };
        let proxy = |names| set(names).map(|(name, value)| proxy(name, &value)).transpose();
        Ok(Proxies {
            http: proxy(["HTTP_PROXY", "http_proxy"])?,
            https: proxy(["HTTPS_PROXY", "https_proxy"])?,
            exceptions: set(["NO_PROXY", "no_proxy"])
                .map_or_else(Exceptions::default, |(_, list)| Exceptions::parse(&list)),
        })
    }

    /// The proxy for a request to this URL. `None` if the request goes directly to the server.
    pub(crate) fn proxy_for(&self, url: &Url) -> Option<&Url> {
        let proxy = match url.scheme() {
            "http" => self.http.as_ref(),
            "https" => self.https.as_ref(),
            _ => None,
        }?;
        let host = url.host_str()?.trim_matches(['[', ']']);
        let port = url.port_or_known_default()?;
        (!is_nearby(host) && !self.exceptions.have(host, port)).then_some(proxy)
    }
}

/// The proxy in the value of a variable. The default scheme is `http`.
fn proxy(name: &'static str, value: &str) -> Result<Url, ProxyError> {
    let url = if value.contains("://") { value.to_owned() } else { format!("http://{value}") };
    let url = Url::parse(&url).ok().filter(Url::has_host).ok_or(ProxyError::NoUrl(name))?;
    match url.scheme() {
        "http" | "https" => Ok(url),
        scheme => Err(ProxyError::Unsupported(name, scheme.to_owned())),
    }
}

/// Whether a host is this machine (by Go's rule) or a cloud's metadata service. A metadata service describes the
/// machine that sends the request, so the request must not go through a proxy. A metadata service is link-local, or
/// has Amazon's IPv6 address (docs.aws.amazon.com, "Use the Instance Metadata Service").
fn is_nearby(host: &str) -> bool {
    match address(host) {
        None => host == "localhost",
        Some(IpAddr::V4(address)) => address.is_loopback() || address.is_link_local(),
        Some(IpAddr::V6(address)) => {
            address.is_loopback()
                || address.is_unicast_link_local()
                || address.segments()[..2] == [0xfd00, 0x0ec2]
        }
    }
}

/// Parses an address. An IPv4-mapped IPv6 address becomes an IPv4 address, because Go treats both as equal.
fn address(text: &str) -> Option<IpAddr> {
    text.parse::<IpAddr>().ok().map(|address| address.to_canonical())
}

/// The hosts that are reached without a proxy.
#[derive(Clone, Debug, Default)]
struct Exceptions(Vec<Exception>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Exception {
    Everything,
    Network(IpNet),
    /// An address and a port. Without a port, every port matches.
    Address(IpAddr, Option<String>),
    /// All names that end with `suffix`, which begins with a dot. With `and_itself`, the name without the dot also
    /// matches.
    Below {
        suffix: String,
        and_itself: bool,
        port: Option<String>,
    },
}

impl Exceptions {
    /// Parses the value of `no_proxy`. Entries that are not hosts are skipped, as in Go.
    fn parse(list: &str) -> Exceptions {
        let entries = list.split(',').map(|entry| entry.trim().to_lowercase());
        Exceptions(entries.filter_map(|entry| Exception::parse(&entry)).collect())
    }

    fn have(&self, host: &str, port: u16) -> bool {
        let (address, port) = (address(host), port.to_string());
        self.0.iter().any(|exception| exception.has(host, address, &port))
    }
}

impl Exception {
    fn parse(entry: &str) -> Option<Exception> {
        if entry == "*" {
            return Some(Exception::Everything);
        }
        if let Ok(network) = entry.parse::<IpNet>() {
            return Some(Exception::Network(network));
        }
        let (host, port) = split_port(entry);
        if let Some(address) = address(host) {
            return Some(Exception::Address(address, port));
        }
        let host = match host.strip_prefix("*.") {
            Some(_) => &host[1..],
            None => host,
        };
        match host {
            "" => None,
            host if host.starts_with('.') => {
                Some(Exception::Below { suffix: host.to_owned(), and_itself: false, port })
            }
            host => Some(Exception::Below { suffix: format!(".{host}"), and_itself: true, port }),
        }
    }

    fn has(&self, host: &str, address: Option<IpAddr>, port: &str) -> bool {
        let is_of = |wanted: &Option<String>| wanted.as_deref().is_none_or(|wanted| wanted == port);
        match self {
            Exception::Everything => true,
            Exception::Network(network) => address.is_some_and(|address| network.contains(&address)),
            Exception::Address(excepted, wanted) => address == Some(*excepted) && is_of(wanted),
            Exception::Below { suffix, and_itself, port } => {
                let is_below = host.ends_with(suffix.as_str()) || *and_itself && host == &suffix[1..];
                // A domain suffix never matches an IP address.
                address.is_none() && is_below && is_of(port)
            }
        }
    }
}

/// Splits a host and an optional port: `host:port`, `[IPv6]:port`. Any other entry with several colons is an IPv6
/// address without a port.
fn split_port(entry: &str) -> (&str, Option<String>) {
    let (host, port) = match entry.strip_prefix('[').and_then(|rest| rest.split_once("]:")) {
        Some(parts) => parts,
        None => match entry.split_once(':') {
            Some((host, port)) if !port.contains(':') => (host, port),
            _ => return (entry, None),
        },
    };
    (host, (!port.is_empty()).then(|| port.to_owned()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const PROXY: &str = "http://robot:hidden@proxy.example.com:3128/";

    fn proxies_from(variables: &[(&str, &str)]) -> Result<Proxies, ProxyError> {
        Proxies::from_variables(|name| {
            variables.iter().find(|(set, _)| *set == name).map(|(_, value)| (*value).to_owned())
        })
    }

    fn is_direct(exceptions: &str, url: &str) -> bool {
        let proxies =
            proxies_from(&[("http_proxy", PROXY), ("https_proxy", PROXY), ("no_proxy", exceptions)]).unwrap();
        proxies.proxy_for(&url.parse().unwrap()).is_none()
    }

    /// The expected results come from Go's `httpproxy`.
    #[test]
    fn exceptions_are_read_as_go_reads_them() {
        for (exceptions, direct, proxied) in [
            (
                "example.com",
                &["https://example.com", "https://a.b.example.com", "http://EXAMPLE.com:81"][..],
                &["https://notexample.com", "https://example.com.au"][..],
            ),
            (".example.com", &["https://a.example.com"], &["https://example.com"]),
            (
                "*.example.com",
                &["https://a.example.com", "https://a.b.example.com"],
                &["https://example.com"],
            ),
            ("*.Example.com:8443", &["https://a.example.com:8443"], &["https://a.example.com"]),
            (
                "example.com:443",
                &["https://example.com", "https://a.example.com:443"],
                &["http://example.com", "https://example.com:8443"],
            ),
            ("example.com:", &["https://example.com"], &["https://example.org"]),
            ("*", &["https://example.com", "http://10.0.0.1"], &[]),
            (" a.test , *, b.test", &["https://example.com"], &[]),
            ("a.test,,  b.test ,", &["https://a.test", "https://b.test"], &["https://c.test"]),
            ("10.0.0.0/8", &["https://10.1.2.3:8443"], &["https://11.0.0.1", "https://ten.example.com"]),
            ("10.0.0.0/8:443,10.0.0.0/33", &[], &["https://10.0.0.1"]),
            ("10.0.0.1", &["https://10.0.0.1"], &["https://10.0.0.2", "https://10.0.0.10"]),
            ("10.0.0.1:8443", &["https://10.0.0.1:8443"], &["https://10.0.0.1"]),
            ("fd00::/8", &["https://[fd00::1]"], &["https://[fe00::1]"]),
            ("fd00::1", &["https://[fd00::1]:81"], &["https://[fd00::2]"]),
            ("[fd00::1]:443", &["https://[fd00::1]"], &["https://[fd00::1]:81"]),
            ("[fd00::1]", &[], &["https://[fd00::1]"]),
            ("::ffff:10.0.0.1", &["https://10.0.0.1", "https://[::ffff:10.0.0.1]"], &["https://10.0.0.2"]),
            (":443,*x.test,.", &[], &["https://example.com", "https://ax.test"]),
            ("1,.0.1,*.0.0.1", &[], &["https://10.0.0.1"]),
            ("", &[], &["https://example.com", "http://10.0.0.1"]),
        ] {
            for url in direct {
                assert!(is_direct(exceptions, url), "{exceptions:?}: {url}");
            }
            for url in proxied {
                assert!(!is_direct(exceptions, url), "{exceptions:?}: {url}");
            }
        }
    }

    #[test]
    fn this_machine_and_metadata_services_are_never_reached_through_a_proxy() {
        for host in [
            "localhost",
            "LOCALHOST:81",
            "127.0.0.1",
            "127.9.9.9:81",
            "[::1]",
            "[::ffff:127.0.0.1]",
            "169.254.169.254",
            "[fe80::1]",
            "[fd00:ec2::254]",
        ] {
            assert!(is_direct("", &format!("http://{host}/")), "{host}");
        }
        assert!(!is_direct("", "http://localhost.example.com"));
    }

    #[test]
    fn each_scheme_has_its_own_variable_and_capitals_come_first() {
        let proxies = proxies_from(&[
            ("HTTP_PROXY", "one.example.com:3128"),
            ("http_proxy", "http://not.example.com"),
            ("HTTPS_PROXY", ""),
            ("https_proxy", "https://two.example.com"),
            ("ALL_PROXY", "http://not.example.com"),
        ])
        .unwrap();
        let host = |url: &str| {
            proxies.proxy_for(&url.parse().unwrap()).and_then(|proxy| proxy.host_str().map(str::to_owned))
        };
        assert_eq!(host("http://example.com").as_deref(), Some("one.example.com"));
        assert_eq!(host("https://example.com").as_deref(), Some("two.example.com"));
        assert_eq!(host("s3://example.com"), None);
    }

    #[test]
    fn the_url_of_a_proxy_has_no_login() {
        let proxy = ProxyServer::parse("proxy-url", "https://robot:p%40ss@proxy.example.com:3129/").unwrap();
        assert_eq!(proxy.url, "https://proxy.example.com:3129");
        assert_eq!(proxy.authorization.unwrap(), "Basic cm9ib3Q6cEBzcw==");
        let proxy = ProxyServer::parse("proxy-url", "proxy:3128").unwrap();
        assert_eq!((proxy.url.as_str(), proxy.authorization), ("http://proxy:3128", None));
        let error = ProxyServer::parse("proxy-url", "socks5://proxy:1080").err().unwrap();
        assert!(error.to_string().starts_with("proxy-url names a proxy of socks5"), "{error}");
    }

    #[test]
    fn the_error_of_an_unusable_proxy_variable_hides_its_value() {
        for (value, why) in [
            ("http://robot:hidden@pro xy", "HTTPS_PROXY is not a URL"),
            ("http://", "HTTPS_PROXY is not a URL"),
            ("socks5://robot:hidden@proxy:1080", "HTTPS_PROXY names a proxy of socks5"),
        ] {
            let error = proxies_from(&[("HTTPS_PROXY", value)]).err().unwrap().to_string();
            assert!(error.starts_with(why) && !error.contains("hidden"), "{error}");
        }
    }
}
