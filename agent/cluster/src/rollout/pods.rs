//! Decides whether pods of a node crash more than before the node's order.

use std::collections::BTreeMap;

use kops_agent_spec::failure::Failure;
use kops_agent_spec::terminal::one_line;
use serde::{Deserialize, Serialize};
use time::{Duration, OffsetDateTime};

use super::order::LONGEST_PROBLEM;
use kops_agent_spec::digest::sha256_hex;
use kops_agent_spec::{parse_timestamp, timestamp};

/// A container that restarts this many times after the order counts as crashing. The change itself restarts a container once or twice: when
/// kubelet or containerd restarts, and when its static pod restarts.
const MANY_RESTARTS: u32 = 3;
/// If a control plane's API server is not ready for this long, the controller ends its wait for the check of that node's pods. One failed
/// answer is not enough, because an answer may be lost, and two decisions may be less than a second apart. Times in the status are whole
/// seconds, so the limit may be up to 1 s shorter.
const LONGEST_UNREADY: Duration = Duration::seconds(5);
/// The maximum number of a node's containers that the status keeps. A kubelet can create any number of mirror pods, and a ConfigMap has at
/// most 1 MiB.
const MOST_KEPT: usize = 500;
/// The length of a digest, in characters. The status keeps the digest of a container's name, because a name may have about 400 characters.
const DIGEST: usize = 8;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Container {
    pub restarts: u32,
    /// Whether the container waits in `CrashLoopBackOff`.
    pub is_looping: bool,
    /// Whether the container's pod is a static pod. A static pod counts as older than the node's order, whatever `created` is.
    pub is_of_static_pod: bool,
    /// When the container's pod was created, by the API server's clock; `None` if that is not known.
    pub created: Option<OffsetDateTime>,
}

/// The containers of a node's pods, by `NAMESPACE/POD/CONTAINER`.
pub type Containers = BTreeMap<String, Container>;

/// Compares the containers of a node before and after its order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodCheck {
    /// For each container that had restarted before the order: the number of its restarts, by the digest of the container's name. `None` if
    /// the container waited in `CrashLoopBackOff`. When a list of pods sets `is_suspect`, the numbers of that list replace these numbers.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    before: BTreeMap<String, Option<u32>>,
    /// Why the pods are not compared; empty if the pods are compared.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub not_compared: String,
    /// When the current wait began, in RFC 3339. A wait begins when the node becomes Ready with the configuration of its order. It begins
    /// again when a list of the node's pods sets `is_suspect`. Empty if there is no wait.
    #[serde(skip_serializing_if = "String::is_empty")]
    since: String,
    /// Since when the control plane's API server has not been ready during the current wait, in RFC 3339. Empty if the API server was ready
    /// when the controller last asked it.
    #[serde(skip_serializing_if = "String::is_empty")]
    unready_since: String,
    /// Whether a container in the last list of pods had crashed more often than `before` recorded until then. One such list is not a
    /// failure, because a controller manager may still wait for its API server.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_suspect: bool,
    /// The problem of a container that crashes more often than `before` records, in two consecutive lists of the node's pods. Empty if
    /// there is no problem.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) problem: String,
}

impl PodCheck {
    /// Begins the check of a node that gets an order now. `listed` has the node's containers.
    pub(super) fn before_order(listed: &Result<Containers, Failure>) -> PodCheck {
        let containers = match listed {
            Ok(containers) => containers,
            Err(failure) => {
                let not_compared = one_line(&failure.to_string(), LONGEST_PROBLEM);
                return PodCheck { not_compared, ..PodCheck::default() };
            }
        };
        let kept = containers.iter().filter(|(_, container)| container.is_looping || container.restarts > 0);
        let before = kept
            .map(|(name, container)| (digest(name), (!container.is_looping).then_some(container.restarts)));
        PodCheck { before: before.take(MOST_KEPT).collect(), ..PodCheck::default() }
    }

    /// Ends the wait for the check of the node's pods. The node has failed, or is not Ready with the ordered configuration.
    pub(super) fn unsettled(&self) -> PodCheck {
        PodCheck { since: String::new(), unready_since: String::new(), is_suspect: false, ..self.clone() }
    }

    /// Begins the wait for the check of the node's pods. The node is Ready with the ordered configuration. A wait that has already begun
    /// continues.
    pub(super) fn settling(&self, now: OffsetDateTime) -> PodCheck {
        let since = if self.since.is_empty() { timestamp(now) } else { self.since.clone() };
        PodCheck { since, unready_since: String::new(), ..self.clone() }
    }

    /// Updates the wait for the check of the node's pods, while the node's API server is not ready. `None` if there is no wait. If the API
    /// server has been unready for [`LONGEST_UNREADY`], the wait ends, and the result is also `None`.
    pub(super) fn after_unready(&self, now: OffsetDateTime) -> Option<PodCheck> {
        if self.since.is_empty() {
            return None;
        }
        if self.unready_since.is_empty() {
            return Some(PodCheck { unready_since: timestamp(now), ..self.clone() });
        }
        let goes_on = parse_timestamp(&self.unready_since).is_some_and(|since| now - since < LONGEST_UNREADY);
        goes_on.then(|| self.clone())
    }

