//! Checks whether registries have images. It requests the headers of an image's manifest, and pulls nothing (OCI distribution
//! specification, "Checking if content exists in the registry"; "Token authentication" of the CNCF's distribution project).

mod logins;

use std::collections::BTreeMap;
use std::net::IpAddr;

use kops_agent_net::{Location, LocationClient, NOT_FOLLOWED, http};
use kops_agent_plan::doctor::Outcome;
use kops_agent_plan::resolve::NodeConfig;
use reqwest::header::{AUTHORIZATION, HeaderValue, WWW_AUTHENTICATE};
use reqwest::{Method, Response, StatusCode, Url};
use serde::Deserialize;

use super::deadline::{QUESTION, with_timeout};
use super::downloads::{self, headers};
pub use logins::Logins;

/// The media types of image manifests and of lists of manifests. Without these types in a request, some registries do
/// not find an image.
const MANIFESTS: &str = "application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.list.v2+json, \
                         application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json";
/// The name of Docker Hub in image references, and the host of its registry.
const DOCKER_HUB: (&str, &str) = ("docker.io", "registry-1.docker.io");
/// Maximum size of a response with a token, in bytes.
const LONGEST_TOKEN: usize = 64 << 10;

/// The mirrors through which containerd on the nodes of a group reaches registries.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Registries {
    /// The addresses of mirrors by the host of the registry. `*` stands for all registries without an entry.
    mirrors: BTreeMap<String, Vec<String>>,
    /// Whether the mirrors are in containerd's configuration. If not, each registry has its own file of mirrors.
    /// containerd parses addresses differently in these two places.
    are_in_configuration: bool,
}

/// The response of a login server. The token has two possible names: Docker's `token`, and the name in OAuth 2.0.
#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

impl Registries {
    /// The registries of a node. They have no mirrors if the user replaces containerd's configuration or installs
    /// containerd, because kOps then writes no mirrors.
    pub fn of_node(node: &NodeConfig) -> Registries {
        let config = node.containerd();
        if config.config_override.is_some() || config.skip_install {
            return Registries::default();
        }
        Registries::new(&config.registry_mirrors, node.release().containerd_configuration_is_of_1())
    }

    fn new(mirrors: &BTreeMap<String, Vec<String>>, are_in_configuration: bool) -> Registries {
        let named =
            |(registry, urls): (&String, &Vec<String>)| (registry.trim_matches('/').to_owned(), urls.clone());
        Registries { mirrors: mirrors.iter().map(named).collect(), are_in_configuration }
    }

    /// Asks the registries of an image until one has the image: first the mirrors, and then the registry in the
    /// image's name. Returns the outcome for each asked registry.
    pub async fn servers_of_image(
        &self,
        client: &LocationClient,
        logins: &Logins,
        image: &str,
    ) -> Vec<(String, Outcome)> {
        let image = Reference::parse(image);
        let login = logins.of_image(&image);
        let mut servers = Vec::new();
        for (server, base) in self.servers(&image) {
            let outcome = match base {
                Ok(base) => {
                    let asking = ask(client, image.manifest_at(base), login);
                    with_timeout(QUESTION, asking).await.unwrap_or_else(|why| Outcome::Unknown(why.into()))
                }
                Err(problem) => Outcome::Fails(problem),
            };
            let has_it = outcome == Outcome::Answers;
            servers.push((server, outcome));
            if has_it {
                break;
            }
        }
        servers
    }

    /// The servers of an image in containerd's order, each with the URL of its API.
    fn servers(&self, image: &Reference<'_>) -> Vec<(String, Result<Url, String>)> {
        let mirrors = self.mirrors.get(image.registry).or_else(|| self.mirrors.get("*"));
        let host = if image.registry == DOCKER_HUB.0 { DOCKER_HUB.1 } else { image.registry };
        let own = format!("{}://{host}", scheme_of(host));
        let url = parsed(&format!("{own}/v2"));
        mirrors.into_iter().flatten().map(|address| self.mirror(address)).chain([(own, url)]).collect()
    }

