//! A stand-in for Azure Blob Storage and for managed identities, as far as the agent uses them. The folders of a root are the
//! containers of one account. A list has pages.
//!
//! Source: Azure Storage REST API, "Get Blob", "Get Blob Properties", "List Blobs", "Blob service error codes".

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use hyper::body::Incoming;
use hyper::header::HeaderValue;
use hyper::{Method, Request, Response};

use crate::objects::{Entry, entries, names};
use crate::stand_in_api::{StandInApi, header, parameters, said, unescaped};

/// The only storage account.
pub const ACCOUNT: &str = "kopsstate";
/// The only token that the account accepts.
pub const TOKEN: &str = "the-token-of-the-managed-identity";
const REVOKED: &str = "a-token-that-is-revoked";
const IMDS: &str = "/metadata/identity/oauth2/token";

/// The way in which the account responds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mood {
    #[default]
    Good,
    Busy,
    Forbidding,
    /// Answers 403: the machine is outside of the allowed network.
    Walled,
    /// Answers 409: the blob is in the archive tier.
    Archiving,
    /// Answers 403: the issuer of the token is unknown.
    Distrusting,
    /// Answers 409: the container is being deleted.
    Deleting,
    /// Answers 404 like a server that is not Azure's.
    Missing,
    /// Answers 403 like a server that is not Azure's.
    Blocked,
    /// Answers with HTML instead of XML.
    Babbling,
    /// Answers with only the beginning of a list.
    Truncating,
    /// Answers with lists that always name a next page.
    Endless,
    /// Issues one token that the API rejects with 401. After this token, the mood is `Good`.
    Revoking,
    /// Issues no tokens: the machine has no identity.
    WithoutIdentity,
}

#[derive(Debug)]
struct State {
    root: PathBuf,
    mood: Mood,
    page: usize,
    calls: Vec<String>,
}

/// A running stand-in for a storage account. Dropping it stops the stand-in.
#[derive(Debug)]
pub struct AzureBlob(StandInApi<State>);

impl AzureBlob {
    /// Serves the folders in `root` as containers.
    pub fn start(root: &Path) -> anyhow::Result<AzureBlob> {
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("finding a free port")?;
        let state = State { root: root.to_owned(), mood: Mood::Good, page: 5000, calls: Vec::new() };
        Ok(AzureBlob(StandInApi::start_on(socket, "azure-blob", state, |request, state| {
            let response = answer(&request, &mut state.lock());
            async move { Some(response) }
        })?))
    }

    pub fn url(&self) -> String {
        self.0.url()
    }

