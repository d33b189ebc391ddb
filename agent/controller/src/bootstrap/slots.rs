//! Slots for nodes that are about to restart their components (`docs/pacing.md`). The kubelet's certificate alone identifies the
//! node. The labels of its Node, which no kubelet may change, name its group. The Leases of the group show its slots.
//! `kops_agent_cluster::pacing::slots` decides which node gets a slot.
//!
//! The cloud is not asked. A holder of a kubelet's certificate and key can drain and cordon that node anyway. Here it gets only that
//! node's one slot, for at most [`LONGEST_HELD`](kops_agent_cluster::pacing::slots::LONGEST_HELD) seconds in a row.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kops_agent_cluster::pacing::message::{NotReady, SlotAction, SlotAnswer, SlotHolder, SlotRequest};
use kops_agent_cluster::pacing::slots::{Decision, LEASE_SECONDS, LONGEST_HELD, Slot, decide};
use kops_agent_cluster::pacing::{
    CONTROL_PLANE, GROUP_LABEL, NAMESPACE, budget, group_of, lease_name, number_of,
};
use kube::Error;
use kube::api::{Api, ListParams, ObjectMeta, PostParams};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use super::audit::Record;
use super::control_planes::{beside, not_ready};
use super::rate::{Allowance, Allowances};
use super::renewal::Renewal;
use kops_agent_cloud::verify::{Answer, Origin, Refusal};
use kops_agent_kube::ApiServers;
use kops_agent_kube::lease::{Seen, holder};
use kops_agent_kube::list_pages;
use kops_agent_kube::node_api::Nodes;
use kops_agent_process::output::{error_text, one_line};

const API_WITHIN: Duration = Duration::from_secs(4);
/// If this process did not read a Lease for this long, the next read restarts the expiry timer of the Lease. Someone may have renewed the
/// Lease in the meantime, or the holder could not renew the Lease because the API server was down.
const LOOKED_AT_WITHIN: Duration = Duration::from_secs(120);
/// The maximum number of decisions for one request. If another server wrote the Lease first, the decision is repeated.
const TRIES: u32 = 3;
/// The rate limit of a node. A run sends a slot request when it starts, every 30 seconds while it has a slot, and more often while it waits
/// for a slot.
const ALLOWANCES: Allowances = Allowances {
    at_one_address: Allowance { burst: 30, every: Duration::from_secs(5) },
    elsewhere: Allowance { burst: 60, every: Duration::from_secs(3) },
    of_all: Allowance { burst: 512, every: Duration::from_millis(20) },
};

/// The reason of a refusal if the API server rejects a request.
const FORBIDDEN: &str = "SlotsForbidden";
/// The reason of a refusal if this process has no rights for Leases at all.
const NOT_SET_UP: &str = "SlotsNotSetUp";
/// The maximum length of the API server's message in an answer to a node, in characters.
const LONGEST_TOLD: usize = 400;
/// The annotation with the name of the last Node that held the slot.
const LAST_HOLDER: &str = "kops-agent/last-holder";
/// The annotation with the total time, in seconds, during which the last holder held slots before it got this slot.
const HELD_BEFORE: &str = "kops-agent/held-seconds-before";

pub struct Slots {
    nodes: Nodes,
    api_servers: ApiServers,
    leases: Api<Lease>,
    /// Identifies the nodes that request slots, and limits the rate of their requests.
    askers: Renewal,
    /// The recently read Leases, by name.
    looked_at: Mutex<BTreeMap<String, LookedAt>>,
}

struct LookedAt {
    seen: Seen,
    last: Instant,
}

impl Slots {
    pub fn new(nodes: &Nodes, api_servers: ApiServers) -> Slots {
        Slots {
            nodes: nodes.clone(),
            api_servers,
            leases: Api::namespaced(nodes.client(), NAMESPACE),
            askers: Renewal::limited(ALLOWANCES, "SlotTooOften"),
            looked_at: Mutex::default(),
        }
    }

