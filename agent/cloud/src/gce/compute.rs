//! Compute Engine, asked as this instance's service account.
//!
//! No library of Google's: what is needed of it are five requests, and their libraries bring a TLS and an HTTP client of
//! their own. It is rate-limited, since a project may ask only so often, which the cluster shares with everything else there.
//!
//! Source: the Compute Engine API v1, its "Error codes" and "Rate quotas".

use std::collections::BTreeSet;
use std::time::Duration;

use kops_agent_plan::identity::gce::{
    GceInstance, InstancePath, InstanceTemplate, ManagedGroup, ManagedInstance,
};
use reqwest::header::{AUTHORIZATION, CONTENT_LENGTH};
use reqwest::{Client, Method, Url};
use serde::de::DeserializeOwned;
use thiserror::Error;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use super::answer::{self, Page};
use super::tokens::Tokens;
use crate::api::{self, Answer, NoAnswer};
use crate::calls::{CloudCalls, Outcome};
use crate::metadata::MetadataError;
use crate::rate_limiter::RateLimiter;
use kops_agent_net::http::{self, HttpError, innermost_cause};
use kops_agent_net::retry::Retries;
use kops_agent_net::tls::{self, NoCaBundle};

const ENDPOINT: &str = "https://compute.googleapis.com/compute/v1";
/// The longest answer that is read, in bytes: a page has five hundred instances at most.
const LONGEST_ANSWER: usize = 16 * 1024 * 1024;
/// The most items of a page that Google gives.
const PAGE: &str = "500";
/// More pages than a zone could have.
const MOST_PAGES: usize = 1000;
/// Google lets a project make 1500 requests of a kind a minute and region. Less than half of it is ours.
const BURST: f64 = 50.0;
const PER_SECOND: f64 = 10.0;
/// How long no request is made after a throttled one where Google does not say for how long.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest pause that is taken on Google's word.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
const RETRIES: Retries = Retries {
    deadline: Duration::from_secs(20),
    attempt: Duration::from_secs(30),
    first_pause: Duration::from_millis(500),
    longest_pause: Duration::from_secs(5),
};
/// Reasons of throttled requests; their status is 403 or 429.
const TOO_OFTEN: [&str; 3] = ["rateLimitExceeded", "userRateLimitExceeded", "quotaExceeded"];

/// Why Compute Engine did not say what it was asked.
#[derive(Debug, Error)]
pub enum ComputeError {
    /// There is no such thing.
    #[error("{action}: {what} does not exist")]
    NotFound {
        /// What was asked.
        action: &'static str,
        /// Of what.
        what: String,
    },
    /// The project asks more than Google lets it; the same request will succeed later.
    #[error("Compute Engine puts off {action} ({reason}): this project asks it too much at the moment")]
    RateLimitExceeded {
        /// What was asked.
        action: &'static str,
        /// Google's name of the error.
        reason: String,
        /// For how long to wait, if Google says so.
        retry_after: Option<Duration>,
    },
    /// Google says no.
    #[error("Compute Engine answers {action} with {status} {reason}: {message}{advice}")]
    Refused {
        /// What was asked.
        action: &'static str,
        /// The HTTP status.
        status: u16,
        /// Google's name of the error; may be empty.
        reason: String,
        /// Google's explanation.
        message: String,
        /// What to do, if we know it; begins with punctuation.
        advice: String,
    },
    /// Something else answers, or answers what cannot be read.
    #[error("{endpoint} answers {action} with {status}, and not as Compute Engine does: {problem}")]
    Unusable {
        /// What was asked.
        action: &'static str,
        /// Where.
        endpoint: String,
        /// The HTTP status.
        status: u16,
        /// What is wrong.
        problem: String,
    },
    /// No answer.
    #[error("cannot ask {endpoint} for {action}: {cause}; check the network, DNS and proxy")]
    Unreachable {
        /// What was asked.
        action: &'static str,
        /// Where.
        endpoint: String,
        /// What failed.
        cause: String,
    },
    /// There is no token to ask with.
    #[error("there is no token of this instance's service account to ask Compute Engine with: {0}")]
    NoToken(#[from] MetadataError),
    /// Compute Engine needs TLS, and this host has no certificate authorities.
    #[error(transparent)]
    NoCaBundle(#[from] NoCaBundle),
    /// Nothing can be asked.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The environment names an endpoint that is none.
    #[error(
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE is {0:?}, which is no URL of an API, as {ENDPOINT}/ would be"
    )]
    BadEndpoint(String),
}

