//! The logins with which kubelet pulls images, from Docker's configuration file.
//!
//! Source: `BasicDockerKeyring` and `urlsMatch` in pkg/credentialprovider/keyring.go of Kubernetes.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use kops_agent_spec::urls::shown_url;
use serde::Deserialize;

use super::{DOCKER_HUB, Reference, host_and_port};

/// The host under which a login for Docker Hub is usually stored.
const DOCKER_HUB_LOGIN: &str = "index.docker.io";

/// The base64 of `user:password` for each registry. The key is a host, and may also have the beginning of a path.
#[derive(Default)]
pub struct Logins(BTreeMap<String, String>);

/// The fields of Docker's configuration file that kubelet reads.
#[derive(Default, Deserialize)]
#[serde(default)]
struct DockerConfig {
    auths: BTreeMap<String, Auth>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Auth {
    /// The base64 of `user:password`. If it is set, the other fields are ignored.
    auth: String,
    username: String,
    password: String,
}

impl Auth {
    /// The base64 of `user:password`. `None` if kubelet reads no login from this entry.
    fn basic(&self) -> Option<String> {
        let login = match self.auth.trim().trim_end_matches('=') {
            "" if self.username.is_empty() => return None,
            "" => format!("{}:{}", self.username, self.password).into_bytes(),
            auth => STANDARD_NO_PAD.decode(auth).ok().filter(|login| login.contains(&b':'))?,
        };
        Some(STANDARD.encode(login))
    }
}

impl Logins {
    /// Reads the logins in a configuration file of Docker, such as the cluster's secret `dockerconfig`. Warns of a
    /// file or an entry from which kubelet reads no login. A warning may show the name of the server, and nothing
    /// else from the file.
    pub fn of_docker_config(file: &[u8]) -> Logins {
        let config: DockerConfig = serde_json::from_slice(file).unwrap_or_else(|error| {
            log::warn!(
                "the secret dockerconfig is not a configuration file of Docker (line {}, column {}), so kubelet finds no login in it",
                error.line(),
                error.column()
            );
            DockerConfig::default()
        });
        let mut logins = BTreeMap::new();
        for (server, auth) in config.auths {
            match auth.basic() {
                Some(basic) => drop(logins.insert(key(&server), basic)),
                None => log::warn!(
                    "kubelet finds no login for {} in the secret dockerconfig; the entry needs auth (the base64 of USER:PASSWORD), or \
                     username and password",
                    shown_url(&server)
                ),
            }
        }
        Logins(logins)
    }

