//! Deletes the objects of an add-on that no channel has any more.
//!
//! kOps gives each object of its add-ons a label, which finds them (upstream: `addLabels` in
//! `upup/pkg/fi/cloudup/bootstrapchannelbuilder/bootstrapchannelbuilder.go`).

use anyhow::Result;

use kops_agent_cluster::addons::Removal;
use kops_agent_cluster::addons::manifest::{DEFINITIONS, named};
use kops_agent_cluster::addons::pause::{PAUSED, annotation_of_addon};
use kops_agent_cluster::addons::prune::{Listed, is_admission};
use kops_agent_cluster::addons::serving;
use kops_agent_kube::events::Reason;
use kops_agent_spec::failure::{Failure, Kind};

use super::installed::Installed;
use super::resources::Resource;
use super::states::Scene;
use super::{authority, installed};

/// The label whose value is the add-on's name.
const LABEL: &str = "addon.kops.k8s.io/name";

/// With `is_meant`, deletes the objects of an add-on. Otherwise returns what would be deleted. `scene` must contain all add-ons. Fails if
/// a channel has the add-on, or if the cluster does not have it.
pub async fn remove(scene: &Scene, name: &str, is_meant: bool) -> Result<Removal> {
    let installed = scene.installed().await?;
    let namespaces: Vec<&String> = installed
        .versions
        .keys()
        .filter(|(_, addon)| addon == name)
        .map(|(namespace, _)| namespace)
        .collect();
    check(scene, &installed, name)?;

    let mut removal = Removal { name: name.to_owned(), is_done: is_meant, ..Removal::default() };
    let found = objects_of(scene, name, &mut removal).await;
    if found.is_empty() && namespaces.is_empty() && removal.kept.is_empty() && removal.problems.is_empty() {
        return Err(Failure::new(Kind::AddonRefused, format!(
            "the cluster has no add-on {name:?}: no namespace records its version, and no object has the label {LABEL}={name}"
        ))
        .into());
    }
    for (resource, object) in found {
        let shown = named(&resource.api.group, &resource.api.kind, &object.namespace, &object.name);
        if !is_meant {
            removal.deleted.push(shown);
            continue;
        }
        match scene.objects.delete(&resource, &object.namespace, &object.name).await {
            Ok(()) => {
                let message = format!("the add-on {name}: deleted {shown}, because the add-on is removed");
                scene.objects.tell(Reason::AddonObjectDeleted, &message).await;
                removal.deleted.push(shown);
            }
            Err(error) => removal.problems.push(format!("deleting {shown}: {error}")),
        }
    }
    // If a deletion failed, the recorded version stays. The record shows which add-on the remaining objects belong to.
    if is_meant && removal.problems.is_empty() {
        for namespace in namespaces {
            if let Err(error) = installed::forget(scene.objects.client(), namespace, name).await {
                removal
                    .problems
                    .push(format!("removing the add-on's version from the namespace {namespace}: {error}"));
            }
        }
    }
    Ok(removal)
}

/// Rejects an add-on that a channel has, because kops-agent would apply the add-on again. Accepts a paused add-on.
fn check(scene: &Scene, installed: &Installed, name: &str) -> Result<(), Failure> {
    let Some(addon) = scene.addons().find(|addon| addon.name == name) else { return Ok(()) };
    if installed.paused.contains(&addon.record()) {
        return Ok(());
    }
    Err(Failure::new(
        Kind::AddonRefused,
        format!(
            "the channel {} has the add-on {name}, so kops-agent would apply the add-on again. Remove the \
             add-on from the cluster's spec and run `kops update cluster --yes`, or pause the add-on: set \
             the annotation {}=REASON on the namespace {}",
            addon.channel,
            annotation_of_addon(name),
            addon.namespace()
        ),
    ))
}

/// Finds the objects to delete. The order is: admission webhooks and policies, workloads, and last the objects that workloads use.
async fn objects_of(scene: &Scene, name: &str, removal: &mut Removal) -> Vec<(Resource, Listed)> {
    let objects = &scene.objects;
    let (kinds, problems) = objects.resources.all().await;
    removal.problems.extend(problems);
    let mut found = Vec::new();
    for resource in kinds {
        let selected = objects.list(&resource, "", &format!("{LABEL}={name}"), "").await;
        let selected = match selected {
            Ok(selected) => selected,
            Err(error) => {
                removal.problems.push(format!("listing {}: {error}", resource.api.plural));
                continue;
            }
        };
        for object in selected.into_iter().filter(|object| !object.is_owned) {
            let shown = named(&resource.api.group, &resource.api.kind, &object.namespace, &object.name);
            let why = match (resource.api.group.as_str(), resource.api.kind.as_str()) {
                ("", "Namespace") => Some("deleting it would delete all objects in it"),
                DEFINITIONS => Some("deleting it would delete all objects of the kind that it defines"),
                _ if object.is_paused => Some(PAUSED),
                _ => None,
            };
            match why {
                Some(why) => removal.kept.push(format!("{shown} ({why})")),
                None => found.push((resource.clone(), object)),
            }
        }
    }
    let (authority, problems) = authority::found(objects, name).await;
    found.extend(authority);
    removal.problems.extend(problems);
    found.sort_by_key(|(resource, _)| {
        let (group, kind) = (&resource.api.group, &resource.api.kind);
        (!is_admission(group), !serving::is_workload(group, kind))
    });
    found
}
