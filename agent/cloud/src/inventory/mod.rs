//! The machines of one cluster, as its cloud's API lists them page by page, for clouds that are asked with a token of the
//! project, or with a login that gives such tokens.
//!
//! Such a cloud answers some thousand requests an hour, to all of a project together, and the id that a machine says it has is
//! no secret. So no request is made for one machine: one list of the cluster's machines answers all questions of some seconds, and
//! a made-up id costs no request more than a true one.
//!
//! Such clouds differ in what they list and how they name it, which is [`Listed`]. What a machine proves itself with, how it is
//! verified, and how Nodes are identified is the same for all of them.

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

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use kops_agent_plan::bootstrap::id_token::IdToken;
use kops_agent_plan::identity::machine::{CloudMachine, ProviderIds};
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

/// How the API of a cloud is asked for machines.
#[derive(Debug)]
pub struct ListApi {
    /// The API, and how it says no.
    pub(crate) api: &'static Api,
    /// Its name in metrics.
    pub(crate) service: &'static str,
    /// What is asked, as the API's reference names it.
    pub(crate) action: &'static str,
    /// The same for one machine.
    pub(crate) action_of_one: &'static str,
    /// Where the API is.
    pub(crate) endpoint: &'static str,
    /// The variable that moves it.
    pub(crate) endpoint_variable: &'static str,
    /// The variable with the token.
    pub(crate) token_variable: &'static str,
    /// The header that the token is sent in, and what stands before it there.
    pub(crate) token_header: (&'static str, &'static str),
    /// The parameter that says how many machines a page has at most, and how many those are.
    pub(crate) page: (&'static str, &'static str),
    /// The parameters that have the newest machines on the first page; none where the API knows no such order.
    pub(crate) newest_first: &'static [(&'static str, &'static str)],
}

/// How a cloud's machines become nodes.
#[derive(Debug)]
pub struct Bootstrap {
    /// kOps' key for the cloud in the server's configuration (upstream: `cmd/kops-controller/pkg/config/options.go`).
    pub(crate) provider: &'static str,
    pub(crate) token: IdToken,
    /// Where their id is among facts.
    pub(crate) fact: &'static str,
    /// The reason of a refusal while the API does not answer.
    pub(crate) unavailable: &'static str,
    /// What is wrong with a machine that has no address to be called back at: the reason of its refusal, and the end of a sentence.
    pub(crate) no_address: (&'static str, &'static str),
    /// How many leading bits of an IPv6 address are one machine's own.
    pub(crate) machine_prefix: MachinePrefix,
}

/// A machine that a cloud's API lists.
pub trait Listed: CloudMachine + fmt::Debug + Send + Sync + Sized + 'static {
    /// How it is asked for.
    const API: ListApi;
    /// How it becomes a node.
    const BOOTSTRAP: Bootstrap;
    /// How its Node names it.
    const PROVIDER_IDS: ProviderIds;
    const PROVIDER: CloudProvider;
    /// What the environment has to have for its API, as [`crate::Cloud::variables`]: the token.
    const VARIABLES: &'static [&'static [&'static str]] = &[&[Self::API.token_variable]];
    /// A page of the list.
    type Page: DeserializeOwned + Send;
    /// The answer about one machine.
    type One: DeserializeOwned + Send;

    /// Asks the metadata service which machine this is, and writes the answers into the cloud's part of the facts.
    fn observe(
        facts: &mut CloudFacts,
        retries: kops_agent_net::retry::Retries,
    ) -> BoxFuture<'_, Result<(), MetadataError>>;
    /// The id of this machine, as its metadata service writes it; `None` where it was not asked.
    fn id_of(facts: &CloudFacts) -> Option<&str>;

    /// Where in the cloud a cluster is, as far as its API has to be told: by default nowhere else than its token says.
    ///
    /// # Errors
    /// If neither the environment nor the metadata service says so.
    fn scope(cluster: &str) -> BoxFuture<'_, Result<Scope, ApiError>> {
        async move { Ok(Scope::from(cluster)) }.boxed()
    }
    /// What selects the machines of a cluster.
    fn selection(scope: &Scope) -> Selection;
    /// The machines of a page, and the number of the next page.
    fn of_page(page: Self::Page, at: PageAt) -> (Vec<Self>, Option<u32>);
    /// The machine that an answer is about; `None` if its id is none that the cloud would give, or it is out of the scope.
    fn of_one(one: Self::One, scope: &Scope) -> Option<Self>;
    fn addresses(&self) -> Vec<IpAddr>;

    /// What proves that it is the machine itself which says its id.
    const PROVEN_BY: ProvenBy = ProvenBy::CallBack;
    /// How a page is asked for.
    const PAGED_BY: PagedBy = PagedBy::Number;
    /// What tells where the API is and gives tokens for it, where the environment has neither, by the environment: by default there
    /// is no such thing. Questions to it are counted in `calls`.
    ///
    /// # Errors
    /// If the environment has nothing to log in with, or a client cannot be set up.
    fn login(calls: &CloudCalls) -> Result<Option<Arc<dyn Login>>, ApiError> {
        let _ = calls;
        Ok(None)
    }
    /// Whether it is one of a cluster's, where the API cannot be asked for those only.
    fn is_listed_for(&self, cluster: &str) -> bool {
        let _ = cluster;
        true
    }
}

/// What proves that it is a machine itself which says its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProvenBy {
    /// Its answer at its address.
    CallBack,
    /// That it asks from one of its addresses.
    Address,
}

/// How a page of a list is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PagedBy {
    /// By its number.
    Number,
    /// By the id of the last machine of the page before.
    Marker,
}

/// What to do about an error of this status; begins with punctuation, or is empty.
pub(crate) fn advice(token_variable: &str, status: u16) -> String {
    match status {
        401 | 403 => format!("; is {token_variable} a token of this cluster's project?"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests;
