//! SELinux labels in a plan. What the label of a file should be, the machine's policy says, and not the cluster: so a
//! desired state has none, and what is wrong with them comes with what was observed.

use std::collections::BTreeMap;

use super::order::rank;
use super::plan::Plan;
use super::step::{Action, Change, Stage, Step};
use crate::resource::ResourceId;

/// A label that is other than the policy's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongLabel {
    /// What it is; `None` where there is none.
    pub found: Option<String>,
    pub wanted: String,
}

/// The wrong labels of what is there and desired.
pub type WrongLabels = BTreeMap<ResourceId, WrongLabel>;

/// The plan that also puts these labels right.
pub fn with_labels(mut plan: Plan, wrong: &WrongLabels) -> Plan {
    for (id, WrongLabel { found, wanted }) in wrong {
        let change = Change::Set { field: "SELinux label".into(), from: found.clone(), to: wanted.clone() };
        match plan.steps.iter_mut().find(|step| step.resource == *id) {
            // First, as where a file is made: before it is of any use.
            Some(step) => step.changes.insert(0, change),
            None => {
                let (stage, resource) = (Stage::of(id), id.clone());
                let comes_later =
                    |step: &Step| (step.stage, rank(&step.resource), &step.resource) > (stage, rank(id), id);
                let at = plan.steps.iter().position(comes_later).unwrap_or(plan.steps.len());
                plan.steps
                    .insert(at, Step { stage, resource, action: Action::Change, changes: vec![change] });
            }
        }
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::Kind;

    fn step(id: &ResourceId, stage: Stage, action: Action) -> Step {
        Step { stage, resource: id.clone(), action, changes: vec![] }
    }

    #[test]
    fn a_label_is_put_right_where_its_file_is_dealt_with() {
        let id = |path: &str| ResourceId::new(Kind::File, path);
        let old = ResourceId::new(Kind::Directory, "/a");
        let plan = Plan {
            steps: vec![
                step(&id("/b"), Stage::Files, Action::Change),
                step(&id("/d"), Stage::Files, Action::Create),
                step(&old, Stage::Removals, Action::Remove),
            ],
            ..Plan::default()
        };
        let label =
            |found: Option<&str>| WrongLabel { found: found.map(Into::into), wanted: "u:r:etc_t:s0".into() };
        let wrong = WrongLabels::from([
            (id("/b"), label(None)),
            (id("/c"), label(Some("x"))),
            (id("/e"), label(None)),
        ]);
        let plan = with_labels(plan, &wrong);
        let order: Vec<&str> = plan.steps.iter().map(|step| step.resource.name.as_str()).collect();
        assert_eq!(order, ["/b", "/c", "/d", "/e", "/a"]);
        let to = "u:r:etc_t:s0".to_owned();
        assert_eq!(
            plan.steps[1].changes,
            [Change::Set { field: "SELinux label".into(), from: Some("x".into()), to }]
        );
        assert!(!plan.steps[1].changes_content() && plan.steps[0].changes.len() == 1);
    }
}
