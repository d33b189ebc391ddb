//! All the steps that must be taken, in order.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::removals::{Keeping, Kept};
use super::step::{Action, Stage, Step};
use crate::resource::{Kind, ResourceId};

/// Everything that must be done, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The steps: by stage, and within one in the order in which they must happen.
    pub steps: Vec<Step>,
    /// What stays although it is no longer wanted, or although it cannot be told now how it should be.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<Kept>,
    /// What is there as it is wanted, is not the agent's, and becomes its own: it is pruned and reset from then on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub adopted: Vec<ResourceId>,
}

/// How much a plan does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Resources that are not there yet.
    pub create: Count,
    pub change: Count,
    /// Resources that are taken away.
    pub remove: Count,
    /// The number of `restarts`.
    pub restart: usize,
    /// Units and static pods that are restarted, for whatever reason, in order: `kubelet.service`, `static pod kube-apiserver`.
    pub restarts: Vec<String>,
}

/// A number of resources, in JSON just that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(into = "usize")]
pub struct Count {
    pub number: usize,
    /// The kind that all of them are of.
    kind: Option<Kind>,
}

impl Count {
    fn of<'a>(resources: impl Iterator<Item = &'a ResourceId>) -> Count {
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
    /// Whether the machine is as it is wanted: nothing is to be done, and nothing is wrong that cannot be put right.
    pub fn is_as_wanted(&self) -> bool {
        self.is_empty() && self.kept.iter().all(|kept| kept.keeping != Keeping::Unmended)
    }

    /// Whether nothing is to be done.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty() && self.adopted.is_empty()
    }

    /// The same plan, with which these become the agent's own as far as they are as they should be: what is written
    /// anew was something else before.
    pub fn adopting(mut self, there: Vec<ResourceId>) -> Plan {
        self.adopted =
            there.into_iter().filter(|id| !self.step(id).is_some_and(Step::changes_content)).collect();
        self
    }

    /// The steps of one stage.
    pub fn stage(&self, stage: Stage) -> impl Iterator<Item = &Step> {
        self.steps.iter().filter(move |step| step.stage == stage)
    }

    /// The step for a resource.
    pub fn step(&self, id: &ResourceId) -> Option<&Step> {
        self.steps.iter().find(|step| step.resource == *id)
    }

    pub fn summary(&self) -> Summary {
        let count = |action| {
            Count::of(self.steps.iter().filter(|step| step.action == action).map(|step| &step.resource))
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

    /// The resources that become the agent's own.
    pub(super) fn adopted_count(&self) -> Count {
        Count::of(self.adopted.iter())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::diff::Change;

    fn step(kind: Kind, name: &str, action: Action, changes: Vec<Change>) -> Step {
        let resource = ResourceId::new(kind, name);
        Step { stage: Stage::of(&resource), resource, action, changes }
    }

    #[test]
    fn each_restart_is_named_once_whoever_does_it() {
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
