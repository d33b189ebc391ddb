//! A kops-controller server: its addresses, and a single request to it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use std::{io, iter};

use kops_agent_cluster::bootstrap::{PORT, renewal};
use kops_agent_cluster::pacing::message;
use kops_agent_spec::failure::{Failing, Kind};
use kops_agent_spec::invalid::Invalid;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{Response, Url};
use rustls::ClientConfig;
use thiserror::Error;

use super::identity::NoProof;
use super::round::in_random_order;
use kops_agent_cloud::authenticate::AuthenticationError;
use kops_agent_cloud::callback::CallbackServerError;
use kops_agent_net::dns::{NameError, SystemResolver};
use kops_agent_net::http::{self, HttpError, cluster_client, innermost_cause};

/// Timeout of a request, including its response (upstream: `pkg/kopscontrollerclient/client.go`).
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);
/// Timeout of the connection and its TLS handshake. It is short so that a server that accepts connections but does not respond delays the
/// next address only a little.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum number of addresses to ask for one server name. Usually, a cluster has fewer control-plane machines than this. If none of
/// the asked addresses responds, the requests take at most two minutes.
const MOST_ADDRESSES: usize = 8;
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(15);
/// The maximum size of a response, in bytes. A configuration has about ten thousand bytes.
const LONGEST_ANSWER: usize = 4 << 20;
/// The maximum number of bytes to read of an error response.
const LONGEST_REFUSAL: usize = 1024;
const LONGEST_LINE: usize = 200;

/// The addresses that kOps writes into DNS until there is a control plane (upstream: `pkg/dns/placeholder.go`).
const PLACEHOLDERS: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(203, 0, 113, 123)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xdead, 0xadd, 0, 0, 0, 0, 0)),
];

/// The boot config names no usable server.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NoServer {
    #[error(
        "the boot config's ConfigServer.servers has {url:?}, which is no URL of a kops-controller: it \
         {problem}; use a URL such as https://kops-controller.internal.CLUSTER:3988/"
    )]
    Url { url: String, problem: String },
    /// Without an authority's certificate, the agent could not detect a server that only pretends to be kops-controller.
    #[error(
        "the boot config's ConfigServer.CACertificates has no certificate of an authority, so this machine cannot verify \
         kops-controller; give this instance the user-data that `kops update cluster --yes` writes"
    )]
    NoAuthority,
}

impl Failing for NoServer {
    fn kind(&self) -> Kind {
        Kind::NoServer
    }
}