    /// The environment variables with the URLs of the account and of the metadata service.
    pub fn environment(&self) -> [(&'static str, String); 2] {
        [
            ("AZURE_POD_IDENTITY_AUTHORITY_HOST", self.url()),
            ("AZURE_STORAGE_SERVICE_ENDPOINT", format!("{}/{ACCOUNT}", self.url())),
        ]
    }

    pub fn set_mood(&self, mood: Mood) {
        self.0.state().mood = mood;
    }

    /// Sets the maximum number of names on a page.
    pub fn set_page(&self, names: usize) {
        self.0.state().page = names;
    }

    /// All requests so far, as `METHOD PATH`.
    pub fn calls(&self) -> Vec<String> {
        self.0.state().calls.clone()
    }
}

fn answer(request: &Request<Incoming>, state: &mut State) -> Response<String> {
    let path = request.uri().path();
    state.calls.push(format!("{} {path}", request.method()));
    if path == IMDS {
        return token(request, state);
    }
    if header(request, "authorization") != format!("Bearer {TOKEN}") {
        return refused(401, "InvalidAuthenticationInfo");
    }
    if header(request, "x-ms-version") < "2017-11-09" {
        return refused(400, "InvalidHeaderValue");
    }
    match state.mood {
        Mood::Busy => return refused(503, "ServerBusy"),
        Mood::Forbidding => return refused(403, "AuthorizationPermissionMismatch"),
        Mood::Walled => return refused(403, "AuthorizationFailure"),
        Mood::Archiving => return refused(409, "BlobArchived"),
        Mood::Distrusting => return refused(403, "AuthenticationFailed"),
        Mood::Deleting => return refused(409, "ContainerBeingDeleted"),
        Mood::Missing => return said(404, "<html>not here</html>"),
        Mood::Blocked => return said(403, "<html>Blocked by the gateway</html>"),
        Mood::Babbling => return said(200, "<html>Welcome</html>"),
        _ => {}
    }
    let below = path.strip_prefix(&format!("/{ACCOUNT}/"));
    let Some(rest) = below else { return refused(400, "InvalidUri") };
    let (container, blob) = rest.split_once('/').unwrap_or((rest, ""));
    let folder = state.root.join(unescaped(container));
    if !folder.is_dir() {
        return refused(404, "ContainerNotFound");
    }
    let asked = parameters(request);
    match (request.method(), blob) {
        (&Method::GET, "") if asked.get("comp").is_some_and(|comp| comp == "list") => {
            let list = list(&folder, &asked, state);
            match state.mood {
                Mood::Truncating => said(200, &list[..list.len() / 2]),
                _ => said(200, list),
            }
        }
        (&Method::GET | &Method::HEAD, blob) if !blob.is_empty() => {
            match fs::read_to_string(folder.join(unescaped(blob))) {
                Ok(text) => said(200, text),
                Err(_) => refused(404, "BlobNotFound"),
            }
        }
        _ => refused(405, "UnsupportedHttpVerb"),
    }
}

fn token(request: &Request<Incoming>, state: &mut State) -> Response<String> {
    let asked = parameters(request);
    let is_for_storage = asked.get("resource").is_some_and(|of| of == "https://storage.azure.com/");
    if header(request, "metadata") != "true" || !is_for_storage || state.mood == Mood::WithoutIdentity {
        return said(400, r#"{"error": "invalid_request", "error_description": "Identity not found"}"#);
    }
    let token = match state.mood {
        Mood::Revoking => REVOKED,
        _ => TOKEN,
    };
    state.mood = if state.mood == Mood::Revoking { Mood::Good } else { state.mood };
    said(200, format!(r#"{{"access_token": "{token}", "expires_in": "86399", "token_type": "Bearer"}}"#))
}

fn refused(status: u16, code: &str) -> Response<String> {
    let xml = format!(
        "\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\"?><Error><Code>{code}</Code><Message>no</Message></Error>"
    );
    let mut response = said(status, xml);
    if let Ok(code) = HeaderValue::try_from(code) {
        response.headers_mut().insert("x-ms-error-code", code);
    }
    response
}

/// A page of a container's blobs, sorted by name.
fn list(folder: &Path, asked: &BTreeMap<String, String>, state: &State) -> String {
    let parameter = |name: &str| asked.get(name).map_or("", String::as_str);
    let (prefix, delimiter) = (parameter("prefix"), parameter("delimiter"));
    let entries = entries(&names(folder), prefix, delimiter);
    let start = parameter("marker").parse().unwrap_or(0);
    let most = parameter("maxresults").parse().map_or(state.page, |most: usize| most.min(state.page));
    let page = entries.iter().skip(start).take(most);
    let mut blobs = String::new();
    for entry in page {
        let name_xml = entry.name().replace('&', "&amp;").replace('<', "&lt;");
        let _written = match entry {
            Entry::Folder(_) => write!(blobs, "<BlobPrefix><Name>{name_xml}</Name></BlobPrefix>"),
            Entry::Object(name) => {
                let length = fs::metadata(folder.join(name)).map_or(0, |metadata| metadata.len());
                write!(
                    blobs,
                    "<Blob><Name>{name_xml}</Name><Properties><Etag>0x8D{length:X}</Etag><Content-Length>{length}</Content-Length>\
                     <BlobType>BlockBlob</BlobType></Properties><OrMetadata /></Blob>"
                )
            }
        };
    }
    let goes_on = start + most < entries.len() || state.mood == Mood::Endless;
    let next = if goes_on { (start + most).to_string() } else { String::new() };
    format!(
        "\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\"?><EnumerationResults><Prefix>{prefix}</Prefix>\
         <Blobs>{blobs}</Blobs><NextMarker>{next}</NextMarker></EnumerationResults>"
    )
}