    /// Updates the check after the node's pods were listed. The caller lists them when the check is due ([`PodCheck::is_due`]). `None` if
    /// no container crashes more often than `before` records. `ordered` is the time of the node's order.
    pub(super) fn after_listing(
        &self,
        ordered: Option<OffsetDateTime>,
        containers: &Containers,
        now: OffsetDateTime,
    ) -> Option<PodCheck> {
        let problem = self.problem_of(ordered, containers)?;
        if self.is_suspect {
            return Some(PodCheck { problem, ..self.clone() });
        }
        let restarted = containers.iter().filter(|(_, container)| container.restarts > 0).take(MOST_KEPT);
        let before = restarted.map(|(name, container)| {
            let digest = digest(name);
            let has_looped = self.before.get(&digest) == Some(&None);
            (digest, (!has_looped).then_some(container.restarts))
        });
        Some(PodCheck { before: before.collect(), since: timestamp(now), is_suspect: true, ..self.clone() })
    }

    /// Whether the current wait began at least `after` seconds ago.
    pub(super) fn is_due(&self, after: u32, now: OffsetDateTime) -> bool {
        parse_timestamp(&self.since).is_some_and(|since| now - since >= Duration::seconds(after.into()))
    }

    /// The problem of a node whose containers crash more often than `before` records; `None` if no container does. A container is compared
    /// if its pod was on the node before the order, or is a static pod. A container that waited in `CrashLoopBackOff` before the
    /// order is not compared.
    fn problem_of(&self, ordered: Option<OffsetDateTime>, containers: &Containers) -> Option<String> {
        let was_here = |container: &Container| {
            container.is_of_static_pod
                || container.created.zip(ordered).is_some_and(|(created, ordered)| created <= ordered)
        };
        let mut crashing =
            containers.iter().filter(|(_, container)| was_here(container)).filter_map(|(name, container)| {
                let before = self.before.get(&digest(name)).copied().unwrap_or(Some(0))?;
                // If the manifest of a static pod changes, the restart counter begins at 0 again.
                let restarts = container.restarts.checked_sub(before).unwrap_or(container.restarts);
                match (container.is_looping, restarts) {
                    (true, _) => Some(format!("{name} is in CrashLoopBackOff, unlike before the order")),
                    (false, MANY_RESTARTS..) => {
                        Some(format!("{name} has restarted {restarts} times since the order"))
                    }
                    (false, _) => None,
                }
            });
        let first = crashing.next()?;
        let others = crashing.count();
        let others = if others == 0 { String::new() } else { format!(" ({others} other containers, too)") };
        Some(one_line(&format!("its run succeeded, but the container {first}{others}"), LONGEST_PROBLEM))
    }
}