    /// The login that kubelet tries first for an image. containerd sends this login to all servers of the image,
    /// including mirrors.
    pub(super) fn of_image(&self, image: &Reference<'_>) -> Option<&str> {
        let name = format!("{}/{}", image.registry, image.repository);
        // A longer path is more specific and is sorted later, so the search begins at the end.
        let matching = self.0.iter().rev().find(|(key, _)| matches(key, &name)).map(|(_, login)| login);
        let of_docker_hub = || self.0.get(DOCKER_HUB_LOGIN).filter(|_| image.registry == DOCKER_HUB.0);
        matching.or_else(of_docker_hub).map(String::as_str)
    }
}

/// The host and the path in the name of an entry of `auths`. The name may be a URL. The paths `/v1/` and `/v2/` mean all
/// images of the host.
fn key(server: &str) -> String {
    let rest =
        ["https://", "http://"].iter().find_map(|scheme| server.strip_prefix(scheme)).unwrap_or(server);
    let (host, path) = host_and_path(rest);
    let is_api = path.starts_with("/v1/") || path.starts_with("/v2/");
    let path = if is_api { &path["/v1".len()..] } else { path };
    format!("{host}{}", if path == "/" { "" } else { path })
}

/// Splits a name at its first slash. The slash belongs to the second part.
fn host_and_path(name: &str) -> (&str, &str) {
    name.split_at(name.find('/').unwrap_or(name.len()))
}

/// Whether the login with this key is for the image. Parts of the host in the key may contain `*`.
fn matches(key: &str, image: &str) -> bool {
    let ((host, path), (image_host, image_path)) = (host_and_path(key), host_and_path(image));
    let ((host, port), (image_host, image_port)) = (host_and_port(host), host_and_port(image_host));
    let is_host = host.split('.').count() == image_host.split('.').count()
        && host.split('.').zip(image_host.split('.')).all(|(pattern, part)| is_like(pattern, part));
    is_host && port == image_port && image_path.starts_with(path)
}

/// Whether a text matches a pattern in which `*` stands for any characters.
fn is_like(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, end)) => text.strip_prefix(start).is_some_and(|rest| {
            (0..=rest.len()).any(|at| rest.get(at..).is_some_and(|rest| is_like(end, rest)))
        }),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn login<'a>(logins: &'a Logins, image: &str) -> Option<&'a str> {
        logins.of_image(&Reference::parse(image))
    }

    #[test]
    fn the_name_of_an_image_chooses_the_login_with_the_longest_path() {
        let names = [
            "https://quay.io/v2/",
            "quay.io/team",
            "quay.io/team/app",
            "http://registry.example.com:5000",
            "*.dkr.ecr.*.amazonaws.com",
            "https://index.docker.io/v1/",
        ];
        let auths: BTreeMap<_, _> =
            names.map(|name| (name, serde_json::json!({"username": name, "password": "p"}))).into();
        let file = serde_json::json!({ "auths": auths }).to_string();
        let logins = Logins::of_docker_config(file.as_bytes());
        for (image, name) in [
            ("quay.io/other/app:1", Some(names[0])),
            ("quay.io/team/other:1", Some(names[1])),
            ("quay.io/team/app:1", Some(names[2])),
            ("registry.example.com:5000/a", Some(names[3])),
            ("registry.example.com/a", None),
            ("1.dkr.ecr.eu-west-1.amazonaws.com/a", Some(names[4])),
            ("dkr.ecr.eu-west-1.amazonaws.com/a", None),
            ("evil.quay.io/team/app", None),
            ("busybox", Some(names[5])),
            ("calico/node", Some(names[5])),
        ] {
            let expected = name.map(|name| STANDARD.encode(format!("{name}:p")));
            assert_eq!(login(&logins, image), expected.as_deref(), "{image}");
        }
    }

    #[test]
    fn a_login_for_docker_io_comes_before_one_for_index_docker_io() {
        let file = br#"{"auths": {"docker.io": {"auth": "YTox"}, "index.docker.io": {"auth": "Yjoy"}}}"#;
        assert_eq!(login(&Logins::of_docker_config(file), "busybox"), Some("YTox"));
    }

    #[test]
    fn both_forms_of_a_login_are_read_and_others_are_none() {
        for (entry, expected) in [
            (r#"{"auth": "cm9ib3Q6aGlkZGVu"}"#, Some("cm9ib3Q6aGlkZGVu")),
            (r#"{"auth": "YTo="}"#, Some("YTo=")),
            (r#"{"auth": "YTo"}"#, Some("YTo=")),
            (r#"{"username": "a", "password": ""}"#, Some("YTo=")),
            (r#"{"auth": "YTo=", "username": "b", "password": "c"}"#, Some("YTo=")),
            (r#"{"auth": "bm8gY29sb24="}"#, None),
            (r#"{"auth": "!"}"#, None),
            (r#"{"identitytoken": "t"}"#, None),
            ("{}", None),
        ] {
            let file = format!(r#"{{"auths": {{"quay.io": {entry}}}}}"#);
            let logins = Logins::of_docker_config(file.as_bytes());
            assert_eq!(login(&logins, "quay.io/a"), expected, "{entry}");
        }
        for file in ["no JSON", r#"{"auths": {"quay.io": "YTo="}}"#] {
            assert_eq!(login(&Logins::of_docker_config(file.as_bytes()), "quay.io/a"), None, "{file}");
        }
    }
}
