//! A client for a cloud's metadata service: link-local HTTP, which may start a little later than the machine.

use std::fmt;
use std::time::Duration;

use reqwest::header::HeaderMap;
use reqwest::{Client, Method, StatusCode};
use thiserror::Error;

use kops_agent_net::http::{self, HttpError, innermost_cause, metadata_client};
use kops_agent_net::retry::Retries;
use kops_agent_spec::failure::{Failing, Kind};

/// The maximum size of a response, in bytes. Most responses are a line or a short list. Scaleway's response describes the whole server and
/// each SSH key of the project.
const LONGEST_ANSWER: usize = 512 * 1024;

#[derive(Debug, Error)]
pub enum MetadataError {
    /// The environment forbids requests to EC2's metadata service.
    #[error(
        "AWS_EC2_METADATA_DISABLED is true, so kops-agent may not ask EC2's metadata service for this machine's \
         facts; unset it"
    )]
    Disabled,
    /// There is no response, or only a temporary error.
    #[error(
        "{url}: the metadata service cannot be reached: {cause} ({attempts} attempts in {} s); is this a machine of \
         the expected cloud?",
        waited.as_secs_f32().round()
    )]
    Unreachable { url: String, cause: String, attempts: u32, waited: Duration },
    /// The service accepts the request, but sends no response.
    #[error("{url}: the metadata service does not answer ({attempts} attempts in {} s)", waited.as_secs_f32().round())]
    Silent { url: String, attempts: u32, waited: Duration },
    /// EC2's token response does not arrive because its hop limit is too low.
    #[error(
        "{url}: the metadata service accepts the request for a token, but its answer does not arrive \
         ({attempts} attempts in {} s). Raise the instance's metadata hop limit to 2 (aws ec2 \
         modify-instance-metadata-options --http-put-response-hop-limit 2), or run kops-agent on the host, \
         not in a container",
        waited.as_secs_f32().round()
    )]
    HopLimit { url: String, attempts: u32, waited: Duration },
    #[error("{url}: the metadata service answers {status}; {advice}")]
    Refused { url: String, status: u16, advice: &'static str },
    /// The response does not have the form of this cloud's metadata service.
    #[error("{url}: {problem}; is this the metadata service of the expected cloud?")]
    Unusable { url: String, problem: String },
    #[error(transparent)]
    Http(#[from] HttpError),
}

impl Failing for MetadataError {
    fn kind(&self) -> Kind {
        match self {
            MetadataError::Disabled
            | MetadataError::Unreachable { .. }
            | MetadataError::Silent { .. }
            | MetadataError::HopLimit { .. } => Kind::MetadataUnreachable,
            MetadataError::Refused { .. } | MetadataError::Unusable { .. } => Kind::MetadataRefused,
            MetadataError::Http(error) => error.kind(),
        }
    }
}

/// Why one attempt failed.
#[derive(Debug)]
pub(super) enum Failure {
    Passing(String),
    /// The connection was made, but no answer came in time.
    NoAnswer,
    Status(u16),
    /// The response is not from a metadata service.
    Unusable(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Passing(problem) | Failure::Unusable(problem) => f.write_str(problem),
            Failure::NoAnswer => f.write_str("no answer"),
            Failure::Status(status) => write!(f, "it answers {status}"),
        }
    }
}

#[derive(Debug)]
pub(super) struct MetadataService {
    endpoint: String,
    client: Client,
    retries: Retries,
}

impl MetadataService {
    /// Creates a client for the service at `endpoint`, a URL without a path.
    pub(super) fn new(
        endpoint: impl Into<String>,
        retries: Retries,
    ) -> Result<MetadataService, MetadataError> {
        let endpoint = endpoint.into().trim_end_matches('/').to_owned();
        Ok(MetadataService { endpoint, client: metadata_client()?, retries })
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.endpoint)
    }

    /// The text at a path, without surrounding space; `None` if it does not exist (404).
    pub(super) async fn get(&self, path: &str, headers: &HeaderMap) -> Result<Option<String>, MetadataError> {
        let attempt = || async { self.request(Method::GET, path, headers.clone()).await };
        self.trying(path, "is the metadata service disabled for this machine?", attempt).await
    }

    /// The text at a path that every machine has. An empty text is an error.
    pub(super) async fn get_needed(&self, path: &str, headers: &HeaderMap) -> Result<String, MetadataError> {
        let answer = self.get(path, headers).await?.filter(|answer| !answer.is_empty());
        answer.ok_or_else(|| self.unusable(path, "it is empty or does not exist (404)"))
    }

    pub(super) fn unusable(&self, path: &str, problem: impl Into<String>) -> MetadataError {
        MetadataError::Unusable { url: self.url(path), problem: problem.into() }
    }

    /// Runs `attempt` with retries. Only temporary failures are retried.
    pub(super) async fn trying<T, F>(
        &self,
        path: &str,
        advice: &'static str,
        attempt: impl Fn() -> F,
    ) -> Result<T, MetadataError>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let worth_trying_for = |failure: &Failure| match failure {
            Failure::Passing(_) | Failure::NoAnswer => Duration::MAX,
            Failure::Status(_) | Failure::Unusable(_) => Duration::ZERO,
        };
        self.retries.run(&self.url(path), attempt, worth_trying_for).await.map_err(|gave_up| {
            let (attempts, waited) = (gave_up.attempts, gave_up.waited);
            match gave_up.error {
                Failure::Passing(cause) => {
                    MetadataError::Unreachable { url: self.url(path), cause, attempts, waited }
                }
                Failure::NoAnswer => MetadataError::Silent { url: self.url(path), attempts, waited },
                Failure::Status(status) => MetadataError::Refused { url: self.url(path), status, advice },
                Failure::Unusable(problem) => self.unusable(path, problem),
            }
        })
    }

    /// Makes one request. `None` stands for 404.
    pub(super) async fn request(
        &self,
        method: Method,
        path: &str,
        headers: HeaderMap,
    ) -> Result<Option<String>, Failure> {
        let request =
            self.client.request(method, self.url(path)).headers(headers).timeout(self.retries.attempt);
        let answer = request.send().await.map_err(of_transport)?;
        match answer.status() {
            StatusCode::OK => read_text(answer).await.map(Some),
            StatusCode::NOT_FOUND => Ok(None),
            status if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
                Err(Failure::Passing(format!("it answers {status}")))
            }
            status => Err(Failure::Status(status.as_u16())),
        }
    }
}

async fn read_text(answer: reqwest::Response) -> Result<String, Failure> {
    let body = http::body(answer, LONGEST_ANSWER).await.map_err(of_transport)?;
    let bytes = body.ok_or_else(|| Failure::Unusable("its answer is too long".into()))?;
    let text =
        String::from_utf8(bytes).map_err(|_| Failure::Unusable("its answer is not UTF-8 text".into()))?;
    if text.trim_start().starts_with('<') {
        return Err(Failure::Unusable("its answer is a web page".into()));
    }
    Ok(text.trim().to_owned())
}

fn of_transport(error: reqwest::Error) -> Failure {
    if error.is_timeout() && !error.is_connect() {
        return Failure::NoAnswer;
    }
    Failure::Passing(innermost_cause(error))
}
