//! A plan: the steps that change a machine, in order.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::removals::{Keeping, Kept};
use super::step::{Action, Stage, Step};
use crate::resource::{Kind, ResourceId};

/// A plan: all steps in order, the resources that stay unchanged, and the resources that the agent adopts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The steps, sorted by stage. Within a stage, they are in execution order.
    pub steps: Vec<Step>,
    /// Resources that stay, although they are no longer desired or their desired state is unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<Kept>,
    /// Resources that equal the desired state although the agent did not make them. The agent adopts these resources, so that later runs
    /// can prune and reset them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub adopted: Vec<ResourceId>,
}

/// The numbers of changes in a plan, by action.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    pub create: Count,
    pub change: Count,
    pub remove: Count,
    /// The number of units and static pods in `restarts`.
    pub restart: usize,
    /// All units and static pods that restart, in order: `kubelet.service`, `static pod kube-apiserver`.
    pub restarts: Vec<String>,
}

/// A number of resources. Its JSON form is only the number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(into = "usize")]
pub struct Count {
    pub number: usize,
    /// The kind of all counted resources. `None` if they have different kinds.
    kind: Option<Kind>,
}

impl Count {
    fn from_resources<'a>(resources: impl Iterator<Item = &'a ResourceId>) -> Count {
        let kinds: Vec<Kind> = resources.map(|id| id.kind).collect();
        let kind = kinds.first().copied().filter(|first| kinds.iter().all(|kind| kind == first));
        Count { number: kinds.len(), kind }
    }
}

impl From<Count> for usize {
    fn from(count: Count) -> usize {
        count.number
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let noun = match self.kind {
            Some(kind @ (Kind::File | Kind::Unit | Kind::Package | Kind::Certificate)) => kind.name(),
            _ => "resource",
        };
        write!(f, "{} {noun}{}", self.number, if self.number == 1 { "" } else { "s" })
    }
}

impl Plan {
    /// Whether the machine equals the desired state. `false` if the plan is not empty, or if a wrong resource cannot be repaired now
    /// ([`Keeping::Unmended`]).
    pub fn is_as_wanted(&self) -> bool {
        self.is_empty() && self.kept.iter().all(|kept| kept.keeping != Keeping::Unmended)
    }

    pub fn is_empty(&self) -> bool {
        self.steps.is_empty() && self.adopted.is_empty()
    }

    /// Adds the resources that the agent adopts. If the plan changes a resource's content, the resource is skipped, because it did not
    /// equal the desired state.
    pub fn adopting(mut self, there: Vec<ResourceId>) -> Plan {
        self.adopted =
            there.into_iter().filter(|id| !self.step(id).is_some_and(Step::changes_content)).collect();
        self
    }

    pub fn stage(&self, stage: Stage) -> impl Iterator<Item = &Step> {
        self.steps.iter().filter(move |step| step.stage == stage)
    }

    pub fn step(&self, id: &ResourceId) -> Option<&Step> {
        self.steps.iter().find(|step| step.resource == *id)
    }

    pub fn summary(&self) -> Summary {
        let count = |action| {
            Count::from_resources(
                self.steps.iter().filter(|step| step.action == action).map(|step| &step.resource),
            )
        };
        let mut restarts: Vec<String> = Vec::new();
        for restarted in self.steps.iter().flat_map(Step::restarted) {
            if !restarts.contains(&restarted) {
                restarts.push(restarted);
            }
        }
        Summary {
            create: count(Action::Create),
            change: count(Action::Change),
            remove: count(Action::Remove),
            restart: restarts.len(),
            restarts,
        }
    }

    pub(super) fn adopted_count(&self) -> Count {
        Count::from_resources(self.adopted.iter())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::diff::Change;

    fn step(kind: Kind, name: &str, action: Action, changes: Vec<Change>) -> Step {
        let resource = ResourceId::new(kind, name);
        Step { stage: Stage::from_resource(&resource), resource, action, changes }
    }

    #[test]
    fn each_restart_is_listed_once() {
        let pod = |name: &str, action, changes| {
            step(Kind::File, &format!("/etc/kubernetes/manifests/{name}.manifest"), action, changes)
        };
        let write = || vec![Change::Write { diff: String::new() }];
        let run =
            |unit: &str| Change::Run { command: ["systemctl", "restart", unit].map(str::to_owned).into() };
        let mode = Change::Set { field: "mode".into(), from: Some("0644".into()), to: "0600".into() };
        let restart = || vec![Change::Restart { because: vec![] }];
        let steps = vec![
            step(Kind::File, "/etc/a", Action::Change, vec![run("a.service")]),
            pod("etcd-main", Action::Restart, restart()),
            pod("kube-apiserver", Action::Change, write()),
            pod("kube-scheduler", Action::Change, vec![mode]),
            pod("kube-proxy", Action::Create, write()),
            pod("kops-channels", Action::Remove, vec![Change::Remove]),
            step(Kind::Unit, "a.service", Action::Restart, restart()),
            step(Kind::Unit, "kubelet.service", Action::Restart, restart()),
        ];
        let summary = Plan { steps, ..Plan::default() }.summary();
        assert_eq!(
            summary.restarts,
            ["a.service", "static pod etcd-main", "static pod kube-apiserver", "kubelet.service"]
        );
        let json = serde_json::to_value(&summary).unwrap();
        let numbers = ["create", "change", "remove", "restart"].map(|name| json[name].as_u64().unwrap());
        assert_eq!(numbers, [1, 3, 1, 4]);
    }
}
