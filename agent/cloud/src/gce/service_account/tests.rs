//! Google's token server is a stand-in on loopback that verifies signatures.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http_body_util::BodyExt as _;
use kops_agent_net::retry::FAST;
use kops_agent_tests::google_account::{EMAIL, ServiceAccount};
use kops_agent_tests::test_server::{TestServer, text};
use parking_lot::Mutex;
use serde_json::Value;

use super::*;
use crate::gce::tokens::{TokenError, Tokens};

/// How the server responds to a request with a valid signature.
#[derive(Clone, Copy)]
enum Mood {
    Good,
    BusyOnce,
    Redirecting,
    Babbling,
    Endless,
}

struct Google {
    server: TestServer,
    account: Arc<ServiceAccount>,
    asked: Arc<AtomicUsize>,
    scopes: Arc<Mutex<Vec<String>>>,
}

impl Google {
    async fn start(mood: Mood) -> Google {
        tls::install_provider();
        let account = Arc::new(ServiceAccount::generate().unwrap());
        let (asked, scopes) = (Arc::<AtomicUsize>::default(), Arc::<Mutex<Vec<String>>>::default());
        let (verifying, count, seen) = (account.clone(), asked.clone(), scopes.clone());
        let server = TestServer::start(move |request| {
            let number = count.fetch_add(1, Ordering::SeqCst);
            let (verifying, seen) = (verifying.clone(), seen.clone());
            async move {
                let host = request.headers()["host"].to_str().unwrap().to_owned();
                let form = request.into_body().collect().await.unwrap().to_bytes();
                let scope = match verifying.scope_of(&form, &format!("http://{host}/token")) {
                    Ok(scope) => scope,
                    Err(problem) => {
                        let refusal =
                            json!({"error": "invalid_grant", "error_description": problem.to_string()});
                        return Ok(text(400, &refusal.to_string()));
                    }
                };
                seen.lock().push(scope);
                Ok(match mood {
                    Mood::BusyOnce if number == 0 => text(503, ""),
                    Mood::Good | Mood::BusyOnce => {
                        text(200, r#"{"access_token": "hidden", "expires_in": 3599}"#)
                    }
                    Mood::Redirecting => {
                        let mut answer = text(307, "");
                        answer.headers_mut().insert("location", "/elsewhere".parse().unwrap());
                        answer
                    }
                    Mood::Babbling => text(200, r#"{"access_token": "hidden"}"#),
                    Mood::Endless => text(200, &"x".repeat(LONGEST_ANSWER + 1)),
                })
            }
        })
        .await;
        Google { server, account, asked, scopes }
    }

    fn token_uri(&self) -> String {
        format!("{}/token", self.server.url)
    }

    fn key(&self, account: &ServiceAccount) -> ServiceAccountKey {
        ServiceAccountKey::parse(account.file(&self.token_uri()).to_string().as_bytes(), "/key.json").unwrap()
    }

    fn tokens(&self) -> Tokens {
        Tokens::of_key(KeyTokens::new(self.key(&self.account), READ_STORAGE, FAST).unwrap())
    }
}

#[tokio::test]
async fn a_signed_request_gets_a_token_which_is_cached() {
    let google = Google::start(Mood::Good).await;
    let tokens = google.tokens();
    for _ in 0..3 {
        let header = tokens.header().await.unwrap();
        assert_eq!(header.to_str().unwrap(), "Bearer hidden");
        assert!(!format!("{header:?} {tokens:?}").contains("hidden"));
    }
    assert_eq!(*google.scopes.lock(), [READ_STORAGE]);
    assert_eq!(tokens.whose(), format!("the service account {EMAIL}"));
}

#[tokio::test]
async fn a_busy_server_is_retried() {
    let google = Google::start(Mood::BusyOnce).await;
    google.tokens().header().await.unwrap();
    assert_eq!(google.asked.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn an_invalid_token_response_is_an_error_without_its_content() {
    for (mood, expected) in [
        (Mood::Redirecting, "it answers 307"),
        (Mood::Babbling, "its answer is not a token"),
        (Mood::Endless, "its answer is not a token"),
    ] {
        let google = Google::start(mood).await;
        let error = google.tokens().header().await.unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("for the key in /key.json"), "{error}");
        assert!(error.len() < 500 && !error.contains("hidden"), "{error}");
        assert_eq!(google.asked.load(Ordering::SeqCst), 1, "the assertion goes nowhere else");
    }
}

#[tokio::test]
async fn a_revoked_key_is_an_error_with_googles_reason() {
    let google = Google::start(Mood::Good).await;
    let other = google.key(&ServiceAccount::generate().unwrap());
    let tokens = Tokens::of_key(KeyTokens::new(other, READ_STORAGE, FAST).unwrap());
    let error = tokens.header().await.unwrap_err();
    assert!(matches!(error, TokenError::Key(KeyError::Refused { .. })), "{error:?}");
    let expected = "it answers 400 Bad Request: invalid_grant (Invalid JWT Signature.); check that the account and this key exist";
    assert!(error.to_string().contains(expected), "{error}");
}

#[tokio::test]
async fn an_unreachable_server_is_an_error() {
    let google = Google::start(Mood::Good).await;
    let file = google.account.file("http://127.0.0.1:1/token").to_string();
    let key = ServiceAccountKey::parse(file.as_bytes(), "/key.json").unwrap();
    let once = Retries { deadline: Duration::ZERO, ..FAST };
    let error = KeyTokens::new(key, READ_STORAGE, once).unwrap().ask().await.err().unwrap().to_string();
    let expected = format!("cannot ask http://127.0.0.1:1/token for a token of {EMAIL}: ");
    assert!(error.starts_with(&expected), "{error}");
}

#[test]
fn a_file_without_a_service_account_key_is_an_error_with_its_type() {
    let account = ServiceAccount::generate().unwrap();
    let good = account.file("https://oauth2.googleapis.com/token");
    let changed = |name: &str, value: Value| {
        let mut file = good.clone();
        file[name] = value;
        file.to_string()
    };
    assert!(ServiceAccountKey::parse(good.to_string().as_bytes(), "f").is_ok());
    for (text, expected) in [
        (changed("type", "authorized_user".into()), "type \"authorized_user\", the login of a person"),
        (
            changed("type", "external_account".into()),
            "type \"external_account\", which need a token of another",
        ),
        (changed("type", "impersonated_service_account".into()), "which another account must request"),
        (changed("type", "other".into()), "its \"type\" is not \"service_account\""),
        (changed("client_email", "".into()), "it has no \"client_email\""),
        (changed("private_key", 7.into()), "its line 1, column "),
        (changed("private_key", "secret".into()), "its \"private_key\" is not an RSA key"),
        (
            changed("token_uri", "http://oauth2.googleapis.com/token".into()),
            "its \"token_uri\" is not an https:// URL",
        ),
        (
            changed("token_uri", "https://a:b@oauth2.googleapis.com/".into()),
            "its \"token_uri\" is not an https:// URL",
        ),
        (String::new(), "its line 1, column 0"),
        ("7".to_owned(), "its line 1, column "),
    ] {
        let error = ServiceAccountKey::parse(text.as_bytes(), "/key.json").unwrap_err().to_string();
        assert!(error.starts_with("/key.json, which GOOGLE_APPLICATION_CREDENTIALS names, "), "{error}");
        assert!(
            error.contains(expected) && !error.contains("secret") && !error.contains("PRIVATE KEY"),
            "{error}"
        );
    }
}

#[test]
fn a_too_large_file_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    fs::write(path("long"), vec![b' '; usize::try_from(LARGEST_FILE).unwrap() + 1]).unwrap();
    for (name, expected) in
        [("none", "No such file"), ("", "it is not a file"), ("long", "it is larger than 65536 bytes")]
    {
        let error = ServiceAccountKey::of_file(&path(name)).unwrap_err().to_string();
        assert!(error.starts_with("cannot read ") && error.contains(expected), "{error}");
    }
    let account = ServiceAccount::generate().unwrap();
    fs::write(path("key"), account.file("https://oauth2.googleapis.com/token").to_string()).unwrap();
    assert_eq!(ServiceAccountKey::of_file(&path("key")).unwrap().email(), EMAIL);
}
