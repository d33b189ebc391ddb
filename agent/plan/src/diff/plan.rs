//! All the steps that must be taken, in order.

use serde::{Deserialize, Serialize};

use super::removals::{Keeping, Kept};
use super::step::{Action, Stage, Step};
use crate::resource::ResourceId;

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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Resources that are not there yet.
    pub create: usize,
    /// Resources that differ.
    pub change: usize,
    /// Units and static pods that are restarted, for whatever reason.
    pub restart: usize,
    /// Resources that are taken away.
    #[serde(default)]
    pub remove: usize,
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

    /// How much it does.
    pub fn summary(&self) -> Summary {
        let count = |action| self.steps.iter().filter(|step| step.action == action).count();
        Summary {
            create: count(Action::Create),
            change: count(Action::Change),
            restart: self.steps.iter().filter(|step| step.restarts()).count(),
            remove: count(Action::Remove),
        }
    }
}