    /// A mirror's address with a scheme, and the URL at which containerd expects the mirror's API (containerd:
    /// `registryEndpoints` and `registryHosts` in pkg/cri/server/image_pull.go, and `parseHostConfig` in
    /// core/remotes/docker/config/hosts.go). Like containerd, leaves out the login and the query in an address.
    fn mirror(&self, address: &str) -> (String, Result<Url, String>) {
        let has_scheme = match self.are_in_configuration {
            true => address.contains("://"),
            false => address.starts_with("http"),
        };
        let address = match has_scheme {
            true => address.to_owned(),
            false if self.are_in_configuration => {
                let authority = address.split('/').next().unwrap_or_default();
                format!("{}://{address}", scheme_of(authority.rsplit('@').next().unwrap_or_default()))
            }
            false => format!("https://{address}"),
        };
        let has_path = address.split_once("://").is_some_and(|(_, rest)| rest.contains('/'));
        let url = parsed(&address).map(|mut url| {
            let path = url.path().trim_end_matches('/');
            let is_whole = if self.are_in_configuration { has_path } else { path.ends_with("/v2") };
            let path = if is_whole { path.to_owned() } else { format!("{path}/v2") };
            url.set_path(&path);
            url.set_query(None);
            // This fails for a URL without a host. Such a URL has no login, and its request fails.
            let _ = (url.set_username(""), url.set_password(None));
            url
        });
        (address, url)
    }
}

fn parsed(url: &str) -> Result<Url, String> {
    Url::parse(url).map_err(|error| format!("it is no URL: {error}"))
}

/// The default scheme that containerd uses for a host.
fn scheme_of(host_and_port: &str) -> &'static str {
    if is_this_machine(host_and_port) { "http" } else { "https" }
}

async fn ask(client: &LocationClient, manifest: Url, login: Option<&str>) -> Outcome {
    let first = match head(client, manifest.clone(), None).await {
        Ok(answer) => answer,
        Err(error) => return outcome_of_failure(error),
    };
    if first.status() != StatusCode::UNAUTHORIZED {
        return of_status(first.status());
    }
    // If a redirect led to another server, no login is sent: a redirect must not decide who gets the login.
    let login = login.filter(|_| first.url().origin() == manifest.origin());
    let authorization = match authorization(client, &first, login).await {
        Ok(Some(authorization)) => authorization,
        Ok(None) => return of_status(first.status()),
        Err(why) => return Outcome::Unknown(why),
    };
    match head(client, manifest, Some(authorization)).await {
        Ok(answer) => of_status(answer.status()),
        Err(error) => outcome_of_failure(error),
    }
}

fn outcome_of_failure(error: reqwest::Error) -> Outcome {
    match error.is_timeout() {
        true => Outcome::Unknown("it takes too long to answer".to_owned()),
        false => Outcome::Fails(http::innermost_cause(error)),
    }
}

async fn head(
    client: &LocationClient,
    manifest: Url,
    authorization: Option<HeaderValue>,
) -> Result<Response, reqwest::Error> {
    headers(client, &located(manifest, authorization), MANIFESTS).await
}

fn located(url: Url, authorization: Option<HeaderValue>) -> Location {
    Location::new(url).with_headers(authorization.map(|value| (AUTHORIZATION, value)).into_iter().collect())
}

fn of_status(status: StatusCode) -> Outcome {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Outcome::Unknown(format!(
            "it answers {status}: it requires a login that this check does not have"
        )),
        status if status.is_redirection() => {
            Outcome::Unknown(format!("it answers {status}, and {NOT_FOLLOWED}"))
        }
        status => downloads::of_status(status, Outcome::Unknown),
    }
}

/// The value of the `Authorization` header for the registry. `None` if the registry requires a login that this check
/// does not have.
async fn authorization(
    client: &LocationClient,
    refused: &Response,
    login: Option<&str>,
) -> Result<Option<HeaderValue>, String> {
    let challenges =
        refused.headers().get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
    let basic = login.and_then(|login| http::secret(&format!("Basic {login}")).ok());
    for challenge in challenges {
        let (scheme, parameters) = challenge.split_once(' ').unwrap_or((challenge, ""));
        if scheme.eq_ignore_ascii_case("bearer") {
            let token = token(client, parameters, basic).await;
            return token.map(Some).map_err(|problem| format!("its login server {problem}"));
        }
        if scheme.eq_ignore_ascii_case("basic") {
            return match basic.is_none() || is_protected(refused.url()) {
                true => Ok(basic),
                false => {
                    Err("it asks for a login without TLS; this check sends logins over TLS only".to_owned())
                }
            };
        }
    }
    Ok(None)
}

