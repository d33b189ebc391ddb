//! A client for Compute Engine that authenticates with this instance's service account.
//!
//! This client does not use Google's libraries: it needs only six requests, and the libraries bring their own TLS and HTTP
//! clients. Requests are rate-limited, because other programs share the limit of the project.
//!
//! Source: the Compute Engine API v1, its "Error codes" and "Rate quotas".

use std::collections::BTreeSet;
use std::time::Duration;

use kops_agent_cluster::identity::gce::{
    GceInstance, GceRanges, InstancePath, InstanceTemplate, ManagedGroup, ManagedInstance,
};
use reqwest::header::{CONTENT_LENGTH, HeaderValue};
use reqwest::{Client, Method};
use serde::de::DeserializeOwned;

use super::answer::{self, Page};
use super::tokens::Tokens;
use crate::api::{self, AccessTokens, Api, ApiClient, ApiError, ErrorBody, Meaning, Question};
use crate::calls::CloudCalls;
use crate::rate_limiter::RateLimiter;
use kops_agent_net::retry::{Pauses, Retries};
use kops_agent_net::tls;

const ENDPOINT: &str = "https://compute.googleapis.com/compute/v1";
/// The environment variable that replaces the endpoint.
const ENDPOINT_VARIABLE: &str = "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE";
/// The maximum size of a response, in bytes. A page has at most five hundred instances.
const LONGEST_ANSWER: usize = 16 * 1024 * 1024;
/// The maximum page size that Google permits.
const PAGE: &str = "500";
/// The maximum number of pages of a list. No zone has so many pages.
const MOST_PAGES: usize = 1000;
/// Google permits a project 1500 requests of a kind per minute and region. This client uses less than half of this limit.
const BURST: f64 = 50.0;
const PER_SECOND: f64 = 10.0;
const RETRIES: Retries = Retries {
    deadline: Duration::from_secs(20),
    attempt: Duration::from_secs(30),
    pauses: Pauses { first: Duration::from_millis(500), longest: Duration::from_secs(5) },
};
pub(crate) static API: Api =
    Api { name: "Compute Engine", limited: "project", read: read_error, meaning, advice };

fn read_error(body: &[u8]) -> Option<ErrorBody> {
    let answer::Refusal { error } = serde_json::from_slice(body).ok()?;
    Some(ErrorBody { code: error.reason().to_owned(), message: error.message })
}

fn meaning(status: u16, reason: &str) -> Meaning {
    match (status, reason) {
        // Google reports these errors with status 403 or 429, so the error's name is checked before the status.
        (_, "rateLimitExceeded" | "userRateLimitExceeded" | "quotaExceeded") => Meaning::Throttled,
        (401 | 403, _) => Meaning::Forbidden,
        (404, "notFound") => Meaning::NotFound,
        _ => Meaning::Refused,
    }
}

fn advice(action: &str, status: u16, reason: &str) -> String {
    match (status, reason) {
        (_, "accessNotConfigured") => "; enable compute.googleapis.com in the project".into(),
        (_, "insufficientPermissions") | (401, _) => {
            "; give this instance the scope compute, or cloud-platform".into()
        }
        (403, _) => {
            format!("; grant this instance's service account the permission compute.{}", permission(action))
        }
        _ => String::new(),
    }
}

/// The permission that an action needs. For most actions, the permission has the action's name.
fn permission(action: &str) -> &str {
    match action {
        "instanceGroupManagers.listManagedInstances" => "instanceGroupManagers.get",
        action => action,
    }
}

fn no_token(error: impl std::fmt::Display) -> ApiError {
    ApiError::NoCredentials {
        api: API.name,
        cause: format!("this instance's service account has no token: {error}"),
        // The token request has already been retried, so a later attempt is unlikely to succeed.
        may_pass: false,
    }
}

impl AccessTokens for Tokens {
    async fn authorization(&self) -> Result<HeaderValue, ApiError> {
        self.header().await.map_err(no_token)
    }

    async fn forget_refused(&self) {
        self.forget().await;
    }
}

/// A client for Compute Engine, limited to one project.
#[derive(Debug)]
pub struct Compute {
    client: ApiClient<Tokens>,
    endpoint: String,
    project: String,
}

struct Call<'a> {
    /// The action, as Google's reference names it, for messages and metrics.
    action: &'static str,
    method: Method,
    path: String,
    parameters: Vec<(&'a str, &'a str)>,
}

impl Compute {
    /// Creates a client for Compute Engine. The endpoint is `CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE`, else Google's. Requests are counted
    /// in `calls`.
    pub fn of_environment(project: &str, calls: CloudCalls) -> Result<Compute, ApiError> {
        let endpoint = std::env::var(ENDPOINT_VARIABLE).unwrap_or_default();
        let endpoint = if endpoint.is_empty() { ENDPOINT.to_owned() } else { endpoint };
        tls::require_ca_bundle_for([endpoint.as_str()])?;
        let tokens = Tokens::of_environment(Retries::default()).map_err(no_token)?;
        Compute::new(&endpoint, project, tokens, calls)
    }

    fn new(endpoint: &str, project: &str, tokens: Tokens, calls: CloudCalls) -> Result<Compute, ApiError> {
        api::base_url(endpoint, ENDPOINT_VARIABLE, ENDPOINT)?;
        Ok(Compute {
            client: ApiClient::new("compute", tokens, calls, RateLimiter::new(BURST, PER_SECOND), RETRIES)?,
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            project: project.to_owned(),
        })
    }

