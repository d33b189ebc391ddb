//! The machines of one cluster, as its cloud's API lists them page by page. This module is for clouds that take a token of the
//! project, or a login that gets such tokens.
//!
//! Such a cloud permits some thousand requests an hour for a whole project, and the id that a machine sends is not secret. So one list of
//! the cluster's machines answers all questions of some seconds. Machines that the list lacks are requested one by one, with a rate limit,
//! so that made-up ids do not exhaust the permitted requests.
//!
//! [`Listed`] describes how such clouds differ: in the contents of their lists, and in the names in these lists. All of these clouds share
//! the proof of a machine, the verification of the proof, and the identification of Nodes.

mod access;
mod authenticate;
mod cloud;
mod identify;
mod listing;
mod questions;
mod selection;
mod verify;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use kops_agent_cluster::bootstrap::id_token::IdToken;
use kops_agent_cluster::identity::machine::{CloudMachine, ProviderIds};
use kops_agent_spec::CloudProvider;
use kops_agent_spec::facts::CloudFacts;
use serde::de::DeserializeOwned;

use crate::api::{Api, ApiError};
use crate::calls::CloudCalls;
use crate::metadata::MetadataError;
use crate::verify::MachinePrefix;

pub use access::{Login, Session};
pub(crate) use authenticate::IdAuthenticator;
pub(crate) use cloud::ListedCloud;
pub use identify::ListedControlPlane;
pub use listing::Inventory;
pub(crate) use selection::variable;
pub use selection::{PageAt, Scope, Selection};
pub use verify::ListedVerifier;

/// How to list machines with a cloud's API.
#[derive(Debug)]
pub struct ListApi {
    /// The API, and how it reports errors.
    pub(crate) api: &'static Api,
    /// The API's name in metrics.
    pub(crate) service: &'static str,
    /// The action that lists machines, as the API's reference names it.
    pub(crate) action: &'static str,
    /// The action that gets one machine.
    pub(crate) action_of_one: &'static str,
    /// The default endpoint of the API.
    pub(crate) endpoint: &'static str,
    /// The environment variable that replaces the endpoint.
    pub(crate) endpoint_variable: &'static str,
    pub(crate) token_variable: &'static str,
    /// The header for the token, and the prefix of its value.
    pub(crate) token_header: (&'static str, &'static str),
    /// The parameter for the maximum number of machines on a page, and its value.
    pub(crate) page: (&'static str, &'static str),
    /// The parameters that sort the newest machines first; empty if the API cannot sort by age.
    pub(crate) newest_first: &'static [(&'static str, &'static str)],
}

/// The values for one cloud that its machines and the server use during bootstrap.
#[derive(Debug)]
pub struct Bootstrap {
    /// The cloud's field below `server.provider` in kops-controller's configuration (upstream:
    /// `cmd/kops-controller/pkg/config/options.go`).
    pub(crate) provider: &'static str,
    pub(crate) token: IdToken,
    /// The path of a machine's id in the facts.
    pub(crate) fact: &'static str,
    /// The reason in a refusal while the API does not respond.
    pub(crate) unavailable: &'static str,
    /// The refusal of a machine without an address for the call-back: the reason, and the part of the message after the machine's id.
    pub(crate) no_address: (&'static str, &'static str),
    /// The number of leading bits of an IPv6 address that identify one machine.
    pub(crate) machine_prefix: MachinePrefix,
}

/// A machine that a cloud's API lists.
#[async_trait::async_trait]
pub trait Listed: CloudMachine + fmt::Debug + Send + Sync + Sized + 'static {
    const API: ListApi;
    const BOOTSTRAP: Bootstrap;
    /// The form of `spec.providerID` in Nodes.
    const PROVIDER_IDS: ProviderIds;
    const PROVIDER: CloudProvider;
    /// The environment variables that the API needs, as in [`crate::Cloud::variables`]. The default is the token's variable.
    const VARIABLES: &'static [&'static [&'static str]] = &[&[Self::API.token_variable]];
    type Page: DeserializeOwned + Send;
    /// The answer about one machine.
    type One: DeserializeOwned + Send;

    /// Asks the metadata service which machine this is, and writes the responses into the cloud's facts.
    async fn observe(
        facts: &mut CloudFacts,
        retries: kops_agent_net::retry::Retries,
    ) -> Result<(), MetadataError>;
    /// The URL of the metadata service, and the base path of the items in `metadata://` URLs ([`crate::Cloud::metadata`]).
    /// By default, kOps reads no `metadata://` URLs of the cloud.
    const METADATA: Option<(&'static str, &'static str)> = None;
    /// The id of this machine, as its metadata service writes it; `None` if the service was not asked.
    fn id_of(facts: &CloudFacts) -> Option<&str>;

    /// The cluster's name and, if the API needs it, the cluster's location in the cloud. By default, there is only the name, because the
    /// API token already selects the project.
    async fn scope(cluster: &str) -> Result<Scope, ApiError> {
        Ok(Scope::from(cluster))
    }
    /// The request that selects the machines of a cluster.
    fn selection(scope: &Scope) -> Selection;
    /// The machines on a page, and the number of the next page.
    fn of_page(page: Self::Page, at: PageAt) -> (Vec<Self>, Option<u32>);
    /// The machine in a response; `None` if the id does not have the form of the cloud's ids, or the machine is outside the scope.
    fn of_one(one: Self::One, scope: &Scope) -> Option<Self>;
    fn addresses(&self) -> Vec<IpAddr>;

    /// How a machine proves that an id is its own.
    const PROVEN_BY: ProvenBy = ProvenBy::CallBack;
    /// How a page of the list is requested.
    const PAGED_BY: PagedBy = PagedBy::Number;
    /// Reads a login from the environment, for clouds whose API endpoint and tokens come from a login. By default there is no login.
    /// Requests are counted in `calls`. Fails if the cloud needs a login and the environment has none.
    fn login(calls: &CloudCalls) -> Result<Option<Arc<dyn Login>>, ApiError> {
        let _ = calls;
        Ok(None)
    }
    /// Whether the machine belongs to the cluster, for APIs that cannot select the machines of a cluster.
    fn is_listed_for(&self, cluster: &str) -> bool {
        let _ = cluster;
        true
    }
}

/// How a machine proves that an id is its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProvenBy {
    /// The machine answers the call-back at its address.
    CallBack,
    /// The machine sends its request from one of its addresses.
    Address,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PagedBy {
    Number,
    /// By the id of the last machine on the previous page.
    Marker,
}

/// Advice for an error with this status; begins with punctuation, or is empty.
pub(crate) fn advice(token_variable: &str, status: u16) -> String {
    match status {
        401 | 403 => format!("; is {token_variable} a token of this cluster's project?"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests;
