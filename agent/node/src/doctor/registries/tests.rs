#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use kops_agent_tests::test_server::{TestServer, text};
use parking_lot::Mutex;
use reqwest::ResponseBuilderExt as _;
use reqwest::header::{AUTHORIZATION, HOST, LOCATION, WWW_AUTHENTICATE};

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
            Reference::parse(image),
            Reference { registry, repository: repository.into(), version },
            "{image}"
        );
    }
}

/// The mirrors of a group. `named` has pairs of a registry and the addresses of its mirrors.
fn mirrors(named: &[(&str, &[&str])], are_in_configuration: bool) -> Registries {
    let owned = |addresses: &[&str]| addresses.iter().map(|address| (*address).to_owned()).collect();
    let named = named.iter().map(|(registry, addresses)| ((*registry).to_owned(), owned(addresses)));
    Registries::new(&named.collect(), are_in_configuration)
}

/// The URLs of an image's manifest, in the order in which they are requested.
fn manifests(registries: &Registries, image: &str) -> Vec<String> {
    let image = Reference::parse(image);
    let servers = registries.servers(&image);
    servers.into_iter().map(|(_, base)| image.manifest_at(base.unwrap()).to_string()).collect()
}

#[test]
fn mirrors_come_before_the_registry_itself() {
    let registries =
        mirrors(&[("quay.io/", &["https://a", "https://b/v2"]), ("*", &["https://c/proxy"])], false);
    assert_eq!(
        manifests(&registries, "quay.io/x/y:1"),
        [
            "https://a/v2/x/y/manifests/1?ns=quay.io",
            "https://b/v2/x/y/manifests/1?ns=quay.io",
            "https://quay.io/v2/x/y/manifests/1"
        ]
    );
    assert_eq!(
        manifests(&registries, "busybox"),
        [
            "https://c/proxy/v2/library/busybox/manifests/latest?ns=docker.io",
            "https://registry-1.docker.io/v2/library/busybox/manifests/latest"
        ]
    );
    let own = manifests(&Registries::default(), "localhost:5000/a:1");
    assert_eq!(own, ["http://localhost:5000/v2/a/manifests/1"]);
}

/// The expected URLs follow containerd's code: `addDefaultScheme` and `registryHosts` for its configuration, and
/// `parseHostConfig` for files of mirrors.
#[test]
fn an_address_is_read_as_containerd_reads_it_in_each_place() {
    for (address, in_configuration, in_file) in [
        ("https://m", "https://m/v2", "https://m/v2"),
        ("mirror.example.com", "https://mirror.example.com/v2", "https://mirror.example.com/v2"),
        (
            "mirror.example.com:5000",
            "https://mirror.example.com:5000/v2",
            "https://mirror.example.com:5000/v2",
        ),
        ("localhost:5000", "http://localhost:5000/v2", "https://localhost:5000/v2"),
        ("127.0.0.1:5000/proxy", "http://127.0.0.1:5000/proxy", "https://127.0.0.1:5000/proxy/v2"),
        ("https://m/proxy", "https://m/proxy", "https://m/proxy/v2"),
        ("https://m/", "https://m", "https://m/v2"),
        ("https://m/v2/proxy", "https://m/v2/proxy", "https://m/v2/proxy/v2"),
        ("https://m/proxy/v2", "https://m/proxy/v2", "https://m/proxy/v2"),
        ("https://robot:hidden@m/proxy?a=b", "https://m/proxy", "https://m/proxy/v2"),
        ("robot:hidden@localhost:5000", "http://localhost:5000/v2", "https://localhost:5000/v2"),
    ] {
        for (are_in_configuration, base) in [(true, in_configuration), (false, in_file)] {
            let registries = mirrors(&[("quay.io", &[address])], are_in_configuration);
            let first = manifests(&registries, "quay.io/a:1").remove(0);
            assert_eq!(first, format!("{base}/a/manifests/1?ns=quay.io"), "{address} {are_in_configuration}");
        }
    }
}

/// A registry with the image `a/b:1`. It requires a token, and gives a token for a login. Also returns the path and
/// the authorization of each request.
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

