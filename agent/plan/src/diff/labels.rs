//! SELinux labels in a plan. The machine's policy decides the label of a file, not the cluster. So the desired state contains no labels.
//! Instead, the observation reports wrong labels.

use std::collections::BTreeMap;

use super::order::rank;
use super::plan::Plan;
use super::step::{Action, Change, Stage, Step};
use crate::resource::ResourceId;

/// A file's SELinux label that differs from the policy's label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongLabel {
    /// The present label. `None` if the file has no label.
    pub found: Option<String>,
    pub wanted: String,
}

/// The wrong labels of the desired files that exist on the machine.
pub type WrongLabels = BTreeMap<ResourceId, WrongLabel>;

/// Adds the corrections of the labels in `wrong` to the plan.
pub fn with_labels(mut plan: Plan, wrong: &WrongLabels) -> Plan {
    for (id, WrongLabel { found, wanted }) in wrong {
        let change = Change::Set { field: "SELinux label".into(), from: found.clone(), to: wanted.clone() };
        match plan.steps.iter_mut().find(|step| step.resource == *id) {
            // The label is corrected first, so that it is correct before a program uses the file. This is also the order for new files.
            Some(step) => step.changes.insert(0, change),
            None => {
                let (stage, resource) = (Stage::from_resource(id), id.clone());
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
    fn a_label_is_corrected_in_its_files_step() {
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