/// Requests a token for the image, with the login or anonymously. The error text continues the words "its login
/// server".
async fn token(
    client: &LocationClient,
    parameters: &str,
    basic: Option<HeaderValue>,
) -> Result<HeaderValue, String> {
    let failed = |error| format!("does not answer: {}", http::innermost_cause(error));
    let realm = parameter(parameters, "realm").unwrap_or_default();
    let mut url = Url::parse(realm).map_err(|error| format!("has the invalid URL {realm:?}: {error}"))?;
    for name in ["service", "scope"] {
        if let Some(value) = parameter(parameters, name) {
            url.query_pairs_mut().append_pair(name, value);
        }
    }
    // The registry chooses the login server, so a login is sent only over TLS or to this machine.
    let basic = basic.filter(|_| is_protected(&url));
    let answer = client.request(Method::GET, &located(url, basic)).send().await.map_err(failed)?;
    if !answer.status().is_success() {
        return Err(format!("answers {}", answer.status()));
    }
    let body = http::body(answer, LONGEST_TOKEN).await.map_err(failed)?.unwrap_or_default();
    let Token { token, access_token } = serde_json::from_slice(&body).map_err(|_| "gives no token")?;
    let token = token.or(access_token).unwrap_or_default();
    http::bearer(&token).map_err(|error| format!("gives no token: {error}"))
}

/// The value of a parameter in a challenge, such as `realm="https://auth.example.com/token"`.
fn parameter<'a>(parameters: &'a str, name: &str) -> Option<&'a str> {
    let mut rest = parameters;
    while let Some((found, after)) = rest.split_once("=\"") {
        let (value, after) = after.split_once('"')?;
        if found.trim_matches([' ', ',']).eq_ignore_ascii_case(name) {
            return Some(value);
        }
        rest = after;
    }
    None
}

/// The host and port of a URL, as image references and Docker's configuration write them.
fn authority(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// Whether a login may be sent to the server: the connection uses TLS, or the server is this machine.
fn is_protected(url: &Url) -> bool {
    url.scheme() == "https" || is_this_machine(&authority(url))
}

/// Splits `host:port`. Without a port, the port is empty.
fn host_and_port(authority: &str) -> (&str, &str) {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => (host, port),
        _ => (authority, ""),
    }
}

fn is_this_machine(authority: &str) -> bool {
    let host = host_and_port(authority).0.trim_matches(['[', ']']);
    host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

/// The parts of an image's name (`Parse` in github.com/distribution/reference).
#[derive(Debug, PartialEq, Eq)]
struct Reference<'a> {
    registry: &'a str,
    repository: String,
    /// The digest if the image has one, otherwise the tag.
    version: &'a str,
}

impl Reference<'_> {
    fn parse(image: &str) -> Reference<'_> {
        let (registry, path) = match image.split_once('/') {
            Some((host, path)) if host.contains(['.', ':']) || host == "localhost" => (host, path),
            _ => (DOCKER_HUB.0, image),
        };
        let registry = if registry == "index.docker.io" { DOCKER_HUB.0 } else { registry };
        let (path, digest) = path.split_once('@').map_or((path, None), |(path, digest)| (path, Some(digest)));
        let (path, tag) = path.rsplit_once(':').map_or((path, "latest"), |(path, tag)| (path, tag));
        let is_official = registry == DOCKER_HUB.0 && !path.contains('/');
        let repository = if is_official { format!("library/{path}") } else { path.to_owned() };
        Reference { registry, repository, version: digest.unwrap_or(tag) }
    }

    /// The URL of the manifest at a server. `url` is the URL of the server's API. The parameter `ns` names the image's registry to a
    /// mirror, as in containerd's requests.
    fn manifest_at(&self, mut url: Url) -> Url {
        let base = url.path().trim_end_matches('/');
        url.set_path(&format!("{base}/{}/manifests/{}", self.repository, self.version));
        if ![self.registry, DOCKER_HUB.1].contains(&authority(&url).as_str()) {
            url.query_pairs_mut().append_pair("ns", self.registry);
        }
        url
    }
}

#[cfg(test)]
mod tests;
