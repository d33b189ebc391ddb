//! A slot: a run waits for it, renews it during the change, and releases it.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use kops_agent_cluster::pacing::message::{NotReady, SlotAction, SlotAnswer, SlotRequest};
use kops_agent_cluster::pacing::slots::{LEASE_SECONDS, RENEW_EVERY};
use kops_agent_host::Host;
use kops_agent_net::retry::{Backoff, Pauses};
use kops_agent_process::output::one_line;
use kops_agent_process::service_manager;
use kops_agent_source::bootstrap_client::{KopsController, NoAnswer};
use tokio::runtime;
use tokio::sync::{oneshot, watch};
use tokio::time::{sleep, timeout};

use super::super::options::Pacing;
use super::not_paced::NotPaced;

/// The pauses between two requests for a slot. Jitter makes them up to twice as long.
const PAUSES: Pauses = Pauses { first: Duration::from_secs(2), longest: Duration::from_secs(15) };
/// How long a run waits for an answer about slots. Then the run continues without a slot, unless pacing was asked for. This time is longer
/// than the start of an API server, because some API servers answer "forbidden" until they have started.
const UNKNOWN_FOR: Duration = Duration::from_secs(90);
/// Maximum length of the text from a server in a message, in characters.
const LONGEST_TOLD: usize = 400;
/// How long a run retries to release its slot. A try can fail because the API server is restarting. A slot that is not
/// released expires.
const RELEASED_WITHIN: Duration = Duration::from_secs(30);
const BETWEEN_RELEASES: Duration = Duration::from_secs(3);
/// The reason in a message if the server answers a request for a slot with 404.
const GIVES_NONE: &str =
    "the server that answers is kOps' own kops-controller or an older kops-agent, which give no slots";

/// A slot that this node has. If the value is dropped, the slot is no longer renewed and expires.
pub(super) struct Slot {
    let_go: Sender<()>,
    gone: oneshot::Receiver<()>,
    /// The time of the last renewal; `None` if the slot is lost.
    renewed: watch::Receiver<Option<Instant>>,
}

/// Takes a slot, and waits up to `slot_timeout` until a slot is free. `None` if the run continues without a slot.
pub(super) async fn take(
    pacing: &Pacing,
    host: &Host,
    controller: &KopsController,
    restarted: &str,
) -> Result<Option<Slot>, NotPaced> {
    let request = SlotRequest { action: SlotAction::Acquire, max_unavailable: pacing.max_unavailable };
    let mut backoff = Backoff::new(pacing.slot_timeout, PAUSES.jittered());
    let (mut known, mut told) = (ReceivedAnswers::default(), String::new());
    service_manager::doing("asking for a slot of this node's group");
    loop {
        let why = match controller.slot(request).await {
            Ok(answer) if answer.granted => {
                log::info!(
                    "this node has the slot {} of {} to restart {restarted}",
                    answer.lease,
                    answer.group
                );
                return Ok(Some(Slot::kept(controller.clone(), request)));
            }
            Ok(answer) if answer.not_set_up.is_empty() => {
                known.no_slot_is_free(&answer);
                in_words(&answer)
            }
            Ok(answer) => {
                known.nothing();
                format!("this cluster gives no slots: {}", one_line(&answer.not_set_up, LONGEST_TOLD))
            }
            Err(no_answer) => match known.waits_after(no_answer, pacing.is_asked_for) {
                Some(why) => why,
                None => {
                    log::info!("{restarted} is restarted without a slot: {GIVES_NONE}");
                    return Ok(None);
                }
            },
        };
        let pause = backoff.next_pause();
        let is_last = pause.is_none();
        if known.is_unknown_for_long(is_last) && may_go_without(pacing, host.api_server_answers().await) {
            log::warn!(
                "{restarted} is restarted without a slot, because no server says if one is free: {why}"
            );
            return Ok(None);
        }
        let Some(pause) = pause else {
            let (restarted, seconds) = (restarted.to_owned(), pacing.slot_timeout.as_secs());
            return Err(match (known.is_busy(), known.another_is_not_ready) {
                (true, true) => NotPaced::AnotherNotReady { restarted, seconds, why },
                (true, false) => NotPaced::NoSlot { restarted, seconds, why },
                (false, _) => NotPaced::Unknown { restarted, seconds, why },
            });
        };
        if told != why {
            log::info!("waiting for a slot to restart {restarted}: {why}");
        }
        // This run has changed nothing yet, so the node works. The units that wait for this run may start now.
        service_manager::serving(format_args!("waiting for a slot to restart {restarted}: {why}"));
        told = why;
        sleep(pause).await;
    }
}

