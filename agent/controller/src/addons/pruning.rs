//! Deletes objects that a prune rule selects and the manifest does not have, once their replacements serve.

use std::collections::BTreeMap;

use kops_agent_cluster::addons::manifest::{Object, named};
use kops_agent_cluster::addons::prune::{self, Listed, Tried};
use kops_agent_cluster::addons::{Addon, PruneKind};
use kops_agent_kube::api_error::ApiError;
use kops_agent_kube::events::Reason;
use kops_agent_spec::failure::{Failing as _, Failure, Kind};

use super::objects::Objects;
use super::resources::Resource;

/// An object that a prune rule selects for deletion.
pub struct Doomed {
    pub resource: Resource,
    pub object: Listed,
}

impl std::fmt::Display for Doomed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Doomed { resource, object } = self;
        f.write_str(&named(&resource.api.group, &resource.api.kind, &object.namespace, &object.name))
    }
}

#[derive(Debug, Default)]
pub struct Pruned {
    pub deleted: Vec<String>,
    /// Why objects could not be deleted, or must stay for now.
    pub problems: Vec<String>,
}

/// Returns the objects that a rule selects for deletion. Returns nothing if the API server does not serve the rule's kind. Fails if the
/// rule names namespaces for a cluster-scoped kind.
pub async fn doomed(
    objects: &Objects,
    rule: &PruneKind,
    manifest: &[Object],
) -> Result<Vec<Doomed>, Failure> {
    let kind = named(&rule.group, &rule.kind, "", "");
    let kind = kind.trim_end();
    let failed = |error: ApiError| Failure::new(error.kind(), format!("pruning {kind}: {error}"));
    let resource = objects.resources.find_preferred(&rule.group, &rule.kind).await.map_err(failed)?;
    let Some(resource) = resource else { return Ok(Vec::new()) };
    if !resource.is_namespaced && !rule.namespaces.is_empty() {
        let problem = format!("pruning {kind}: the rule names namespaces, but the kind is cluster-scoped");
        return Err(Failure::new(Kind::AddonRefused, problem));
    }
    let everywhere = [String::new()];
    let namespaces = if rule.namespaces.is_empty() { &everywhere[..] } else { &rule.namespaces[..] };
    let mut listed = Vec::new();
    for namespace in namespaces {
        let (labels, fields) = (&rule.label_selector, &rule.field_selector);
        let found = objects.list(&resource, namespace, labels, fields).await;
        listed.extend(found.map_err(failed)?);
    }
    let doomed = prune::doomed(rule, manifest, listed);
    Ok(doomed.into_iter().map(|object| Doomed { resource: resource.clone(), object }).collect())
}

/// Deletes the objects that the add-on's rules select. An object stays until its replacement is available.
pub async fn prune(objects: &Objects, addon: &Addon, manifest: &[Object], tried: &[Tried<'_>]) -> Pruned {
    let mut pruned = Pruned::default();
    let mut held: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for rule in addon.spec.prune.iter().flat_map(|prune| &prune.kinds) {
        let doomed = match doomed(objects, rule, manifest).await {
            Ok(doomed) => doomed,
            Err(failure) => {
                pruned.problems.push(failure.to_string());
                continue;
            }
        };
        for one in doomed {
            let Doomed { resource, object } = &one;
            if let Some(holder) = holder(objects, &one, tried).await {
                held.entry(holder).or_default().push(one.to_string());
                continue;
            }
            match objects.delete(resource, &object.namespace, &object.name).await {
                Ok(()) => {
                    let message =
                        format!("the add-on {}: deleted {one}, which its manifest does not have", addon.name);
                    objects.tell(Reason::AddonObjectDeleted, &message).await;
                    pruned.deleted.push(one.to_string());
                }
                Err(error) => pruned.problems.push(format!("pruning {one}: {error}")),
            }
        }
    }
    let waiting = |(holder, doomed): (String, Vec<String>)| {
        format!("not deleted yet: {}, because its replacement is not available: {holder}", doomed.join(", "))
    };
    pruned.problems.extend(held.into_iter().map(waiting));
    pruned
}

/// Returns why a doomed object must stay for now: an object of the manifest may replace the doomed object, but is not available. Names the
/// first such object, with the reason. `None` if all such objects are available, or only wait for a host port that the doomed object holds.
async fn holder(objects: &Objects, doomed: &Doomed, tried: &[Tried<'_>]) -> Option<String> {
    let Doomed { resource, object } = doomed;
    let holders = prune::holders(&resource.api.group, &resource.api.kind, tried);
    let (first, why) = holders.first()?;
    let live = objects.get(resource, &object.namespace, &object.name).await.ok().flatten();
    let is_in_the_way = |live| holders.iter().all(|(holder, _)| prune::is_in_the_way(live, holder));
    (!live.as_ref().is_some_and(is_in_the_way)).then(|| format!("{}: {why}", first.object))
}