fn digest(name: &str) -> String {
    sha256_hex(name.as_bytes()).chars().take(DIGEST).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ORDERED: OffsetDateTime = OffsetDateTime::UNIX_EPOCH;

    fn container(restarts: u32, is_looping: bool) -> Container {
        let created = Some(ORDERED - Duration::hours(1));
        Container { restarts, is_looping, created, ..Container::default() }
    }

    fn one(container: Container) -> Containers {
        [("default/web-0/web".to_owned(), container)].into()
    }

    fn problem(before: Containers, after: Containers) -> Option<String> {
        PodCheck::before_order(&Ok(before)).problem_of(Some(ORDERED), &after)
    }

    #[test]
    fn a_container_that_crashes_more_than_before_is_named() {
        let looping = problem(one(container(2, false)), one(container(3, true)));
        let text = "its run succeeded, but the container default/web-0/web is in CrashLoopBackOff, unlike before the order";
        assert_eq!(looping.as_deref(), Some(text));
        let restarts = problem(one(container(2, false)), one(container(5, false)));
        let text =
            "its run succeeded, but the container default/web-0/web has restarted 3 times since the order";
        assert_eq!(restarts.as_deref(), Some(text));
        let both = Containers::from([
            ("a/a/a".to_owned(), container(9, true)),
            ("b/b/b".to_owned(), container(9, true)),
            ("c/c/c".to_owned(), container(9, true)),
        ]);
        let problem = problem(Containers::new(), both).unwrap_or_default();
        assert!(problem.contains("a/a/a") && problem.ends_with("(2 other containers, too)"), "{problem}");
    }

    #[test]
    fn restarts_by_the_change_and_earlier_crashes_are_no_failure() {
        for (before, after) in [
            (container(0, false), container(2, false)),
            (container(40, false), container(42, false)),
            (container(40, true), container(60, true)),
            (container(40, true), container(60, false)),
            // The manifest of a static pod has changed, so the restart counter begins at 0 again.
            (container(40, false), container(2, false)),
        ] {
            assert_eq!(problem(one(before.clone()), one(after.clone())), None, "{before:?} {after:?}");
        }
        assert_eq!(problem(one(container(0, false)), Containers::new()), None, "it has left the node");
    }

    #[test]
    fn a_pod_that_came_later_counts_only_if_it_is_static() {
        let later = Container { created: Some(ORDERED + Duration::SECOND), ..container(9, true) };
        assert_eq!(problem(Containers::new(), one(later.clone())), None);
        assert_eq!(problem(Containers::new(), one(Container { created: None, ..container(9, true) })), None);
        let of_static_pod = Container { is_of_static_pod: true, ..later };
        assert!(problem(Containers::new(), one(of_static_pod)).is_some());
    }

    #[test]
    fn a_container_fails_its_node_only_if_it_crashes_in_two_lists() {
        let now = ORDERED + Duration::minutes(5);
        let check = PodCheck::before_order(&Ok(one(container(0, false))));
        assert_eq!(check.after_listing(Some(ORDERED), &one(container(2, false)), now), None);
        let lists = |first: Container, second: Container| {
            let suspect = check.after_listing(Some(ORDERED), &one(first), now).unwrap_or_default();
            assert!(suspect.is_suspect && suspect.problem.is_empty());
            assert!(!suspect.is_due(60, now) && suspect.is_due(60, now + Duration::minutes(1)));
            suspect.after_listing(Some(ORDERED), &one(second), now).map(|check| check.problem)
        };
        assert_eq!(lists(container(4, true), container(5, false)), None, "it runs");
        assert_eq!(lists(container(4, false), container(4, false)), None, "it has recovered");
        assert!(lists(container(4, true), container(5, true)).is_some());
        assert!(lists(container(4, false), container(7, false)).is_some());
    }

    #[test]
    fn only_unready_answers_for_5_seconds_end_a_wait() {
        let now = ORDERED + Duration::minutes(5);
        let check = PodCheck::before_order(&Ok(Containers::new()));
        assert_eq!(check.after_unready(now), None, "there is no wait");
        let settling = check.settling(now);
        let unready = settling.after_unready(now).unwrap_or_default();
        assert!(unready.is_due(60, now + Duration::minutes(1)), "the wait goes on");
        assert_eq!(unready.after_unready(now + Duration::milliseconds(4999)).as_ref(), Some(&unready));
        assert_eq!(unready.after_unready(now + Duration::seconds(5)), None);
        assert_eq!(unready.settling(now + Duration::SECOND), settling);
        assert_eq!(unready.unsettled(), check);
    }

    #[test]
    fn a_pod_check_in_the_status_is_small_and_read_as_written() {
        let many: Containers = (0..2 * MOST_KEPT)
            .map(|number| (format!("n/{number}/c"), container(1, number % 2 == 0)))
            .collect();
        let check = PodCheck::before_order(&Ok(many));
        assert_eq!(check.before.len(), MOST_KEPT);
        let text = serde_json::to_string(&check).unwrap_or_default();
        assert!(text.len() < 20 * MOST_KEPT, "{}", text.len());
        assert_eq!(serde_json::from_str(&text).ok(), Some(check));
        let quiet = PodCheck::before_order(&Ok(one(container(0, false))));
        assert_eq!(serde_json::to_string(&quiet).ok().as_deref(), Some("{}"));
    }

    fn containers() -> impl Strategy<Value = Containers> {
        let container = (0..9u32, any::<bool>(), any::<bool>(), prop::option::of(-5..5i64)).prop_map(
            |(restarts, is_looping, is_of_static_pod, created)| Container {
                restarts,
                is_looping,
                is_of_static_pod,
                created: created.map(|hours| ORDERED + Duration::hours(hours)),
            },
        );
        prop::collection::btree_map("[ab]/[ab]/[ab]", container, 0..8)
    }

    proptest! {
        #[test]
        fn a_node_on_which_nothing_has_changed_never_fails(containers in containers()) {
            // Both lists are equal. So the first list has every static pod, and no static pod's restarts count from 0.
            prop_assert_eq!(problem(containers.clone(), containers), None);
        }

        #[test]
        fn more_crashes_never_mend_a_node(before in containers(), after in containers(), more in 0..9u32) {
            let worse: Containers = after
                .iter()
                .map(|(name, container)| (name.clone(), Container { is_looping: true, ..container.clone() }))
                .collect();
            if problem(before.clone(), after.clone()).is_some() {
                prop_assert!(problem(before.clone(), worse).is_some());
            }
            // Containers that waited in `CrashLoopBackOff` before the order are ignored, however often they restart.
            let looped: Containers = before.into_iter().filter(|(_, container)| container.is_looping).collect();
            let restarted: Containers = looped
                .iter()
                .map(|(name, container)| (name.clone(), Container { restarts: container.restarts + more, ..container.clone() }))
                .collect();
            prop_assert_eq!(problem(looped, restarted), None);
        }
    }
}
