//! One look at everything: the channels, the versions that the cluster records, and what is due, which is done.
//!
//! An add-on that is current costs no request of its own: its namespace is read once a look, and the authorities of add-ons that have one
//! once an hour.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kops_agent_plan::addons::{Addon, ChannelVersion, Due, LeftOut, due, leave_to_last_channel};
use kops_agent_process::output::error_text;
use kops_agent_store::Store;
use tokio::time::Instant;

use super::backoff::Attempts;
use crate::addons::installed::OfNamespace;
use crate::addons::objects::Objects;
use crate::addons::updating::{self, Report};
use crate::addons::{authority, installed, reading};
use crate::api_error::ApiError;
use crate::events::Events;
use crate::lease::Leadership;

/// How long an authority that was there is taken to be there.
const AUTHORITY_STANDS: Duration = Duration::from_secs(60 * 60);

/// What is looked at, and what is known from one look to the next.
pub struct Rounds {
    channels: Vec<String>,
    store: Store,
    objects: Objects,
    leadership: Leadership,
    attempts: Attempts,
    /// When the authorities of add-ons were last seen.
    authorities: BTreeMap<String, Instant>,
}

/// What a look has found and done.
#[derive(Debug, Default)]
pub struct Round {
    /// Why nothing could be looked at, if so.
    pub problem: Option<String>,
    /// By the channels' URLs: entries that are passed over, or why the channel could not be read.
    pub channels: BTreeMap<String, Read>,
    /// Entries of add-ons that a later channel has, too.
    pub others: Vec<Addon>,
    /// How the add-ons of the channels that could be read stand, in order. An add-on that is due is missing where this process lost its
    /// Lease before the add-on's turn.
    pub addons: Vec<(Addon, State)>,
}

/// How an add-on stands after a look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// The cluster has the channel's version.
    Current,
    /// A person has paused it, by this.
    Paused(String),
    /// It was due, and is current now.
    Applied(Report),
    /// It is due, was tried, and failed; and the pause that begins.
    Failed(String, Duration),
    /// It is due and has failed before, and is not tried yet.
    Waiting(String),
    /// Whether it is due could not be told.
    Unknown(String),
}

impl State {
    /// What is wrong; `None` where nothing is.
    pub fn problem(&self) -> Option<&str> {
        match self {
            State::Current | State::Paused(_) | State::Applied(_) => None,
            State::Failed(problem, _) | State::Waiting(problem) | State::Unknown(problem) => Some(problem),
        }
    }
}

impl Round {
    /// Whether all that was to be read was.
    pub fn is_complete(&self) -> bool {
        let is_known = |(_, state): &(Addon, State)| !matches!(state, State::Unknown(_));
        self.problem.is_none()
            && self.channels.values().all(Result::is_ok)
            && self.addons.iter().all(is_known)
    }
}

impl Rounds {
    /// Of these channels. One that is named twice counts where it is named last.
    pub fn of(channels: Vec<String>, store: Store, objects: Objects, leadership: Leadership) -> Rounds {
        let is_last = |(index, channel): &(usize, &String)| !channels[index + 1..].contains(channel);
        let channels =
            channels.iter().enumerate().filter(is_last).map(|(_, channel)| channel.clone()).collect();
        let (attempts, authorities) = Default::default();
        Rounds { channels, store, objects, leadership, attempts, authorities }
    }

    /// Forgets what was known: another process may have done this work since.
    pub fn begin(&mut self) {
        self.attempts = Attempts::default();
        self.authorities.clear();
    }

    /// Where Events about add-ons are created.
    pub fn events(&self) -> &Events {
        &self.objects.events
    }

    /// When the next pause of an add-on that failed ends.
    pub fn next_attempt(&self) -> Option<Instant> {
        self.attempts.next()
    }

    /// Looks once, and does what is due while this process leads.
    pub async fn round(&mut self) -> Round {
        let mut round = Round::default();
        let version = match reading::server_version(self.objects.client()).await {
            Ok(version) => version,
            Err(error) => return Round { problem: Some(error_text(&error)), ..round },
        };
        // Without the rules that channels are followed by, none can be.
        let release = reading::release(&self.store, &self.channels).await.map_err(|error| error_text(&error));
        let (mut readable, mut menus) = (Vec::new(), Vec::new());
        for channel in &self.channels {
            let menu = match &release {
                Ok(release) => reading::menu(&self.store, channel, version, *release)
                    .await
                    .map_err(|error| error_text(&error)),
                Err(problem) => Err(problem.clone()),
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
        // Definitions of kinds may have come and gone since.
        self.objects.resources.forget();
        let (mut states, mut due) = (Vec::new(), Vec::new());
        for (index, addon) in addons.iter().enumerate() {
            let state = match self.look_at(addon, &recorded, &round.channels).await {
                Look::Settled(state) => Some(state),
                Look::Due(what) => {
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

    /// What the namespaces of add-ons record, by namespace.
    async fn recorded(&self, addons: &[Addon]) -> BTreeMap<String, Recorded> {
        let namespaces: BTreeSet<&str> = addons.iter().map(Addon::namespace).collect();
        let mut recorded = BTreeMap::new();
        for namespace in namespaces {
            let read = installed::of_namespace(self.objects.client(), namespace).await;
            let read = read.map_err(|error| format!("reading the namespace {namespace}: {error}"));
            recorded.insert(namespace.to_owned(), read);
        }
        recorded
    }

    /// Looks at an add-on without changing anything.
    async fn look_at(
        &mut self,
        addon: &Addon,
        recorded: &BTreeMap<String, Recorded>,
        read: &BTreeMap<String, Read>,
    ) -> Look {
        let unknown = |problem| Look::Settled(State::Unknown(problem));
        let installed = match recorded.get(addon.namespace()) {
            Some(Ok(found)) if found.paused.contains(&addon.name) => {
                self.attempts.done(addon);
                return Look::Settled(State::Paused(updating::pause_of(addon)));
            }
            Some(Ok(found)) => found.versions.get(&addon.name),
            Some(Err(problem)) => return unknown(problem.clone()),
            None => None,
        };
        let has_authority = match self.has_authority(addon).await {
            Ok(has_authority) => has_authority,
            Err(error) => return unknown(format!("looking for its authority: {error}")),
        };
        let Some(due) = due(addon, installed, has_authority) else {
            self.attempts.done(addon);
            return Look::Settled(State::Current);
        };
        if let Some(later) = self.unread_later(addon, installed, read) {
            return unknown(format!(
                "the cluster has it of {later}, which may still have it and cannot be read"
            ));
        }
        match self.attempts.waits(addon, Instant::now()) {
            Some(problem) => Look::Settled(State::Waiting(problem.to_owned())),
            None => Look::Due(due),
        }
    }

    /// Notes what came of updating an add-on.
    fn settle(&mut self, addon: &Addon, report: Report) -> State {
        if report.problems.is_empty() {
            self.attempts.done(addon);
            return State::Applied(report);
        }
        let problem = report.problems.join("; ");
        let pause = self.attempts.failed(addon, problem.clone(), Instant::now());
        State::Failed(problem, pause)
    }

    /// The later channel of which the cluster has an add-on, where it cannot be read now.
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

/// What a look at one add-on says.
enum Look {
    /// Nothing is to be done about it now.
    Settled(State),
    /// This is to be done about it.
    Due(Due),
}

/// Entries of a channel that are passed over, or why it could not be read.
type Read = Result<Vec<LeftOut>, String>;
/// What a namespace records of add-ons, or why that is not known.
type Recorded = Result<OfNamespace, String>;

#[cfg(test)]
mod tests;
