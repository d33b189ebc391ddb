//! A client for Azure Resource Manager that lists the machines of one resource group. It authenticates with this machine's
//! managed identity.
//!
//! This client does not use Microsoft's libraries: it needs only five lists, and the libraries bring their own HTTP client.
//! Requests are rate-limited, because other programs share the limit of the subscription.
//!
//! Source: Azure Compute and Azure Network REST APIs; Azure Resource Manager, "Understand how Azure Resource Manager throttles
//! requests".

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use kops_agent_cluster::identity::azure::AzureMachine;
use reqwest::Url;
use reqwest::header::HeaderValue;
use serde::de::DeserializeOwned;

use super::answer::{self, InterfaceAnswer, MachineAnswer, Page, ScaleSetAnswer};
use super::tokens::{MANAGEMENT, Tokens};
use crate::api::{self, AccessTokens, Api, ApiClient, ApiError, ErrorBody, Meaning, Question};
use crate::calls::CloudCalls;
use crate::metadata::MetadataError;
use crate::rate_limiter::RateLimiter;
use kops_agent_net::retry::{Pauses, Retries};
use kops_agent_net::tls;

const ENDPOINT: &str = "https://management.azure.com";
/// The environment variable that replaces the endpoint.
const ENDPOINT_VARIABLE: &str = "AZURE_RESOURCE_MANAGER_ENDPOINT";
const SCALE_SETS: &str = "Microsoft.Compute/virtualMachineScaleSets";
const COMPUTE_VERSION: &str = "2024-07-01";
/// The version of the Network API that lists the interfaces of machines in scale sets.
const NETWORK_VERSION: &str = "2018-10-01";
/// The maximum size of a page, in bytes. A machine takes about 8 KiB.
const LONGEST_PAGE: usize = 16 * 1024 * 1024;
/// The maximum number of pages of a list. A scale set needs fewer pages, because it has at most a thousand machines.
const MOST_PAGES: usize = 50;
/// Azure's read limit for an identity in a subscription: a burst of 250, then 25 a second. This client uses a fifth of this limit.
const BURST: f64 = 50.0;
const PER_SECOND: f64 = 5.0;
const RETRIES: Retries = Retries {
    deadline: Duration::from_secs(20),
    attempt: Duration::from_secs(10),
    pauses: Pauses { first: Duration::from_millis(500), longest: Duration::from_secs(5) },
};
pub(crate) static API: Api =
    Api { name: "Azure Resource Manager", limited: "subscription", read: read_error, meaning, advice };

fn read_error(body: &[u8]) -> Option<ErrorBody> {
    let answer::Refusal { error } = serde_json::from_slice(body).ok()?;
    Some(ErrorBody { code: error.code, message: error.message })
}

fn meaning(status: u16, code: &str) -> Meaning {
    match (status, code) {
        (401 | 403, _) => Meaning::Forbidden,
        (404, "ResourceNotFound" | "NotFound") => Meaning::NotFound,
        _ => Meaning::Refused,
    }
}

fn advice(_action: &str, status: u16, code: &str) -> String {
    match (status, code) {
        (401 | 403, _) => "; give this machine's managed identity the role Contributor on the cluster's resource group, as kOps does".into(),
        (404, "ResourceGroupNotFound" | "SubscriptionNotFound") => "; does this machine's identity belong to the cluster's tenant?".into(),
        _ => String::new(),
    }
}

