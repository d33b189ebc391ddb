//! A stand-in for a cloud's API that lists a project's machines page by page, to clients with a token. It can refuse requests and
//! fail.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::header::{HeaderValue, RETRY_AFTER};
use hyper::{Method, Request, Response};
use serde_json::Value;

use crate::stand_in_api::{Shared, StandInApi, elsewhere, header, parameters, said};

/// A machine that its cloud's API lists.
pub trait ListedMachine: Clone + Debug + Send + 'static {
    const API: Api;

    /// The id of the machine with this number, in the cloud's format.
    fn id(number: u64) -> String {
        number.to_string()
    }
    /// The list's entry for the machine with this number.
    fn json(&self, number: u64) -> Value;
    /// Whether a request with these parameters selects the machine. `parameters` also contains the header [`Api::filter`].
    fn is_selected(&self, parameters: &BTreeMap<String, String>) -> bool;
    /// A page of the list. All pages together have `total` machines.
    fn page(machines: Vec<Value>, page: usize, per_page: usize, total: usize) -> Value;
    /// The URL path of a machine consists of [`Api::base`], this path, and `/ID`.
    const MACHINES: &'static str = Self::API.path;
    /// The response to a request for one machine.
    fn one(machine: Value) -> Value;
    /// A page that makes a client request one more page.
    fn endless_page(page: usize) -> Value;
    /// The body of an error response with this code.
    fn error(code: &str) -> Value;

    /// Whether a request selects a page by the id of the last machine on the previous page.
    const BY_MARKER: bool = false;
    /// The path for logins, which issue tokens. `None` if the cloud has no logins.
    const LOGIN: Option<&'static str> = None;
    /// The response to a login. `body` is the request's body, and `host` is its header `Host`. If `is_revoked`, the response has a token
    /// that the API rejects.
    fn login(_body: &[u8], _host: &str, _is_revoked: bool) -> Response<String> {
        said(404, "")
    }
}

#[derive(Debug)]
pub struct Api {
    pub name: &'static str,
    /// The only token that the API accepts.
    pub token: &'static str,
    /// The path prefix of all requests.
    pub base: &'static str,
    /// The path at which machines are listed.
    pub path: &'static str,
    /// The name of the header with the token, and the text before the token in the header's value.
    pub token_header: (&'static str, &'static str),
    /// The header by which a request selects machines, if the API has such a header.
    pub filter: Option<&'static str>,
    /// The parameter with the number of machines per page.
    pub page_size: &'static str,
    /// The default and the maximum number of machines per page.
    pub per_page: [usize; 2],
    /// The parameter that sorts the newest machines first, if the API has one. Without this parameter, the newest machines are last.
    pub newest_first: Option<(&'static str, &'static str)>,
    /// Whether a response header contains the number of machines on all pages.
    pub says_total: bool,
    /// The error code of a throttled request.
    pub throttled: &'static str,
    /// The error code of an internal failure.
    pub down: &'static str,
}

/// The way in which the API responds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mood {
    #[default]
    Good,
    /// Answers 429.
    Throttling,
    /// Answers 429, with this pause in `Retry-After`.
    ThrottlingFor(Duration),
    /// Answers 503.
    Down,
    Forbidding,
    /// Answers 404.
    NotFound,
    /// Answers with HTML instead of JSON.
    Babbling,
    /// Answers with only the beginning of a JSON document.
    Truncating,
    /// Answers with pages that always make a client request one more page.
    Endless,
    Redirecting,
    /// Issues one token that the API rejects. After this token, the mood is `Good`.
    Revoking,
    Distrusting,
    /// Never answers.
    Silent,
}

#[derive(Debug)]
struct State<M> {
    machines: BTreeMap<u64, M>,
    mood: Mood,
    /// The machine that is removed after the next page is sent.
    removed_after_a_page: Option<u64>,
    /// The number of upcoming requests that fail with 503.
    lost: usize,
    calls: usize,
    logins: usize,
}

/// A running stand-in for an API. Dropping it stops the stand-in.
#[derive(Debug)]
pub struct ListApi<M>(StandInApi<State<M>>);

impl<M: ListedMachine> ListApi<M> {
    /// Starts the stand-in without machines.
    pub fn start() -> anyhow::Result<ListApi<M>> {
        let state = State {
            machines: BTreeMap::new(),
            mood: Mood::Good,
            removed_after_a_page: None,
            lost: 0,
            calls: 0,
            logins: 0,
        };
        Ok(ListApi(StandInApi::start(M::API.name, state, |request, state| async move {
            if M::LOGIN.is_some_and(|path| request.uri().path() == path) {
                return login::<M>(request, &state).await;
            }
            answer(&request, &mut state.lock())
        })?))
    }

    /// The URL of the API, with its base path.
    pub fn url(&self) -> String {
        format!("{}{}", self.0.url(), M::API.base)
    }

    /// The URL of the API, without its base path.
    pub fn origin(&self) -> String {
        self.0.url()
    }

    pub fn logins(&self) -> usize {
        self.0.state().logins
    }

    /// Adds or replaces the machine with this number.
    pub fn put(&self, number: u64, machine: M) {
        self.0.state().machines.insert(number, machine);
    }

    pub fn set_mood(&self, mood: Mood) {
        self.0.state().mood = mood;
    }

    pub fn remove(&self, number: u64) {
        self.0.state().machines.remove(&number);
    }

