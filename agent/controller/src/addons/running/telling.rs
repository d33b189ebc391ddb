//! Reports the results of rounds: in the log, in Events about kube-system, and to probes. An unchanged problem is reported once.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::join_all;
use kops_agent_cluster::addons::{Addon, Report};
use kops_agent_cluster::fleet::short_hash;
use kops_agent_spec::failure::Failure;
use parking_lot::Mutex;

use super::round::{Round, State};
use kops_agent_kube::events::{Events, Reason};

/// A message for the log. Some messages are also written as an Event.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Told {
    /// An add-on was applied. Written as a log line and an Event.
    Done(String),
    /// A problem. Written as a warning in the log, and as an Event if it has a reason.
    Wrong {
        /// The Event's reason; `None` for a problem without an Event.
        reason: Option<Reason>,
        message: String,
    },
    /// A reported problem has ended. Written as a log line.
    Mended(String),
}

#[derive(Debug, Default)]
pub struct Telling {
    /// The reported problems, by subject.
    said: BTreeMap<String, String>,
}

impl Telling {
    pub async fn tell(&mut self, round: &Round, events: &Events) {
        let all = self.news(round);
        for told in &all {
            match told {
                Told::Done(message) | Told::Mended(message) => log::info!("{message}"),
                Told::Wrong { message, .. } => log::warn!("{message}"),
            }
        }
        join_all(all.iter().map(|told| async move {
            match told {
                Told::Done(message) => events.tell_of_addons(Reason::AddonApplied, message).await,
                Told::Wrong { reason: Some(reason), message } => {
                    events.warn_of_addons(*reason, message).await
                }
                Told::Wrong { reason: None, .. } | Told::Mended(_) => {}
            }
        }))
        .await;
    }

    /// The messages to report after a round.
    fn news(&mut self, round: &Round) -> Vec<Told> {
        let mut news = Vec::new();
        let api = "the add-ons of the cluster cannot be checked";
        news.extend(self.changed(api, None, round.problem.as_deref()));
        for (channel, read) in &round.channels {
            let unread = format!("the channel {channel} cannot be read, so its add-ons are not changed");
            let problem = read.as_ref().err().map(Failure::to_string);
            news.extend(self.changed(&unread, Some(Reason::ChannelUnreadable), problem.as_deref()));
            for left_out in read.iter().flatten() {
                let problem = left_out.problem.to_string();
                news.extend(self.changed(
                    &passed_over(&left_out.name),
                    Some(Reason::AddonPassedOver),
                    Some(&problem),
                ));
            }
        }
        for other in &round.others {
            news.extend(self.changed(
                &entry_passed_over(other),
                None,
                Some("a later channel has this add-on, too"),
            ));
        }
        for mended in self.no_longer_passed_over(round) {
            news.extend(self.changed(&mended, None, None));
        }
        for (addon, state) in &round.addons {
            let name = &addon.name;
            let unknown = format!("the add-on {name} cannot be checked");
            let problem = match state {
                State::Unknown(problem) => Some(problem.as_str()),
                _ => None,
            };
            news.extend(self.changed(&unknown, None, problem));
            let pause = match state {
                State::Paused(pause) => Some(pause.as_str()),
                _ => None,
            };
            news.extend(self.changed(
                &format!("the add-on {name} is paused"),
                Some(Reason::AddonPaused),
                pause,
            ));
            match state {
                State::Applied(report) => news.push(Told::Done(done(&addon.spec.manifest_hash, report))),
                // Each attempt is reported, because each attempt may change objects.
                State::Failed(problem, pause) => news.push(Told::Wrong {
                    reason: Some(Reason::AddonFailed),
                    message: format!(
                        "the add-on {name} could not be applied; retrying in {} s: {problem}",
                        pause.as_secs()
                    ),
                }),
                State::Current | State::Paused(_) | State::Waiting(_) | State::Unknown(_) => {}
            }
        }
        news
    }