/// Whether a run may continue without a slot if no server tells it whether a slot is free. A run that needs a slot must not continue.
/// Any other run may continue if pacing was not asked for, or if this machine's API server does not answer, because the run may be about to
/// repair this server. `api_server_answers` is `None` if the machine has no API server.
fn may_go_without(pacing: &Pacing, api_server_answers: Option<bool>) -> bool {
    !pacing.needs_slot && (!pacing.is_asked_for || api_server_answers == Some(false))
}

/// The answers that a waiting run has got.
#[derive(Debug, Default)]
struct ReceivedAnswers {
    /// The time of the last answer that no slot is free for this node.
    busy: Option<Instant>,
    /// The time of the first request without an answer about slots, since the last answer about slots. `None` if there was no such request.
    unknown: Option<Instant>,
    /// Whether the answer that set `busy` named another control plane whose Node is not Ready, or whose API server is not ready.
    another_is_not_ready: bool,
}

impl ReceivedAnswers {
    fn no_slot_is_free(&mut self, answer: &SlotAnswer) {
        let another_is_not_ready = !answer.not_ready.is_empty();
        *self = ReceivedAnswers { busy: Some(Instant::now()), unknown: None, another_is_not_ready };
    }

    fn nothing(&mut self) {
        self.unknown.get_or_insert_with(Instant::now);
    }

    /// Why the run keeps waiting although it got no answer about slots. `None` if the run continues immediately, because the cluster has no
    /// slots.
    fn waits_after(&mut self, no_answer: NoAnswer, is_asked_for: bool) -> Option<String> {
        let why = match no_answer {
            // The run waits if an earlier answer said that no slot is free, or if pacing was asked for. The cluster may have another
            // server, which gives slots but is down now.
            NoAnswer::NotServed if !is_asked_for && !self.is_busy() => return None,
            NoAnswer::NotServed => {
                format!("{GIVES_NONE}; no server that gives slots answers now")
            }
            NoAnswer::Unknown(why) => why,
        };
        self.nothing();
        Some(why)
    }

    /// Whether other nodes may still have the slots that they had at the time `busy`. A slot expires `LEASE_SECONDS` after
    /// its last renewal.
    fn is_busy(&self) -> bool {
        self.busy.is_some_and(|at| at.elapsed() < Duration::from_secs(LEASE_SECONDS.unsigned_abs()))
    }

    /// Whether the run stops waiting for an answer about slots. It stops if it got no such answer for `UNKNOWN_FOR`, or if its final try
    /// got no such answer. It does not stop while other nodes may still have their slots.
    fn is_unknown_for_long(&self, is_last: bool) -> bool {
        !self.is_busy() && self.unknown.is_some_and(|since| is_last || since.elapsed() >= UNKNOWN_FOR)
    }
}

/// The reason for a missing slot, in words.
fn in_words(answer: &SlotAnswer) -> String {
    if !answer.not_before.is_empty() {
        return format!("this node held a slot for too long, and gets no slot before {}", answer.not_before);
    }
    if !answer.not_ready.is_empty() {
        let one = |other: &NotReady| format!("{} ({})", other.node, other.why);
        let others: Vec<String> = answer.not_ready.iter().map(one).collect();
        return format!(
            "other control planes or their API servers are not ready, and etcd may lose its quorum if this one restarts: {}",
            one_line(&others.join(", "), LONGEST_TOLD)
        );
    }
    let one = |holder: &_| {
        let kops_agent_cluster::pacing::message::SlotHolder { node, lease, since } = holder;
        format!("{node} has held {lease} since {since}")
    };
    let holders: Vec<String> = answer.holders.iter().map(one).collect();
    one_line(
        &format!("all slots of the group {} are held: {}", answer.group, holders.join(", ")),
        LONGEST_TOLD,
    )
}

