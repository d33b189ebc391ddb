//! The changes that applying the add-ons would make, by a dry run on the API server.

use anyhow::Result;

use kops_agent_cluster::addons::manifest::{Object, defines};
use kops_agent_cluster::addons::object_diff::unified;
use kops_agent_cluster::addons::{Addon, Changed, Difference};
use kops_agent_process::output::error_text;

use super::applying::scope_problem;
use super::objects::{Apply, Objects};
use super::states::{AddonState, Scene};
use super::{authority, pruning, reading};

/// Returns the changes that an apply of each add-on would make.
pub async fn differences(scene: &Scene) -> Result<Vec<Difference>> {
    scene.warn_of_left_out();
    let installed = scene.installed().await?;
    let mut differences = Vec::new();
    for addon_state in scene.states(scene.addons(), &installed).await? {
        differences.push(difference(scene, &addon_state).await);
    }
    Ok(differences)
}

async fn difference(scene: &Scene, addon_state: &AddonState) -> Difference {
    let addon = &addon_state.addon;
    let mut difference = Difference { name: addon.name.clone(), ..Difference::default() };
    if addon_state.due.as_ref().is_some_and(|due| due.pki) {
        let name = &addon.name;
        difference.authority = vec![
            format!("Secret kube-system/{}", authority::secret_name(name)),
            format!("Issuer.cert-manager.io kube-system/{name}"),
        ];
    }
    let manifest = match reading::manifest(&scene.store, addon).await {
        Ok(manifest) => manifest,
        Err(error) => {
            difference.problems.push(error_text(&error));
            return difference;
        }
    };
    for object in &manifest {
        match changed(&scene.objects, object, &manifest).await {
            Ok(None) => {}
            Ok(Some(diff)) => difference.changed.push(Changed { object: object.to_string(), diff }),
            Err(problem) => difference.problems.push(format!("{object}: {problem}")),
        }
    }
    prune(&scene.objects, addon, &manifest, &mut difference).await;
    difference
}

async fn prune(objects: &Objects, addon: &Addon, manifest: &[Object], difference: &mut Difference) {
    for rule in addon.spec.prune.iter().flat_map(|prune| &prune.kinds) {
        match pruning::doomed(objects, rule, manifest).await {
            Ok(doomed) => difference.pruned.extend(doomed.iter().map(ToString::to_string)),
            Err(failure) => difference.problems.push(failure.to_string()),
        }
    }
}

/// The diff of an object; `None` if the apply would not change the object.
async fn changed(objects: &Objects, object: &Object, manifest: &[Object]) -> Result<Option<String>, String> {
    let title = object.to_string();
    let is_new = || Ok(unified(&title, None, Some(&object.value)));
    let Object { namespace, name, value, kind, .. } = object;
    let Some(resource) = objects.resources.find(kind).await.map_err(|error| error.to_string())? else {
        // If the manifest itself defines the kind, the API server serves the kind after the apply.
        return match defines(manifest, &kind.group, &kind.kind) {
            true => is_new(),
            false => Err(format!("the API server serves no {} of {}", kind.kind, kind.api_version())),
        };
    };
    if let Some(problem) = scope_problem(object, &resource) {
        return Err(format!("it {problem}"));
    }
    let live = objects.get(&resource, namespace, name).await.map_err(|error| error.to_string())?;
    match objects.apply(&resource, namespace, name, value, Apply::DryRun).await {
        Ok(after) => Ok(unified(&title, live.as_ref(), Some(&after))),
        // The manifest creates the namespace, so the object is new.
        Err(error) if error.is_not_found() && live.is_none() && brings(manifest, namespace) => is_new(),
        Err(error) => Err(error.to_string()),
    }
}

fn brings(manifest: &[Object], namespace: &str) -> bool {
    manifest.iter().any(|object| {
        object.kind.group.is_empty() && object.kind.kind == "Namespace" && object.name == namespace
    })
}