    /// Removes a machine after the next page is sent.
    pub fn remove_after_a_page(&self, number: u64) {
        self.0.state().removed_after_a_page = Some(number);
    }

    /// Fails the next `requests` requests with 503.
    pub fn lose(&self, requests: usize) {
        self.0.state().lost = requests;
    }

    /// The number of requests so far, without logins.
    pub fn calls(&self) -> usize {
        self.0.state().calls
    }
}

async fn login<M: ListedMachine>(
    request: Request<Incoming>,
    state: &Shared<State<M>>,
) -> Option<Response<String>> {
    let host = header(&request, "host").to_owned();
    let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let mut state = state.lock();
    state.logins += 1;
    let is_revoked = state.mood == Mood::Revoking;
    match state.mood {
        Mood::Distrusting => return Some(refusal::<M>(401, "unauthorized")),
        Mood::Revoking => state.mood = Mood::Good,
        _ => {}
    }
    Some(M::login(&body, &host, is_revoked))
}

fn answer<M: ListedMachine>(request: &Request<Incoming>, state: &mut State<M>) -> Option<Response<String>> {
    let Api { token, token_header, base, path, throttled, down, .. } = M::API;
    let location = format!("{base}{path}");
    state.calls += 1;
    if let Some(left) = state.lost.checked_sub(1) {
        state.lost = left;
        return Some(refusal::<M>(503, down));
    }
    let (name, before) = token_header;
    if header(request, name) != format!("{before}{token}") {
        return Some(refusal::<M>(401, "unauthorized"));
    }
    let id = request.uri().path().strip_prefix(&format!("{base}{}/", M::MACHINES));
    let one = id.filter(|_| request.uri().path() != location);
    if request.method() != Method::GET || one.is_none() && request.uri().path() != location {
        return Some(refusal::<M>(404, "not_found"));
    }
    Some(match state.mood {
        Mood::Good | Mood::Revoking | Mood::Distrusting => match one {
            Some(id) => match state.machines.iter().find(|(number, _)| M::id(**number) == id) {
                Some((number, machine)) => said(200, M::one(machine.json(*number)).to_string()),
                None => refusal::<M>(404, "not_found"),
            },
            None => list(&selecting::<M>(request), state),
        },
        Mood::Throttling => refusal::<M>(429, throttled),
        Mood::ThrottlingFor(pause) => {
            let mut response = refusal::<M>(429, throttled);
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(pause.as_secs()));
            response
        }
        Mood::Down => refusal::<M>(503, down),
        Mood::Forbidding => refusal::<M>(403, "forbidden"),
        Mood::NotFound => refusal::<M>(404, "not_found"),
        Mood::Babbling => said(200, "<html>Welcome</html>"),
        Mood::Truncating => {
            let whole = M::page(Vec::new(), 1, 1, 0).to_string();
            said(200, &whole[..whole.len() / 2])
        }
        Mood::Endless => {
            let page = parameters(request).get("page").and_then(|page| page.parse().ok());
            said(200, M::endless_page(page.unwrap_or(1)).to_string())
        }
        Mood::Redirecting => elsewhere(302, &location),
        Mood::Silent => return None,
    })
}

/// The query parameters of a request, and its header that selects machines.
fn selecting<M: ListedMachine>(request: &Request<Incoming>) -> BTreeMap<String, String> {
    let mut parameters = parameters(request);
    parameters.extend(M::API.filter.map(|name| (name.to_owned(), header(request, name).to_owned())));
    parameters
}

fn list<M: ListedMachine>(parameters: &BTreeMap<String, String>, state: &mut State<M>) -> Response<String> {
    let Api { page_size, per_page: [usual, most], newest_first, says_total, .. } = M::API;
    let number =
        |name: &str, usual: usize| parameters.get(name).map_or(Some(usual), |text| text.parse().ok());
    let (Some(page), Some(per_page)) = (number("page", 1), number(page_size, usual)) else {
        return refusal::<M>(400, "invalid_input");
    };
    if page == 0 || !(1..=most).contains(&per_page) {
        return refusal::<M>(400, "invalid_input");
    }
    let selected = state.machines.iter().filter(|(_, machine)| machine.is_selected(parameters));
    let (mut numbers, mut all): (Vec<u64>, Vec<Value>) =
        selected.map(|(number, machine)| (*number, machine.json(*number))).unzip();
    if newest_first.is_some_and(|(name, value)| parameters.get(name).is_some_and(|asked| asked == value)) {
        numbers.reverse();
        all.reverse();
    }
    let total = all.len();
    let start = match parameters.get("marker").filter(|_| M::BY_MARKER) {
        Some(marker) => match numbers.iter().position(|number| M::id(*number) == *marker) {
            Some(at) => at + 1,
            None => return refusal::<M>(400, "invalid_marker"),
        },
        None => (page - 1) * per_page,
    };
    let of_page = all.into_iter().skip(start).take(per_page).collect();
    if let Some(number) = state.removed_after_a_page.take() {
        state.machines.remove(&number);
    }
    let mut response = said(200, M::page(of_page, page, per_page, total).to_string());
    if says_total {
        response.headers_mut().insert("x-total-count", HeaderValue::from(total));
    }
    response
}

fn refusal<M: ListedMachine>(status: u16, code: &str) -> Response<String> {
    said(status, M::error(code).to_string())
}
