//! One round: reads the channels and the recorded versions, and applies the due add-ons.
//!
//! Each round reads each namespace of add-ons once, so a current add-on costs no request of its own. The authority of
//! an add-on is read once an hour.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kops_agent_cluster::addons::{Addon, ChannelVersion, Due, LeftOut, Report, due, leave_to_last_channel};
use kops_agent_process::output::error_text;
use kops_agent_source::failure::kind_of;
use kops_agent_spec::failure::{Failing as _, Failure};
use kops_agent_store::Store;
use tokio::time::Instant;

use super::backoff::Attempts;
use crate::addons::installed::OfNamespace;
use crate::addons::objects::Objects;
use crate::addons::{authority, installed, reading, updating};
use kops_agent_kube::api_error::ApiError;
use kops_agent_kube::events::Events;
use kops_agent_kube::lease::Leadership;

/// How long an add-on's certificate authority is assumed to exist after it was found. During this time, rounds do not look it up again.
const AUTHORITY_STANDS: Duration = Duration::from_secs(60 * 60);

/// The channels and clients that every round uses, and the state that one round passes to the next.
pub struct Rounds {
    channels: Vec<String>,
    store: Store,
    objects: Objects,
    leadership: Leadership,
    attempts: Attempts,
    /// When each add-on's own certificate authority was last found.
    authorities: BTreeMap<String, Instant>,
}

#[derive(Debug, Default)]
pub struct Round {
    /// Why the round could not run; `None` if it ran.
    pub problem: Option<String>,
    /// For each channel URL: the skipped entries, or why the channel could not be read.
    pub channels: BTreeMap<String, Read>,
    /// Entries that were skipped because a later channel has the add-on too.
    pub others: Vec<Addon>,
    /// The states of the add-ons of all readable channels, in order. If this process loses its Lease before it applies a due add-on, the
    /// add-on is missing here.
    pub addons: Vec<(Addon, State)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// The cluster has the channel's version.
    Current,
    /// A person has paused the add-on. The text names the annotation.
    Paused(String),
    /// The add-on was due, and this round applied it.
    Applied(Report),
    /// The add-on was due, and this round failed to apply it. The fields are the problem and the backoff.
    Failed(String, Duration),
    /// The add-on is due, but has failed and waits for the end of its backoff.
    Waiting(String),
    /// This round could not determine whether the add-on is due.
    Unknown(String),
}

impl State {
    pub fn problem(&self) -> Option<&str> {
        match self {
            State::Current | State::Paused(_) | State::Applied(_) => None,
            State::Failed(problem, _) | State::Waiting(problem) | State::Unknown(problem) => Some(problem),
        }
    }
}

impl Round {
    /// Whether the round could read everything.
    pub fn is_complete(&self) -> bool {
        let is_known = |(_, state): &(Addon, State)| !matches!(state, State::Unknown(_));
        self.problem.is_none()
            && self.channels.values().all(Result::is_ok)
            && self.addons.iter().all(is_known)
    }
}

impl Rounds {
    /// Prepares rounds for these channels. If a channel is repeated, only its last position counts.
    pub fn new(channels: Vec<String>, store: Store, objects: Objects, leadership: Leadership) -> Rounds {
        let is_last = |(index, channel): &(usize, &String)| !channels[index + 1..].contains(channel);
        let channels =
            channels.iter().enumerate().filter(is_last).map(|(_, channel)| channel.clone()).collect();
        let (attempts, authorities) = Default::default();
        Rounds { channels, store, objects, leadership, attempts, authorities }
    }

    /// Clears the state, because another process may have led in the meantime.
    pub fn begin(&mut self) {
        self.attempts = Attempts::default();
        self.authorities.clear();
    }

    pub fn events(&self) -> &Events {
        &self.objects.events
    }

    /// The earliest end of any add-on's backoff.
    pub fn next_attempt(&self) -> Option<Instant> {
        self.attempts.next()
    }

    /// Runs one round. Applies due add-ons only while this process leads.
    pub async fn round(&mut self) -> Round {
        let mut round = Round::default();
        let version = match reading::server_version(self.objects.client()).await {
            Ok(version) => version,
            Err(error) => return Round { problem: Some(error_text(&error)), ..round },
        };
        // The release decides how channels are parsed. Without the release, no channel can be parsed.
        let failed = |error: anyhow::Error| Failure::new(kind_of(&error), error_text(&error));
        let release = reading::release(&self.store, &self.channels).await.map_err(failed);
        let (mut readable, mut menus) = (Vec::new(), Vec::new());
        for channel in &self.channels {
            let menu = match &release {
                Ok(release) => reading::menu(&self.store, channel, version, *release).await.map_err(failed),
                Err(failure) => Err(failure.clone()),
            };
            let read = menu.map(|menu| {
                let left_out = menu.left_out.clone();
                readable.push(channel);
                menus.push(menu);
                left_out
            });
            round.channels.insert(channel.clone(), read);
        }
        round.others = leave_to_last_channel(&mut menus);
        for (channel, menu) in readable.into_iter().zip(&menus) {
            self.attempts.keep(channel, &menu.addons);
        }
        let addons: Vec<Addon> = menus.into_iter().flat_map(|menu| menu.addons).collect();
        let recorded = self.recorded(&addons).await;
        // CustomResourceDefinitions may have been added or removed since the last round.
        self.objects.resources.forget();
        let (mut states, mut due) = (Vec::new(), Vec::new());
        for (index, addon) in addons.iter().enumerate() {
            let state = match self.state_or_due(addon, &recorded, &round.channels).await {
                StateOrDue::Settled(state) => Some(state),
                StateOrDue::Due(what) => {
                    due.push((index, addon.clone(), what));
                    None
                }
            };
            states.push(state);
        }
        let leads = || self.leadership.remaining().is_some();
        let work = due.iter().map(|(_, addon, due)| (addon, due)).collect();
        let reports = updating::update_all(&self.objects, &self.store, work, leads).await;
        for ((index, addon, _), report) in due.iter().zip(reports) {
            states[*index] = report.map(|report| self.settle(addon, report));
        }
        round.addons =
            addons.into_iter().zip(states).filter_map(|(addon, state)| Some((addon, state?))).collect();
        round
    }