impl ComputeError {
    /// Whether the same request may succeed later.
    fn is_passing(&self) -> bool {
        match self {
            ComputeError::RateLimitExceeded { .. } | ComputeError::Unreachable { .. } => true,
            ComputeError::Refused { status, .. } | ComputeError::Unusable { status, .. } => *status >= 500,
            // Asking for a token has tried again by itself.
            ComputeError::NoToken(_)
            | ComputeError::NotFound { .. }
            | ComputeError::NoCaBundle(_)
            | ComputeError::Http(_)
            | ComputeError::BadEndpoint(_) => false,
        }
    }
}

/// Compute Engine in one project.
#[derive(Debug)]
pub struct Compute {
    client: Client,
    endpoint: String,
    project: String,
    tokens: Tokens,
    calls: CloudCalls,
    rate_limiter: Mutex<RateLimiter>,
    retries: Retries,
}

/// Something to ask.
struct Question<'a> {
    /// As Google's reference names it, for people and metrics.
    action: &'static str,
    method: Method,
    /// Below the project.
    path: String,
    parameters: Vec<(&'a str, &'a str)>,
}

impl Compute {
    /// Compute Engine where `CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE` says, else Google's; counted there.
    ///
    /// # Errors
    /// If this host has no certificate authorities, or the endpoint or a proxy is no URL.
    pub fn of_environment(project: &str, calls: CloudCalls) -> Result<Compute, ComputeError> {
        let endpoint = std::env::var("CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE").unwrap_or_default();
        let endpoint = if endpoint.is_empty() { ENDPOINT.to_owned() } else { endpoint };
        tls::require_ca_bundle_for([endpoint.as_str()])?;
        Compute::new(&endpoint, project, Tokens::of_environment(Retries::default())?, calls)
    }