    async fn answer(&self, node: &str, request: SlotRequest) -> Result<SlotAnswer, Refusal> {
        let group = self.group(node).await?;
        let budget = budget(&group, request.max_unavailable);
        for _ in 0..TRIES {
            let leases = self.list(&group).await?;
            let slots = self.slots(&leases, &group, Instant::now());
            let now = Timestamp::now();
            let lease =
                |number| leases.iter().find(|lease| lease.metadata.name == Some(lease_name(&group, number)));
            let mut answer = SlotAnswer { group: group.clone(), ..SlotAnswer::default() };
            match decide(&slots, node, request.action, budget, now.as_second()) {
                Decision::HasNone => return Ok(answer),
                Decision::Busy(held) => {
                    answer.holders = held.iter().map(|slot| slot_holder(slot, &group)).collect();
                    return Ok(answer);
                }
                Decision::Resting { until } => {
                    answer.not_before = rfc3339(until);
                    return Ok(answer);
                }
                Decision::Free(number) => {
                    let Some(held) = lease(number) else { continue };
                    if self.write(let_go(held.clone(), now)).await? {
                        return Ok(answer);
                    }
                }
                Decision::Hold { number, acquired, held_before } => {
                    if request.action == SlotAction::Acquire && group == CONTROL_PLANE {
                        answer.not_ready = self.not_ready_beside(node).await?;
                        if !answer.not_ready.is_empty() {
                            return Ok(answer);
                        }
                    }
                    let before = lease(number);
                    let held = held(before.cloned(), &group, number, node, acquired, held_before, now);
                    let renews = before.is_some_and(|before| holder(before) == node);
                    if !self.write(held).await? {
                        continue;
                    }
                    if renews || !self.gives_way(node, &group, number).await? {
                        answer.granted = true;
                        answer.lease = lease_name(&group, number);
                        return Ok(answer);
                    }
                }
            }
        }
        let problem = format!("other requests keep changing the Leases of the group {group} in {NAMESPACE}");
        Err(Refusal::unavailable("SlotContended", problem))
    }

    /// Returns the group of a node, by the labels of its Node.
    async fn group(&self, node: &str) -> Result<String, Refusal> {
        let labels =
            in_time(&format!("reading the Node {node}"), FORBIDDEN, self.nodes.labels(node)).await??;
        let labels = labels
            .ok_or_else(|| Refusal::not_verified("NodeNotFound", format!("there is no Node {node}")))?;
        group_of(&labels).ok_or_else(|| {
            let problem =
                format!("the Node {node} has no label with its instance group yet; kops-controller sets it");
            Refusal::unavailable("NodeNotLabelled", problem)
        })
    }

    /// Returns the other control planes that are not Ready, or whose API servers are not ready. The caller has read the Leases before, and
    /// writes a Lease only if it is unchanged. So no other control plane gets a slot between the read and the write.
    async fn not_ready_beside(&self, node: &str) -> Result<Vec<NotReady>, Refusal> {
        let listed = beside(&self.nodes, node);
        let others = in_time("listing the Nodes of control planes", FORBIDDEN, listed).await??;
        Ok(not_ready(others, &self.api_servers).await)
    }

    async fn list(&self, group: &str) -> Result<Vec<Lease>, Refusal> {
        let selected = ListParams::default().labels(&format!("{GROUP_LABEL}={group}"));
        let ask = |page: ListParams| async move { self.leases.list(&page).await };
        let leases = list_pages::all(selected, ask, |lease| lease);
        // Without the right to list Leases, this process also has no right to write them, so slots are not set up. A rejected write proves
        // less, because it may have other causes.
        in_time(&format!("listing the Leases of {NAMESPACE}"), NOT_SET_UP, leases).await?
    }

