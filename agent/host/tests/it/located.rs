//! Downloads with this machine's own credentials, from a store that defines the requests.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::support::{CALM, Machine, asset, body, downloads, state};
use kops_agent_net::{Buckets, Locating, Location};
use kops_agent_plan::resource::DesiredState;
use kops_agent_spec::digest::sha256_hex;
use kops_agent_tests::test_server::{TestServer, text};
use reqwest::header::{HeaderMap, HeaderValue};

const HEADER: &str = "x-auth-token";

/// A store whose files are on an HTTP server that requires a token.
struct Store(String);

impl Buckets for Store {
    fn locates(&self, url: &str) -> bool {
        url.starts_with("swift://")
    }

    fn locate<'a>(&'a self, url: &'a str) -> Locating<'a> {
        let url = format!("{}/{}", self.0, url.trim_start_matches("swift://")).parse().unwrap();
        let headers =
            HeaderMap::from_iter([(HEADER.parse().unwrap(), HeaderValue::from_static("the-token"))]);
        Box::pin(async move { Ok(Location::new(url).with_headers(headers)) })
    }
}

/// The token in each request to a server, in the order of the requests.
type Shown = Arc<Mutex<Vec<Option<HeaderValue>>>>;

/// A server that answers every request with `status`, `location` and `answer`.
async fn server(status: u16, location: Option<String>, answer: &'static str) -> (TestServer, Shown) {
    let shown = Shown::default();
    let noted = Arc::clone(&shown);
    let server = TestServer::start(move |request| {
        noted.lock().push(request.headers().get(HEADER).cloned());
        let location = location.clone();
        async move {
            let mut answer = text(status, answer);
            if let Some(location) = location {
                answer.headers_mut().insert("location", location.parse().unwrap());
            }
            Ok(answer)
        }
    })
    .await;
    (server, shown)
}

/// A machine, and a desired state with one file. The file is in a store on `server`.
fn machine_of(server: &TestServer, content: &str) -> (Machine, DesiredState) {
    let store = Arc::new(Store(server.url.trim_end_matches('/').to_owned()));
    let machine = Machine::new().downloading(downloads(CALM).buckets(store));
    (machine, state([asset("/a", "swift://state/a", &sha256_hex(content.as_bytes()), None)]))
}

#[tokio::test]
async fn a_token_is_not_sent_to_the_target_of_a_redirect() {
    let (elsewhere, shown_elsewhere) = server(200, None, "hello").await;
    for status in [301, 302, 307, 308] {
        let (own, shown) = server(status, Some(format!("{}/a", elsewhere.url)), "").await;
        let (machine, desired) = machine_of(&own, "hello");
        let error = machine.error(&desired).await;
        for part in ["swift://state/a", &status.to_string(), "follows no redirect"] {
            assert!(error.contains(part), "{part:?} is not in {error:?}");
        }
        assert!(shown.lock().iter().all(Option::is_some));
        assert!(shown_elsewhere.lock().is_empty(), "after {status}");
        assert_eq!(machine.tree(), [""; 0]);
    }
}

#[tokio::test]
async fn a_file_of_the_server_itself_is_downloaded_with_the_token() {
    let (own, shown) = server(200, None, "hello").await;
    let (machine, desired) = machine_of(&own, "hello");
    machine.converge(&desired).await.unwrap();
    assert_eq!(machine.read("/a"), "hello");
    assert!(!shown.lock().is_empty() && shown.lock().iter().all(Option::is_some));
}

#[tokio::test]
async fn a_download_without_a_token_follows_redirects() {
    let content = body(1000);
    let mirror = crate::support::mirror();
    let (own, _) = server(302, Some(mirror.put("/b", &content)), "").await;
    let machine = Machine::new().downloading(downloads(CALM).buckets(Arc::new(Store(String::new()))));
    let desired = state([asset("/b", &format!("{}/b", own.url), &sha256_hex(&content), None)]);
    machine.converge(&desired).await.unwrap();
    assert_eq!(std::fs::read(machine.path("/b")).unwrap(), content);
}
