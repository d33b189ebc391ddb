//! A stand-in for STS, as far as the bootstrap server uses it. It checks signatures, identifies the signer, and can fail on request
//! ([`Mood`]). The module also has the machines that sign.
//!
//! Source: the STS API Reference, `GetCallerIdentity`; tokens: upstream's `pkg/bootstrap/awsbootstrap/authenticator.go`.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::{Request, Response};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;
use time::macros::format_description;

use crate::ec2::ACCOUNT;
use crate::sigv4::Signable;
use crate::stand_in_api::{Shared, StandInApi, elsewhere, said};

const BODY: &str = "Action=GetCallerIdentity&Version=2011-06-15";
const FORM: &str = "application/x-www-form-urlencoded; charset=utf-8";
const FORMAT: &[time::format_description::BorrowedFormatItem<'_>] =
    format_description!("[year][month][day]T[hour][minute][second]Z");

/// A principal that signs requests.
#[derive(Clone, Debug)]
pub struct Principal {
    /// The id of the access key.
    pub access_key: String,
    pub secret: String,
    /// The session token of a role's temporary key.
    pub session_token: String,
    pub arn: String,
    pub user_id: String,
    pub account: String,
}

impl Principal {
    /// The principal of an instance that has this role.
    pub fn instance(role: &str, instance: &str) -> Principal {
        Principal {
            access_key: format!("ASIA{}", instance.replace('-', "").to_uppercase()),
            secret: format!("secret of {instance}"),
            session_token: format!("session/of+{instance}=="),
            arn: format!("arn:aws:sts::{ACCOUNT}:assumed-role/{role}/{instance}"),
            user_id: format!("AROAEXAMPLE:{instance}"),
            account: ACCOUNT.into(),
        }
    }

    /// A token of the first form (`x-aws-sts`) for a request, signed at this time, in seconds since 1970.
    pub fn token_v1(&self, host: &str, region: &str, body: &[u8], at: i64) -> String {
        let (date, hash) = (date(at), hash(body));
        let headers = [
            ("content-length", "43"),
            ("content-type", FORM),
            ("host", host),
            ("x-amz-date", &date),
            ("x-amz-security-token", &self.session_token),
            ("x-kops-request-sha", &hash),
        ];
        let signable = Signable {
            method: "POST",
            query: "",
            headers: &headers,
            body: BODY.as_bytes(),
            date: &date,
            region,
            service: "sts",
        };
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential={}/{}, SignedHeaders={}, Signature={}",
            self.access_key,
            signable.scope(),
            signable.signed_headers(),
            signable.signature(&self.secret)
        );
        let token = json!({
            "Authorization": [authorization],
            "Content-Type": [FORM],
            "X-Amz-Date": [date],
            "X-Amz-Security-Token": [self.session_token],
            "X-Kops-Request-Sha": [hash],
        });
        format!("x-aws-sts {}", STANDARD.encode(token.to_string()))
    }

    /// A token of the second form (`x-aws-sts-v2`).
    pub fn token_v2(&self, host: &str, region: &str, body: &[u8], at: i64) -> String {
        let (date, hash) = (date(at), hash(body));
        let headers = [("host", host), ("x-kops-request-sha", hash.as_str())];
        let mut signable = Signable {
            method: "GET",
            query: "",
            headers: &headers,
            body: b"",
            date: &date,
            region,
            service: "sts",
        };
        let query = form_urlencoded::Serializer::new(String::new())
            .append_pair("Action", "GetCallerIdentity")
            .append_pair("Version", "2011-06-15")
            .append_pair("X-Amz-Algorithm", "AWS4-HMAC-SHA256")
            .append_pair("X-Amz-Credential", &format!("{}/{}", self.access_key, signable.scope()))
            .append_pair("X-Amz-Date", &date)
            .append_pair("X-Amz-Security-Token", &self.session_token)
            .append_pair("X-Amz-SignedHeaders", &signable.signed_headers())
            .finish();
        signable.query = &query;
        let signature = signable.signature(&self.secret);
        let url = format!("https://{host}/?{query}&X-Amz-Signature={signature}");
        let headers = json!({"Host": [host], "X-Kops-Request-Sha": [hash]});
        let token = json!({"url": url, "method": "GET", "headers": headers});
        format!("x-aws-sts-v2 {}", STANDARD.encode(token.to_string()))
    }
}

/// The way in which STS responds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Mood {
    #[default]
    Good,
    /// Redirects to this URL.
    Redirecting(String),
    /// Answers 500.
    Down,
    /// Answers with a body that is too large for any client.
    Endless,
    Late(Duration),
    /// Does not answer until the mood of STS changes.
    Hanging,
}

#[derive(Debug, Default)]
struct State {
    known: BTreeMap<String, Principal>,
    mood: Mood,
    /// The moods for single principals. The key is the id of a principal's access key. These moods take precedence over `mood`.
    moods: BTreeMap<String, Mood>,
    calls: usize,
}

/// A running stand-in for STS. Dropping it stops the stand-in.
#[derive(Debug)]
pub struct Sts(StandInApi<State>);

impl Sts {
    /// Starts the stand-in without known principals.
    pub fn start() -> anyhow::Result<Sts> {
        Ok(Sts(StandInApi::start("sts", State::default(), answered)?))
    }

    /// Like `start`, on this socket.
    pub fn start_on(socket: TcpListener) -> anyhow::Result<Sts> {
        Ok(Sts(StandInApi::start_on(socket, "sts", State::default(), answered)?))
    }

    pub fn url(&self) -> String {
        self.0.url()
    }