    /// Returns the slots of a group, from its Leases and the time since each Lease last changed.
    fn slots(&self, leases: &[Lease], group: &str, now: Instant) -> Vec<Slot> {
        let mut looked_at = self.looked_at.lock();
        looked_at.retain(|_, lease| now.saturating_duration_since(lease.last) <= LOOKED_AT_WITHIN);
        let of_lease = |lease: &Lease| {
            let name = lease.metadata.name.clone().unwrap_or_default();
            let number = number_of(&name, group)?;
            let seen = Seen::new(lease, looked_at.get(&name).map(|before| &before.seen), now);
            let has_expired = seen.has_expired(lease, now);
            looked_at.insert(name, LookedAt { seen, last: now });
            Some(slot(lease, number, has_expired))
        };
        leases.iter().filter_map(of_lease).collect()
    }

    /// Releases the slot `taken` if a concurrent request of the node has got another slot. Returns whether the node has another slot.
    async fn gives_way(&self, node: &str, group: &str, taken: u32) -> Result<bool, Refusal> {
        let leases = self.list(group).await?;
        let slots = self.slots(&leases, group, Instant::now());
        let has_another =
            slots.iter().any(|slot| slot.holder == node && !slot.has_expired && slot.number != taken);
        let own = leases.into_iter().find(|lease| lease.metadata.name == Some(lease_name(group, taken)));
        match own.filter(|lease| has_another && holder(lease) == node) {
            Some(own) => self.write(let_go(own, Timestamp::now())).await.map(|_| true),
            None => Ok(has_another),
        }
    }

    /// Writes a Lease, unless another process has changed the Lease since it was read. Returns whether the Lease was written.
    async fn write(&self, lease: Lease) -> Result<bool, Refusal> {
        let name = lease.metadata.name.clone().unwrap_or_default();
        let parameters = PostParams::default();
        let has_been_read = lease.metadata.resource_version.is_some();
        let written = async {
            let written = match lease.metadata.resource_version {
                Some(_) => self.leases.replace(&name, &parameters, &lease).await,
                None => self.leases.create(&parameters, &lease).await,
            };
            match written {
                Ok(_) => Ok(true),
                // Another server wrote the Lease first, or someone deleted the Lease to free the slot.
                Err(Error::Api(status)) if status.code == 409 => Ok(false),
                Err(Error::Api(status)) if status.code == 404 && has_been_read => Ok(false),
                Err(error) => Err(error),
            }
        };
        in_time(&format!("writing the Lease {NAMESPACE}/{name}"), FORBIDDEN, written).await?
    }
}

impl Slots {
    /// Answers a node's slot request with JSON.
    pub async fn give(
        &self,
        mut record: Record<'_>,
        origin: Origin,
        certificate: Option<&[u8]>,
        body: &[u8],
        within: Duration,
    ) -> Result<String, Refusal> {
        let asked = self.askers.holder(certificate, origin, Instant::now(), &mut record).and_then(|holder| {
            let request = SlotRequest::parse(body).map_err(|problem| Refusal {
                answer: Answer::BadRequest,
                reason: "RequestMalformed",
                message: format!("failed to decode: {problem}"),
            })?;
            Ok((holder.node_name, request))
        });
        let (node, request) = match asked {
            Ok(asked) => asked,
            Err(refusal) => return record.finish(Err(refusal)),
        };
        let answered = timeout(within, self.answer(&node, request))
            .await
            .unwrap_or_else(|_| Err(Refusal::unavailable("Deadline", "the request takes too long")));
        let answer = match answered {
            Ok(answer) => answer,
            // If the cluster lacks the RBAC rules for slots, nodes restart their components without slots.
            Err(refusal) if refusal.reason == NOT_SET_UP => {
                SlotAnswer { not_set_up: one_line(&refusal.message, LONGEST_TOLD), ..SlotAnswer::default() }
            }
            Err(refusal) => return record.finish(Err(refusal)),
        };
        let json = serde_json::to_string(&answer)
            .map_err(|error| Refusal::unavailable("AnswerNotWritten", error))?;
        write_down(record, request.action, &answer);
        Ok(json + "\n")
    }
}