#[derive(Debug, Error)]
pub(super) enum Failure {
    #[error("it is not in DNS yet: {0}")]
    NotInDns(NameError),
    #[error(
        "it is not in DNS yet: its address is {0}, the placeholder that kOps writes until a control plane runs"
    )]
    Placeholder(IpAddr),
    #[error("{0}")]
    Name(#[from] NameError),
    #[error("its name cannot be resolved: no answer in {} seconds", LOOKUP_TIMEOUT.as_secs())]
    NamesTakeTooLong,
    #[error("cannot prove this machine's identity: {0}")]
    Authentication(#[from] AuthenticationError),
    #[error("{0}")]
    Callback(#[from] CallbackServerError),
    #[error("{0}")]
    Http(#[from] HttpError),
    #[error("the request fails: {0}")]
    Unreachable(String),
    #[error("the request fails: {0}")]
    NotListening(String),
    /// This machine's Node exists and is Ready.
    #[error("this machine is registered")]
    AlreadyRegistered,
    /// A Ready Node has this machine's name, and this machine cannot prove that the Node is its own.
    #[error(
        "it answers with 409: a Node of this machine's name is registered and Ready. Nothing proves that \
         this machine is that node: {0}. So the Node may belong to an earlier machine. The name is free when \
         the cluster marks that Node as not Ready (after about a minute), or after `kubectl delete node NAME`"
    )]
    NameInUse(NoProof),
    #[error("it answers with {status}{line}{advice}")]
    Refused {
        status: u16,
        /// The first line of the answer, as ` (LINE)`. Empty if the answer has no such line.
        line: String,
        /// The remedy, after `; `. Empty if there is no advice.
        advice: &'static str,
    },
    #[error("its answer {0}")]
    Unusable(#[from] Invalid),
}

#[derive(Clone, Debug)]
pub(super) struct Server {
    /// The configured URL, for display.
    pub shown: String,
    url: Url,
    /// The name that the server's certificate must have. Empty if the name is the host of the URL.
    tls_server_name: String,
}

impl Failure {
    /// Whether the server does not know the requested path. Upstream's kops-controller does not know the path for renewals.
    pub(super) fn is_unknown_path(&self) -> bool {
        matches!(self, Failure::Refused { status: 404 | 405, .. })
    }

    /// Whether nothing listens at the address, so that an early retry causes no load on a server. Returns false for a failed name
    /// lookup, because early retries would load the name servers, which other machines use too.
    pub(super) fn is_without_listener(&self) -> bool {
        matches!(self, Failure::NotListening(_))
    }

    pub(super) fn is_answer(&self) -> bool {
        matches!(
            self,
            Failure::Refused { .. }
                | Failure::AlreadyRegistered
                | Failure::NameInUse(_)
                | Failure::Unusable(_)
        )
    }
}

impl Server {
    pub(super) fn from_urls(urls: &[String], tls_server_name: &str) -> Result<Vec<Server>, NoServer> {
        urls.iter().map(|url| Server::new(url, tls_server_name)).collect()
    }

    fn new(shown: &str, tls_server_name: &str) -> Result<Server, NoServer> {
        let wrong = |problem: String| NoServer::Url { url: shown.to_owned(), problem };
        let mut url = Url::parse(shown).map_err(|error| wrong(format!("cannot be read ({error})")))?;
        if url.scheme() != "https" {
            return Err(wrong("does not begin with https://".into()));
        }
        if url.host_str().is_none_or(str::is_empty) {
            return Err(wrong("names no host".into()));
        }
        let path = format!("{}/bootstrap", url.path().trim_end_matches('/'));
        url.set_path(&path);
        Ok(Server { shown: shown.to_owned(), url, tls_server_name: tls_server_name.to_owned() })
    }

    /// The server with its URL for renewal requests, which a node authenticates with kubelet's current certificate.
    pub(super) fn renewing(&self) -> Server {
        self.asked_at(renewal::PATH)
    }

    /// The server with its URL for slot requests. A slot permits a node to restart essential parts of itself.
    pub(super) fn pacing(&self) -> Server {
        self.asked_at(message::PATH)
    }

    fn asked_at(&self, path: &str) -> Server {
        let mut url = self.url.clone();
        let base = url.path().trim_end_matches("/bootstrap").to_owned();
        url.set_path(&format!("{base}{path}"));
        Server { url, ..self.clone() }
    }

    /// The server's URL for display. If the host is a name, the URL is followed by the requested address.
    pub(super) fn shown_at(&self, address: SocketAddr) -> String {
        match self.literal_address() {
            Some(_) => self.shown.clone(),
            None => format!("{} at {address}", self.shown),
        }
    }

    fn literal_address(&self) -> Option<IpAddr> {
        let host = self.url.host_str().unwrap_or_default();
        host.trim_start_matches('[').trim_end_matches(']').parse().ok()
    }

    /// At most [`MOST_ADDRESSES`] of the server's addresses, chosen at random. Fails if the server's name is not in DNS, or
    /// has only placeholder addresses, as in a new cluster.
    pub(super) async fn addresses(&self) -> Result<Vec<SocketAddr>, Failure> {
        let host = self.url.host_str().unwrap_or_default();
        let port = self.url.port_or_known_default().unwrap_or(PORT);
        let found = match self.literal_address() {
            Some(address) => vec![address],
            None => match tokio::time::timeout(LOOKUP_TIMEOUT, SystemResolver::lookup(host)).await {
                Ok(Ok(found)) => found,
                Ok(Err(error)) if error.is_not_there() => return Err(Failure::NotInDns(error)),
                Ok(Err(error)) => return Err(error.into()),
                Err(_) => return Err(Failure::NamesTakeTooLong),
            },
        };
        let mut found = in_use(&found)?;
        in_random_order(&mut found);
        Ok(found.into_iter().take(MOST_ADDRESSES).map(|address| SocketAddr::new(address, port)).collect())
    }

    pub(super) async fn post(
        &self,
        trust: &ClientConfig,
        address: SocketAddr,
        token: Option<HeaderValue>,
        body: String,
    ) -> Result<Vec<u8>, Failure> {
        let mut url = self.url.clone();
        // The connection goes to `address`. TLS verifies the host in the URL, so the URL must contain the server's name.
        if !self.tls_server_name.is_empty() && url.set_host(Some(&self.tls_server_name)).is_err() {
            return Err(Failure::Unreachable(format!(
                "{:?} is not a valid server name",
                self.tls_server_name
            )));
        }
        let name = url.host_str().unwrap_or_default().to_owned();
        let mut request = cluster_client(trust.clone(), &name, address, CONNECT_TIMEOUT, REQUEST_TIMEOUT)?
            .post(url)
            .header(CONTENT_TYPE, "application/json")
            .body(body);
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, token);
        }
        let answer = request.send().await.map_err(unreachable)?;
        match answer.status().as_u16() {
            200 => http::body(answer, LONGEST_ANSWER).await.map_err(unreachable)?.ok_or_else(|| {
                Failure::Unusable(Invalid::new(format!("is longer than {} MiB", LONGEST_ANSWER >> 20)))
            }),
            409 => Err(Failure::AlreadyRegistered),
            status => Err(refused(status, answer).await),
        }
    }
}

