//! The API of a cloud that lists a project's machines page by page for a token, for as long as its value lives: refusals, and
//! faults.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::header::{HeaderValue, RETRY_AFTER};
use hyper::{Method, Request, Response};
use serde_json::Value;

use crate::stand_in_api::{Shared, StandInApi, elsewhere, header, parameters, said};

/// A machine, as its cloud lists it.
pub trait ListedMachine: Clone + Debug + Send + 'static {
    /// What is told of its API.
    const API: Api;

    /// How the cloud writes the id that is made from a number.
    fn id(number: u64) -> String {
        number.to_string()
    }
    /// How the list has it under its number.
    fn json(&self, number: u64) -> Value;
    /// Whether these parameters of a request, among which its header [`Api::filter`] is, select it.
    fn is_selected(&self, parameters: &BTreeMap<String, String>) -> bool;
    /// A page of the list of so many in all.
    fn page(machines: Vec<Value>, page: usize, per_page: usize, total: usize) -> Value;
    /// Below what each machine is, below [`Api::base`].
    const MACHINES: &'static str = Self::API.path;
    /// The answer about one machine.
    fn one(machine: Value) -> Value;
    /// The page that another one always comes after.
    fn endless_page(page: usize) -> Value;
    /// The body of an error.
    fn error(code: &str) -> Value;

    /// Whether a page is asked for by the last machine of the one before.
    const BY_MARKER: bool = false;
    /// Where a login is asked for a token, if there is such a thing.
    const LOGIN: Option<&'static str> = None;
    /// What a login is answered: `body` is what it sends, `host` where it has come to, and `is_revoked` says to give a token that
    /// will be refused.
    fn login(_body: &[u8], _host: &str, _is_revoked: bool) -> Response<String> {
        said(404, "")
    }
}

/// What is told of an API.
#[derive(Debug)]
pub struct Api {
    pub name: &'static str,
    /// The token that is taken.
    pub token: &'static str,
    /// Below what all of it is.
    pub base: &'static str,
    /// Where the list is.
    pub path: &'static str,
    /// The header that has the token, and what is before it there.
    pub token_header: (&'static str, &'static str),
    /// A header that selects machines.
    pub filter: Option<&'static str>,
    /// The parameter that says how many machines a page has.
    pub page_size: &'static str,
    /// The machines of a page that is asked for without a number of them, and at most.
    pub per_page: [usize; 2],
    /// The parameter that has the newest machines on the first page, where there is one; else they are on the last.
    pub newest_first: Option<(&'static str, &'static str)>,
    /// Whether a header of an answer says how many machines all pages have.
    pub says_total: bool,
    /// The code of the error of a throttled request.
    pub throttled: &'static str,
    /// The code of its own trouble.
    pub down: &'static str,
}

/// How it is to answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mood {
    #[default]
    Good,
    /// That it is asked too much.
    Throttling,
    /// The same, and for how long not to ask.
    ThrottlingFor(Duration),
    /// With an error of its own.
    Down,
    Forbidding,
    /// That there is no such list.
    NotFound,
    /// What is no JSON.
    Babbling,
    /// With the beginning of an answer only.
    Truncating,
    /// With a page that there is another one after, always.
    Endless,
    Redirecting,
    /// As usual, but for the next token, which is revoked.
    Revoking,
    Distrusting,
    /// Not at all.
    Silent,
}

#[derive(Debug)]
struct State<M> {
    machines: BTreeMap<u64, M>,
    mood: Mood,
    /// The machine that is removed when a page has been given.
    removed_after_a_page: Option<u64>,
    /// How many requests it does not answer to the end, from the next one on.
    lost: usize,
    calls: usize,
    logins: usize,
}

/// A running API; dropping it stops it.
#[derive(Debug)]
pub struct ListApi<M>(StandInApi<State<M>>);

impl<M: ListedMachine> ListApi<M> {
    /// Starts without a machine in it.
    ///
    /// # Errors
    /// If there is no free port or no thread to be had.
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

    /// Where it is.
    pub fn url(&self) -> String {
        format!("{}{}", self.0.url(), M::API.base)
    }

    /// Where it is, without what all of it is below.
    pub fn origin(&self) -> String {
        self.0.url()
    }

    /// How often a login was asked for a token.
    pub fn logins(&self) -> usize {
        self.0.state().logins
    }

    /// Adds the machine with the id that is made from a number, or changes it.
    pub fn put(&self, number: u64, machine: M) {
        self.0.state().machines.insert(number, machine);
    }

    /// Answers like this from now on.
    pub fn set_mood(&self, mood: Mood) {
        self.0.state().mood = mood;
    }

    pub fn remove(&self, number: u64) {
        self.0.state().machines.remove(&number);
    }

    /// Removes a machine when it has given a page.
    pub fn remove_after_a_page(&self, number: u64) {
        self.0.state().removed_after_a_page = Some(number);
    }

    /// Is in trouble of its own for so many requests.
    pub fn lose(&self, requests: usize) {
        self.0.state().lost = requests;
    }

    /// How often it was asked.
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

/// The parameters of a request, and the header that selects machines.
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