/// Counts the answer and logs it. An acquired or released slot is logged at info level, and missing rights as a warning. All other results
/// are logged at debug level.
fn write_down(mut record: Record<'_>, action: SlotAction, answer: &SlotAnswer) {
    record.node.instance_group.clone_from(&answer.group);
    let is_told = match action {
        SlotAction::Acquire => answer.granted,
        SlotAction::Renew => false,
        SlotAction::Release => true,
    };
    let (reason, is_granted) = match (action, answer.granted) {
        (SlotAction::Release, _) => ("Released", true),
        (_, true) => ("Granted", true),
        _ if !answer.not_set_up.is_empty() => (NOT_SET_UP, false),
        _ if !answer.not_ready.is_empty() => ("ControlPlaneNotReady", false),
        _ if !answer.not_before.is_empty() => ("HeldTooLong", false),
        (SlotAction::Renew, false) => ("HasNone", false),
        (SlotAction::Acquire, false) => ("NoSlotFree", false),
    };
    let (node, group) = (&record.node.node_name, &answer.group);
    if reason == NOT_SET_UP {
        log::warn!("slot: the node {node} gets no slot, and continues without one: {}", answer.not_set_up);
    } else if is_told {
        log::info!("slot: {reason}: the node {node} of {group}, Lease {}", answer.lease);
    } else {
        log::debug!("slot: {reason}: the node {node}, of {group}");
    }
    record.counted(reason, is_granted);
}

/// Waits for the API server's answer, until the timeout. For the status codes 403 and 404, the reason of the refusal is `if_refused`.
async fn in_time<T>(
    doing: &str,
    if_refused: &'static str,
    asked: impl Future<Output = Result<T, Error>>,
) -> Result<Result<T, Refusal>, Refusal> {
    let unavailable =
        |problem: &str| Refusal::unavailable("ApiServerUnavailable", format!("{doing}: {problem}"));
    let late = |_| unavailable("the API server does not answer in time");
    Ok(timeout(API_WITHIN, asked).await.map_err(late)?.map_err(|error| match &error {
        Error::Api(status) if status.code == 403 || status.code == 404 => Refusal::unavailable(
            if_refused,
            format!("{doing}: {}; apply packaging/kubernetes/rbac.yaml", status.message),
        ),
        _ => unavailable(&error_text(&error.into())),
    }))
}

fn slot(lease: &Lease, number: u32, has_expired: bool) -> Slot {
    let second = |time: Option<&MicroTime>| time.map_or(0, |time| time.0.as_second());
    let noted = |name: &str| lease.metadata.annotations.as_ref().and_then(|all| all.get(name));
    let spec = lease.spec.as_ref();
    Slot {
        number,
        holder: holder(lease).to_owned(),
        last_holder: noted(LAST_HOLDER).cloned().unwrap_or_default(),
        acquired: second(spec.and_then(|spec| spec.acquire_time.as_ref())),
        renewed: second(spec.and_then(|spec| spec.renew_time.as_ref())),
        held_before: noted(HELD_BEFORE)
            .and_then(|seconds| seconds.parse::<i64>().ok())
            .unwrap_or_default()
            .clamp(0, LONGEST_HELD),
        has_expired,
    }
}

