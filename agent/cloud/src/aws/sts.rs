//! A client for STS, which names the role that signed a request. The client sends the requests that machines have signed, and one request
//! that this process signs.
//!
//! Source: the STS API Reference, `GetCallerIdentity`.

use std::time::Duration;

#[cfg(any(test, feature = "testing"))]
use aws_sdk_s3::config::Credentials;
use aws_sdk_s3::config::SharedCredentialsProvider;
use aws_smithy_xml::decode::Document;
use kops_agent_cluster::bootstrap::aws_token::{Caller, STS_BODY, STS_SERVICE, StsCall};
use reqwest::{Client, Request, Url};
use tokio::sync::OnceCell;

use super::endpoint::Endpoint;
use super::query::{read_error, text_of};
use super::signing::Signer;
use crate::api::{self, Api, ApiError, ErrorBody, Meaning, Question};
use crate::calls::CloudCalls;
use kops_agent_net::http::{client_with, innermost_cause};
use kops_agent_net::tls;

const ACTION: &str = "GetCallerIdentity";
/// The timeout of one request with its response. The timeout is short, because a machine waits only 15 seconds for its whole bootstrap
/// request.
const TIMEOUT: Duration = Duration::from_secs(5);
/// STS, and how it reports errors. The explanations of STS repeat the signed request with the session token, so the explanations are
/// dropped.
pub(crate) static API: Api = Api {
    name: "STS",
    limited: "account",
    read: |body| Some(ErrorBody { message: String::new(), ..read_error(body)? }),
    meaning: |_status, code| match code.starts_with("Throttling") {
        true => Meaning::Throttled,
        false => Meaning::Refused,
    },
    advice: |_action, _status, _code| String::new(),
};
/// The maximum size of a response, in bytes. A normal response has about 500.
const LONGEST_ANSWER: usize = 16 * 1024;

#[derive(Debug)]
pub struct Sts {
    client: Client,
    endpoint: Url,
    host: String,
    signer: Signer,
    own: OnceCell<Caller>,
    calls: CloudCalls,
}

impl Sts {
    /// Creates a client for STS in `region`. The endpoint is `AWS_ENDPOINT_URL_STS`, else `AWS_ENDPOINT_URL`, else Amazon's.
    pub async fn of_region(region: &str, calls: CloudCalls) -> Result<Sts, ApiError> {
        let Endpoint { url, settings } = Endpoint::new(STS_SERVICE, region).await?;
        Sts::new(&url, region, settings.credentials_provider(), calls)
    }

    fn new(
        url: &str,
        region: &str,
        provider: Option<SharedCredentialsProvider>,
        calls: CloudCalls,
    ) -> Result<Sts, ApiError> {
        let bad = |cause: String| ApiError::NoRequest { endpoint: url.to_owned(), cause };
        let endpoint = Url::parse(url).map_err(|error| bad(error.to_string()))?;
        let host = match (endpoint.host_str(), endpoint.port()) {
            (Some(host), Some(port)) => format!("{host}:{port}"),
            (Some(host), None) => host.to_owned(),
            (None, _) => return Err(bad("it has no host".into())),
        };
        if endpoint.path() != "/" {
            return Err(bad("it has a path, but machines sign requests without a path".into()));
        }
        let tls = tls::client_config().map_err(|error| bad(error.to_string()))?;
        let signer = Signer::new(STS_SERVICE, region, provider);
        // The client follows no redirect: the requests that machines have signed are for STS only.
        Ok(Sts { client: client_with(tls)?, endpoint, host, signer, own: OnceCell::new(), calls })
    }

    /// Creates a client for STS at `url`, with credentials that a stand-in accepts.
    #[cfg(any(test, feature = "testing"))]
    pub fn for_tests(url: &str, region: &str, access_key: &str, secret: &str, calls: CloudCalls) -> Sts {
        let credentials = Credentials::new(access_key, secret, None, None, "test");
        let provider = SharedCredentialsProvider::new(credentials);
        Sts::new(url, region, Some(provider), calls).expect("an endpoint")
    }

    /// The host of the endpoint, with its port if it is not the scheme's default.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The role of this process, according to STS. The first successful answer is cached.
    pub async fn own(&self) -> Result<&Caller, ApiError> {
        self.own
            .get_or_try_init(|| async {
                let form = STS_BODY.to_owned();
                let request = self.signer.post(&self.client, self.question(), form, TIMEOUT).await?;
                self.ask(request).await
            })
            .await
    }

    /// Sends a machine's signed request to STS, which answers with the identity of the signer.
    pub async fn caller(&self, call: &StsCall) -> Result<Caller, ApiError> {
        let mut url = self.endpoint.clone();
        url.set_query(call.query.as_deref());
        let request = match call.query {
            Some(_) => self.client.get(url),
            None => self.client.post(url).body(STS_BODY),
        };
        let headers = call.headers.iter();
        let request = headers.fold(request, |request, (name, value)| request.header(*name, value));
        let request = request.timeout(TIMEOUT).build();
        let told =
            self.ask(request.map_err(|error| self.question().unreachable(innermost_cause(error)))?).await;
        // A rejection of the machine's signed request is an answer of STS, so STS is healthy.
        if told.as_ref().is_err_and(ApiError::is_refusal) {
            self.calls.note_answer(STS_SERVICE);
        }
        told
    }

    async fn ask(&self, request: Request) -> Result<Caller, ApiError> {
        let told = self.send(request).await;
        self.calls.count(STS_SERVICE, ACTION, api::outcome(&told));
        told
    }

    async fn send(&self, request: Request) -> Result<Caller, ApiError> {
        let question = self.question();
        let document = question.text(api::ask(&self.client, request, question).await?)?;
        read(&document).ok_or_else(|| question.garbage(200, "it does not name the caller"))
    }

    fn question(&self) -> Question<'_> {
        Question { api: &API, action: ACTION, endpoint: self.endpoint.as_str(), longest: LONGEST_ANSWER }
    }
}

fn read(document: &str) -> Option<Caller> {
    let mut parsed = Document::new(document);
    let root = parsed.root_element().ok()?;
    if !root.start_el().matches("GetCallerIdentityResponse") {
        return None;
    }
    let text = |name| text_of(document, name).filter(|text| !text.is_empty());
    Some(Caller { arn: text("Arn")?, user_id: text("UserId")?, account: text("Account")? })
}