/// Removes the placeholder addresses. Fails if all addresses are placeholders.
fn in_use(found: &[IpAddr]) -> Result<Vec<IpAddr>, Failure> {
    let used: Vec<IpAddr> = found.iter().copied().filter(|address| !PLACEHOLDERS.contains(address)).collect();
    match found.first() {
        Some(placeholder) if used.is_empty() => Err(Failure::Placeholder(*placeholder)),
        _ => Ok(used),
    }
}

async fn refused(status: u16, answer: Response) -> Failure {
    // The response's reason is only for the operator. If the reason cannot be read, the error omits it.
    let bytes = http::beginning(answer, LONGEST_REFUSAL, |bytes| bytes.contains(&b'\n')).await;
    let line = first_line(&bytes);
    let line = if line.is_empty() { line } else { format!(" ({line})") };
    let advice = match status {
        403 => {
            "; kops-controller's log has the reason: check that the cloud lists this instance, that its role is one of \
             the cluster's nodes, and that its clock is right"
        }
        404 | 405 => "; is it a kops-controller?",
        _ => "",
    };
    Failure::Refused { status, line, advice }
}

fn first_line(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let line = text.lines().next().unwrap_or_default();
    line.chars()
        .filter(|letter| !letter.is_control())
        .take(LONGEST_LINE)
        .collect::<String>()
        .trim()
        .to_owned()
}

/// Whether the connection was refused, or there is no route to the host.
fn is_refused(error: &reqwest::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable};
    let first: &dyn std::error::Error = error;
    iter::successors(Some(first), |error| error.source())
        .filter_map(|error| error.downcast_ref::<io::Error>())
        .any(|error| matches!(error.kind(), ConnectionRefused | HostUnreachable | NetworkUnreachable))
}