/// Whether a slot with its last renewal at `renewed` is still valid. `renewed` is `None` if the slot is lost.
fn is_held(renewed: Option<Instant>) -> bool {
    renewed.is_some_and(|at| at.elapsed() < Duration::from_secs(LEASE_SECONDS.unsigned_abs()))
}

impl Slot {
    /// Starts a separate thread that renews the slot, because the run's thread may block, for example on a package manager.
    fn kept(controller: KopsController, request: SlotRequest) -> Slot {
        let (let_go, is_let_go) = channel();
        let (is_gone, gone) = oneshot::channel();
        let (renewal, renewed) = watch::channel(Some(Instant::now()));
        let keeping = thread::Builder::new().name("slot".into());
        let kept = keeping.spawn(move || keep(&controller, request, (&is_let_go, is_gone), &renewal));
        if let Err(error) = kept {
            log::warn!("this node's slot is not renewed, because no thread could be started: {error}");
        }
        Slot { let_go, gone, renewed }
    }

    /// Whether this node certainly still has the slot.
    pub(super) fn is_held(&self) -> bool {
        is_held(*self.renewed.borrow())
    }

    pub(super) async fn release(self) {
        let is_asked = self.let_go.send(()).is_ok();
        let gone = timeout(RELEASED_WITHIN + Duration::from_secs(1), self.gone).await;
        if !is_asked || !matches!(gone, Ok(Ok(()))) {
            log::warn!(
                "this node's slot could not be released; it expires some minutes after its last renewal"
            );
        }
    }
}

/// Renews the slot until it is released, or until the run ends without releasing it.
fn keep(
    controller: &KopsController,
    request: SlotRequest,
    (let_go, gone): (&Receiver<()>, oneshot::Sender<()>),
    renewal: &watch::Sender<Option<Instant>>,
) {
    let runtime = match runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return log::warn!("this node's slot is not renewed: {error}"),
    };
    let ask = |action| runtime.block_on(controller.slot(SlotRequest { action, ..request }));
    let mut is_lost = false;
    loop {
        match let_go.recv_timeout(Duration::from_secs(RENEW_EVERY)) {
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => match ask(SlotAction::Renew) {
                Ok(answer) if answer.granted => {
                    is_lost = false;
                    renewal.send_replace(Some(Instant::now()));
                }
                Ok(answer) => {
                    renewal.send_replace(None);
                    // A change that has begun must be completed.
                    if !std::mem::replace(&mut is_lost, true) {
                        log::warn!(
                            "this node's slot is not renewed, and the change continues: {}",
                            match answer.not_before.as_str() {
                                "" => "another node may have it by now".to_owned(),
                                _ => in_words(&answer),
                            }
                        );
                    }
                }
                Err(why) => log::debug!("this node's slot is not renewed yet: {why:?}"),
            },
            Ok(()) => break,
        }
    }
    let mut backoff = Backoff::new(RELEASED_WITHIN, || BETWEEN_RELEASES);
    while let Err(why) = ask(SlotAction::Release) {
        log::debug!("this node's slot is not released yet: {why:?}");
        let Some(pause) = backoff.next_pause() else { return };
        thread::sleep(pause);
    }
    let _ = gone.send(());
}

#[cfg(test)]
mod tests {
    use kops_agent_cluster::pacing::message::SlotHolder;
    use kops_agent_cluster::rollout::DrainMode;

    use super::*;