    /// Creates a client that uses `server` as Compute Engine and as the metadata server, with short timeouts.
    #[cfg(any(test, feature = "testing"))]
    pub fn for_tests(server: &str, calls: CloudCalls) -> Compute {
        let tokens = Tokens::at(server.to_owned(), Retries::default()).expect("a client");
        let endpoint = format!("{server}/compute/v1");
        let mut compute = Compute::new(&endpoint, "my-project", tokens, calls).expect("a client");
        compute.client.retries = Retries {
            deadline: Duration::from_secs(2),
            pauses: Pauses { first: Duration::from_millis(10), longest: Duration::from_millis(10) },
            ..RETRIES
        };
        compute
    }

    /// The names of a region's zones. Lists the zones of all regions, and drops the zones of other regions. Google's own cloud controller
    /// does this too, with the same permissions.
    pub async fn zones(&self, region: &str) -> Result<BTreeSet<String>, ApiError> {
        let fields = ("fields", answer::ZONES);
        let zones = self.pages::<answer::Zones>("zones.list", Method::GET, "zones".into(), fields).await?;
        Ok(zones.into_iter().filter(|zone| zone.is_of(region)).map(|zone| zone.name).collect())
    }

    pub async fn managed_groups(&self, zone: &str) -> Result<Vec<ManagedGroup>, ApiError> {
        let path = format!("zones/{zone}/instanceGroupManagers");
        let fields = ("fields", answer::MANAGED_GROUPS);
        self.pages::<answer::ManagedGroups>("instanceGroupManagers.list", Method::GET, path, fields).await
    }

    pub async fn managed_instances(&self, zone: &str, group: &str) -> Result<Vec<ManagedInstance>, ApiError> {
        let path = format!("zones/{zone}/instanceGroupManagers/{group}/listManagedInstances");
        let fields = ("fields", answer::MANAGED_INSTANCES);
        let action = "instanceGroupManagers.listManagedInstances";
        self.pages::<answer::ManagedInstances>(action, Method::POST, path, fields).await
    }

    /// The external IPv6 ranges of all instances in a zone, including instances of other clusters.
    pub async fn ranges(&self, zone: &str) -> Result<Vec<GceRanges>, ApiError> {
        let path = format!("zones/{zone}/instances");
        let fields = ("fields", answer::RANGES);
        self.pages::<answer::Ranges>("instances.list", Method::GET, path, fields).await
    }

    /// The instance template at a path below the project.
    pub async fn instance_template(&self, path: &str) -> Result<InstanceTemplate, ApiError> {
        let parameters = vec![("fields", answer::TEMPLATE)];
        let path = path.to_owned();
        let call = Call { action: "instanceTemplates.get", method: Method::GET, path, parameters };
        Ok(self.ask::<answer::TemplateAnswer>(&call).await?.into())
    }

    /// An instance as Google describes it; `None` if it does not exist.
    pub async fn instance(&self, instance: &InstancePath) -> Result<Option<GceInstance>, ApiError> {
        let InstancePath { zone, name } = instance;
        let path = format!("zones/{zone}/instances/{name}");
        let parameters = vec![("fields", answer::INSTANCE)];
        let call = Call { action: "instances.get", method: Method::GET, path, parameters };
        match self.ask::<answer::InstanceAnswer>(&call).await {
            Ok(answer) => {
                let numberless = || self.question(call.action).garbage(200, "the instance has no id");
                answer.into_instance().ok_or_else(numberless).map(Some)
            }
            Err(error) if error.is_absent() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The public key, in PEM, for the signatures of an instance's TPM. `None` if the instance is not shielded or is deleted.
    pub async fn signing_key(&self, instance: &InstancePath) -> Result<Option<String>, ApiError> {
        let InstancePath { zone, name } = instance;
        let path = format!("zones/{zone}/instances/{name}/getShieldedInstanceIdentity");
        let parameters = vec![("fields", "signingKey/ekPub")];
        let action = "instances.getShieldedInstanceIdentity";
        match self.ask(&Call { action, method: Method::GET, path, parameters }).await {
            Ok(answer::ShieldedIdentity { signing_key }) => {
                Ok(signing_key.map(|key| key.ek_pub).filter(|pem| !pem.is_empty()))
            }
            Err(error) if error.is_absent() => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn pages<P: Page>(
        &self,
        action: &'static str,
        method: Method,
        path: String,
        fields: (&str, &str),
    ) -> Result<Vec<P::Item>, ApiError> {
        let mut items = Vec::new();
        let mut token = String::new();
        for _ in 0..MOST_PAGES {
            let mut parameters = vec![fields, ("maxResults", PAGE)];
            if !token.is_empty() {
                parameters.push(("pageToken", token.as_str()));
            }
            let (method, path) = (method.clone(), path.clone());
            let page: P = self.ask(&Call { action, method, path, parameters }).await?;
            let (of_page, next) = page.into_parts();
            items.extend(of_page);
            match next.filter(|token| !token.is_empty()) {
                Some(next) => token = next,
                None => return Ok(items),
            }
        }
        Err(self.question(action).garbage(200, "its pages have no end"))
    }

    async fn ask<T: DeserializeOwned>(&self, call: &Call<'_>) -> Result<T, ApiError> {
        let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(&call.parameters).finish();
        let url = format!("{}/projects/{}/{}?{query}", self.endpoint, self.project, call.path);
        let request = |client: &Client| {
            let request = client.request(call.method.clone(), &url);
            // Google requires the length of an empty body, but hyper does not send this length.
            if call.method == Method::POST { request.header(CONTENT_LENGTH, 0) } else { request }
        };
        self.client.ask(self.question(call.action), request).await
    }

    fn question(&self, action: &'static str) -> Question<'_> {
        Question { api: &API, action, endpoint: &self.endpoint, longest: LONGEST_ANSWER }
    }
}