fn unreachable(error: reqwest::Error) -> Failure {
    if error.is_timeout() {
        return Failure::Unreachable(match error.is_connect() {
            true => {
                format!("the server accepts no TLS connection within {} seconds", CONNECT_TIMEOUT.as_secs())
            }
            false => format!("the request takes longer than {} seconds", REQUEST_TIMEOUT.as_secs()),
        });
    }
    if is_refused(&error) {
        return Failure::NotListening(innermost_cause(error));
    }
    let cause = innermost_cause(error);
    let is_distrusted = cause.contains("invalid peer certificate");
    let advice = match is_distrusted {
        true => {
            "; the boot config names the trusted certificates (ConfigServer.CACertificates and tlsServerName): check that this \
             instance has the user-data of its own cluster, and that its clock is right"
        }
        false => "",
    };
    Failure::Unreachable(format!("{cause}{advice}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use kops_agent_cluster::bootstrap::server_url;
    use kops_agent_tests::authority::Authority;

    use super::*;

    #[test]
    fn urls_of_servers_come_from_the_boot_config() {
        for (given, expected) in [
            (
                "https://kops-controller.internal.c.example.com:3988/",
                "https://kops-controller.internal.c.example.com:3988/bootstrap",
            ),
            ("https://10.0.0.1:3988", "https://10.0.0.1:3988/bootstrap"),
            ("https://[fd00::1]:3988/", "https://[fd00::1]:3988/bootstrap"),
            ("https://proxy.example.com/kops/", "https://proxy.example.com/kops/bootstrap"),
        ] {
            let server = Server::new(given, "").unwrap();
            assert_eq!(server.url.as_str(), expected);
            assert_eq!(server.renewing().url.as_str(), expected.replace("/bootstrap", "/renew"));
        }
        for (given, expected) in [
            ("http://10.0.0.1:3988/", "does not begin with https://"),
            ("kops-controller", "cannot be read"),
            ("https://", "cannot be read"),
        ] {
            let error = Server::new(given, "").unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains(given), "{error}");
        }
        assert_eq!(server_url("10.0.0.1"), "https://10.0.0.1:3988/");
        assert_eq!(server_url("fd00::1"), "https://[fd00::1]:3988/");
    }

    #[test]
    fn placeholders_of_kops_are_no_servers() {
        let parse = |addresses: &[&str]| -> Vec<IpAddr> {
            addresses.iter().map(|address| address.parse().unwrap()).collect()
        };
        for placeholder in ["203.0.113.123", "fd00:dead:add::"] {
            let error = in_use(&parse(&[placeholder])).unwrap_err();
            assert!(error.to_string().contains("not in DNS yet"), "{error}");
            assert_eq!(in_use(&parse(&[placeholder, "10.0.0.1"])).unwrap(), parse(&["10.0.0.1"]));
        }
        assert!(in_use(&parse(&["203.0.113.123", "fd00:dead:add::"])).is_err());
        assert_eq!(in_use(&parse(&["10.0.0.1"])).unwrap(), parse(&["10.0.0.1"]));
    }

    /// The failure of a request to this address.
    async fn asked(at: SocketAddr) -> Failure {
        let authority = Authority::new("kubernetes-ca").unwrap().pem;
        let trust = kops_agent_net::tls::client_config_trusting(&authority).unwrap();
        let server = Server::new(&format!("https://{at}"), "").unwrap();
        server.post(&trust, at, None, String::new()).await.unwrap_err()
    }

    #[tokio::test]
    async fn a_port_that_nothing_listens_on_is_no_server() {
        // The test's socket has the port but does not listen. No other process can listen on the port, so connections are refused.
        let bound = tokio::net::TcpSocket::new_v4().unwrap();
        bound.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let failure = asked(bound.local_addr().unwrap()).await;
        assert!(failure.is_without_listener() && !failure.is_answer(), "{failure}");
        assert!(failure.to_string().contains("refused"), "{failure}");
    }

    #[tokio::test]
    async fn a_server_that_hangs_up_counts_as_a_server() {
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let at = listener.local_addr().unwrap();
        let (failure, ()) = tokio::join!(asked(at), async { drop(listener.accept().await) });
        assert!(!failure.is_without_listener(), "{failure}");
    }

    #[test]
    fn only_the_first_line_of_a_refusal_is_shown() {
        assert_eq!(first_line(b"failed to verify token\nmore"), "failed to verify token");
        assert_eq!(first_line(b"\x1b[31mred\r\n"), "[31mred");
        assert_eq!(first_line(&[b'a'; 1000]).len(), LONGEST_LINE);
        assert_eq!(first_line(b""), "");
    }
}
