//! The leading controller's part of a rollout: it decides which nodes are next, writes the status, and then the orders.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt as _};
use kube::Client;
use serde_json::{Value, json};
use time::OffsetDateTime;
use tokio::time::{Instant, sleep, sleep_until};

use kops_agent_cluster::fleet::{
    AGENT_VERSION, AUTHORITIES, CONDITION, PROGRAM, REBOOT_REQUIRED, Told, read_authorities, reboot_required,
    reported_program,
};
use kops_agent_cluster::labels::{FIELD_MANAGER, INSTANCE_GROUP};
use kops_agent_cluster::pacing::CONTROL_PLANE_LABEL;
use kops_agent_cluster::pacing::drain::CORDONED;
use kops_agent_cluster::rollout::{
    Actions, ApiServer, Canary, LAST_REBOOT, LastReboot, Member, ORDER, OUTCOME, Order, Outcome, Rank,
    RolloutAndPolicy, Seen, Status, Task, decide_all,
};
use kops_agent_kube::ApiServers;
use kops_agent_kube::api_error::ApiError;
use kops_agent_kube::events::{Events, Reason};
use kops_agent_kube::lease::Leadership;
use kops_agent_kube::node_api::{NodeObject, Nodes, READY};
use kops_agent_kube::node_watch::{LIST_TIMEOUT, NodeWatch, Watched};
use kops_agent_spec::parse_timestamp;
use kops_agent_store::Store;

use super::blocking::Blocking;
use super::config_map::{Read, Stored};
use super::current::{Configurations, Current};
use super::hashes::Hashes;
use super::pods::Pods;
use crate::metrics::RolloutMetrics;

/// The pause between two reads of the ConfigMap while there is no rollout.
const IDLE: Duration = Duration::from_secs(5);
/// How long a decision waits for more changes after a first change. Nodes that began together finish at almost the same time, so one
/// decision handles them all.
const GATHERING: Duration = Duration::from_millis(150);
/// The minimum time between two decisions. Each decision reads the ConfigMap, and may write it.
const PAUSE: Duration = Duration::from_millis(300);
/// The maximum time between two decisions. The watch of Nodes does not report that a deadline has passed, or that an operator has paused
/// the rollout.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How many orders are written concurrently.
const AT_ONCE: usize = 16;
/// The label of nodes that have the role APIServer.
const API_SERVER: &str = "node-role.kubernetes.io/api-server";

pub(crate) struct Rollouts {
    client: Client,
    nodes: Nodes,
    stored: Stored,
    current: Current,
    pods: Pods,
    api_servers: ApiServers,
    events: Events,
    metrics: RolloutMetrics,
    leadership: Leadership,
}

/// Why [`Rollouts::lead`] ended.
enum Ended {
    /// No rollout or policy needs a decision, or another process may lead.
    Idle,
    Failed(String),
}

impl From<ApiError> for Ended {
    fn from(error: ApiError) -> Ended {
        Ended::Failed(error.to_string())
    }
}

impl Rollouts {
    pub(crate) fn new(
        client: Client,
        api_servers: ApiServers,
        store: Arc<Store>,
        config_base: &str,
        metrics: RolloutMetrics,
        leadership: Leadership,
    ) -> Rollouts {
        Rollouts {
            client: client.clone(),
            nodes: Nodes::new(client.clone()),
            stored: Stored::new(client.clone()),
            current: Current::new(store, config_base),
            pods: Pods::new(client.clone()),
            api_servers,
            events: Events::new(client),
            metrics,
            leadership,
        }
    }

    /// Leads rollouts. Never returns: retries after each failure. Logs a repeated problem once.
    pub(crate) async fn run(&self) -> Infallible {
        let mut said = String::new();
        loop {
            match self.lead().await {
                Ended::Idle => said.clear(),
                Ended::Failed(problem) => {
                    if problem != said {
                        log::warn!("rollouts wait: {problem}; trying again");
                    }
                    said = problem;
                }
            }
            sleep(IDLE).await;
        }
    }

    /// Decides about the rollout and the policy that are in the ConfigMap, again and again, until there is nothing more to decide. Ends
    /// early if a request fails, or if another process may lead.
    async fn lead(&self) -> Ended {
        match self.read().await {
            Ok((asked, read)) if asked.is_nothing() => {
                let actions = decide_all(&asked, &[], &Seen::default(), OffsetDateTime::now_utc());
                return self.publish(&actions, &read).await.err().unwrap_or(Ended::Idle);
            }
            Ok(_) => {}
            Err(problem) => return problem,
        }
        let mut watch = NodeWatch::new(self.nodes.api(), LIST_TIMEOUT);
        let mut members = Watched::new(member);
        let (mut hashes, mut blocking) = (Hashes::default(), Blocking::default());
        let (mut changed, mut last): (Option<Instant>, _) = (None, Instant::now());
        loop {
            let due = match changed {
                Some(since) => (since + GATHERING).max(last + PAUSE),
                None => last + LONGEST_PAUSE,
            };
            let mut decided = pin!(sleep_until(due));
            tokio::select! {
                event = watch.next() => match event {
                    Some(Ok(event)) => {
                        if members.apply(event) {
                            changed.get_or_insert_with(Instant::now);
                        }
                    }
                    Some(Err(failure)) => return Ended::Failed(failure.to_string()),
                    None => return Ended::Failed("the watch of Nodes ended".to_owned()),
                },
                () = &mut decided, if members.is_complete => {
                    if let Err(ended) = self.step(&members, &mut hashes, &mut blocking).await {
                        return ended;
                    }
                    (changed, last) = (None, Instant::now());
                }
            }
        }
    }

