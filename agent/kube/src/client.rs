//! Clients of the API server, by a kubeconfig or a pod's service account.
//!
//! This module makes the connections itself. kube's own support of kubeconfigs would link a second YAML parser and JSON paths, a megabyte
//! of the binary. It would also not rerun a login program that returns certificates.

mod api_servers;
mod chosen;
mod exec;
mod kubeconfig;
mod service_account;
mod way;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use hyper::header::{AUTHORIZATION, HeaderValue};
use hyper::{Request, StatusCode, Uri};
use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy;
use hyper_util::rt::TokioExecutor;
use kube::client::retry::RetryPolicy;
use kube::client::{Body, ConfigExt as _};
use kube::{Client, Config};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tower::ServiceBuilder;
use tower::retry::RetryLayer;

use kops_agent_net::proxies::ProxyServer;
use kops_agent_net::{http, tls};
use kops_agent_spec::failure::{Failure, Kind};

pub use api_servers::ApiServers;
pub use chosen::Chosen;
use exec::ExecToken;
pub use kubeconfig::Kubeconfig;
use kubeconfig::{Access, Credentials};
use service_account::TokenFile;
use way::Way;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// A connection that receives no data for this time is closed. A quiet watch ends earlier: kube asks the API server
/// to end it after 290 s.
const READ_TIMEOUT: Duration = Duration::from_secs(5 * 60);
/// A connection that can send no data for this time is closed.
const WRITE_TIMEOUT: Duration = Duration::from_secs(295);

/// Creates a client for the current context of the kubeconfig. Without a kubeconfig, creates a client for the cluster
/// of this pod.
pub fn client(kubeconfig: Option<&Path>) -> Result<Client> {
    connection(kubeconfig)?.open(RetryPolicy::server_retry())
}

/// Creates a client for the kubeconfig that a user has chosen. If the kubeconfig names a login program, runs it now.
pub fn client_of(chosen: &Chosen) -> Result<Client> {
    tls::install_provider();
    of_kubeconfig(chosen)?.open(RetryPolicy::server_retry())
}

/// Creates a client for the kubeconfig that a user has chosen. Fails if the kubeconfig names a login program: such a
/// program may ask the user or a cloud, and may take long. The client sends each request once.
pub fn client_without_login(chosen: &Chosen) -> Result<Client> {
    tls::install_provider();
    let access = Kubeconfig::from_files(chosen)?.access(chosen.context.as_deref())?;
    if let Credentials::Exec(_) = access.credentials {
        let problem = format!("{chosen} names a login program, which this command does not run");
        return Err(Failure::new(Kind::KubeconfigUnusable, problem).into());
    }
    of_access(access)?.open(asking_once()?)
}

/// Creates a client that sends each request once. The caller gets a 429 response immediately instead of after minutes
/// of retries.
pub fn client_asking_once(kubeconfig: &Path) -> Result<Client> {
    tls::install_provider();
    of_kubeconfig(&Chosen::file(kubeconfig))?.open(asking_once()?)
}

fn asking_once() -> Result<RetryPolicy> {
    let pause = Duration::from_millis(5);
    Ok(RetryPolicy::new(pause, pause, 0, false)?)
}

/// The connection for the current context of the kubeconfig. Without a kubeconfig, the connection to the cluster of
/// this pod.
fn connection(kubeconfig: Option<&Path>) -> Result<Connection> {
    tls::install_provider();
    match kubeconfig {
        Some(path) => of_kubeconfig(&Chosen::file(path)),
        None => of_service_account().context(
            "finding the API server; this process does not run in a pod (no KUBERNETES_SERVICE_HOST or no service \
             account token), so give --kubeconfig",
        ),
    }
}

fn of_kubeconfig(chosen: &Chosen) -> Result<Connection> {
    let access = Kubeconfig::from_files(chosen)?.access(chosen.context.as_deref())?;
    of_access(access).with_context(|| format!("using {chosen}"))
}

