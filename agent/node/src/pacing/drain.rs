//! A drain: it cordons the Node, evicts its pods, and uncordons the Node after the change.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kops_agent_host::Host;
use kops_agent_kube::own_node::{OwnNode, Remaining};
use kops_agent_net::retry::Backoff;
use kops_agent_process::service_manager;
use tokio::time::sleep;

use super::super::machine;
use super::super::options::Pacing;
use super::not_paced::NotPaced;
use crate::redaction::error_text;

/// The pause between two tries to evict the remaining pods. `kubectl drain` also pauses for 5 s after a 429 response.
const PAUSE: Duration = Duration::from_secs(5);
/// How long a run retries to uncordon the Node. The API server may be restarting.
const UNCORDONED_WITHIN: Duration = Duration::from_secs(120);
/// The unit that uncordons the Node if this run ends and leaves the Node cordoned.
const UNIT: &str = "kops-agent-uncordon.service";
/// How long [`UNIT`] retries, in seconds. `kops-agent-fleet-tell.service` retries for the same time.
const UNCORDONING_TIMEOUT: &str = "600";
/// Maximum number of pods that a message names.
const NAMED: usize = 5;

/// Whether this process has cordoned the Node and not uncordoned it.
static IS_CORDONED: AtomicBool = AtomicBool::new(false);

/// Whether the Node would stay cordoned if this run stopped now.
pub(super) fn is_left_cordoned() -> bool {
    IS_CORDONED.load(Ordering::Relaxed)
}

/// Stops [`UNIT`], so that the Node stays cordoned after this process ends.
pub(super) fn stay_cordoned(host: &Host) {
    if let Err(error) = host.end_apart(UNIT) {
        log::debug!("{UNIT} is not stopped: {error}");
    }
}

/// A node whose pods have left.
pub(super) struct Drained {
    node: OwnNode,
    /// Whether a run, and not an operator, has cordoned the node.
    is_ours: bool,
}

/// Cordons the Node of this kubeconfig and evicts its pods. If pods do not leave in time, uncordons the Node.
pub(super) async fn drain(host: &Host, kubeconfig: &Path, pacing: &Pacing) -> Result<Drained, NotPaced> {
    let node = OwnNode::new(kubeconfig).map_err(|untold| NotPaced::NotDrained(untold.to_string()))?;
    // The unit starts before the Node is cordoned, since this run may be killed at any time.
    let arguments = ["fleet", "tell", "--only-uncordon", "--timeout", UNCORDONING_TIMEOUT];
    if let Err(error) = machine::run_apart(host, UNIT, &arguments) {
        log::warn!(
            "cannot start {UNIT}, so the Node {} stays cordoned if this run is killed: {}",
            node.name,
            error_text(&error)
        );
    }
    let cordoned = node.cordon(pacing.ordered).await;
    let is_ours = cordoned
        .map_err(|error| NotPaced::NotDrained(format!("cordoning the Node {}: {error}", node.name)))?;
    IS_CORDONED.store(is_ours, Ordering::Relaxed);
    match is_ours {
        true => log::info!("the Node {} is cordoned", node.name),
        false => log::info!(
            "the Node {} was already cordoned, but not by kops-agent, so it stays cordoned after this run",
            node.name
        ),
    }
    let drained = Drained { node, is_ours };
    match drained.evict(pacing.drain_timeout).await {
        Ok(()) => Ok(drained),
        Err(why) => {
            drained.end().await;
            Err(NotPaced::NotDrained(why))
        }
    }
}

impl Drained {
    async fn evict(&self, timeout: Duration) -> Result<(), String> {
        let (mut backoff, mut named) = (Backoff::new(timeout, || PAUSE), BTreeSet::new());
        loop {
            let why = match self.node.evict().await {
                Ok(remaining) if remaining.is_empty() => {
                    log::info!("the pods of the Node {} have left", self.node.name);
                    return Ok(());
                }
                Ok(remaining) => {
                    remaining.iter().for_each(|left| tell_once(left, &mut named));
                    in_words(&remaining)
                }
                Err(error) => error.to_string(),
            };
            let Some(pause) = backoff.next_pause() else {
                return Err(format!("timeout after {} seconds (--drain-timeout): {why}", timeout.as_secs()));
            };
            service_manager::doing(format_args!("draining this node: {why}"));
            sleep(pause).await;
        }
    }

    /// Uncordons the Node, if a run has cordoned it.
    pub(super) async fn end(self) {
        if !self.is_ours {
            return;
        }
        let mut backoff = Backoff::new(UNCORDONED_WITHIN, || PAUSE);
        loop {
            let uncordoned = self.node.uncordon().await;
            IS_CORDONED.store(uncordoned.is_err(), Ordering::Relaxed);
            let error = match uncordoned {
                Ok(true) => return log::info!("the Node {} is uncordoned", self.node.name),
                Ok(false) => {
                    return log::warn!(
                        "this run does not uncordon the Node {}, because its cordon no longer belongs to a \
                         run of kops-agent",
                        self.node.name
                    );
                }
                Err(error) => error,
            };
            let Some(pause) = backoff.next_pause() else {
                return log::warn!(
                    "cannot uncordon the Node {}: {error}; it stays cordoned until the next run or `kops-agent fleet tell` uncordons it",
                    self.node.name
                );
            };
            log::debug!("the Node {} is not uncordoned yet: {error}", self.node.name);
            sleep(pause).await;
        }
    }
}

fn tell_once(left: &Remaining, named: &mut BTreeSet<String>) {
    let pod = &left.pod;
    if !named.insert(pod.uid.clone()) {
        return;
    }
    match pod.is_bare {
        true => log::warn!(
            "evicting the pod {}/{}, which has no controller that recreates it",
            pod.namespace,
            pod.name
        ),
        false => log::info!("evicting the pod {}/{}", pod.namespace, pod.name),
    }
}

fn in_words(remaining: &[Remaining]) -> String {
    let one = |left: &Remaining| {
        let name = format!("{}/{}", left.pod.namespace, left.pod.name);
        if left.why.is_empty() { format!("{name} is terminating") } else { format!("{name}: {}", left.why) }
    };
    let mut named: Vec<String> = remaining.iter().take(NAMED).map(one).collect();
    if remaining.len() > NAMED {
        named.push(format!("and {} more", remaining.len() - NAMED));
    }
    format!("{} pods are still there: {}", remaining.len(), named.join("; "))
}

#[cfg(test)]
mod tests {
    use kops_agent_cluster::pacing::drain::Leaving;

    use super::*;

    #[test]
    fn remaining_pods_are_named_with_the_reason() {
        let left = |name: &str, why: &str| Remaining {
            pod: Leaving {
                namespace: "n".into(),
                name: name.into(),
                uid: name.into(),
                is_bare: false,
                is_ending: why.is_empty(),
            },
            why: why.into(),
        };
        let two = [left("a", "its budget allows no disruption"), left("b", "")];
        assert_eq!(
            in_words(&two),
            "2 pods are still there: n/a: its budget allows no disruption; n/b is terminating"
        );
        let many: Vec<_> = (0..7).map(|number| left(&number.to_string(), "")).collect();
        assert!(in_words(&many).ends_with("n/4 is terminating; and 2 more"));
    }
}
