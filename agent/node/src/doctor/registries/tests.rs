#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use kops_agent_tests::test_server::{TestServer, text};
use parking_lot::Mutex;
use reqwest::header::{AUTHORIZATION, HOST, WWW_AUTHENTICATE};

use super::*;

/// The base64 of `robot:hidden`.
const LOGIN: &str = "cm9ib3Q6aGlkZGVu";

#[test]
fn names_of_images_are_read_as_docker_reads_them() {
    for (image, registry, repository, version) in [
        ("registry.k8s.io/pause:3.10", "registry.k8s.io", "pause", "3.10"),
        ("127.0.0.1:5000/a/b:1", "127.0.0.1:5000", "a/b", "1"),
        ("localhost/a", "localhost", "a", "latest"),
        ("busybox", "docker.io", "library/busybox", "latest"),
        ("calico/node:v3", "docker.io", "calico/node", "v3"),
        ("index.docker.io/busybox:1", "docker.io", "library/busybox", "1"),
        ("quay.io/a/b:1@sha256:00", "quay.io", "a/b", "sha256:00"),
        ("quay.io/a/b@sha256:00", "quay.io", "a/b", "sha256:00"),
    ] {
        assert_eq!(
            Reference::of(image),
            Reference { registry, repository: repository.into(), version },
            "{image}"
        );
    }
}

#[test]
fn mirrors_come_before_the_registry_itself() {
    let mut registries = Registries::default();
    let urls = |urls: &[&str]| urls.iter().map(|url| (*url).to_owned()).collect::<Vec<_>>();
    let mirrors = [("quay.io/", urls(&["https://a", "https://b/v2"])), ("*", urls(&["https://c/proxy"]))];
    registries.add_mirrors(&mirrors.map(|(registry, urls)| (registry.to_owned(), urls)).into());
    registries.add_mirrors(&[("quay.io".to_owned(), urls(&["https://other"]))].into());
    let asked = |image: &str| {
        let image = Reference::of(image);
        let servers = registries.servers(&image);
        servers.iter().map(|url| image.manifest_at(&url.parse().unwrap()).to_string()).collect::<Vec<_>>()
    };
    assert_eq!(
        asked("quay.io/x/y:1"),
        [
            "https://a/v2/x/y/manifests/1?ns=quay.io",
            "https://b/v2/x/y/manifests/1?ns=quay.io",
            "https://quay.io/v2/x/y/manifests/1"
        ]
    );
    assert_eq!(
        asked("busybox"),
        [
            "https://c/proxy/v2/library/busybox/manifests/latest?ns=docker.io",
            "https://registry-1.docker.io/v2/library/busybox/manifests/latest"
        ]
    );
}

/// A registry with the image `a/b:1` that gives a token for a login, and the requests that it got: the path and the authorization.
async fn registry() -> (TestServer, Arc<Mutex<Vec<String>>>) {
    let requests = Arc::new(Mutex::new(Vec::new()));
    let seen = requests.clone();
    let server = TestServer::start(move |request| {
        let header =
            |name| request.headers().get(name).map_or("", |value| value.to_str().unwrap()).to_owned();
        let (host, authorization) = (header(HOST), header(AUTHORIZATION));
        let path = request.uri().path_and_query().unwrap().as_str().to_owned();
        seen.lock().push(format!("{path} {authorization}"));
        let is_token = path.starts_with("/token");
        let answer = match authorization.as_str() {
            "Bearer t" if path == "/v2/a/b/manifests/1" => text(200, ""),
            "Bearer t" => text(404, ""),
            login if is_token && login == format!("Basic {LOGIN}") => {
                text(200, r#"{"token": "t", "access_token": "t"}"#)
            }
            _ if is_token => text(403, ""),
            _ => {
                let mut refused = text(401, "");
                let challenge = format!(
                    "Bearer realm=\"http://{host}/token\",service=\"s\",scope=\"repository:a/b:pull\""
                );
                refused.headers_mut().insert(WWW_AUTHENTICATE, challenge.parse().unwrap());
                refused
            }
        };
        async move { Ok(answer) }
    })
    .await;
    (server, requests)
}

#[tokio::test]
async fn a_registry_is_asked_with_the_clusters_login() {
    let (server, requests) = registry().await;
    let host = server.url.strip_prefix("http://").unwrap();
    let client = LocationClient::new().unwrap();
    let mut registries = Registries::default();
    let ask = async |registries: &Registries, image: &str| {
        let mut servers = registries.servers_of_image(&client, &format!("{host}/{image}")).await;
        assert_eq!(servers.len(), 1);
        let (asked, outcome) = servers.remove(0);
        assert_eq!(asked, server.url);
        outcome
    };
    let without = ask(&registries, "a/b:1").await;
    assert_eq!(without, Outcome::Unknown("its login server answers 403 Forbidden".into()));

    registries.add_logins(b"no JSON");
    registries
        .add_logins(format!(r#"{{"auths": {{"https://{host}/v1/": {{"auth": "{LOGIN}"}}}}}}"#).as_bytes());
    requests.lock().clear();
    assert_eq!(ask(&registries, "a/b:1").await, Outcome::Answers);
    assert_eq!(
        *requests.lock(),
        [
            "/v2/a/b/manifests/1 ".to_owned(),
            format!("/token?service=s&scope=repository%3Aa%2Fb%3Apull Basic {LOGIN}"),
            "/v2/a/b/manifests/1 Bearer t".to_owned(),
        ]
    );
    assert_eq!(ask(&registries, "a/b:2").await, Outcome::Fails("it answers 404 Not Found".into()));
}

#[tokio::test]
async fn a_login_goes_to_its_own_registry_only() {
    let (server, requests) = registry().await;
    let host = server.url.strip_prefix("http://").unwrap();
    let mut registries = Registries::default();
    registries
        .add_logins(format!(r#"{{"auths": {{"other.example.com": {{"auth": "{LOGIN}"}}}}}}"#).as_bytes());
    let client = LocationClient::new().unwrap();
    let servers = registries.servers_of_image(&client, &format!("{host}/a/b:1")).await;
    assert!(matches!(servers[0].1, Outcome::Unknown(_)), "{servers:?}");
    assert!(requests.lock().iter().all(|request| !request.contains("Basic")), "{requests:?}");
}

#[tokio::test]
async fn the_registry_is_asked_if_its_mirror_lacks_the_image() {
    let own = TestServer::start(|_| async { Ok(text(200, "")) }).await;
    let mirror = TestServer::start(|_| async { Ok(text(404, "")) }).await;
    let mut registries = Registries::default();
    registries.add_mirrors(&[("*".to_owned(), vec!["no URL".to_owned(), mirror.url.clone()])].into());
    let client = LocationClient::new().unwrap();
    let image = format!("{}/a:1", own.url.strip_prefix("http://").unwrap());
    let servers = registries.servers_of_image(&client, &image).await;
    let [(_, no_url), (asked, lacks), (last, has)] = &servers[..] else { panic!("{servers:?}") };
    assert!(matches!(no_url, Outcome::Fails(why) if why.starts_with("it is no URL")), "{no_url:?}");
    assert_eq!((asked, last), (&mirror.url, &own.url));
    assert_eq!((lacks, has), (&Outcome::Fails("it answers 404 Not Found".into()), &Outcome::Answers));
}