fn of_access(mut access: Access) -> Result<Connection> {
    let authorization = match access.credentials {
        Credentials::None => Authorization::None,
        Credentials::Token(token) => Authorization::Token(http::bearer(token.trim())?),
        Credentials::TokenFile(path) => Authorization::File(Arc::new(TokenFile::open(path)?)),
        Credentials::Exec(plugin) => {
            let mut first = plugin.run()?;
            access.identity = first.identity.take().or(access.identity);
            Authorization::Exec(Arc::new(ExecToken::new(*plugin, first)))
        }
    };
    let identity = access.identity.as_ref().map(|(chain, key)| (chain.as_str(), key.as_str()));
    let tls = match (&access.authorities, identity) {
        (Some(authorities), Some((chain, key))) => tls::client_config_trusting_as(authorities, chain, key),
        (Some(authorities), None) => tls::client_config_trusting(authorities),
        (None, Some((chain, key))) => tls::client_config_as(chain, key),
        (None, None) => tls::client_config(),
    }?;
    let proxy = match access.proxy {
        None => ProxyServer::of_environment(&access.server)?,
        named => named,
    };
    Connection::new(&access.server, access.tls_server_name, proxy, tls, authorization)
}

fn of_service_account() -> Result<Connection> {
    let server = service_account::server(|name| std::env::var(name).ok())?;
    let folder = Path::new(service_account::FOLDER);
    let tls = service_account::trusting_file(folder.join("ca.crt"))?;
    let token = TokenFile::open(folder.join("token"))?;
    // This connection uses no proxy, because the API server is in the same cluster as the pod. An egress proxy is for
    // requests to other networks.
    Connection::new(&server, None, None, tls, Authorization::File(Arc::new(token)))
}

#[derive(Clone)]
enum Authorization {
    None,
    Token(HeaderValue),
    File(Arc<TokenFile>),
    Exec(Arc<ExecToken>),
}

impl Authorization {
    async fn now(&self) -> Result<Option<HeaderValue>> {
        Ok(match self {
            Authorization::None => None,
            Authorization::Token(value) => Some(value.clone()),
            Authorization::File(file) => Some(file.bearer()),
            Authorization::Exec(program) => program.bearer().await?,
        })
    }

    /// Notes that the API server rejected this value. If it came from a login program, the next request gets a new
    /// value, as in client-go.
    async fn refused(&self, value: Option<HeaderValue>) {
        if let (Authorization::Exec(program), Some(value)) = (self, value) {
            program.refused(&value).await;
        }
    }
}

/// An API server, and the credentials for it.
#[derive(Clone)]
struct Connection {
    url: Uri,
    /// The name that the server's certificate must have. `None` means the host in the URL.
    server_name: Option<ServerName<'static>>,
    proxy: Option<ProxyServer>,
    tls: ClientConfig,
    authorization: Authorization,
}

impl Connection {
    fn new(
        server: &str,
        tls_server_name: Option<String>,
        proxy: Option<ProxyServer>,
        tls: ClientConfig,
        authorization: Authorization,
    ) -> Result<Connection> {
        let url: Uri =
            server.parse().with_context(|| format!("the API server's address {server:?} is not a URL"))?;
        if !matches!(url.scheme_str(), Some("https" | "http")) {
            let problem = format!("the API server's URL {server:?} does not begin with https://");
            return Err(Failure::new(Kind::KubeconfigUnusable, problem).into());
        }
        let server_name = tls_server_name.map(|name| {
            let expected = ServerName::try_from(name.clone());
            expected.with_context(|| format!("tls-server-name {name:?} is not a DNS name or IP address"))
        });
        Ok(Connection { url, server_name: server_name.transpose()?, proxy, tls, authorization })
    }

