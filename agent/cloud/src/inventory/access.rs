//! How a list is reached: where it is, and the token that the API takes.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use kops_agent_net::http::{self, HttpError};
use kops_agent_net::tls;
use kops_agent_plan::machine_id::MachineId;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Url};

use super::{ListApi, Listed, Scope, Selection};
use crate::api::{self, ApiError, Question};

/// The longest page that is read, in bytes: a machine has some 5 KiB, and a page 1,000 machines at most.
const LONGEST_PAGE: usize = 16 << 20;

/// An API, and a token for it.
#[derive(Clone, Debug)]
pub struct Session {
    /// Where it is.
    pub endpoint: String,
    /// The token, marked as a secret.
    pub token: HeaderValue,
}

/// What says where an API is, and gives tokens for it that end.
pub trait Login: fmt::Debug + Send + Sync {
    /// A client for the API. It follows no redirect: tokens are for this cloud.
    ///
    /// # Errors
    /// If there can be no HTTP client.
    fn client(&self) -> Result<Client, HttpError>;

    /// The API, and a token that is good for a while.
    ///
    /// # Errors
    /// If it cannot be asked, refuses the login, or knows no such API.
    fn session(&self) -> BoxFuture<'_, Result<Session, ApiError>>;

    /// Forgets a token that is refused.
    fn forget<'a>(&'a self, refused: &'a HeaderValue) -> BoxFuture<'a, ()>;
}

/// Where the access to a list comes from.
#[derive(Debug)]
pub(super) enum AccessSource {
    /// A token of the environment, which stays.
    Fixed(Arc<Access>),
    /// A login, whose tokens end.
    Login(Arc<dyn Login>),
}

/// A list, and the token for it.
#[derive(Debug)]
pub(super) struct Access {
    /// The list, but for which page.
    pub(super) list: Url,
    /// Below it is each machine, by its id.
    machines: Url,
    /// The API's name in metrics.
    pub(super) service: &'static str,
    /// Where the API is, as messages show it.
    shown: String,
    /// The token, and what selects machines.
    pub(super) headers: HeaderMap,
    token: HeaderValue,
}

impl AccessSource {
    /// A client for the list. It follows no redirect: the token is for this cloud.
    ///
    /// # Errors
    /// If there can be no HTTP client.
    pub(super) fn client(&self) -> Result<Client, HttpError> {
        match self {
            AccessSource::Fixed(_) => http::client_with(tls::client_config()?),
            AccessSource::Login(login) => login.client(),
        }
    }

    /// The list, and a token that is good now.
    ///
    /// # Errors
    /// If a login fails.
    pub(super) async fn access<M: Listed>(&self, scope: &Scope) -> Result<Arc<Access>, ApiError> {
        match self {
            AccessSource::Fixed(access) => Ok(access.clone()),
            AccessSource::Login(login) => Access::of::<M>(&login.session().await?, scope).map(Arc::new),
        }
    }

    /// Forgets what is refused, and says whether there may be something else.
    pub(super) async fn forget(&self, refused: &Access) -> bool {
        match self {
            AccessSource::Fixed(_) => false,
            AccessSource::Login(login) => {
                login.forget(&refused.token).await;
                true
            }
        }
    }
}

impl Access {
    /// The list of a scope's machines.
    ///
    /// # Errors
    /// If the endpoint is no URL of an API, or what selects machines is no header.
    pub(super) fn of<M: Listed>(session: &Session, scope: &Scope) -> Result<Access, ApiError> {
        let Session { endpoint, token } = session;
        let ListApi { service, endpoint_variable, endpoint: usual, token_header, page, newest_first, .. } =
            M::API;
        let base = api::base_url(endpoint, endpoint_variable, usual)?;
        let Selection { path, machines, parameters, header } = M::selection(scope);
        let mut list = api::below(&base, &path);
        let machines = api::below(&base, machines.unwrap_or(&path));
        list.query_pairs_mut()
            .extend_pairs(parameters)
            .append_pair(page.0, page.1)
            .extend_pairs(newest_first);
        let shown = list.origin().ascii_serialization();
        let mut headers = HeaderMap::from_iter([(HeaderName::from_static(token_header.0), token.clone())]);
        if let Some((name, value)) = header {
            let value = HeaderValue::try_from(value)
                .map_err(|error| ApiError::NoRequest { endpoint: shown.clone(), cause: error.to_string() })?;
            headers.insert(HeaderName::from_static(name), value);
        }
        Ok(Access { list, machines, service, shown, headers, token: token.clone() })
    }

    /// Where a machine is.
    pub(super) fn one(&self, id: MachineId) -> Url {
        let mut one = self.machines.clone();
        // A URL of an API has a path.
        if let Ok(mut path) = one.path_segments_mut() {
            path.push(&id.to_string());
        }
        one
    }

    pub(super) fn question<M: Listed>(&self, action: &'static str) -> Question<'_> {
        Question { api: M::API.api, action, endpoint: &self.shown, longest: LONGEST_PAGE }
    }
}
