//! Tests against a stand-in on loopback. It serves the files of a folder as Swift, and a Keystone for the
//! login.

#![allow(clippy::unwrap_used)]

use std::fs;

use kops_agent_net::{LocationClient, http};
use kops_agent_tests::openstack::swift::{Mood, Swift as StandIn};
use kops_agent_tests::openstack::{SECRET, TOKEN, password_login};

use super::*;
use kops_agent_spec::failure::Failing as _;

/// The names and contents of the objects in the container `state`.
const OBJECTS: [(&str, &str); 8] = [
    ("c/cluster-completed.spec", "1"),
    ("c/config", "kind: Cluster"),
    ("c/igconfig/node/nodes/nodeupconfig.yaml", "333"),
    ("c/instancegroup/control-plane", "4444"),
    ("c/instancegroup/nodes", "55555"),
    ("c/pki/ca & <co>?#", "666666"),
    ("cc/config", "7777777"),
    ("release/v1/a+b c%2Fd", "hello"),
];

struct Openstack {
    _folder: tempfile::TempDir,
    server: StandIn,
    swift: Swift,
}

fn swift(login: &[(&'static str, String)]) -> Result<Swift, StoreError> {
    let retries = Retries { deadline: Duration::from_millis(100), ..Retries::default() };
    let settings = Settings::from_variables(&|name| {
        let found = login.iter().find(|(variable, _)| *variable == name);
        found.map(|(_, value)| value.clone())
    });
    Swift::with_settings(settings.map_err(|error| StoreError::BadSettings(error.to_string()))?, retries)
}

impl Openstack {
    fn new() -> Openstack {
        kops_agent_net::tls::install_provider();
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in OBJECTS {
            let file = folder.path().join("state").join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        let server = StandIn::start(folder.path()).unwrap();
        Openstack { _folder: folder, swift: swift(&server.environment()).unwrap(), server }
    }

    async fn read(&self, key: &str) -> Result<Vec<u8>, StoreError> {
        self.swift.read(&place(&format!("swift://state/{key}"))).await
    }

    async fn list(&self, key: &str) -> Result<Vec<String>, StoreError> {
        self.swift.list(&place(&format!("swift://state/{key}"))).await
    }

    fn logins(&self) -> usize {
        self.server.calls().iter().filter(|call| call.starts_with("POST ")).count()
    }
}

fn place(url: &str) -> Place {
    crate::schemes::place(url).unwrap().1
}

#[tokio::test]
async fn a_state_store_is_read_and_listed_page_by_page() {
    let openstack = Openstack::new();
    for page in [10_000, 2, 1] {
        openstack.server.set_page(page);
        assert_eq!(openstack.read("c/config").await.unwrap(), b"kind: Cluster");
        assert_eq!(openstack.read("c/pki/ca & <co>?#").await.unwrap(), b"666666");
        assert_eq!(
            openstack.list("c").await.unwrap(),
            ["cluster-completed.spec", "config", "igconfig", "instancegroup", "pki"]
        );
        assert_eq!(openstack.list("c/instancegroup/").await.unwrap(), ["control-plane", "nodes"]);
        assert_eq!(openstack.list("c/pki").await.unwrap(), ["ca & <co>?#"]);
        assert_eq!(openstack.list("").await.unwrap(), ["c", "cc", "release"]);
        assert_eq!(openstack.list("none").await.unwrap(), Vec::<String>::new());
    }
    assert_eq!(openstack.logins(), 1, "all requests share one token");
}

#[tokio::test]
async fn a_password_works_as_a_login() {
    let openstack = Openstack::new();
    let by_password = swift(&password_login(&openstack.server.url())).unwrap();
    assert_eq!(by_password.read(&place("swift://state/c/config")).await.unwrap(), b"kind: Cluster");
    assert!(!format!("{by_password:?}").contains(SECRET));
}

#[tokio::test]
async fn versions_are_hashes_of_the_objects_between_two() {
    let openstack = Openstack::new();
    let folder = place("swift://state/c/");
    openstack.server.set_page(1);
    let versions = async |first, last| {
        let versions = openstack.swift.versions(&folder, first, last).await.unwrap();
        let version = |(name, hash): (String, String)| format!("{name} {}", hash.trim_start_matches('0'));
        versions.into_iter().map(version).collect::<Vec<_>>()
    };
    assert_eq!(
        versions("config", "instancegroup/control-plane").await,
        ["config d", "igconfig/node/nodes/nodeupconfig.yaml 3", "instancegroup/control-plane 4"]
    );
    let before = openstack.server.calls().len();
    assert_eq!(versions("instancegroup/a", "instancegroup/d").await, ["instancegroup/control-plane 4"]);
    assert_eq!(openstack.server.calls().len() - before, 2, "pages after the last name are not requested");
    assert_eq!(versions("config", "config").await, ["config d"]);
}

#[tokio::test]
async fn requests_for_objects_have_the_token() {
    let openstack = Openstack::new();
    let file = place("swift://state/release/v1/a+b c%2Fd");
    let client = LocationClient::new().unwrap();
    for _ in 0..3 {
        let location = openstack.swift.locate(&file).await.unwrap();
        assert_eq!((location.size, location.has_headers()), (Some(5), true));
        assert!(location.url.path().ends_with("/state/release/v1/a%2Bb%20c%252Fd"), "{location:?}");
        let answer = client.request(Method::GET, &location).send().await.unwrap();
        assert_eq!(http::said(answer, 1000).await, "hello");
        assert!(!format!("{location:?} {:?}", openstack.swift).contains(TOKEN));
    }
    assert_eq!(openstack.logins(), 1);
}

#[tokio::test]
async fn each_failure_has_its_own_error() {
    let openstack = Openstack::new();
    assert!(matches!(openstack.read("c/none").await.unwrap_err(), StoreError::NotFound { .. }));
    let elsewhere = place("swift://none/c");
    for error in
        [openstack.swift.read(&elsewhere).await.map(drop), openstack.swift.list(&elsewhere).await.map(drop)]
    {
        let error = error.unwrap_err();
        assert!(matches!(error, StoreError::WrongBucket { .. }), "{error:?}");
        assert!(error.to_string().contains("\"none\""), "{error}");
    }
    let cases: [(Mood, &[&str]); 9] = [
        (Mood::Forbidding, &["access denied (403)", "the container state"]),
        (Mood::Blocked, &["access denied (403)", "this is no answer of Swift: check the proxy"]),
        (
            Mood::Distrusting,
            &["refuses this machine's credentials: 401, for a token that Keystone has just given"],
        ),
        (Mood::RefusingLogins, &["Keystone answers tokens.create with 401 Unauthorized; are the OS_"]),
        (Mood::Missing, &["answers 404"]),
        (Mood::Redirecting, &["answers 302"]),
        (Mood::Busy, &["cannot be reached: it answers 503 Service Unavailable"]),
        (Mood::Throttling, &["cannot be reached: it answers 498"]),
        (
            Mood::WithoutKeystone,
            &["cannot be reached: ", "answers tokens.create with 503, which is not an answer of Keystone"],
        ),
    ];
    for (mood, told) in cases {
        // Each case needs a new server and a new client, because a client with a token does not log in again.
        let openstack = Openstack::new();
        openstack.server.set_mood(mood);
        let file = place("swift://state/c/config");
        for error in [
            openstack.read("c/config").await.map(drop),
            openstack.list("c").await.map(drop),
            openstack.swift.locate(&file).await.map(drop),
        ] {
            let error = error.unwrap_err();
            let is_absent = matches!(error, StoreError::NotFound { .. } | StoreError::WrongBucket { .. });
            assert!(!is_absent && !error.kind().is_configuration(), "{mood:?}: {error:?}");
            let error = error.to_string();
            assert!(told.iter().all(|told| error.contains(told)), "{mood:?}: {error}");
            assert!(!error.contains(TOKEN) && !error.contains(SECRET), "{mood:?}: {error}");
        }
    }
    for mood in [Mood::Babbling, Mood::Truncating, Mood::Endless] {
        openstack.server.set_mood(mood);
        openstack.server.set_page(1);
        let error = openstack.list("c").await.unwrap_err();
        assert!(matches!(error, StoreError::Refused { status: 200, .. }), "{mood:?}: {error:?}");
    }
}

#[tokio::test]
async fn a_revoked_token_is_replaced_once() {
    let openstack = Openstack::new();
    openstack.server.set_mood(Mood::Revoking);
    assert_eq!(openstack.read("c/config").await.unwrap(), b"kind: Cluster");
    assert_eq!(openstack.logins(), 2);
    openstack.server.set_mood(Mood::Distrusting);
    openstack.read("c/config").await.unwrap_err();
    assert_eq!(openstack.logins(), 3, "the token is replaced once only");
}

#[tokio::test]
async fn a_url_that_a_client_would_change_is_refused() {
    let openstack = Openstack::new();
    for url in ["swift://../c", "swift://state/../../v1/AUTH_other/c", "swift://state/./c"] {
        for error in [
            openstack.swift.read(&place(url)).await.map(drop),
            openstack.swift.list(&place(url)).await.map(drop),
            openstack.swift.locate(&place(url)).await.map(drop),
        ] {
            assert!(matches!(error.unwrap_err(), StoreError::BadUrl { .. }), "{url}");
        }
    }
    assert_eq!(openstack.server.calls(), Vec::<String>::new());
}

#[test]
fn the_error_of_an_incomplete_login_names_the_variable() {
    let without = |name: &str, value: &str| {
        let mut login = kops_agent_tests::openstack::login("http://127.0.0.1:9");
        login
            .iter_mut()
            .filter(|(variable, _)| *variable == name)
            .for_each(|(_, set)| *set = value.to_owned());
        swift(&login).unwrap_err()
    };
    kops_agent_net::tls::install_provider();
    for error in [
        without("OS_AUTH_URL", ""),
        without("OS_AUTH_URL", "keystone.example.com"),
        without("OS_APPLICATION_CREDENTIAL_SECRET", ""),
    ] {
        assert!(
            error.kind().is_configuration()
                && error.to_string().contains("settings in the environment are wrong: OS_"),
            "{error}"
        );
    }
}
