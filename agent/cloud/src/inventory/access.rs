//! The access to a machine list: its URL, and the token for the API.

use std::fmt;
use std::sync::Arc;

use kops_agent_cluster::machine_id::MachineId;
use kops_agent_net::http::{self, HttpError};
use kops_agent_net::tls;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Url};

use super::{ListApi, Listed, Scope, Selection};
use crate::api::{self, ApiError, Question};

/// The maximum size of a page, in bytes. A machine takes about 5 KiB, and a page has at most 1,000 machines.
const LONGEST_PAGE: usize = 16 << 20;

/// The endpoint of an API, and a token for it.
#[derive(Clone, Debug)]
pub struct Session {
    pub endpoint: String,
    /// The token, marked as sensitive.
    pub token: HeaderValue,
}

/// Logs in to a cloud: finds the API, and gets tokens that expire.
#[async_trait::async_trait]
pub trait Login: fmt::Debug + Send + Sync {
    /// A client for the API. It follows no redirect, because the tokens are for this cloud only.
    fn client(&self) -> Result<Client, HttpError>;

    /// The endpoint of the API, and a token that does not expire soon.
    async fn session(&self) -> Result<Session, ApiError>;

    /// Drops the cached token if it is the rejected token.
    async fn forget(&self, refused: &HeaderValue);
}

/// How the access to a list is obtained.
#[derive(Debug)]
pub(super) enum AccessSource {
    /// A token from the environment, which does not change.
    Fixed(Arc<Access>),
    /// A login, whose tokens expire.
    Login(Arc<dyn Login>),
}

/// The URL of a list, and the token for it.
#[derive(Debug)]
pub(super) struct Access {
    /// The URL of the list, without the parameter for the page.
    pub(super) list: Url,
    /// The base URL of the machines. A machine's URL is this URL followed by the machine's id.
    machines: Url,
    /// The API's name in metrics.
    pub(super) service: &'static str,
    /// The endpoint of the API, as messages show it.
    shown: String,
    /// The headers of each request: the token, and the filter if the API takes the filter in a header.
    pub(super) headers: HeaderMap,
    token: HeaderValue,
}

impl AccessSource {
    /// An HTTP client for the API that lists the machines. The client follows no redirect, because the token is for this cloud only.
    pub(super) fn client(&self) -> Result<Client, HttpError> {
        match self {
            AccessSource::Fixed(_) => http::client_with(tls::client_config()?),
            AccessSource::Login(login) => login.client(),
        }
    }

    /// The URL of the list, with a token that is valid now.
    pub(super) async fn access<M: Listed>(&self, scope: &Scope) -> Result<Arc<Access>, ApiError> {
        match self {
            AccessSource::Fixed(access) => Ok(access.clone()),
            AccessSource::Login(login) => Access::new::<M>(&login.session().await?, scope).map(Arc::new),
        }
    }

    /// Drops a rejected token. Returns whether a new token can be requested.
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
    pub(super) fn new<M: Listed>(session: &Session, scope: &Scope) -> Result<Access, ApiError> {
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

    /// The URL of a machine.
    pub(super) fn one(&self, id: MachineId) -> Url {
        let mut one = self.machines.clone();
        // This never fails: an HTTP URL has a path.
        if let Ok(mut path) = one.path_segments_mut() {
            path.push(&id.to_string());
        }
        one
    }

    pub(super) fn question<M: Listed>(&self, action: &'static str) -> Question<'_> {
        Question { api: M::API.api, action, endpoint: &self.shown, longest: LONGEST_PAGE }
    }
}
