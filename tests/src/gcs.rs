//! A stand-in for Google Cloud Storage, as far as the agent uses it. The objects of a bucket are the files of a folder, and a list has
//! one page. The server also issues tokens to the key of a service account.
//!
//! Source: the Cloud Storage JSON API v1, `objects.get` and `objects.list`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use http_body_util::BodyExt as _;
use hyper::Request;
use hyper::body::Incoming;
use serde_json::{Value, json};

use crate::front::{Answer, Head};
use crate::google_account::ServiceAccount;
use crate::objects::{Entry, entries, names};
use crate::stand_in_api::{StandInApi, said, unescaped};

/// The token that a client gets with the service account's key.
pub const TOKEN: &str = "the-token-of-the-service-account";
/// The OAuth scope for reads.
const READ: &str = "https://www.googleapis.com/auth/devstorage.read_only";
const TOKENS: &str = "/token";

/// A running stand-in for Google Cloud Storage. Dropping it stops the stand-in.
#[derive(Debug)]
pub struct Gcs(StandInApi<State>);

#[derive(Debug)]
struct State {
    root: PathBuf,
    account: ServiceAccount,
}

impl Gcs {
    /// Serves the folders in `root` as buckets. Clients need the new key of the service account.
    pub fn start(root: &Path) -> anyhow::Result<Gcs> {
        let state = State { root: root.to_owned(), account: ServiceAccount::generate()? };
        Ok(Gcs(StandInApi::start("gcs", state, |request: Request<Incoming>, state| async move {
            let headers = request.headers().iter();
            let headers =
                headers.filter_map(|(name, value)| Some((name.to_string(), value.to_str().ok()?.to_owned())));
            let head = Head {
                method: request.method().to_string(),
                target: request.uri().to_string(),
                headers: headers.collect(),
            };
            if head.path() != TOKENS {
                let State { root, .. } = &*state.lock();
                return Some(match answer(&head, root, TOKEN) {
                    Answer::Text(status, text) => said(status, text),
                    Answer::File(path) => match fs::read_to_string(path) {
                        Ok(text) => said(200, text),
                        Err(_) => said(404, String::new()),
                    },
                    Answer::Of(_) => return None,
                });
            }
            let form = request.into_body().collect().await.ok()?.to_bytes();
            let uri = format!("http://{}{TOKENS}", head.header("host").unwrap_or_default());
            Some(match state.lock().account.scope_of(&form, &uri) {
                Ok(scope) if scope == READ => said(
                    200,
                    json!({"access_token": TOKEN, "expires_in": 3599, "token_type": "Bearer"}).to_string(),
                ),
                other => {
                    let refusal =
                        json!({"error": "invalid_grant", "error_description": format!("{other:?}")});
                    said(400, refusal.to_string())
                }
            })
        })?))
    }

    /// The content of the service account's key file.
    pub fn key(&self) -> Value {
        self.0.state().account.file(&format!("{}{TOKENS}", self.0.url()))
    }

    /// The environment variable with the URL of this stand-in.
    pub fn environment(&self) -> (&'static str, String) {
        ("CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE", format!("{}/storage/v1", self.0.url()))
    }
}

/// The response to a request for an object, or for the list of a bucket's objects. The buckets are the folders in `root`. The request
/// must have this token.
pub fn answer(head: &Head, root: &Path, token: &str) -> Answer {
    if head.header("authorization") != Some(&format!("Bearer {token}")) {
        return Answer::Text(401, String::new());
    }
    let Some(path) = head.path().strip_prefix("/storage/v1/b/") else {
        return Answer::Text(404, String::new());
    };
    let query: BTreeMap<String, String> =
        form_urlencoded::parse(head.query().as_bytes()).into_owned().collect();
    let Some((bucket, object)) = path.split_once("/o") else { return Answer::Text(404, String::new()) };
    let bucket = root.join(bucket);
    if !bucket.is_dir() {
        return Answer::Text(404, String::new());
    }
    match object.strip_prefix('/') {
        None => Answer::Text(200, list(&bucket, &query)),
        Some(name) => get(bucket.join(unescaped(name)), &query),
    }
}

fn get(file: PathBuf, query: &BTreeMap<String, String>) -> Answer {
    if query.get("alt").is_some_and(|alt| alt == "media") {
        return Answer::File(file);
    }
    match file.metadata() {
        Ok(metadata) if metadata.is_file() => {
            Answer::Text(200, json!({ "size": metadata.len().to_string() }).to_string())
        }
        _ => Answer::Text(404, String::new()),
    }
}

fn list(bucket: &Path, query: &BTreeMap<String, String>) -> String {
    let parameter = |name: &str| query.get(name).map_or("", String::as_str);
    let (prefix, delimiter) = (parameter("prefix"), parameter("delimiter"));
    let (start, end) = (parameter("startOffset"), parameter("endOffset"));
    let mut names = names(bucket);
    names.retain(|name| name.as_str() >= start && (end.is_empty() || name.as_str() < end));
    let (mut items, mut prefixes) = (Vec::new(), Vec::new());
    for entry in entries(&names, prefix, delimiter) {
        match entry {
            Entry::Folder(name) => prefixes.push(name),
            Entry::Object(name) => items.push(json!({ "name": name, "generation": "1" })),
        }
    }
    json!({ "items": items, "prefixes": prefixes }).to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn objects_are_read_and_listed() {
        let folder = tempfile::tempdir().unwrap();
        let c = folder.path().join("state/c");
        fs::create_dir_all(c.join("pki")).unwrap();
        for name in ["config", "pki/ca", "a b"] {
            fs::write(c.join(name), "12345").unwrap();
        }
        let ask = |target: &str, token: &str| {
            let headers = vec![("authorization".to_owned(), format!("Bearer {token}"))];
            answer(&Head { method: "GET".into(), target: target.into(), headers }, folder.path(), "t")
        };
        let b = "/storage/v1/b/state/o";
        assert_eq!(ask(b, "other"), Answer::Text(401, String::new()));
        assert_eq!(ask(&format!("{b}/c%2Fa%20b?alt=media"), "t"), Answer::File(c.join("a b")));
        assert_eq!(ask(&format!("{b}/c%2Fconfig"), "t"), Answer::Text(200, r#"{"size":"5"}"#.into()));
        assert_eq!(ask("/storage/v1/b/other/o", "t"), Answer::Text(404, String::new()));
        assert_eq!(
            ask(&format!("{b}?prefix=c/&delimiter=/"), "t"),
            Answer::Text(
                200,
                r#"{"items":[{"generation":"1","name":"c/a b"},{"generation":"1","name":"c/config"}],"prefixes":["c/pki/"]}"#.into()
            )
        );
    }
}
