//! Checks whether registries have images. It requests the headers of an image's manifest, and pulls nothing (OCI distribution specification,
//! "Checking if content exists in the registry"; "Token authentication" of the CNCF's distribution project).

use std::collections::BTreeMap;
use std::net::IpAddr;

use kops_agent_net::{Location, LocationClient, NOT_FOLLOWED, http};
use kops_agent_plan::doctor::Outcome;
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderValue, WWW_AUTHENTICATE};
use reqwest::{Method, Response, StatusCode, Url};
use serde::Deserialize;

use super::deadline::{QUESTION, asked};

/// The media types of manifests and of lists of manifests. Without them, some registries do not find an image.
const MANIFESTS: &str = "application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.list.v2+json, \
                         application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json";
/// Docker Hub's name in references, and the host of its registry.
const DOCKER_HUB: (&str, &str) = ("docker.io", "registry-1.docker.io");
/// The most bytes of an answer with a token.
const LONGEST_TOKEN: usize = 64 << 10;

/// How nodes reach registries: containerd's mirrors, and kubelet's logins.
#[derive(Default)]
pub struct Registries {
    /// Base URLs by the host of the registry. `*` stands for all registries without an entry.
    mirrors: BTreeMap<String, Vec<String>>,
    /// The base64 of `user:password`, by the host of the registry.
    logins: BTreeMap<String, String>,
}

/// Docker's configuration file, as far as logins are in it.
#[derive(Default, Deserialize)]
#[serde(default)]
struct DockerConfig {
    auths: BTreeMap<String, Auth>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Auth {
    /// The base64 of `user:password`.
    auth: String,
}

/// The answer of a login server. OAuth 2.0 has another name for the token.
#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

impl Registries {
    /// Adds mirrors, by registry as in `containerd.registryMirrors`. A registry that has mirrors already keeps these.
    pub fn add_mirrors(&mut self, mirrors: &BTreeMap<String, Vec<String>>) {
        for (registry, urls) in mirrors {
            let registry = registry.trim_matches('/').to_owned();
            self.mirrors.entry(registry).or_insert_with(|| urls.clone());
        }
    }

    /// Adds the logins in a configuration file of Docker, such as the secret `dockerconfig` of a cluster. A file that is not JSON has none.
    pub fn add_logins(&mut self, docker_config: &[u8]) {
        let config: DockerConfig = serde_json::from_slice(docker_config).unwrap_or_default();
        for (server, Auth { auth }) in config.auths {
            let host = server.split_once("://").map_or(server.as_str(), |(_, rest)| rest);
            let host = match host.split('/').next().unwrap_or_default() {
                "index.docker.io" | "docker.io" => DOCKER_HUB.1,
                host => host,
            };
            if !auth.is_empty() {
                self.logins.insert(host.to_owned(), auth);
            }
        }
    }

    /// Asks the registries of an image, one after another, until one has it: the mirrors, and then the registry in the image's name. Returns
    /// each asked registry and its answer.
    pub async fn servers_of_image(&self, client: &LocationClient, image: &str) -> Vec<(String, Outcome)> {
        let image = Reference::of(image);
        let mut servers = Vec::new();
        for server in self.servers(&image) {
            let outcome = match Url::parse(&server) {
                Ok(url) => {
                    let asking = self.ask(client, url, &image);
                    asked(QUESTION, asking).await.unwrap_or_else(Outcome::Unknown)
                }
                Err(error) => Outcome::Fails(format!("it is no URL: {error}")),
            };
            let has_it = outcome == Outcome::Answers;
            servers.push((server, outcome));
            if has_it {
                break;
            }
        }
        servers
    }

    /// The base URLs of the servers of an image, in containerd's order.
    fn servers(&self, image: &Reference<'_>) -> Vec<String> {
        let mirrors = self.mirrors.get(image.registry).or_else(|| self.mirrors.get("*"));
        let own = if image.registry == DOCKER_HUB.0 { DOCKER_HUB.1 } else { image.registry };
        // As containerd, no TLS with a registry of this machine.
        let scheme = if is_this_machine(own) { "http" } else { "https" };
        mirrors.into_iter().flatten().cloned().chain([format!("{scheme}://{own}")]).collect()
    }

