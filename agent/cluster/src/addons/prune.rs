//! Decides which objects to delete: a rule of the add-on selects them, and the manifest does not contain them. These objects are deleted
//! only when their replacements serve.

use kops_agent_spec::failure::Failure;
use kops_agent_spec::invalid::Invalid;
use serde_json::Value;

use super::manifest::Object;
use super::serving;
use super::spec::PruneKind;

/// The API group of admission webhooks and policies. Their deletion does not wait for workloads, for two reasons: pods do not use these
/// objects, and a stale webhook or policy may reject objects of the manifest.
const ADMISSION: &str = "admissionregistration.k8s.io";

/// An object that the API server lists for a rule: it matches the rule's kind, namespaces and selectors.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
    /// The object's namespace. Empty for cluster-scoped objects.
    pub namespace: String,
    pub name: String,
    pub is_paused: bool,
    /// Whether this object has a controller (an owner with `controller: true`). The removal of an add-on skips such an object, because the
    /// object's controller deletes it.
    pub is_owned: bool,
}

/// Checks a rule. A rule without namespaces and selectors would delete every object of its kind in the cluster. Upstream accepts such a
/// rule, but kOps never writes such a rule.
pub fn check(rule: &PruneKind) -> Result<(), Invalid> {
    if rule.kind.is_empty() {
        return Err(Invalid::new("it has no kind"));
    }
    let is_bounded =
        !rule.namespaces.is_empty() || !rule.label_selector.is_empty() || !rule.field_selector.is_empty();
    match is_bounded {
        true => Ok(()),
        false => Err(Invalid::new(format!(
            "it has neither namespaces nor a selector, so it would delete every {} of the cluster that is not in the manifest",
            rule.kind
        ))),
    }
}

/// The listed objects to delete: those that are neither paused nor in the manifest.
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

/// Whether an API group is the group of admission webhooks and policies.
pub fn is_admission(group: &str) -> bool {
    group == ADMISSION
}

/// The result of applying an object of the manifest.
#[derive(Clone, Debug, PartialEq)]
pub struct Tried<'a> {
    pub object: &'a Object,
    /// The object from the API server, or the reason why applying it failed.
    pub live: Result<Value, Failure>,
}

impl Tried<'_> {
    /// Why the object is not healthy; `None` if it is healthy.
    fn problem(&self) -> Option<String> {
        match &self.live {
            Ok(live) => serving::problem(live),
            Err(failure) => Some(failure.to_string()),
        }
    }
}

/// The objects of the manifest that prevent the deletion of objects of this kind, because they are not applied or not ready yet. Each has
/// the reason. Only objects of this kind and workloads can prevent the deletion: pods of a workload may use objects of this kind. Workloads
/// do not prevent the deletion of admission objects.
pub fn holders<'a>(group: &str, kind: &str, tried: &'a [Tried<'a>]) -> Vec<(&'a Tried<'a>, String)> {
    let holds = |one: &&Tried<'_>| {
        let of = &one.object.kind;
        let is_of_kind = of.group == group && of.kind == kind;
        is_of_kind || !is_admission(group) && serving::is_workload(&of.group, &of.kind)
    };
    tried.iter().filter(holds).filter_map(|one| Some((one, one.problem()?))).collect()
}

/// Whether the pods of `holder` wait for a host port that `doomed` uses. `holder` can then serve only after `doomed` is deleted.
pub fn is_in_the_way(doomed: &Value, holder: &Tried<'_>) -> bool {
    holder.live.as_ref().is_ok_and(|live| serving::waits_for_port_of(live, doomed))
}
