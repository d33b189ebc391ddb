//! A stand-in for Swift and Keystone, as far as the agent uses them. The folders of a root are the containers of one account. A list
//! has pages.
//!
//! Source: Object Storage API v1, "Get object content and metadata", "Show object metadata", "Show container details and list
//! objects", "Page through large lists".

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::header::HeaderValue;
use hyper::{Method, Request, Response};
use serde_json::{Value, json};

use super::{ACCOUNT, KEYSTONE, REVOKED, TOKEN, token};
use crate::objects::{Entry, entries, names};
use crate::stand_in_api::{StandInApi, elsewhere, header, parameters, said, unescaped};

/// The way in which Swift and Keystone respond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mood {
    #[default]
    Good,
    Busy,
    /// Answers 498.
    Throttling,
    Forbidding,
    /// Rejects every token with 401.
    Distrusting,
    /// Rejects every login with 401.
    RefusingLogins,
    /// Keystone answers 503.
    WithoutKeystone,
    /// Answers 404 like a server that is not Swift.
    Missing,
    /// Answers 403 like a server that is not Swift.
    Blocked,
    /// Answers with HTML instead of JSON.
    Babbling,
    /// Answers with only the beginning of a list.
    Truncating,
    /// Answers every request for a page with the first page, so that a list never ends.
    Endless,
    Redirecting,
    /// Issues one token that Swift rejects with 401. After this token, the mood is `Good`.
    Revoking,
}

#[derive(Debug)]
struct State {
    root: PathBuf,
    mood: Mood,
    page: usize,
    calls: Vec<String>,
    /// The URL to which requests for objects are redirected.
    elsewhere: Option<String>,
}

/// A running stand-in for a Swift account. Dropping it stops the stand-in.
#[derive(Debug)]
pub struct Swift(StandInApi<State>);

impl Swift {
    /// Serves the folders in `root` as containers.
    pub fn start(root: &Path) -> anyhow::Result<Swift> {
        let state = State {
            root: root.to_owned(),
            mood: Mood::Good,
            page: 10_000,
            calls: Vec::new(),
            elsewhere: None,
        };
        Ok(Swift(StandInApi::start("swift", state, |request, state| async move {
            if request.uri().path() != KEYSTONE {
                return Some(answer(&request, &mut state.lock()));
            }
            let host = header(&request, "host").to_owned();
            let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
            Some(login(&body, &host, &mut state.lock()))
        })?))
    }

    pub fn url(&self) -> String {
        self.0.url()
    }

    /// The environment variables for a login.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        super::login(&self.url())
    }

    pub fn set_mood(&self, mood: Mood) {
        self.0.state().mood = mood;
    }

    /// Sets the maximum number of names on a page.
    pub fn set_page(&self, names: usize) {
        self.0.state().page = names;
    }

    /// Redirects each later GET request for an object to this URL.
    pub fn lead_to(&self, url: &str) {
        self.0.state().elsewhere = Some(url.to_owned());
    }

    /// All requests so far, as `METHOD PATH`.
    pub fn calls(&self) -> Vec<String> {
        self.0.state().calls.clone()
    }
}

fn login(body: &[u8], host: &str, state: &mut State) -> Response<String> {
    state.calls.push(format!("POST {KEYSTONE}"));
    match state.mood {
        Mood::RefusingLogins => token(b"{}", host, ""),
        Mood::WithoutKeystone => said(503, "<html>No server is available</html>"),
        Mood::Revoking => {
            state.mood = Mood::Good;
            token(body, host, REVOKED)
        }
        _ => token(body, host, TOKEN),
    }
}

fn answer(request: &Request<Incoming>, state: &mut State) -> Response<String> {
    let path = request.uri().path();
    state.calls.push(format!("{} {path}", request.method()));
    match state.mood {
        Mood::Missing => return said(404, "<html>not here</html>"),
        Mood::Blocked => return said(403, "<html>Blocked by the gateway</html>"),
        Mood::Redirecting => return elsewhere(302, "http://127.0.0.1:9/"),
        _ => {}
    }
    let mut response = of_account(request, path, state);
    response.headers_mut().insert("x-trans-id", HeaderValue::from_static("tx0-for-tests"));
    response
}

fn of_account(request: &Request<Incoming>, path: &str, state: &State) -> Response<String> {
    if header(request, "x-auth-token") != TOKEN || state.mood == Mood::Distrusting {
        return said(401, "<html><h1>Unauthorized</h1></html>");
    }
    match state.mood {
        Mood::Busy => return said(503, ""),
        Mood::Throttling => return said(498, "Rate Limited"),
        Mood::Forbidding => return said(403, "<html><h1>Forbidden</h1></html>"),
        Mood::Babbling => return said(200, "<html>Welcome</html>"),
        _ => {}
    }
    let absent = || said(404, "<html><h1>Not Found</h1></html>");
    let Some(rest) = path.strip_prefix(&format!("{ACCOUNT}/")) else { return said(412, "Bad URL") };
    let (container, object) = rest.split_once('/').unwrap_or((rest, ""));
    let folder = state.root.join(unescaped(container));
    if !folder.is_dir() {
        return absent();
    }
    match (request.method(), object) {
        (&Method::HEAD, "") => said(204, ""),
        (&Method::GET, "") => {
            let list = list(&folder, &parameters(request), state);
            match state.mood {
                Mood::Truncating => said(200, &list[..list.len() / 2]),
                _ => said(200, list),
            }
        }
        (&Method::GET, _) if state.elsewhere.is_some() => {
            elsewhere(307, state.elsewhere.as_deref().unwrap_or_default())
        }
        // This branch checks only that the object exists. The next branch would read the object, and answer 404 if it is not text.
        (&Method::HEAD, object) if state.elsewhere.is_some() && folder.join(unescaped(object)).is_file() => {
            said(200, "")
        }
        (&Method::GET | &Method::HEAD, object) => fs::read_to_string(folder.join(unescaped(object)))
            .map_or_else(|_| absent(), |text| said(200, text)),
        _ => said(405, ""),
    }
}

/// A page of a container's objects, sorted by name.
fn list(folder: &Path, asked: &BTreeMap<String, String>, state: &State) -> String {
    let parameter = |name: &str| asked.get(name).map_or("", String::as_str);
    let (prefix, delimiter, marker) = (parameter("prefix"), parameter("delimiter"), parameter("marker"));
    let entries = entries(&names(folder), prefix, delimiter);
    let is_after = |name: &str| name > marker || state.mood == Mood::Endless;
    let most = parameter("limit").parse().map_or(state.page, |most: usize| most.min(state.page));
    let page = entries.iter().filter(|entry| is_after(entry.name())).take(most);
    let page: Vec<Value> = page
        .map(|entry| match entry {
            Entry::Folder(name) => json!({ "subdir": name }),
            Entry::Object(name) => {
                let bytes = fs::metadata(folder.join(name)).map_or(0, |metadata| metadata.len());
                json!({"name": name, "hash": format!("{bytes:032x}"), "bytes": bytes, "content_type": "binary/octet-stream",
                       "last_modified": "2026-08-22T10:00:00.000000"})
            }
        })
        .collect();
    json!(page).to_string()
}