/// Builds the Lease of a slot that the node takes or renews.
fn held(
    before: Option<Lease>,
    group: &str,
    number: u32,
    node: &str,
    acquired: i64,
    held_before: i64,
    now: Timestamp,
) -> Lease {
    let mut lease = before.unwrap_or_else(|| Lease {
        metadata: ObjectMeta { name: Some(lease_name(group, number)), ..ObjectMeta::default() },
        ..Lease::default()
    });
    lease.metadata.labels.get_or_insert_default().insert(GROUP_LABEL.to_owned(), group.to_owned());
    let annotations = lease.metadata.annotations.get_or_insert_default();
    annotations.insert(LAST_HOLDER.to_owned(), node.to_owned());
    annotations.insert(HELD_BEFORE.to_owned(), held_before.to_string());
    let transitions = match (&lease.spec, holder(&lease) == node) {
        (None, _) => 0,
        (Some(spec), is_same) => {
            spec.lease_transitions.unwrap_or_default().saturating_add(i32::from(!is_same))
        }
    };
    lease.spec = Some(LeaseSpec {
        holder_identity: Some(node.to_owned()),
        lease_duration_seconds: i32::try_from(LEASE_SECONDS).ok(),
        acquire_time: Timestamp::from_second(acquired).ok().map(MicroTime),
        renew_time: Some(MicroTime(now)),
        lease_transitions: Some(transitions),
        ..LeaseSpec::default()
    });
    lease
}

/// Removes the holder of a Lease. The annotations about the last holder stay.
fn let_go(mut lease: Lease, now: Timestamp) -> Lease {
    let spec = lease.spec.get_or_insert_default();
    spec.holder_identity = Some(String::new());
    spec.renew_time = Some(MicroTime(now));
    lease
}

fn slot_holder(slot: &Slot, group: &str) -> SlotHolder {
    SlotHolder {
        node: slot.holder.clone(),
        lease: lease_name(group, slot.number),
        since: rfc3339(slot.acquired),
    }
}

fn rfc3339(seconds: i64) -> String {
    Timestamp::from_second(seconds).map(|time| time.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use kube::{Client, Config};

    use super::*;

    const START: i64 = 1_800_000_000;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn slots() -> Slots {
        kops_agent_net::tls::install_provider();
        let url = "http://127.0.0.1:1";
        let client = Client::try_from(Config::new(url.parse().unwrap())).unwrap();
        Slots::new(&Nodes::new(client), ApiServers::at_port_of(url).unwrap())
    }

    fn lease(version: &str) -> Lease {
        let mut lease = held(None, "nodes", 0, "a", START, 7, at(START + 5));
        lease.metadata.resource_version = Some(version.into());
        lease
    }

    #[test]
    fn a_slot_is_read_from_its_lease() {
        let taken = lease("1");
        let expected = Slot {
            number: 0,
            holder: "a".into(),
            last_holder: "a".into(),
            acquired: START,
            renewed: START + 5,
            held_before: 7,
            has_expired: false,
        };
        assert_eq!(slot(&taken, 0, false), expected);
        assert_eq!(taken.metadata.name.as_deref(), Some("kops-agent-disruption.nodes.0"));
        let free = let_go(taken, at(START + 9));
        assert_eq!(slot(&free, 0, false), Slot { holder: String::new(), renewed: START + 9, ..expected });
        let next = held(Some(free), "nodes", 0, "b", START + 20, 0, at(START + 20));
        assert_eq!(next.spec.as_ref().unwrap().lease_transitions, Some(1));
        assert_eq!(next.metadata.resource_version.as_deref(), Some("1"), "it is written if it is still that");
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
    }

    #[tokio::test]
    async fn a_slot_has_expired_once_it_was_seen_to_stand_still_for_as_long_as_it_says() {
        let (slots, start) = (slots(), Instant::now());
        let expired = |version: &str, seconds: u64| {
            let now = start + Duration::from_secs(seconds);
            slots.slots(&[lease(version)], "nodes", now)[0].has_expired
        };
        for seconds in [0, 100, 200, 300] {
            assert!(!expired("1", seconds), "{seconds}");
        }
        assert!(!expired("2", 301), "it was renewed");
        for seconds in [400, 500, 600] {
            assert!(!expired("2", seconds), "{seconds}");
        }
        assert!(expired("2", 602));
        // The API server was down, so no controller could read the Lease, and the holder could not renew the Lease.
        assert!(!expired("2", 1000));
        assert!(!expired("2", 1100));
    }
}
