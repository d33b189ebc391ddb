//! What may be deleted: objects that a rule of the add-on selects, and that its manifest does not have. And when: once what replaces
//! them serves.

use serde_json::Value;

use super::manifest::Object;
use super::serving;
use super::spec::PruneKind;

/// The group of admission webhooks and policies. Pods do not use them, and one that is left over may refuse objects of the manifest.
const ADMISSION: &str = "admissionregistration.k8s.io";

/// An object that the API server lists for a rule: of its kind, in its namespaces, selected by its labels and fields.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
    /// Its namespace; empty where its kind has none.
    pub namespace: String,
    pub name: String,
    /// Whether a person has paused it.
    pub is_paused: bool,
    /// Whether another object owns it as its controller, and deletes it in its own time.
    pub is_owned: bool,
}

/// Whether a rule can be followed. One that selects by nothing would delete every object of its kind, in all of the cluster:
/// upstream would, and kOps writes none.
///
/// # Errors
/// What is wrong with it.
pub fn check(rule: &PruneKind) -> Result<(), String> {
    if rule.kind.is_empty() {
        return Err("it names no kind".to_owned());
    }
    let is_bounded =
        !rule.namespaces.is_empty() || !rule.label_selector.is_empty() || !rule.field_selector.is_empty();
    match is_bounded {
        true => Ok(()),
        false => Err(format!(
            "it has neither namespaces nor a selector, and would delete every {} of the cluster that the manifest does not have",
            rule.kind
        )),
    }
}

/// Those of the listed objects that are deleted.
pub fn doomed(rule: &PruneKind, manifest: &[Object], listed: Vec<Listed>) -> Vec<Listed> {
    let is_kept = |listed: &Listed| {
        listed.is_paused
            || manifest.iter().any(|object| {
                object.kind.group == rule.group
                    && object.kind.kind == rule.kind
                    && object.namespace == listed.namespace
                    && object.name == listed.name
            })
    };
    listed.into_iter().filter(|listed| !is_kept(listed)).collect()
}

/// Whether a group is that of admission webhooks and policies.
pub fn is_admission(group: &str) -> bool {
    group == ADMISSION
}

/// An object of the manifest after it was applied.
#[derive(Clone, Debug, PartialEq)]
pub struct Tried<'a> {
    /// The object as the manifest has it.
    pub object: &'a Object,
    /// The object as the API server has it, or why it could not be applied.
    pub live: Result<Value, String>,
}

impl Tried<'_> {
    /// Why the object is not healthy; `None` if it is healthy.
    fn problem(&self) -> Option<String> {
        match &self.live {
            Ok(live) => serving::problem(live),
            Err(problem) => Some(problem.clone()),
        }
    }
}

/// Which objects of the manifest do not serve, so that objects of a kind must stay: those of the kind itself, and workloads, whose
/// pods use objects of the other kinds. Each comes with the reason.
pub fn holders<'a>(group: &str, kind: &str, tried: &'a [Tried<'a>]) -> Vec<(&'a Tried<'a>, String)> {
    let holds = |one: &&Tried<'_>| {
        let of = &one.object.kind;
        let is_of_kind = of.group == group && of.kind == kind;
        is_of_kind || !is_admission(group) && serving::is_workload(&of.group, &of.kind)
    };
    tried.iter().filter(holds).filter_map(|one| Some((one, one.problem()?))).collect()
}

/// Whether an object that does not serve waits for a port of the host that an object to be deleted has.
pub fn is_in_the_way(doomed: &Value, holder: &Tried<'_>) -> bool {
    holder.live.as_ref().is_ok_and(|live| serving::waits_for_port_of(live, doomed))
}