    /// Reads the ConfigMap. Returns the input of the next decision, and the ConfigMap itself.
    async fn read(&self) -> Result<(RolloutAndPolicy, Read), Ended> {
        let Some(read) = self.stored.read().await? else {
            self.metrics.clear();
            return Err(Ended::Idle);
        };
        let rollout = read.rollout.clone().map_err(|failure| Ended::Failed(failure.to_string()))?;
        let asked = RolloutAndPolicy {
            rollout: rollout.filter(|rollout| !read.status.is_over(rollout)),
            status: read.status.clone(),
            policy: read.policy_status.with_policy(&read.policy),
            policy_state: read.policy_state.clone().map_err(|failure| Ended::Failed(failure.to_string()))?,
        };
        Ok((asked, read))
    }

    /// Decides once, and writes the decision. The status is written before the orders, so that the controller never forgets an order
    /// that it wrote.
    async fn step(
        &self,
        members: &Watched<Member>,
        hashes: &mut Hashes,
        blocking: &mut Blocking,
    ) -> Result<(), Ended> {
        let (asked, read) = self.read().await?;
        let mut members: Vec<Member> = members.nodes.values().cloned().collect();
        let is_stale = hashes.refresh(&self.current, &asked, &members).await;
        let Configurations { hashes: current, authorities, program } = hashes.last.clone();
        let mut seen = Seen { current, is_stale, authorities, program, ..Seen::default() };
        let now = OffsetDateTime::now_utc();
        let mut actions = decide_all(&asked, &members, &seen, now);
        // Decide again after each answer. For example, a list of pods may end the check of a node, so that the next node may begin.
        while !actions.pods_to_list.is_empty()
            || !actions.api_servers_to_ask.is_empty()
            || actions.blockers_to_check.is_some()
        {
            seen.listed.extend(self.pods.list(&actions.pods_to_list).await);
            if let Some(blockers) = &actions.blockers_to_check {
                seen.blocked = Some(blocking.blocked_nodes(&self.client, blockers).await);
            }
            // Ask the API servers last, so that their answers are as fresh as possible when an order is written.
            self.ask(&actions.api_servers_to_ask, &mut members).await;
            actions = decide_all(&asked, &members, &seen, now);
        }
        self.publish(&actions, &read).await?;
        self.write(&actions).await?;
        let is_over = asked
            .rollout
            .zip(actions.status.as_ref())
            .is_none_or(|(rollout, status)| status.is_over(&rollout));
        match is_over && !actions.policy.is_active() {
            true => Err(Ended::Idle),
            false => Ok(()),
        }
    }

    /// Asks the API servers of these control planes whether they are ready.
    async fn ask(&self, control_planes: &BTreeSet<String>, members: &mut [Member]) {
        let asked = members.iter_mut().filter(|member| control_planes.contains(&member.node));
        join_all(asked.map(|member| async move {
            member.api_server = self.api_servers.ready(member.address).await;
        }))
        .await;
    }

    /// Writes the statuses of the operator's rollout and of the policy. Logs their changes.
    async fn publish(&self, actions: &Actions, read: &Read) -> Result<(), Ended> {
        // Another process may lead now.
        if self.leadership.remaining().is_none() {
            return Err(Ended::Idle);
        }
        let (status, policy) =
            (actions.status.as_ref().filter(|status| **status != read.status), &actions.policy);
        if let Some(status) = status {
            self.tell(&read.status, status).await;
        }
        if *policy != read.policy_status {
            self.tell(&read.policy_status.status, &policy.status).await;
            self.tell(&read.policy_status.reboots, &policy.reboots).await;
            if policy.refused != read.policy_status.refused && !policy.refused.is_empty() {
                let problem = format!("{}; the previous policy stays in use", policy.refused);
                log::warn!("rollouts: {problem}");
                self.events.warn_of_controller(Reason::RolloutPolicyRefused, &problem).await;
            }
        }
        if status.is_some() || *policy != read.policy_status {
            self.stored.tell(status, policy, read).await?;
        }
        self.metrics.show(actions.active(), !policy.refused.is_empty());
        Ok(())
    }