    #[test]
    fn the_wait_for_a_slot_names_the_holders_and_the_reason() {
        let holder = |node: &str, number: u32| SlotHolder {
            node: node.into(),
            lease: format!("kops-agent-disruption.nodes.{number}"),
            since: "2026-01-01T00:00:00Z".into(),
        };
        let busy = SlotAnswer {
            group: "nodes".into(),
            holders: vec![holder("i-1", 0), holder("i-2", 1)],
            ..SlotAnswer::default()
        };
        assert_eq!(
            in_words(&busy),
            "all slots of the group nodes are held: i-1 has held kops-agent-disruption.nodes.0 since 2026-01-01T00:00:00Z, i-2 has held \
             kops-agent-disruption.nodes.1 since 2026-01-01T00:00:00Z"
        );
        let resting = SlotAnswer { not_before: "2026-01-01T01:00:00Z".into(), ..SlotAnswer::default() };
        assert!(in_words(&resting).contains("gets no slot before 2026-01-01T01:00:00Z"));
        let not_ready = |number: u32| NotReady { node: format!("i-{number}"), why: "a ".repeat(99) };
        let unhealthy = SlotAnswer { not_ready: (0..9).map(not_ready).collect(), ..SlotAnswer::default() };
        let told = in_words(&unhealthy);
        assert!(told.contains("or their API servers are not ready") && told.contains("i-0 (a"), "{told}");
        assert!(
            !told.contains("--max-unavailable"),
            "what may end the quorum is no advice while it waits: {told}"
        );
        let mut known = ReceivedAnswers::default();
        known.no_slot_is_free(&unhealthy);
        assert!(known.is_busy() && known.another_is_not_ready);
        known.no_slot_is_free(&busy);
        assert!(known.is_busy() && !known.another_is_not_ready);
    }

    #[test]
    fn a_reboot_never_goes_without_a_slot() {
        let pacing = |is_asked_for, needs_slot| Pacing {
            max_unavailable: 1,
            slot_timeout: Duration::ZERO,
            drain: DrainMode::Always,
            drain_timeout: Duration::ZERO,
            is_asked_for,
            needs_slot,
            ordered: None,
        };
        for answers in [None, Some(true), Some(false)] {
            assert!(!may_go_without(&pacing(true, true), answers), "{answers:?}");
            assert!(may_go_without(&pacing(false, false), answers), "{answers:?}");
            assert_eq!(may_go_without(&pacing(true, false), answers), answers == Some(false));
        }
    }

    #[test]
    fn a_slot_that_was_not_renewed_in_time_is_not_held() {
        let ago = |seconds| Instant::now().checked_sub(Duration::from_secs(seconds));
        assert!(is_held(ago(200)) && !is_held(ago(301)) && !is_held(None));
    }

    #[test]
    fn where_a_cluster_has_no_slots_only_a_run_that_asks_for_one_waits() {
        let mut known = ReceivedAnswers::default();
        assert_eq!(known.waits_after(NoAnswer::NotServed, false), None);
        let why = known.waits_after(NoAnswer::NotServed, true);
        assert!(why.is_some_and(|why| why.contains("kOps' own kops-controller")), "it was asked for");
        assert!(known.is_unknown_for_long(true) && !known.is_busy());
        known.no_slot_is_free(&SlotAnswer::default());
        assert!(
            known.waits_after(NoAnswer::NotServed, false).is_some(),
            "another server knew of slots just now"
        );
        let mut known = ReceivedAnswers::default();
        assert_eq!(known.waits_after(NoAnswer::Unknown("a".into()), false).as_deref(), Some("a"));
        assert!(known.is_unknown_for_long(true));
    }

    #[test]
    fn slots_of_other_nodes_count_while_no_server_answers() {
        let ago = |seconds| Instant::now().checked_sub(Duration::from_secs(seconds));
        let known = |busy, unknown| ReceivedAnswers { busy, unknown, ..ReceivedAnswers::default() };
        assert!(!known(None, ago(10)).is_unknown_for_long(false), "an API server may be starting");
        assert!(known(None, ago(10)).is_unknown_for_long(true), "there is no more time");
        assert!(known(None, ago(91)).is_unknown_for_long(false));
        assert!(!known(ago(200), ago(91)).is_unknown_for_long(true), "their slots have not ended");
        assert!(known(ago(301), ago(91)).is_unknown_for_long(false));
        assert!(!known(ago(1), None).is_unknown_for_long(true));
    }
}
