//! A cluster for tests of decisions.

#![allow(clippy::unwrap_used)]
use std::collections::{BTreeMap, BTreeSet};

use kops_agent_spec::failure::Failure;
use time::OffsetDateTime;

use super::wanted::{DrainMode, MaxUnavailable};
use super::{
    Actions, ApiServer, Blockers, Canary, Containers, Decision, LastReboot, Member, Order, PolicyState,
    PolicyStatus, Rank, Rollout, RolloutAndPolicy, Seen, State, Status, decide, decide_all, decide_by_policy,
};

pub(super) const BEGIN: OffsetDateTime = OffsetDateTime::UNIX_EPOCH;

pub(super) fn rollout() -> Rollout {
    Rollout {
        id: "r-1".into(),
        state: State::Running,
        attempt: 1,
        instance_groups: BTreeSet::new(),
        max_unavailable: MaxUnavailable::default(),
        canary: 0,
        drain: DrainMode::Auto,
        may_go_back: false,
        reboot: None,
        program: None,
        blocked_by: Blockers::default(),
        health_timeout: 300,
        node_timeout: 600,
        check_pods_after: 0,
        observe: 0,
        windows: Vec::new(),
    }
}

fn member(group: &str, number: usize) -> Member {
    let rank = match group {
        "masters" => Rank::ControlPlane,
        "apiservers" => Rank::ApiServer,
        _ => Rank::Worker,
    };
    Member {
        node: format!("{group}-{number:02}"),
        group: group.to_owned(),
        rank,
        is_ready: true,
        address: None,
        api_server: ApiServer::NotAsked,
        runs: Some("a=".into()),
        authorities: None,
        program: None,
        is_unchecked: false,
        architecture: "amd64".into(),
        is_left_out: false,
        is_healthy: true,
        canary: Canary::default(),
        boot_id: "boot-0".into(),
        requires_reboot: false,
        last_reboot: None,
        held: String::new(),
        cordoned_since: None,
        order: String::new(),
        outcome: None,
    }
}

/// A cluster whose nodes act on their orders. The controller keeps no state outside the cluster.
pub(super) struct Cluster {
    pub(super) rollout: Rollout,
    pub(super) members: Vec<Member>,
    pub(super) seen: Seen,
    /// The pods of each node.
    pub(super) containers: BTreeMap<String, Result<Containers, Failure>>,
    /// For each node, how often its pods were listed.
    pub(super) listings: BTreeMap<String, usize>,
    pub(super) not_ready: BTreeSet<String>,
    /// For each control plane, how often its API server was asked whether it is ready.
    pub(super) questions: BTreeMap<String, usize>,
    pub(super) status: Status,
    pub(super) now: OffsetDateTime,
    pub(super) policy: PolicyStatus,
    pub(super) policy_state: PolicyState,
}

impl Cluster {
    pub(super) fn new(groups: &[(&str, usize)]) -> Cluster {
        let members =
            groups.iter().flat_map(|(group, nodes)| (0..*nodes).map(|number| member(group, number)));
        let current = groups.iter().map(|(group, _)| ((*group).to_owned(), Ok("b=".to_owned())));
        Cluster {
            rollout: rollout(),
            members: members.collect(),
            seen: Seen { current: current.collect(), ..Seen::default() },
            containers: BTreeMap::new(),
            listings: BTreeMap::new(),
            not_ready: BTreeSet::new(),
            questions: BTreeMap::new(),
            status: Status::default(),
            now: BEGIN,
            policy: PolicyStatus::default(),
            policy_state: PolicyState::default(),
        }
    }

    /// One step of the controller: it decides for the operator's rollout, and writes the orders and the status. Returns the nodes that got
    /// an order.
    pub(super) fn step(&mut self) -> Vec<String> {
        let decide =
            |members: &[Member], seen: &Seen| decide(&self.rollout, members, seen, &self.status, 0, self.now);
        let (mut members, mut seen) = (self.members.clone(), self.seen.clone());
        let mut decision = decide(&members, &seen);
        while !decision.pods_to_list.is_empty() || !decision.api_servers_to_ask.is_empty() {
            for node in &decision.pods_to_list {
                *self.listings.entry(node.clone()).or_default() += 1;
                let containers = self.containers.get(node).cloned().unwrap_or_else(|| Ok(Containers::new()));
                seen.listed.insert(node.clone(), containers);
            }
            for node in &decision.api_servers_to_ask {
                *self.questions.entry(node.clone()).or_default() += 1;
                let member = members.iter_mut().find(|member| member.node == *node).unwrap();
                member.api_server = match self.not_ready.contains(node) {
                    true => ApiServer::NotReady("failed checks: etcd".into()),
                    false => ApiServer::Ready,
                };
            }
            decision = decide(&members, &seen);
        }
        self.write(&decision);
        self.status = decision.status;
        decision.orders.into_keys().collect()
    }

    /// Like `step`, but the policy decides.
    pub(super) fn step_by_policy(&mut self) -> Vec<String> {
        self.step_after(None)
    }

    /// Like `step_by_policy`, while an operator's rollout with this ID is open.
    pub(super) fn step_after(&mut self, first: Option<&str>) -> Vec<String> {
        let (policy, state) = (&self.policy, &self.policy_state);
        let (decision, policy) =
            decide_by_policy(policy, state, first, 0, &self.members, &self.seen, self.now);
        self.write(&decision);
        self.policy = policy;
        decision.orders.into_keys().collect()
    }

    /// Decides for the operator's rollout and for the policy, and writes the orders.
    pub(super) fn step_all(&mut self, rollout: Option<&Rollout>) -> Actions {
        let asked = RolloutAndPolicy {
            rollout: rollout.cloned(),
            status: self.status.clone(),
            policy: self.policy.clone(),
            policy_state: self.policy_state.clone(),
        };
        let actions = decide_all(&asked, &self.members, &self.seen, self.now);
        self.write_orders(&actions.orders, &actions.withdrawn);
        actions
    }

    fn write(&mut self, decision: &Decision) {
        self.write_orders(&decision.orders, &decision.withdrawn);
    }

    fn write_orders(&mut self, orders: &BTreeMap<String, Order>, withdrawn: &[String]) {
        for member in &mut self.members {
            if let Some(order) = orders.get(&member.node) {
                member.order = order.text();
                if !order.boot_id.is_empty() {
                    member.last_reboot = Some(LastReboot::new(order));
                }
            }
            if withdrawn.contains(&member.node) {
                member.order.clear();
            }
        }
    }

    pub(super) fn of_name(&mut self, node: &str) -> &mut Member {
        self.members.iter_mut().find(|member| member.node == node).unwrap()
    }

    /// The node acts on its order: takes the configuration, or fails with a problem.
    pub(super) fn act(&mut self, node: &str, problem: &str) {
        let member = self.of_name(node);
        let order = Order::read(&member.order).unwrap();
        if problem.is_empty() {
            member.runs = Some(order.hash.clone());
            if !order.authorities.is_empty() {
                member.authorities = Some(order.authorities.clone());
            }
        }
        member.outcome = Some(order.outcome(problem));
    }

    /// Lets the controller decide again and again, until no node gets an order. Each node with an order succeeds. Returns the nodes of each
    /// step.
    pub(super) fn run(&mut self) -> Vec<Vec<String>> {
        let mut steps = Vec::new();
        loop {
            let ordered = self.step();
            if ordered.is_empty() {
                return steps;
            }
            for node in &ordered {
                self.act(node, "");
            }
            steps.push(ordered);
        }
    }
}
