//! Logins to Keystone, and requests to Nova with them.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kops_agent_cluster::machine_id::IdForm;
use kops_agent_tests::downloads::Downloads;
use kops_agent_tests::loopback::Identity;
use kops_agent_tests::openstack::{
    Mood, Openstack as StandIn, SECRET, Server, TOKEN, login, password_login, uuid,
};
use kops_agent_tests::test_server::{TestServer, text};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::OpenstackServers;
use super::keystone::Keystone;
use super::settings::Settings;
use crate::api::ApiError;
use crate::calls::{CloudCalls, Outcome};

const CLUSTER: &str = "c.example.com";

fn stand_in() -> StandIn {
    kops_agent_net::tls::install_provider();
    let api = StandIn::start().unwrap();
    api.put(1, Server::of_group(CLUSTER, "nodes", "nodes-1a2b3c", [10, 0, 0, 1].into()));
    api
}

fn servers(login: &[(&'static str, String)], calls: CloudCalls) -> Arc<OpenstackServers> {
    Arc::new(OpenstackServers::with_login(login, CLUSTER, calls).unwrap())
}

/// Whether the inventory contains the only server of the test API.
async fn is_there(servers: &Arc<OpenstackServers>) -> Result<bool, Arc<ApiError>> {
    Ok(servers.get(IdForm::Uuid.parse(&uuid(1)).unwrap()).await?.is_some())
}

#[tokio::test]
async fn both_kinds_of_login_can_list_servers() {
    for login in [login, password_login] {
        let api = stand_in();
        let calls = CloudCalls::default();
        let servers = servers(&login(&api.origin()), calls.clone());
        for _ in 0..3 {
            assert!(is_there(&servers).await.unwrap());
        }
        assert_eq!((api.logins(), api.calls()), (1, 1));
        assert_eq!(calls.counted("keystone", "tokens.create", Outcome::Success), 1);
        let shown = format!("{servers:?}");
        assert!(!shown.contains(TOKEN) && !shown.contains(SECRET), "{shown}");
    }
}

#[tokio::test]
async fn a_revoked_token_is_replaced_once() {
    let api = stand_in();
    api.set_mood(Mood::Revoking);
    assert!(is_there(&servers(&login(&api.origin()), CloudCalls::default())).await.unwrap());
    assert_eq!((api.logins(), api.calls()), (2, 2));
}

#[tokio::test]
async fn a_rejected_login_does_not_make_servers_absent() {
    let api = stand_in();
    api.set_mood(Mood::Distrusting);
    let calls = CloudCalls::default();
    let refused = servers(&login(&api.origin()), calls.clone());
    for _ in 0..2 {
        let error = is_there(&refused).await.unwrap_err();
        assert!(error.is_forbidden() && !error.is_absent());
        let error = error.to_string();
        assert!(error.contains("Keystone answers tokens.create with 401"), "{error}");
    }
    assert_eq!((api.logins(), api.calls()), (1, 0), "a login is not tried again at once");
    assert_eq!(calls.counted("keystone", "tokens.create", Outcome::Error), 1);

    api.set_mood(Mood::Good);
    let mut wrong = login(&api.origin());
    wrong
        .iter_mut()
        .filter(|(name, _)| name.ends_with("_SECRET"))
        .for_each(|(_, value)| *value = "guessed".into());
    let error = is_there(&servers(&wrong, CloudCalls::default())).await.unwrap_err().to_string();
    let expected =
        "with 401 Unauthorized; are the OS_… variables of this process a login to the cluster's project?";
    assert!(error.contains(expected) && !error.contains("guessed"), "{error}");
}

#[tokio::test]
async fn a_missing_endpoint_in_the_catalog_is_reported() {
    let api = stand_in();
    let with = |name: &'static str, value: &str| {
        let mut login = login(&api.origin());
        login.retain(|(variable, _)| *variable != name);
        login.push((name, value.to_owned()));
        servers(&login, CloudCalls::default())
    };
    for (servers, expected) in [
        (
            with("OS_REGION_NAME", ""),
            "OS_REGION_NAME is not set, and OpenStack has several regions: RegionOne, RegionTwo",
        ),
        (
            with("OS_REGION_NAME", "Region"),
            "OS_REGION_NAME is \"Region\", but the service compute is only in RegionOne, RegionTwo",
        ),
        (with("OS_INTERFACE", "admin"), "Keystone's catalog has no admin endpoint of the service compute"),
    ] {
        let error = is_there(&servers).await.unwrap_err();
        assert!(error.is_configuration() && error.to_string().contains(expected), "{error}");
    }
    // Nothing listens at the internal endpoint.
    let error = is_there(&with("OS_INTERFACE", "internalURL")).await.unwrap_err();
    assert!(matches!(*error, ApiError::Unreachable { .. }), "{error}");
    assert!(is_there(&with("OS_REGION_NAME", "'RegionOne'")).await.unwrap());
}

/// A stand-in for Keystone that gives this response, with `X-Subject-Token` if `token` is set. The counter counts the requests to the
/// stand-in.
async fn keystone(
    status: u16,
    token: Option<&'static str>,
    body: String,
) -> (TestServer, Arc<Mutex<usize>>, Keystone) {
    kops_agent_net::tls::install_provider();
    let asked = Arc::<Mutex<usize>>::default();
    let counted = asked.clone();
    let server = TestServer::start(move |request| {
        assert_eq!(request.uri().path(), "/v3/auth/tokens");
        *counted.lock() += 1;
        let mut answer = text(status, &body);
        if let Some(token) = token {
            answer.headers_mut().insert("x-subject-token", token.parse().unwrap());
        }
        async move { Ok(answer) }
    })
    .await;
    let login = [
        ("OS_AUTH_URL", server.url.clone()),
        ("OS_APPLICATION_CREDENTIAL_ID", "id".into()),
        ("OS_APPLICATION_CREDENTIAL_SECRET", "hidden".into()),
    ];
    let settings = Settings::from_variables(&|name| {
        let found = login.iter().find(|(variable, _)| *variable == name);
        found.map(|(_, value)| value.clone())
    });
    let keystone = Keystone::new(settings.unwrap(), "compute", CloudCalls::default()).unwrap();
    (server, asked, keystone)
}

fn told(issued_at: &str, expires_at: &str) -> Value {
    let endpoint =
        json!({"interface": "public", "region": null, "region_id": "R", "url": "http://nova/v2.1"});
    json!({"token": {"issued_at": issued_at, "expires_at": expires_at,
                     "catalog": [{"type": "compute", "endpoints": [endpoint]}]}})
}

#[tokio::test]
async fn a_token_is_cached_until_shortly_before_it_expires_by_keystones_clock() {
    for (issued_at, expires_at, asked) in [
        ("2001-01-01T00:00:00.000000Z", "2001-01-01T01:00:00.000000Z", 1),
        ("2001-01-01T00:00:00Z", "9999-01-01T01:00:00Z", 1),
        // The first token is valid for only two minutes. The second token has already expired.
        ("2001-01-01T00:00:00Z", "2001-01-01T00:02:00Z", 3),
        ("2001-01-01T00:00:00Z", "2000-01-01T00:00:00Z", 3),
    ] {
        let (_server, count, keystone) =
            keystone(201, Some("hidden"), told(issued_at, expires_at).to_string()).await;
        for _ in 0..3 {
            let session = keystone.session().await.unwrap();
            assert_eq!(
                (session.endpoint.as_str(), session.token.to_str().unwrap()),
                ("http://nova/v2.1", "hidden")
            );
            assert!(!format!("{session:?} {keystone:?}").contains("hidden"));
        }
        assert_eq!(*count.lock(), asked, "{expires_at}");
    }
}

#[tokio::test]
async fn only_the_rejected_token_is_dropped() {
    let good = told("2001-01-01T00:00:00Z", "2001-01-01T01:00:00Z").to_string();
    let (_server, count, keystone) = keystone(201, Some("hidden"), good).await;
    let session = keystone.session().await.unwrap();
    keystone.forget(&"another".parse().unwrap()).await;
    keystone.session().await.unwrap();
    assert_eq!(*count.lock(), 1);
    keystone.forget(&session.token).await;
    keystone.session().await.unwrap();
    assert_eq!(*count.lock(), 2);
}

#[tokio::test]
async fn an_invalid_token_response_is_an_error_without_its_content() {
    let good = told("2001-01-01T00:00:00Z", "2001-01-01T01:00:00Z").to_string();
    for (status, token, body, expected) in [
        (201, None, good.clone(), "it has no token"),
        (201, Some("hidden"), good[..good.len() / 2].to_owned(), "its body does not describe a token"),
        (201, Some("hidden"), "<html>hidden".into(), "its body does not describe a token"),
        (201, Some("hidden"), told("hidden", "").to_string(), "its times are malformed"),
        (302, Some("hidden"), String::new(), "the response contains no error message"),
        (404, None, "<html>hidden".into(), "the response contains no error message"),
        (201, Some("hidden"), "x".repeat((1 << 20) + 1), "it is too long"),
    ] {
        let (_server, _, keystone) = keystone(status, token, body).await;
        let error = keystone.session().await.unwrap_err();
        assert!(!error.is_absent() && !error.may_pass(), "{error:?}");
        let error = error.to_string();
        assert!(error.contains(expected) && !error.contains("hidden"), "{error}");
    }
}

#[tokio::test]
async fn a_silent_keystone_times_out() {
    kops_agent_net::tls::install_provider();
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", socket.local_addr().unwrap());
    let settings = Settings::from_variables(&|name| {
        let login = login(&url);
        let found = login.iter().find(|(variable, _)| *variable == name);
        found.map(|(_, value)| value.clone())
    });
    let keystone = Keystone::new(settings.unwrap(), "compute", CloudCalls::default())
        .unwrap()
        .within(Duration::from_millis(50));
    let error = keystone.session().await.unwrap_err();
    assert!(matches!(error, ApiError::Unreachable { .. }) && error.may_pass(), "{error}");
}

/// The server stands in for Keystone. It rejects a POST with 405, so a 405 shows that the client accepts the certificate.
#[tokio::test]
async fn certificates_are_verified_unless_the_setting_turns_it_off() {
    kops_agent_net::tls::install_provider();
    let server = Downloads::start_tls(BTreeMap::new(), &Identity::named(&["127.0.0.1"]).unwrap()).unwrap();
    let status = async |insecure: &str| {
        let settings = Settings::from_variables(&|name| match name {
            "OS_AUTH_URL" => Some(format!("{}/v3", server.url())),
            "OS_APPLICATION_CREDENTIAL_ID" => Some("id".to_owned()),
            "OS_APPLICATION_CREDENTIAL_SECRET" => Some(SECRET.to_owned()),
            "KOPS_OS_TLS_INSECURE_SKIP_VERIFY" => Some(insecure.to_owned()),
            _ => None,
        });
        let asked = match Keystone::new(settings.unwrap(), "compute", CloudCalls::default()) {
            Ok(keystone) => keystone.session().await.map(drop),
            Err(error) => Err(error),
        };
        asked.unwrap_err().status()
    };
    assert_eq!(status("").await, None);
    assert_eq!(status("false").await, None);
    assert_eq!(status("true").await, Some(405));
    assert_eq!(status("1").await, Some(405));
    let asked = server.requests();
    assert!(!asked.is_empty() && asked.iter().all(|asked| asked == "POST /v3/auth/tokens"), "{asked:?}");
}