    fn new(
        endpoint: &str,
        project: &str,
        tokens: Tokens,
        calls: CloudCalls,
    ) -> Result<Compute, ComputeError> {
        let bad = || ComputeError::BadEndpoint(endpoint.to_owned());
        let url = Url::parse(endpoint).map_err(|_| bad())?;
        if !matches!(url.scheme(), "http" | "https") || url.query().is_some() || !url.has_host() {
            return Err(bad());
        }
        let mut config = tls::client_config().map_err(HttpError::from)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Compute {
            // It follows no redirect: the token is for Google.
            client: http::client_with(config)?,
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            project: project.to_owned(),
            tokens,
            calls,
            rate_limiter: Mutex::new(RateLimiter::of(BURST, PER_SECOND)),
            retries: RETRIES,
        })
    }

    /// Compute Engine and its metadata server at one address, with short timeouts.
    #[cfg(any(test, feature = "testing"))]
    pub fn for_tests(server: &str, calls: CloudCalls) -> Compute {
        let tokens = Tokens::at(server.to_owned(), Retries::default()).expect("a client");
        let retries = Retries {
            deadline: Duration::from_secs(2),
            first_pause: Duration::from_millis(10),
            longest_pause: Duration::from_millis(10),
            ..RETRIES
        };
        let compute = Compute::new(&format!("{server}/compute/v1"), "my-project", tokens, calls);
        Compute { retries, ..compute.expect("a client") }
    }

    /// The names of a region's zones: of all that there are, as Google's own cloud controller asks, which has the same
    /// rights as this.
    ///
    /// # Errors
    /// If that cannot be asked.
    pub async fn zones(&self, region: &str) -> Result<BTreeSet<String>, ComputeError> {
        let fields = ("fields", answer::ZONES);
        let zones = self.pages::<answer::Zones>("zones.list", Method::GET, "zones".into(), fields).await?;
        Ok(zones.into_iter().filter(|zone| zone.is_of(region)).map(|zone| zone.name).collect())
    }

    /// All managed instance groups of a zone.
    ///
    /// # Errors
    /// If that cannot be asked.
    pub async fn managed_groups(&self, zone: &str) -> Result<Vec<ManagedGroup>, ComputeError> {
        let path = format!("zones/{zone}/instanceGroupManagers");
        let fields = ("fields", answer::MANAGED_GROUPS);
        self.pages::<answer::ManagedGroups>("instanceGroupManagers.list", Method::GET, path, fields).await
    }

    /// All instances that a managed instance group lists.
    ///
    /// # Errors
    /// If that cannot be asked.
    pub async fn managed_instances(
        &self,
        zone: &str,
        group: &str,
    ) -> Result<Vec<ManagedInstance>, ComputeError> {
        let path = format!("zones/{zone}/instanceGroupManagers/{group}/listManagedInstances");
        let fields = ("fields", answer::MANAGED_INSTANCES);
        let action = "instanceGroupManagers.listManagedInstances";
        self.pages::<answer::ManagedInstances>(action, Method::POST, path, fields).await
    }

    /// The template at a path below the project.
    ///
    /// # Errors
    /// If that cannot be asked, or there is none.
    pub async fn instance_template(&self, path: &str) -> Result<InstanceTemplate, ComputeError> {
        let parameters = vec![("fields", answer::TEMPLATE)];
        let path = path.to_owned();
        let question = Question { action: "instanceTemplates.get", method: Method::GET, path, parameters };
        Ok(self.ask::<answer::TemplateAnswer>(&question).await?.into())
    }

    /// What there is of an instance; `None` if it does not exist.
    ///
    /// # Errors
    /// If that cannot be asked.
    pub async fn instance(&self, instance: &InstancePath) -> Result<Option<GceInstance>, ComputeError> {
        let InstancePath { zone, name } = instance;
        let path = format!("zones/{zone}/instances/{name}");
        let parameters = vec![("fields", answer::INSTANCE)];
        let question = Question { action: "instances.get", method: Method::GET, path, parameters };
        match self.ask::<answer::InstanceAnswer>(&question).await {
            Ok(answer) => {
                let numberless = || self.unusable(question.action, 200, "the instance has no id");
                answer.into_instance().ok_or_else(numberless).map(Some)
            }
            Err(ComputeError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The key, in PEM, with which the TPM of an instance signs; `None` if it has none: it is no shielded one, or gone.
    ///
    /// # Errors
    /// If that cannot be asked.
    pub async fn signing_key(&self, instance: &InstancePath) -> Result<Option<String>, ComputeError> {
        let InstancePath { zone, name } = instance;
        let path = format!("zones/{zone}/instances/{name}/getShieldedInstanceIdentity");
        let parameters = vec![("fields", "signingKey/ekPub")];
        let action = "instances.getShieldedInstanceIdentity";
        match self.ask(&Question { action, method: Method::GET, path, parameters }).await {
            Ok(answer::ShieldedIdentity { signing_key }) => {
                Ok(signing_key.map(|key| key.ek_pub).filter(|pem| !pem.is_empty()))
            }
            Err(ComputeError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn pages<P: Page>(
        &self,
        action: &'static str,
        method: Method,
        path: String,
        fields: (&str, &str),
    ) -> Result<Vec<P::Item>, ComputeError> {
        let mut items = Vec::new();
        let mut token = String::new();
        for _ in 0..MOST_PAGES {
            let mut parameters = vec![fields, ("maxResults", PAGE)];
            if !token.is_empty() {
                parameters.push(("pageToken", token.as_str()));
            }
            let (method, path) = (method.clone(), path.clone());
            let page: P = self.ask(&Question { action, method, path, parameters }).await?;
            let (of_page, next) = page.into_parts();
            items.extend(of_page);
            match next.filter(|token| !token.is_empty()) {
                Some(next) => token = next,
                None => return Ok(items),
            }
        }
        Err(self.unusable(action, 200, "its pages have no end"))
    }

    /// Asks, again where that helps.
    async fn ask<T: DeserializeOwned>(&self, question: &Question<'_>) -> Result<T, ComputeError> {
        let worth_trying_for = |error: &ComputeError| match error.is_passing() {
            true => Duration::MAX,
            false => Duration::ZERO,
        };
        let attempt = || async {
            let asked = self.attempt(question).await;
            self.calls.count("compute", question.action, outcome(&asked));
            if let Err(ComputeError::RateLimitExceeded { retry_after, .. }) = &asked {
                let pause = retry_after.unwrap_or(PAUSE).min(LONGEST_PAUSE);
                self.rate_limiter.lock().await.put_off(Instant::now(), pause);
            }
            asked
        };
        let what = format!("Compute Engine, {}", question.action);
        self.retries.run(&what, attempt, worth_trying_for).await.map_err(|gave_up| gave_up.error)
    }

    async fn attempt<T: DeserializeOwned>(&self, question: &Question<'_>) -> Result<T, ComputeError> {
        let pause = self.rate_limiter.lock().await.take(Instant::now());
        sleep(pause).await;
        let mut answer = self.send(question).await?;
        if answer.status == 401 {
            // A token may be revoked before its end.
            self.tokens.forget().await;
            answer = self.send(question).await?;
        }
        let Answer { status, retry_after, body } = answer;
        if status != 200 {
            return Err(self.refusal(question, status, retry_after, &body));
        }
        serde_json::from_slice(&body)
            .map_err(|error| self.unusable(question.action, status, &error.to_string()))
    }

    async fn send(&self, question: &Question<'_>) -> Result<Answer, ComputeError> {
        let query =
            form_urlencoded::Serializer::new(String::new()).extend_pairs(&question.parameters).finish();
        let url = format!("{}/projects/{}/{}?{query}", self.endpoint, self.project, question.path);
        let token = self.tokens.header().await?;
        let mut request = self.client.request(question.method.clone(), url);
        if question.method == Method::POST {
            // Google wants to be told that there is no body, which hyper does not do.
            request = request.header(CONTENT_LENGTH, 0);
        }
        let request = request.header(AUTHORIZATION, token).timeout(self.retries.attempt).build();
        let request = request.map_err(|error| self.unreachable(question.action, innermost_cause(error)))?;
        let asked = api::ask(&self.client, request, LONGEST_ANSWER).await;
        asked.map_err(|none| match none {
            NoAnswer::Unreachable(cause) => self.unreachable(question.action, cause),
            NoAnswer::TooLong { status } => self.unusable(question.action, status, "it is too long"),
        })
    }

    fn refusal(
        &self,
        question: &Question<'_>,
        status: u16,
        retry_after: Option<Duration>,
        body: &[u8],
    ) -> ComputeError {
        let action = question.action;
        let answer: Option<answer::Refusal> = serde_json::from_slice(body).ok();
        let is_google = answer.is_some();
        let error = answer.unwrap_or_default().error;
        let reason = error.reason().to_owned();
        if status == 429 || TOO_OFTEN.contains(&reason.as_str()) {
            return ComputeError::RateLimitExceeded { action, reason, retry_after };
        }
        if !is_google {
            return self.unusable(action, status, "it is no JSON");
        }
        if status == 404 {
            return ComputeError::NotFound { action, what: question.path.clone() };
        }
        let advice = match (status, reason.as_str()) {
            (_, "accessNotConfigured") => "; enable compute.googleapis.com in the project".into(),
            (_, "insufficientPermissions") | (401, _) => {
                "; give this instance the scope compute, or cloud-platform".into()
            }
            (403, _) => format!("; let this instance's service account do compute.{}", permission(action)),
            _ => String::new(),
        };
        ComputeError::Refused { action, status, reason, message: error.message, advice }
    }

    fn unusable(&self, action: &'static str, status: u16, problem: &str) -> ComputeError {
        let (endpoint, problem) = (self.endpoint.clone(), problem.to_owned());
        ComputeError::Unusable { action, endpoint, status, problem }
    }

    fn unreachable(&self, action: &'static str, cause: String) -> ComputeError {
        ComputeError::Unreachable { action, endpoint: self.endpoint.clone(), cause }
    }
}

/// The permission that an action takes; most have one of their own.
fn permission(action: &'static str) -> &'static str {
    match action {
        "instanceGroupManagers.listManagedInstances" => "instanceGroupManagers.get",
        action => action,
    }
}

fn outcome<T>(asked: &Result<T, ComputeError>) -> Outcome {
    match asked {
        // That something does not exist is an answer.
        Ok(_) | Err(ComputeError::NotFound { .. }) => Outcome::Success,
        Err(ComputeError::RateLimitExceeded { .. }) => Outcome::Throttled,
        Err(_) => Outcome::Error,
    }
}