    /// The keys of `said` about entries that are no longer skipped. Empty while any channel cannot be read.
    fn no_longer_passed_over(&self, round: &Round) -> Vec<String> {
        if round.problem.is_some() || round.channels.values().any(Result::is_err) {
            return Vec::new();
        }
        let left_out = round.channels.values().flatten().flatten();
        let mut still: BTreeSet<String> = left_out.map(|left_out| passed_over(&left_out.name)).collect();
        still.extend(round.others.iter().map(entry_passed_over));
        let is_of_an_entry = |said: &&String| said.ends_with(PASSED_OVER) && !still.contains(*said);
        self.said.keys().filter(is_of_an_entry).cloned().collect()
    }

    fn changed(&mut self, what: &str, reason: Option<Reason>, problem: Option<&str>) -> Option<Told> {
        match problem {
            Some(problem) if self.said.get(what).is_some_and(|said| said == problem) => None,
            Some(problem) => {
                self.said.insert(what.to_owned(), problem.to_owned());
                Some(Told::Wrong { reason, message: format!("{what}: {problem}") })
            }
            None => self.said.remove(what).map(|_| Told::Mended(format!("resolved: {what}"))),
        }
    }
}

/// The words before the reason in each message about a skipped entry.
const PASSED_OVER: &str = "is skipped";

fn passed_over(addon: &str) -> String {
    format!("the add-on {addon} {PASSED_OVER}")
}

fn entry_passed_over(addon: &Addon) -> String {
    format!("the entry of {} for the add-on {} {PASSED_OVER}", addon.channel, addon.name)
}

/// The message that an add-on was applied. It contains the manifest's hash, because two updates with equal texts would share one Event.
fn done(manifest_hash: &str, report: &Report) -> String {
    let mut parts = vec![format!("{} objects", report.objects)];
    let all =
        [("took over", &report.taken_over), ("pruned", &report.pruned), ("left paused", &report.paused)];
    for (what, which) in all {
        if !which.is_empty() {
            parts.push(format!("{what} {}", which.join(", ")));
        }
    }
    if report.made_authority {
        parts.push("its authority made".to_owned());
    }
    if report.marked_nodes > 0 {
        parts.push(format!("{} Nodes marked for replacement", report.marked_nodes));
    }
    let version = short_hash(manifest_hash);
    let of_version = if version.is_empty() { String::new() } else { format!(" ({version})") };
    format!("the add-on {} was applied{of_version}: {}", report.name, parts.join("; "))
}

/// The answer to readiness probes: the problems with add-ons and with this machine's Node.
#[derive(Debug, Default)]
pub struct Readiness {
    applying: Mutex<Option<String>>,
    labelling: Mutex<Option<String>>,
}

impl Readiness {
    /// Stores the problems of a round.
    pub fn note(&self, round: &Round) {
        let unread = round.channels.iter().filter_map(|(channel, read)| {
            Some(format!("the channel {channel} cannot be read: {}", read.as_ref().err()?))
        });
        let wrong = round
            .addons
            .iter()
            .filter_map(|(addon, state)| Some(format!("the add-on {}: {}", addon.name, state.problem()?)));
        let problems: Vec<String> = round.problem.iter().cloned().chain(unread).chain(wrong).collect();
        self.applies((!problems.is_empty()).then(|| problems.join("\n")));
    }

    /// Stores the problem with applying add-ons, if any.
    pub fn applies(&self, problem: Option<String>) {
        *self.applying.lock() = problem;
    }

    /// Stores the problem with the labels of this machine's Node, if any.
    pub fn labels(&self, problem: Option<String>) {
        *self.labelling.lock() = problem;
    }

