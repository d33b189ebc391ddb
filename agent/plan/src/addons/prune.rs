//! What may be deleted: objects that a rule of the add-on selects, and that its manifest does not have.

use super::manifest::Object;
use super::spec::PruneKind;

/// An object that the API server lists for a rule: of its kind, in its namespaces, selected by its labels and fields.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
    /// Its namespace; empty where its kind has none.
    pub namespace: String,
    /// Its name.
    pub name: String,
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
        manifest.iter().any(|object| {
            object.kind.group == rule.group
                && object.kind.kind == rule.kind
                && object.namespace == listed.namespace
                && object.name == listed.name
        })
    };
    listed.into_iter().filter(|listed| !is_kept(listed)).collect()
}