    /// The host and the port of the stand-in.
    pub fn host(&self) -> String {
        self.0.host()
    }

    /// Adds or replaces a known principal.
    pub fn put(&self, principal: &Principal) {
        self.0.state().known.insert(principal.access_key.clone(), principal.clone());
    }

    pub fn set_mood(&self, mood: Mood) {
        self.0.state().mood = mood;
    }

    /// Sets the mood for requests of this principal.
    pub fn set_mood_for(&self, principal: &Principal, mood: Mood) {
        self.0.state().moods.insert(principal.access_key.clone(), mood);
    }

    pub fn calls(&self) -> usize {
        self.0.state().calls
    }
}

async fn answered(request: Request<Incoming>, state: Shared<State>) -> Option<Response<String>> {
    Some(answer(request, &state).await)
}

async fn answer(request: Request<Incoming>, state: &Shared<State>) -> Response<String> {
    let signed = Signed::read(request).await;
    let mood = {
        let mut state = state.lock();
        state.calls += 1;
        let of_signer = signed.as_ref().and_then(|signed| state.moods.get(&signed.access_key));
        of_signer.unwrap_or(&state.mood).clone()
    };
    match mood {
        Mood::Good => {}
        Mood::Hanging => {
            while state.lock().mood == Mood::Hanging {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        Mood::Late(delay) => tokio::time::sleep(delay).await,
        Mood::Down => {
            return said(500, "<ErrorResponse><Error><Code>InternalFailure</Code></Error></ErrorResponse>");
        }
        Mood::Endless => return said(200, "<GetCallerIdentityResponse>".repeat(100_000)),
        Mood::Redirecting(url) => return elsewhere(307, &url),
    }
    let Some(signed) = signed else { return refusal("MissingAuthenticationToken") };
    let state = state.lock();
    match state.known.get(&signed.access_key) {
        None => refusal("InvalidClientTokenId"),
        Some(principal) if signed.is_of(principal) => said(
            200,
            format!(
                "<GetCallerIdentityResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><GetCallerIdentityResult>\
                 <Arn>{}</Arn><UserId>{}</UserId><Account>{}</Account></GetCallerIdentityResult><ResponseMetadata>\
                 <RequestId>r</RequestId></ResponseMetadata></GetCallerIdentityResponse>",
                principal.arn, principal.user_id, principal.account
            ),
        ),
        Some(_) => refusal("SignatureDoesNotMatch"),
    }
}

/// A signed request, with its signature and the parts that the signature covers.
struct Signed {
    method: String,
    query: String,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
    access_key: String,
    region: String,
    signed_headers: Vec<String>,
    signature: String,
    date: String,
}

impl Signed {
    async fn read(request: Request<Incoming>) -> Option<Signed> {
        let text = |value: &hyper::header::HeaderValue| value.to_str().map(str::to_owned).ok();
        let headers: BTreeMap<String, String> = request
            .headers()
            .iter()
            .filter_map(|(name, value)| Some((name.as_str().to_owned(), text(value)?)))
            .collect();
        let all = request.uri().query().unwrap_or_default().to_owned();
        let method = request.method().to_string();
        let body = request.into_body().collect().await.ok()?.to_bytes().to_vec();
        let parameters: BTreeMap<String, String> =
            form_urlencoded::parse(all.as_bytes()).into_owned().collect();
        let (credential, signed_headers, signature) = match headers.get("authorization") {
            Some(authorization) => {
                let parts = authorization.strip_prefix("AWS4-HMAC-SHA256 ")?.split(", ");
                let parts: BTreeMap<&str, &str> = parts.filter_map(|part| part.split_once('=')).collect();
                (*parts.get("Credential")?, *parts.get("SignedHeaders")?, *parts.get("Signature")?)
            }
            None => (
                parameters.get("X-Amz-Credential")?.as_str(),
                parameters.get("X-Amz-SignedHeaders")?.as_str(),
                parameters.get("X-Amz-Signature")?.as_str(),
            ),
        };
        let mut scope = credential.split('/');
        let (access_key, region) = (scope.next()?.to_owned(), scope.nth(1)?.to_owned());
        let date = parameters.get("X-Amz-Date").or_else(|| headers.get("x-amz-date"))?.clone();
        let query: Vec<&str> = all
            .split('&')
            .filter(|parameter| !parameter.is_empty() && !parameter.starts_with("X-Amz-Signature="))
            .collect();
        Some(Signed {
            method,
            query: query.join("&"),
            access_key,
            region,
            signed_headers: signed_headers.split(';').map(str::to_owned).collect(),
            signature: signature.to_owned(),
            date,
            headers,
            body,
        })
    }

    fn is_of(&self, principal: &Principal) -> bool {
        let names = self.signed_headers.iter().map(String::as_str);
        let values = names.map(|name| Some((name, self.headers.get(name)?.as_str())));
        let Some(headers) = values.collect::<Option<Vec<_>>>() else {
            return false;
        };
        let signable = Signable {
            method: &self.method,
            query: &self.query,
            headers: &headers,
            body: &self.body,
            date: &self.date,
            region: &self.region,
            service: "sts",
        };
        signable.signature(&principal.secret) == self.signature
    }
}

fn refusal(code: &str) -> Response<String> {
    said(403, format!("<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code></Error></ErrorResponse>"))
}

fn hash(body: &[u8]) -> String {
    STANDARD_NO_PAD.encode(Sha256::digest(body))
}

fn date(at: i64) -> String {
    let at = OffsetDateTime::from_unix_timestamp(at).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    at.format(FORMAT).unwrap_or_default()
}
