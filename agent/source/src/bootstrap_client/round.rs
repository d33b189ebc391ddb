//! A round: asks the addresses of all servers, for configuration and certificates, for a renewal, or for a slot.

use std::fmt;
use std::net::SocketAddr;

use futures_util::future::join_all;
use kops_agent_net::random;

use super::server::{Failure, Server};

/// Asks the addresses of all servers one by one. Stops if a request succeeds, or if a server answers that this machine is registered. The
/// order is random across all servers, so that the machines of a group do not all ask the same address first. Returns the URL and the
/// answer of the server whose request succeeded.
pub(super) async fn ask_each<T>(
    servers: &[Server],
    ask: impl AsyncFn(&Server, SocketAddr) -> Result<T, Failure>,
) -> Result<(String, T), Failures> {
    let (mut asked, mut failures) = (Vec::new(), Vec::new());
    let found = join_all(servers.iter().map(Server::addresses)).await;
    for (server, found) in servers.iter().zip(found) {
        match found {
            Ok(addresses) => asked.extend(addresses.into_iter().map(|address| (server, address))),
            Err(failure) => failures.push((server.shown.clone(), failure)),
        }
    }
    in_random_order(&mut asked);
    for (server, address) in asked {
        match ask(server, address).await {
            Ok(given) => return Ok((server.shown.clone(), given)),
            Err(failure) => {
                let is_final = matches!(failure, Failure::AlreadyRegistered);
                failures.push((server.shown_at(address), failure));
                if is_final {
                    break;
                }
            }
        }
    }
    Err(Failures(failures))
}

/// The failure of each requested address, in the order of the requests.
#[derive(Debug)]
pub(super) struct Failures(Vec<(String, Failure)>);

impl Failures {
    pub(super) fn each(&self) -> impl Iterator<Item = (&str, &Failure)> {
        self.0.iter().map(|(server, failure)| (server.as_str(), failure))
    }

    /// The server that answers that this machine is registered. It is always the last server that was asked.
    pub(super) fn registered(&self) -> Option<&str> {
        match self.0.last() {
            Some((server, Failure::AlreadyRegistered)) => Some(server),
            _ => None,
        }
    }

    pub(super) fn has_refused_token(&self) -> bool {
        self.0.iter().any(|(_, failure)| matches!(failure, Failure::Refused { status: 403, .. }))
    }

    /// Whether a server answered that its call-back failed (upstream: `bootstrap` in `cmd/kops-controller/pkg/server/server.go`).
    pub(super) fn has_failed_call_back(&self) -> bool {
        self.0.iter().any(|(_, failure)| {
            matches!(failure, Failure::Refused { status: 400, line, .. } if line.contains("callback failed"))
        })
    }

    /// Whether nothing listens at any of the addresses. A server that is starting already listens, even if it cannot serve requests yet.
    pub(super) fn is_unanswered(&self) -> bool {
        self.0.iter().all(|(_, failure)| failure.is_without_listener())
    }
}

impl fmt::Display for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [(server, failure)] => write!(f, " {server}: {failure}"),
            failures => {
                failures.iter().try_for_each(|(server, failure)| write!(f, "\n  {server}: {failure}"))
            }
        }
    }
}

pub(super) fn in_random_order<T>(addresses: &mut [T]) {
    // If no random numbers are available, the order does not change.
    addresses.sort_by_cached_key(|_| random::bytes::<8>().unwrap_or_default());
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    use super::*;

    /// Makes one round of requests. `fails` makes the failure of each request. Returns the ports of the requests, and the failures.
    async fn ports_asked(servers: &[Server], fails: impl Fn() -> Failure) -> (Vec<u16>, Failures) {
        let ports = RefCell::new(Vec::new());
        let ask = async |_: &Server, address: SocketAddr| {
            ports.borrow_mut().push(address.port());
            Err::<(), Failure>(fails())
        };
        let failures = ask_each(servers, ask).await.unwrap_err();
        (ports.into_inner(), failures)
    }

    fn numbered(ports: impl IntoIterator<Item = u16>) -> Vec<Server> {
        let urls: Vec<String> = ports.into_iter().map(|port| format!("https://127.0.0.1:{port}")).collect();
        Server::from_urls(&urls, "").unwrap()
    }

    #[tokio::test]
    async fn the_order_of_servers_is_random_and_every_server_is_asked() {
        let servers = numbered(1..=4);
        let mut first = BTreeSet::new();
        for _ in 0..400 {
            let refused = || Failure::Refused { status: 403, line: String::new(), advice: "" };
            let (mut ports, failures) = ports_asked(&servers, refused).await;
            assert_eq!(failures.each().count(), 4);
            first.insert(ports[0]);
            ports.sort_unstable();
            assert_eq!(ports, [1, 2, 3, 4]);
        }
        assert_eq!(first.len(), servers.len());
    }

    #[tokio::test]
    async fn a_registered_machine_asks_no_other_server() {
        let (ports, failures) = ports_asked(&numbered(1..=4), || Failure::AlreadyRegistered).await;
        assert_eq!((ports.len(), failures.registered().is_some()), (1, true));
    }
}