    /// Creates a client. The client opens a connection when it sends its first request.
    fn open(self, retries: RetryPolicy) -> Result<Client> {
        let Connection { url, server_name, proxy, tls, authorization } = self;
        // A proxy could read unencrypted requests, so only https requests use the proxy.
        let way = Way::by(proxy.as_ref().filter(|_| url.scheme_str() == Some("https")))?;
        let mut https = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
        if let Some(name) = server_name {
            https = https.with_server_name_resolver(FixedServerNameResolver::new(name));
        }
        let mut connector = TimeoutConnector::new(https.enable_http1().wrap_connector(way));
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        connector.set_read_timeout(Some(READ_TIMEOUT));
        connector.set_write_timeout(Some(WRITE_TIMEOUT));
        let connections = legacy::Client::builder(TokioExecutor::new()).build(connector);
        let service = ServiceBuilder::new()
            .layer(Config::new(url).base_uri_layer())
            .layer(RetryLayer::new(retries))
            .service_fn(move |mut request: Request<Body>| {
                let (authorization, connections) = (authorization.clone(), connections.clone());
                async move {
                    let value = authorization.now().await.map_err(tower::BoxError::from)?;
                    if let Some(value) = &value {
                        request.headers_mut().insert(AUTHORIZATION, value.clone());
                    }
                    let answer = connections.request(request).await?;
                    if answer.status() == StatusCode::UNAUTHORIZED {
                        authorization.refused(value).await;
                    }
                    Ok::<_, tower::BoxError>(answer)
                }
            });
        Ok(Client::new(service, "default"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::convert::Infallible;

    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use hyper::service::service_fn;
    use k8s_openapi::api::core::v1::Node;
    use kops_agent_tests::loopback::{Identity, LoopbackServer};
    use kops_agent_tests::proxy::Proxy;
    use kops_agent_tests::test_server::{TestServer, text};
    use kube::Api;
    use parking_lot::Mutex;

    use super::*;

    const EMPTY: &str = r#"{"kind": "NodeList", "apiVersion": "v1", "metadata": {}, "items": []}"#;

    #[tokio::test]
    async fn an_api_server_is_asked_through_the_proxy_of_its_kubeconfig() {
        let identity = Identity::named(&["api.test"]).unwrap();
        let answer = service_fn(|_| async { Ok::<_, Infallible>(text(200, EMPTY)) });
        let server = LoopbackServer::start_tls("an API server", answer, &identity).unwrap();
        let proxy = Proxy::start().unwrap();
        let port = server.address().port();
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        let list = async |proxy_url: &str| {
            let document = serde_json::json!({
                "current-context": "x",
                "contexts": [{"name": "x", "context": {"cluster": "c"}}],
                "clusters": [{"name": "c", "cluster": {
                    "server": format!("https://api.test:{port}"),
                    "certificate-authority-data": STANDARD.encode(&identity.certificate_pem),
                    "proxy-url": proxy_url,
                }}],
            });
            std::fs::write(&kubeconfig, document.to_string()).unwrap();
            let nodes: Api<Node> = Api::all(client(Some(&kubeconfig))?);
            Ok::<_, anyhow::Error>(nodes.list(&kube::api::ListParams::default()).await?)
        };
        list(&proxy.url()).await.unwrap();
        assert_eq!(proxy.asked(), [format!("CONNECT api.test:{port}")]);
        let refused = list("socks5://127.0.0.1:1").await.err().unwrap();
        assert!(format!("{refused:#}").contains("proxy-url names a proxy of socks5"), "{refused:#}");
    }

    #[tokio::test]
    async fn a_program_of_a_kubeconfig_gives_each_request_its_token_and_is_asked_again_after_401() {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = asked.clone();
        let server = TestServer::start(move |request| {
            let shown = request.headers().get(AUTHORIZATION).map(|value| value.to_str().unwrap().to_owned());
            let shown = shown.unwrap_or_default();
            let is_refused = shown == "Bearer 2";
            seen.lock().push(shown);
            let answer = match is_refused {
                true => text(
                    401,
                    r#"{"kind": "Status", "status": "Failure", "reason": "Unauthorized", "code": 401}"#,
                ),
                false => text(200, EMPTY),
            };
            async move { Ok(answer) }
        })
        .await;
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("login");
        // Each call of the program returns the next number. The first number is 2.
        let program = "printf x >>\"$COUNT\"; echo '{\"apiVersion\": \"client.authentication.k8s.io/v1\", \"status\": {\"token\": \"'$(wc -c <\"$COUNT\")'\"}}'";
        std::fs::write(&script, program).unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        let exec = format!(
            "{{apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: /bin/sh, args: [{}], env: [{{name: COUNT, value: {}}}]}}",
            script.display(),
            folder.path().join("count").display()
        );
        std::fs::write(
            &kubeconfig,
            format!(
                "{{contexts: [{{name: x, context: {{cluster: c, user: u}}}}], clusters: [{{name: c, cluster: {{server: '{}'}}}}], \
                 users: [{{name: u, user: {{exec: {exec}}}}}]}}",
                server.url
            ),
        )
        .unwrap();
        std::fs::write(folder.path().join("count"), "x").unwrap();
        let chosen = Chosen { context: Some("x".into()), ..Chosen::file(&kubeconfig) };
        let nodes: Api<Node> = Api::all(client_of(&chosen).unwrap());
        let list = || async { nodes.list(&kube::api::ListParams::default()).await };
        list().await.unwrap_err();
        list().await.unwrap();
        list().await.unwrap();
        assert_eq!(*asked.lock(), ["Bearer 2", "Bearer 3", "Bearer 3"]);
    }
}