/// The logins in a Docker configuration file that has `LOGIN` for `server`.
fn logins(server: &str) -> Logins {
    Logins::of_docker_config(format!(r#"{{"auths": {{"{server}": {{"auth": "{LOGIN}"}}}}}}"#).as_bytes())
}

fn host(server: &TestServer) -> &str {
    server.url.strip_prefix("http://").unwrap()
}

/// The outcome at the only server of an image.
async fn outcome(registries: &Registries, logins: &Logins, image: &str) -> Outcome {
    let client = LocationClient::new().unwrap();
    let mut servers = registries.servers_of_image(&client, logins, image).await;
    assert_eq!(servers.len(), 1, "{servers:?}");
    servers.remove(0).1
}

#[tokio::test]
async fn a_registry_is_asked_with_the_clusters_login() {
    let (server, requests) = registry().await;
    let (none, image) = (Registries::default(), format!("{}/a/b", host(&server)));
    let without = outcome(&none, &Logins::default(), &format!("{image}:1")).await;
    assert_eq!(without, Outcome::Unknown("its login server answers 403 Forbidden".into()));

    let logins = logins(&format!("https://{}/v1/", host(&server)));
    requests.lock().clear();
    assert_eq!(outcome(&none, &logins, &format!("{image}:1")).await, Outcome::Answers);
    assert_eq!(
        *requests.lock(),
        [
            "/v2/a/b/manifests/1 ".to_owned(),
            format!("/token?service=s&scope=repository%3Aa%2Fb%3Apull Basic {LOGIN}"),
            "/v2/a/b/manifests/1 Bearer t".to_owned(),
        ]
    );
    let other = outcome(&none, &logins, &format!("{image}:2")).await;
    assert_eq!(other, Outcome::Fails("it answers 404 Not Found".into()));
}

/// kubelet chooses the login by the image's name, and containerd sends this login to each server.
#[tokio::test]
async fn a_mirror_gets_the_login_of_the_images_name_and_no_other() {
    let (server, requests) = registry().await;
    let registries = mirrors(&[("quay.io", &[server.url.as_str()])], true);
    for (of_login, is_sent) in [("quay.io/a", true), ("quay.io/other", false), (host(&server), false)] {
        requests.lock().clear();
        let client = LocationClient::new().unwrap();
        let image = "quay.io/a/b:1";
        let reference = Reference::parse(image);
        let (_, mirror) = registries.servers(&reference).remove(0);
        let logins = logins(of_login);
        let login = logins.of_image(&reference);
        // The test must not ask the image's own registry, which is on the internet.
        ask(&client, reference.manifest_at(mirror.unwrap()), login).await;
        let has_login = requests.lock().iter().any(|request| request.ends_with(LOGIN));
        assert_eq!(has_login, is_sent, "{of_login}: {requests:?}");
    }
}

#[tokio::test]
async fn a_login_does_not_follow_a_redirect() {
    let (other, requests) = registry().await;
    let to = format!("{}/v2/a/b/manifests/1", other.url);
    let server = TestServer::start(move |_| {
        let mut moved = text(307, "");
        moved.headers_mut().insert(LOCATION, to.parse().unwrap());
        async move { Ok(moved) }
    })
    .await;
    let image = format!("{}/a/b:1", host(&server));
    let moved = outcome(&Registries::default(), &logins(host(&server)), &image).await;
    assert_eq!(moved, Outcome::Unknown("its login server answers 403 Forbidden".into()));
    let requests = requests.lock();
    assert_eq!(requests.len(), 2, "{requests:?}");
    assert!(requests.iter().all(|request| !request.contains(LOGIN)), "{requests:?}");
}

#[tokio::test]
async fn a_password_is_sent_over_tls_or_to_this_machine_only() {
    let client = LocationClient::new().unwrap();
    for (url, is_sent) in [
        ("https://m.example.com/v2/a", true),
        ("http://127.0.0.1:5000/v2/a", true),
        ("http://m.example.com/v2/a", false),
    ] {
        let refused = hyper::Response::builder().url(url.parse().unwrap());
        let refused = refused.header(WWW_AUTHENTICATE, "Basic realm=\"m\"").body("").unwrap().into();
        let sent = authorization(&client, &refused, Some(LOGIN)).await;
        assert_eq!(sent.is_ok_and(|header| header.is_some()), is_sent, "{url}");
        let without = authorization(&client, &refused, None).await;
        assert_eq!(without, Ok(None), "{url}");
    }
}

/// After a failure of the login server, it is unknown whether the registry has the image.
#[tokio::test]
async fn failures_of_the_login_server_are_not_blamed_on_the_registry() {
    for (realm, problem) in [
        ("http://127.0.0.1:1/token", "its login server does not answer: "),
        ("/no-token", "its login server gives no token"),
        ("/empty", "its login server gives no token: the token is empty"),
        ("no URL", "its login server has the invalid URL \"no URL\": "),
    ] {
        let server = TestServer::start(move |request| {
            let host = request.headers()[HOST].to_str().unwrap();
            let realm =
                if realm.starts_with('/') { format!("http://{host}{realm}") } else { realm.to_owned() };
            let answer = match request.uri().path() {
                "/no-token" => text(200, "no JSON"),
                "/empty" => text(200, "{}"),
                _ => {
                    let mut refused = text(401, "");
                    let challenge = format!("Bearer realm=\"{realm}\"");
                    refused.headers_mut().insert(WWW_AUTHENTICATE, challenge.parse().unwrap());
                    refused
                }
            };
            async move { Ok(answer) }
        })
        .await;
        let image = format!("{}/a:1", host(&server));
        let told = outcome(&Registries::default(), &Logins::default(), &image).await;
        assert!(matches!(&told, Outcome::Unknown(why) if why.starts_with(problem)), "{realm}: {told:?}");
    }
}

#[tokio::test]
async fn a_registry_without_head_is_asked_by_get() {
    let server = TestServer::start(|request| async move {
        Ok(text(if request.method() == Method::HEAD { 405 } else { 200 }, ""))
    })
    .await;
    let image = format!("{}/a:1", host(&server));
    assert_eq!(outcome(&Registries::default(), &Logins::default(), &image).await, Outcome::Answers);
}

#[tokio::test]
async fn the_registry_is_asked_if_its_mirror_lacks_the_image() {
    let own = TestServer::start(|_| async { Ok(text(200, "")) }).await;
    let mirror = TestServer::start(|_| async { Ok(text(404, "")) }).await;
    let registries = mirrors(&[("*", &["no URL", mirror.url.as_str()])], false);
    let client = LocationClient::new().unwrap();
    let image = format!("{}/a:1", host(&own));
    let servers = registries.servers_of_image(&client, &Logins::default(), &image).await;
    let [(_, no_url), (asked, lacks), (last, has)] = &servers[..] else { panic!("{servers:?}") };
    assert!(matches!(no_url, Outcome::Fails(why) if why.starts_with("it is no URL")), "{no_url:?}");
    assert_eq!((asked, last), (&mirror.url, &own.url));
    assert_eq!((lacks, has), (&Outcome::Fails("it answers 404 Not Found".into()), &Outcome::Answers));
}