    /// For each namespace of these add-ons, reads the installed versions and the paused add-ons. The keys of the result are the namespaces.
    async fn recorded(&self, addons: &[Addon]) -> BTreeMap<String, Recorded> {
        let namespaces: BTreeSet<&str> = addons.iter().map(Addon::namespace).collect();
        let mut recorded = BTreeMap::new();
        for namespace in namespaces {
            let read = installed::of_namespace(self.objects.client(), namespace).await;
            let read = read.map_err(|error| {
                Failure::new(error.kind(), format!("reading the namespace {namespace}: {error}"))
            });
            recorded.insert(namespace.to_owned(), read);
        }
        recorded
    }

    /// Returns the work to do for an add-on now. If there is none, returns the add-on's state. Changes nothing in the cluster.
    async fn state_or_due(
        &mut self,
        addon: &Addon,
        recorded: &BTreeMap<String, Recorded>,
        read: &BTreeMap<String, Read>,
    ) -> StateOrDue {
        let unknown = |problem| StateOrDue::Settled(State::Unknown(problem));
        let installed = match recorded.get(addon.namespace()) {
            Some(Ok(found)) if found.paused.contains(&addon.name) => {
                self.attempts.done(addon);
                return StateOrDue::Settled(State::Paused(updating::pause_of(addon)));
            }
            Some(Ok(found)) => found.versions.get(&addon.name),
            Some(Err(failure)) => return unknown(failure.to_string()),
            None => None,
        };
        let has_authority = match self.has_authority(addon).await {
            Ok(has_authority) => has_authority,
            Err(error) => return unknown(format!("reading the add-on's authority: {error}")),
        };
        let Some(due) = due(addon, installed, has_authority) else {
            self.attempts.done(addon);
            return StateOrDue::Settled(State::Current);
        };
        if let Some(later) = self.unread_later(addon, installed, read) {
            return unknown(format!(
                "the add-on was installed from the channel {later}, which cannot be read and may \
                 still have this add-on"
            ));
        }
        match self.attempts.waits(addon, Instant::now()) {
            Some(problem) => StateOrDue::Settled(State::Waiting(problem.to_owned())),
            None => StateOrDue::Due(due),
        }
    }

    /// Ends the add-on's backoff after a successful update, or starts the next backoff after a failed update. Returns the add-on's state.
    fn settle(&mut self, addon: &Addon, report: Report) -> State {
        if report.problems.is_empty() {
            self.attempts.done(addon);
            return State::Applied(report);
        }
        let problem = report.problems.join("; ");
        let pause = self.attempts.failed(addon, problem.clone(), Instant::now());
        State::Failed(problem, pause)
    }

    /// Returns the channel from which the add-on was installed, if this channel comes after the channel of `addon` and cannot be read now.
    fn unread_later<'a>(
        &self,
        addon: &Addon,
        installed: Option<&'a ChannelVersion>,
        read: &BTreeMap<String, Read>,
    ) -> Option<&'a str> {
        let of = installed?.channel.as_deref()?;
        let place = |channel: &str| self.channels.iter().position(|one| one == channel);
        let is_unread = read.get(of).is_some_and(Result::is_err);
        (is_unread && place(of) > place(&addon.channel)).then_some(of)
    }

    async fn has_authority(&mut self, addon: &Addon) -> Result<bool, ApiError> {
        if !addon.spec.needs_pki {
            return Ok(true);
        }
        let now = Instant::now();
        let stands = |seen: &Instant| now.saturating_duration_since(*seen) < AUTHORITY_STANDS;
        if self.authorities.get(&addon.name).is_some_and(stands) {
            return Ok(true);
        }
        let is_there = authority::is_there(&self.objects, &addon.name).await?;
        if is_there {
            self.authorities.insert(addon.name.clone(), now);
        }
        Ok(is_there)
    }
}

enum StateOrDue {
    /// The add-on has this state, and needs no work now.
    Settled(State),
    Due(Due),
}

/// The skipped entries of a channel, or why the channel could not be read.
type Read = Result<Vec<LeftOut>, Failure>;
/// The installed versions and the paused add-ons of a namespace, or why the namespace could not be read.
type Recorded = Result<OfNamespace, Failure>;

#[cfg(test)]
mod tests;