fn no_token(error: MetadataError) -> ApiError {
    ApiError::NoCredentials {
        api: API.name,
        cause: format!("this machine's managed identity has no token: {error}"),
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

/// A client for Azure Resource Manager, limited to one resource group.
#[derive(Debug)]
pub struct Arm {
    client: ApiClient<Tokens>,
    endpoint: Url,
    /// The endpoint, as messages show it.
    shown: String,
    /// `/subscriptions/…/resourceGroups/…/providers`.
    providers: String,
}

struct List {
    /// The action, as Azure's reference names it, for messages and metrics.
    action: &'static str,
    /// The path below [`Arm::providers`].
    path: String,
    parameters: &'static [(&'static str, &'static str)],
}

impl Arm {
    /// Creates a client for Azure Resource Manager. The endpoint is `AZURE_RESOURCE_MANAGER_ENDPOINT`, else Azure's public endpoint.
    /// Requests are counted in `calls`.
    pub fn of_environment(
        subscription: &str,
        resource_group: &str,
        calls: CloudCalls,
    ) -> Result<Arm, ApiError> {
        let endpoint = std::env::var(ENDPOINT_VARIABLE).ok().filter(|url| !url.is_empty());
        let endpoint = endpoint.as_deref().unwrap_or(ENDPOINT);
        tls::require_ca_bundle_for([endpoint])?;
        let tokens = Tokens::of_environment(MANAGEMENT, Retries::default()).map_err(no_token)?;
        Arm::new(endpoint, subscription, resource_group, tokens, calls)
    }

    fn new(
        endpoint: &str,
        subscription: &str,
        resource_group: &str,
        tokens: Tokens,
        calls: CloudCalls,
    ) -> Result<Arm, ApiError> {
        let url = api::base_url(endpoint, ENDPOINT_VARIABLE, ENDPOINT)?;
        Ok(Arm {
            client: ApiClient::new("arm", tokens, calls, RateLimiter::new(BURST, PER_SECOND), RETRIES)?,
            shown: url.origin().ascii_serialization(),
            endpoint: url,
            providers: format!("/subscriptions/{subscription}/resourceGroups/{resource_group}/providers"),
        })
    }

    /// Creates a client that uses `server` as Azure Resource Manager and as the metadata service, with short timeouts.
    #[cfg(any(test, feature = "testing"))]
    pub fn for_tests(server: &str, subscription: &str, resource_group: &str, calls: CloudCalls) -> Arm {
        let tokens = Tokens::at(server.to_owned(), MANAGEMENT, None, Retries::default()).expect("a client");
        let mut arm = Arm::new(server, subscription, resource_group, tokens, calls).expect("a client");
        arm.client.retries = Retries {
            deadline: Duration::from_secs(2),
            pauses: Pauses { first: Duration::from_millis(10), longest: Duration::from_millis(10) },
            ..RETRIES
        };
        arm
    }

    /// The names of the resource group's scale sets.
    pub async fn scale_sets(&self) -> Result<Vec<String>, ApiError> {
        let list = List {
            action: "virtualMachineScaleSets.list",
            path: SCALE_SETS.into(),
            parameters: &[("api-version", COMPUTE_VERSION)],
        };
        let sets: Vec<ScaleSetAnswer> = self.pages(&list).await?;
        Ok(sets.into_iter().map(|set| set.name).filter(|name| !name.is_empty()).collect())
    }

    /// The machines of a scale set, by their numbers. If `scale_set` is `None`: the machines outside scale sets, by their names. Azure's
    /// list of machines outside scale sets has no power state. A missing scale set is an error.
    pub async fn machines(
        &self,
        scale_set: Option<&str>,
    ) -> Result<BTreeMap<String, AzureMachine>, ApiError> {
        let list = match scale_set {
            Some(scale_set) => List {
                action: "virtualMachineScaleSetVMs.list",
                path: format!("{SCALE_SETS}/{scale_set}/virtualMachines"),
                parameters: &[("api-version", COMPUTE_VERSION), ("$expand", "instanceView")],
            },
            None => List {
                action: "virtualMachines.list",
                path: "Microsoft.Compute/virtualMachines".into(),
                parameters: &[("api-version", COMPUTE_VERSION)],
            },
        };
        let machines: Vec<MachineAnswer> = self.pages(&list).await?;
        let machines = machines.into_iter().filter_map(|answer| answer.into_machine(scale_set));
        Ok(machines.map(|machine| (machine.path.name.clone(), machine)).collect())
    }

    /// The private addresses of a scale set's machines, keyed by machine number. If `scale_set` is `None`: the private addresses of the
    /// machines outside scale sets, keyed by machine name. A missing scale set is an error.
    pub async fn addresses(
        &self,
        scale_set: Option<&str>,
    ) -> Result<BTreeMap<String, Vec<IpAddr>>, ApiError> {
        let (action, path) = match scale_set {
            Some(scale_set) => (
                "networkInterfaces.listVirtualMachineScaleSetNetworkInterfaces",
                format!("{SCALE_SETS}/{scale_set}/networkInterfaces"),
            ),
            None => ("networkInterfaces.list", "Microsoft.Network/networkInterfaces".to_owned()),
        };
        let list = List { action, path, parameters: &[("api-version", NETWORK_VERSION)] };
        let interfaces: Vec<InterfaceAnswer> = self.pages(&list).await?;
        Ok(interfaces.into_iter().filter_map(|answer| answer.into_addresses(scale_set)).collect())
    }

    async fn pages<T: DeserializeOwned>(&self, list: &List) -> Result<Vec<T>, ApiError> {
        let garbage = |problem: &str| self.question(list.action).garbage(200, problem);
        let mut url = api::below(&self.endpoint, &format!("{}/{}", self.providers, list.path));
        url.query_pairs_mut().extend_pairs(list.parameters);
        let mut items = Vec::new();
        for _ in 0..MOST_PAGES {
            let question = self.question(list.action);
            let Page { value, next_link } =
                self.client.ask(question, |client| client.get(url.clone())).await?;
            items.extend(value);
            let Some(next) = next_link.filter(|link| !link.is_empty()) else { return Ok(items) };
            // The next request sends the token to this URL, so the URL must be on the same server.
            let next = Url::parse(&next).ok().filter(|next| next.origin() == self.endpoint.origin());
            url = next.ok_or_else(|| garbage("its next page is on another server"))?;
        }
        Err(garbage("its pages have no end"))
    }

    fn question(&self, action: &'static str) -> Question<'_> {
        Question { api: &API, action, endpoint: &self.shown, longest: LONGEST_PAGE }
    }
}
