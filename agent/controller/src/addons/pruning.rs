//! Deleting what a prune rule selects and the manifest does not have.

use kops_agent_plan::addons::PruneKind;
use kops_agent_plan::addons::manifest::{Object, named};
use kops_agent_plan::addons::prune::{self, Listed};

use super::objects::Objects;
use super::resources::Resource;

/// An object that a rule has deleted.
pub struct Doomed {
    /// Its kind, as it is served.
    pub resource: Resource,
    /// Which object it is.
    pub object: Listed,
}

impl std::fmt::Display for Doomed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Doomed { resource, object } = self;
        f.write_str(&named(&resource.api.group, &resource.api.kind, &object.namespace, &object.name))
    }
}

/// What a rule would have deleted.
///
/// # Errors
/// Its kind is not served, or the API server cannot be asked.
pub async fn doomed(objects: &Objects, rule: &PruneKind, manifest: &[Object]) -> Result<Vec<Doomed>, String> {
    let kind = named(&rule.group, &rule.kind, "", "");
    let kind = kind.trim_end();
    let failed = |error: &dyn std::fmt::Display| format!("pruning {kind}: {error}");
    let resource =
        objects.resources.find_preferred(&rule.group, &rule.kind).await.map_err(|error| failed(&error))?;
    let resource = resource.ok_or_else(|| failed(&"the API server serves no such kind"))?;
    if !resource.is_namespaced && !rule.namespaces.is_empty() {
        return Err(failed(&"the rule names namespaces, but the kind is in none"));
    }
    let everywhere = [String::new()];
    let namespaces = if rule.namespaces.is_empty() { &everywhere[..] } else { &rule.namespaces[..] };
    let mut listed = Vec::new();
    for namespace in namespaces {
        let (labels, fields) = (&rule.label_selector, &rule.field_selector);
        let found = objects.list(&resource, namespace, labels, fields).await;
        listed.extend(found.map_err(|error| failed(&error))?);
    }
    let doomed = prune::doomed(rule, manifest, listed);
    Ok(doomed.into_iter().map(|object| Doomed { resource: resource.clone(), object }).collect())
}

/// Deletes what these rules select, and tells what that was, and what could not be.
pub async fn prune(
    objects: &Objects,
    rules: &[PruneKind],
    manifest: &[Object],
) -> (Vec<String>, Vec<String>) {
    let (mut pruned, mut problems) = (Vec::new(), Vec::new());
    for rule in rules {
        let doomed = match doomed(objects, rule, manifest).await {
            Ok(doomed) => doomed,
            Err(problem) => {
                problems.push(problem);
                continue;
            }
        };
        for one in doomed {
            match objects.delete(&one.resource, &one.object.namespace, &one.object.name).await {
                Ok(()) => pruned.push(one.to_string()),
                Err(error) => problems.push(format!("pruning {one}: {error}")),
            }
        }
    }
    (pruned, problems)
}
