//! Asks single API servers whether they are ready. The API server of a kOps control plane uses only the etcd members on its own machine
//! (kops: `pkg/model/components/apiserver.go`). So its answer shows whether these members serve, and have a quorum.
//!
//! The Ready conditions of the Node and of the API server's pod are late. kubelet writes both through this API server, so it cannot write
//! them without etcd. kube-controller-manager replaces them after 50 s by default.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use http_body_util::{BodyExt as _, Limited};
use hyper::{Request, StatusCode, Uri};
use kops_agent_cluster::rollout::ApiServer;
use kops_agent_process::output::{error_text, one_line};
use kube::client::Body;
use rustls::pki_types::ServerName;
use tokio::time::timeout;

use super::{Connection, asking_once, connection};

/// The check `etcd` reads a key of etcd, which needs a quorum of etcd. Since Kubernetes 1.33, a check `etcd-override-N`
/// does the same for each additional etcd, such as the etcd of events. The checks `etcd-readiness` are excluded,
/// because they read the same keys again. If etcd is down, each read takes 2 s.
const PATH: &str = "/readyz?exclude=etcd-readiness";
/// Timeout of a request to `/readyz`.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum size of a response, in bytes. A response has a line of less than 100 bytes for each check.
const LONGEST_ANSWER: usize = 64 << 10;
/// Maximum length of the reason why an API server is not ready, in characters.
const LONGEST_TOLD: usize = 200;

/// The API servers of a cluster. Each is asked at the address of its own machine, with the credentials of one
/// kubeconfig. The kubeconfig itself names only one server: kOps' kubeconfigs of control planes have
/// `https://127.0.0.1`. But all API servers have the same port, and their certificates have the same name.
pub struct ApiServers {
    connection: Connection,
    port: u16,
}

impl ApiServers {
    /// Prepares requests for the kubeconfig's current context. Without a kubeconfig, prepares requests with the
    /// service account of this pod. Sends no request.
    pub fn new(kubeconfig: Option<&Path>) -> Result<ApiServers> {
        ApiServers::from_connection(connection(kubeconfig)?)
    }

    /// For tests: sends requests without credentials, to the port in `url`.
    #[cfg(any(test, feature = "testing"))]
    pub fn at_port_of(url: &str) -> Result<ApiServers> {
        kops_agent_net::tls::install_provider();
        let tls = kops_agent_net::tls::client_config()?;
        ApiServers::from_connection(Connection::new(url, None, None, tls, super::Authorization::None)?)
    }

    fn from_connection(connection: Connection) -> Result<ApiServers> {
        let is_https = connection.url.scheme_str() == Some("https");
        let port = connection.url.port_u16().unwrap_or(if is_https { 443 } else { 80 });
        let host = connection.url.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let server_name = match connection.server_name {
            Some(name) => name,
            None => ServerName::try_from(host.clone())
                .with_context(|| format!("the API server's host {host:?} is not a DNS name or IP address"))?,
        };
        // Control planes reach each other without a proxy, as their etcds do.
        let connection = Connection { server_name: Some(server_name), proxy: None, ..connection };
        Ok(ApiServers { connection, port })
    }

    /// Whether the API server on the machine is ready. An API server that does not answer or has no address counts as
    /// not ready. Never returns [`ApiServer::NotAsked`].
    pub async fn ready(&self, machine: Option<IpAddr>) -> ApiServer {
        let Some(machine) = machine else {
            return ApiServer::NotReady("its Node has no InternalIP".to_owned());
        };
        let address = SocketAddr::new(machine, self.port);
        let why = match timeout(TIMEOUT, self.ask(address)).await {
            Ok(Ok((StatusCode::OK, _))) => return ApiServer::Ready,
            Ok(Ok((status, text))) => match failed_checks(&text) {
                checks if checks.is_empty() => format!("{address} answers HTTP {}: {text}", status.as_u16()),
                checks => format!("failed checks: {}", checks.join(", ")),
            },
            Ok(Err(error)) => format!("{address}: {}", error_text(&error)),
            Err(_) => format!("{address} does not answer within {} s", TIMEOUT.as_secs()),
        };
        ApiServer::NotReady(one_line(&why, LONGEST_TOLD))
    }