    /// All problems, one per line; `None` if there is no problem.
    pub fn problems(&self) -> Option<String> {
        let problems: Vec<String> =
            [&self.labelling, &self.applying].into_iter().filter_map(|one| one.lock().clone()).collect();
        (!problems.is_empty()).then(|| problems.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use kops_agent_cluster::addons::{Channel, ServerVersion};
    use kops_agent_spec::failure::Kind;
    use kops_agent_spec::kops_release::KopsRelease;

    use super::*;

    const URL: &str = "s3://b/channel.yaml";

    fn round(state: State) -> Round {
        let channel =
            "{kind: Addons, spec: {addons: [{name: a, manifest: m}, {name: w, kubernetesVersion: new}]}}";
        let menu = Channel::parse(channel.as_bytes(), URL, KopsRelease::NEWEST)
            .unwrap()
            .menu(ServerVersion::parse("v1.36.0").unwrap());
        Round {
            problem: None,
            channels: [(URL.to_owned(), Ok(menu.left_out))].into(),
            others: Vec::new(),
            addons: menu.addons.into_iter().map(|addon| (addon, state.clone())).collect(),
        }
    }

    fn unread(why: &str) -> Round {
        Round {
            channels: [(URL.to_owned(), Err(Failure::new(Kind::StoreForbidden, why)))].into(),
            ..Round::default()
        }
    }

    fn messages(told: Vec<Told>) -> Vec<(Option<&'static str>, String)> {
        let message = |told| match told {
            Told::Done(message) => (Some("done"), message),
            Told::Wrong { reason, message } => (reason.map(Reason::name), message),
            Told::Mended(message) => (Some("mended"), message),
        };
        told.into_iter().map(message).collect()
    }

    #[test]
    fn an_unchanged_state_is_reported_once_and_each_attempt_is_reported() {
        let mut telling = Telling::default();
        let first = messages(telling.news(&round(State::Failed("no".into(), Duration::from_secs(5)))));
        let passed_over =
            "the add-on w is skipped: cannot read field spec.addons[1].kubernetesVersion of s3:";
        assert!(first[0].1.starts_with(passed_over) && first[0].0 == Some("AddonPassedOver"), "{first:?}");
        let failed = "the add-on a could not be applied; retrying in 5 s: no".to_owned();
        assert_eq!(first[1..], [(Some("AddonFailed"), failed)]);
        assert_eq!(telling.news(&round(State::Waiting("no".into()))), []);
        assert_eq!(telling.news(&round(State::Failed("no".into(), Duration::from_secs(10)))).len(), 1);

        let unread_now = messages(telling.news(&unread("403")));
        let message = format!("the channel {URL} cannot be read, so its add-ons are not changed: 403");
        assert_eq!(unread_now, [(Some("ChannelUnreadable"), message)]);
        assert_eq!(telling.news(&unread("403")), []);
        assert_eq!(telling.news(&unread("503")).len(), 1);
        let report =
            Report { name: "a".into(), objects: 2, pruned: vec!["Secret a/b".into()], ..Report::default() };
        let after = messages(telling.news(&round(State::Applied(report))));
        assert_eq!(after[0].0, Some("mended"), "{after:?}");
        assert_eq!(after[1].1, "the add-on a was applied: 2 objects; pruned Secret a/b");
        assert_eq!(telling.news(&round(State::Current)), []);

        let mended = Round { channels: [(URL.to_owned(), Ok(Vec::new()))].into(), ..Round::default() };
        let after = messages(telling.news(&mended));
        assert_eq!(after, [(Some("mended"), "resolved: the add-on w is skipped".to_owned())]);
        assert_eq!(telling.news(&round(State::Current)).len(), 1, "and wrong again");

        // First, the next channel has the add-on, too. In the last round, the next channel no longer has the add-on.
        let mut in_two = round(State::Current);
        in_two.others = in_two.addons.iter().map(|(addon, _)| addon.clone()).collect();
        let told = messages(telling.news(&in_two));
        let message =
            format!("the entry of {URL} for the add-on a is skipped: a later channel has this add-on, too");
        assert_eq!(told, [(None, message)]);
        assert_eq!(telling.news(&in_two), []);
        assert_eq!(messages(telling.news(&round(State::Current)))[0].0, Some("mended"));

        let down = Round { problem: Some("down".into()), ..Round::default() };
        assert_eq!(messages(telling.news(&down)).len(), 1);
        assert_eq!(telling.news(&down), []);
    }

    #[test]
    fn it_is_ready_once_nothing_is_wrong_with_add_ons_or_the_node() {
        let readiness = Readiness::default();
        assert_eq!(readiness.problems(), None);
        readiness.note(&unread("403"));
        readiness.labels(Some("no Node".into()));
        let problems = format!("no Node\nthe channel {URL} cannot be read: 403");
        assert_eq!(readiness.problems(), Some(problems));
        readiness.labels(None);
        for (state, is_ready) in [(State::Waiting("no".into()), false), (State::Current, true)] {
            readiness.note(&round(state));
            assert_eq!(readiness.problems().is_none(), is_ready);
        }
    }
}