    /// Logs changes of the status, and creates Events for failures.
    async fn tell(&self, before: &Status, now: &Status) {
        let id = &now.rollout;
        if before.rollout != now.rollout && !id.is_empty() {
            log::info!("the rollout {id} begins");
        }
        for (node, order) in now.ordered.iter().filter(|(node, _)| !before.ordered.contains_key(*node)) {
            let what = match order.task() {
                Task::Configuration => "take the current configuration of its group",
                Task::Reboot => "reboot",
                Task::Program => "run another version of kops-agent",
            };
            log::info!("the rollout {id} orders {node} to {what}");
        }
        for (node, check) in now.pods.iter().filter(|(node, _)| !before.pods.contains_key(*node)) {
            if !check.not_compared.is_empty() {
                log::warn!("{node}: its pods are not compared: {}", check.not_compared);
            }
        }
        if before.waits_for != now.waits_for && !now.waits_for.is_empty() {
            log::info!("the rollout {id} waits: {}", now.waits_for);
        }
        for (name, group) in &now.groups {
            for (node, why) in &group.held {
                if before.groups.get(name).is_none_or(|group| !group.held.contains_key(node)) {
                    log::info!("the rollout {id} does not give {node} an order yet: {why}");
                }
            }
            for (node, problem) in &group.failures {
                let is_new = before.groups.get(name).is_none_or(|group| !group.failures.contains_key(node));
                if is_new {
                    let problem = format!("the rollout {id} pauses the group {name}: {problem}");
                    log::warn!("{node}: {problem}");
                    self.events.warn(node, Reason::RolloutFailed, &problem).await;
                }
            }
        }
        if before.phase != now.phase && !id.is_empty() {
            log::info!("the rollout {id} is {}", now.phase);
        }
    }

    /// Writes new orders into Nodes, and removes the withdrawn orders.
    async fn write(&self, actions: &Actions) -> Result<(), Ended> {
        let orders = actions.orders.iter().map(|(node, order)| (node, annotations(order)));
        let withdrawn = actions.withdrawn.iter().map(|node| (node, json!({ORDER: null})));
        let all: Vec<(&String, Value)> = orders.chain(withdrawn).collect();
        let written: Vec<Result<(), ApiError>> = stream::iter(&all)
            .map(|(node, annotations)| self.nodes.annotate_all(FIELD_MANAGER, node, annotations))
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
        let refused = written.into_iter().find_map(Result::err).filter(|error| !error.is_not_found());
        refused.map_or(Ok(()), |error| Err(error.into()))
    }
}

/// The annotations that give a Node this order.
fn annotations(order: &Order) -> Value {
    let mut annotations = json!({ORDER: order.text()});
    if !order.boot_id.is_empty()
        && let Some(reboot) = LastReboot::new(order).value()
    {
        annotations[LAST_REBOOT] = reboot.into();
    }
    annotations
}

/// The part of a Node on which decisions depend.
pub(super) fn member(node: NodeObject) -> Member {
    let status = node.status.unwrap_or_default();
    let labels = node.metadata.labels.unwrap_or_default();
    let annotations = node.metadata.annotations.unwrap_or_default();
    let rank = match () {
        () if labels.contains_key(CONTROL_PLANE_LABEL) => Rank::ControlPlane,
        () if labels.contains_key(API_SERVER) => Rank::ApiServer,
        () => Rank::Worker,
    };
    let reboot = annotations.get(REBOOT_REQUIRED);
    let reasons = reboot.and_then(|reboot| reboot_required(reboot, &status.node_info.boot_id));
    let program = annotations.get(PROGRAM).and_then(|report| {
        reported_program(report, annotations.get(AGENT_VERSION).map_or("", String::as_str))
    });
    let told = status.condition(CONDITION).map(|condition| Told::read(&condition.message));
    Member {
        node: node.metadata.name.unwrap_or_default(),
        group: labels.get(INSTANCE_GROUP).cloned().unwrap_or_default(),
        rank,
        is_ready: status.condition(READY).is_some_and(|ready| ready.status == "True"),
        address: status.internal_ip().filter(|_| rank == Rank::ControlPlane),
        api_server: ApiServer::NotAsked,
        runs: told.and_then(|told| told.runs).map(|runs| runs.hash),
        authorities: annotations.get(AUTHORITIES).and_then(|value| read_authorities(value)),
        last_reboot: annotations.get(LAST_REBOOT).and_then(|text| LastReboot::read(text)),
        requires_reboot: reasons.is_some_and(|reasons| !reasons.is_empty()),
        held: String::new(),
        cordoned_since: annotations.get(CORDONED).and_then(|since| parse_timestamp(since)),
        is_unchecked: program.as_ref().is_some_and(|program| program.is_unchecked),
        program: program.map(|program| program.sha256),
        is_healthy: status.condition(CONDITION).is_some_and(|condition| condition.status == "True"),
        architecture: status.node_info.architecture,
        is_left_out: false,
        canary: Canary::default(),
        boot_id: status.node_info.boot_id,
        order: annotations.get(ORDER).cloned().unwrap_or_default(),
        outcome: annotations.get(OUTCOME).and_then(|text| Outcome::read(text)),
    }
}

#[cfg(test)]
mod tests;