    async fn ask(&self, address: SocketAddr) -> Result<(StatusCode, String)> {
        let scheme = self.connection.url.scheme_str().unwrap_or("https");
        let url: Uri = format!("{scheme}://{address}").parse()?;
        // Each request uses a new connection, because a kept connection may be broken without a sign of it.
        let client = Connection { url, ..self.connection.clone() }.open(asking_once()?)?;
        let (head, body) = client.send(Request::get(PATH).body(Body::empty())?).await?.into_parts();
        let body = Limited::new(body, LONGEST_ANSWER).collect().await.map_err(anyhow::Error::from_boxed)?;
        Ok((head.status, String::from_utf8_lossy(&body.to_bytes()).into_owned()))
    }
}

/// The names of the failed checks in a response (Kubernetes: `handleRootHealth` in
/// `staging/src/k8s.io/apiserver/pkg/server/healthz/healthz.go`).
fn failed_checks(answer: &str) -> Vec<&str> {
    answer.lines().filter_map(|line| line.strip_prefix("[-]")?.split(' ').next()).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::convert::Infallible;
    use std::net::Ipv4Addr;
    use std::sync::Arc;

    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use hyper::service::service_fn;
    use kops_agent_tests::loopback::{Identity, LoopbackServer};
    use kops_agent_tests::test_server::text;
    use parking_lot::Mutex;

    use super::*;

    const ON_LOOPBACK: Option<IpAddr> = Some(IpAddr::V4(Ipv4Addr::LOCALHOST));

    /// Asks the API server on `machine` whether it is ready. A test server on loopback responds with `status` and
    /// `answer`. Its certificate and the kubeconfig have the name `api.test`, which no name server knows. Also returns
    /// the path and the credentials of the last request.
    async fn ready(machine: Option<IpAddr>, status: u16, answer: &'static str) -> (ApiServer, [String; 2]) {
        let identity = Identity::named(&["api.test"]).unwrap();
        let asked = Arc::new(Mutex::new(<[String; 2]>::default()));
        let seen = asked.clone();
        let service = service_fn(move |request: Request<hyper::body::Incoming>| {
            let credentials = request.headers()["authorization"].to_str().unwrap().to_owned();
            *seen.lock() = [request.uri().to_string(), credentials];
            async move { Ok::<_, Infallible>(text(status, answer)) }
        });
        let server = LoopbackServer::start_tls("an API server", service, &identity).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        let document = serde_json::json!({
            "current-context": "x",
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {
                "server": format!("https://api.test:{}", server.address().port()),
                "certificate-authority-data": STANDARD.encode(&identity.certificate_pem),
                "proxy-url": "http://127.0.0.1:1",
            }}],
            "users": [{"name": "u", "user": {"token": "t"}}],
        });
        std::fs::write(&kubeconfig, document.to_string()).unwrap();
        let ready = ApiServers::new(Some(&kubeconfig)).unwrap().ready(machine).await;
        let asked = asked.lock().clone();
        (ready, asked)
    }

    /// Why the API server is not ready, according to [`ready`].
    async fn not_ready(machine: Option<IpAddr>, status: u16, answer: &'static str) -> String {
        match ready(machine, status, answer).await.0 {
            ApiServer::NotReady(why) => why,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_server_is_asked_at_its_machine_by_the_name_and_with_the_credentials_of_the_kubeconfig() {
        let (ready, asked) = ready(ON_LOOPBACK, 200, "ok").await;
        assert_eq!(ready, ApiServer::Ready);
        assert_eq!(asked, ["/readyz?exclude=etcd-readiness", "Bearer t"]);
    }

    #[tokio::test]
    async fn a_server_that_is_not_ready_names_its_failed_checks() {
        let answer = "[+]ping ok\n[-]etcd failed: reason withheld\n[-]etcd-override-0 failed: reason withheld\n\
                      [+]informer-sync ok\nreadyz check failed";
        assert_eq!(not_ready(ON_LOOPBACK, 500, answer).await, "failed checks: etcd, etcd-override-0");
        let why = not_ready(ON_LOOPBACK, 403, "forbidden:\n\u{1b}[2J").await;
        assert!(why.starts_with("127.0.0.1:") && why.contains(" answers HTTP 403: forbidden:"), "{why}");
        assert!(!why.contains(['\n', '\u{1b}']), "{why:?}");
    }

    #[tokio::test]
    async fn a_server_that_does_not_answer_is_not_ready() {
        assert_eq!(not_ready(None, 200, "ok").await, "its Node has no InternalIP");
        // No program listens at this address.
        let why = not_ready(Some(Ipv4Addr::new(127, 0, 0, 2).into()), 200, "ok").await;
        assert!(why.starts_with("127.0.0.2:") && why.contains("refused"), "{why}");
    }
}