    async fn ask(&self, client: &LocationClient, server: Url, image: &Reference<'_>) -> Outcome {
        let manifest = image.manifest_at(&server);
        let first = match head(client, manifest.clone(), None).await {
            Ok(answer) => answer,
            Err(error) => return outcome_of_failure(error),
        };
        if first.status() != StatusCode::UNAUTHORIZED {
            return of_status(first.status());
        }
        let login = self.logins.get(&authority(&server));
        let authorization = match authorization(client, &first, login).await {
            Ok(Some(authorization)) => authorization,
            Ok(None) => return of_status(first.status()),
            Err(outcome) => return outcome,
        };
        match head(client, manifest, Some(authorization)).await {
            Ok(answer) => of_status(answer.status()),
            Err(error) => outcome_of_failure(error),
        }
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
    let at = Location::new(manifest);
    let at = match authorization {
        Some(value) => at.with_headers([(AUTHORIZATION, value)].into_iter().collect()),
        None => at,
    };
    client.request(Method::HEAD, &at).header(ACCEPT, MANIFESTS).send().await
}

fn of_status(status: StatusCode) -> Outcome {
    match status {
        status if status.is_success() => Outcome::Answers,
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Outcome::Unknown(format!(
            "it answers {status}: it requires a login that this check does not have"
        )),
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => {
            Outcome::Unknown(format!("it answers {status}"))
        }
        status if status.is_redirection() => {
            Outcome::Unknown(format!("it answers {status}, and {NOT_FOLLOWED}"))
        }
        status if status.is_server_error() => Outcome::Unknown(format!("it answers {status}")),
        status => Outcome::Fails(format!("it answers {status}")),
    }
}

/// The `Authorization` that the registry asks for. `None` if it asks for a login, and there is none.
async fn authorization(
    client: &LocationClient,
    refused: &Response,
    login: Option<&String>,
) -> Result<Option<HeaderValue>, Outcome> {
    let challenges =
        refused.headers().get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
    let basic = login.and_then(|login| http::secret(&format!("Basic {login}")).ok());
    for challenge in challenges {
        let (scheme, parameters) = challenge.split_once(' ').unwrap_or((challenge, ""));
        if scheme.eq_ignore_ascii_case("bearer") {
            return token(client, parameters, basic).await.map(Some);
        }
        if scheme.eq_ignore_ascii_case("basic") {
            return Ok(basic);
        }
    }
    Ok(None)
}

/// Requests a token for the image, with the login or anonymously.
async fn token(
    client: &LocationClient,
    parameters: &str,
    basic: Option<HeaderValue>,
) -> Result<HeaderValue, Outcome> {
    let fails = |problem: String| Outcome::Fails(format!("its login server {problem}"));
    let realm = parameter(parameters, "realm").unwrap_or_default();
    let mut url = Url::parse(realm).map_err(|_| fails(format!("{realm:?} is no URL")))?;
    for name in ["service", "scope"] {
        if let Some(value) = parameter(parameters, name) {
            url.query_pairs_mut().append_pair(name, value);
        }
    }
    // The registry chooses this server, so the login goes to it over TLS only.
    let is_protected = url.scheme() == "https" || is_this_machine(&authority(&url));
    let at = Location::new(url);
    let at = match basic.filter(|_| is_protected) {
        Some(basic) => at.with_headers([(AUTHORIZATION, basic)].into_iter().collect()),
        None => at,
    };
    let answer = client.request(Method::GET, &at).send().await.map_err(outcome_of_failure)?;
    if !answer.status().is_success() {
        return Err(Outcome::Unknown(format!("its login server answers {}", answer.status())));
    }
    let body = http::body(answer, LONGEST_TOKEN).await.map_err(outcome_of_failure)?.unwrap_or_default();
    let Token { token, access_token } =
        serde_json::from_slice(&body).map_err(|_| fails("gives no token".to_owned()))?;
    let token = token.or(access_token).unwrap_or_default();
    http::bearer(&token).map_err(|error| fails(format!("gives no token: {error}")))
}

/// A parameter of a challenge, such as `realm="https://auth.example.com/token"`.
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

/// The host and the port of a URL, as references and Docker's configuration have them.
fn authority(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

fn is_this_machine(host_and_port: &str) -> bool {
    let host = match host_and_port.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => host,
        _ => host_and_port,
    };
    let host = host.trim_matches(['[', ']']);
    host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

/// The parts of an image's name (`Parse` in github.com/distribution/reference).
#[derive(Debug, PartialEq, Eq)]
struct Reference<'a> {
    registry: &'a str,
    repository: String,
    /// The tag, or the digest if the image has one.
    version: &'a str,
}

impl Reference<'_> {
    fn of(image: &str) -> Reference<'_> {
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

    /// The URL of the manifest at a server. A mirror learns from `ns` which registry the image is from, as containerd tells it.
    fn manifest_at(&self, server: &Url) -> Url {
        let mut url = server.clone();
        let base = server.path().trim_end_matches('/');
        let base = if base.ends_with("/v2") { base.to_owned() } else { format!("{base}/v2") };
        url.set_path(&format!("{base}/{}/manifests/{}", self.repository, self.version));
        let own = [self.registry, DOCKER_HUB.1];
        if !own.contains(&authority(server).as_str()) {
            url.query_pairs_mut().append_pair("ns", self.registry);
        }
        url
    }
}

#[cfg(test)]
mod tests;
