//! Deletes objects whose immutable fields change, so that an apply recreates them.
//!
//! Before a deletion, a dry run under another name checks that the API server accepts the new object.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use kops_agent_cluster::addons::manifest::{ApplyStage, Object};
use kops_agent_cluster::addons::pause::{PAUSED, is_object_paused};
use kops_agent_cluster::addons::{Recreation, RecreationState};
use kops_agent_kube::events::Reason;
use kops_agent_spec::failure::{Failure, Kind};

use super::objects::Objects;
use super::reading;
use super::resources::Resource;
use super::states::Scene;
use super::updating::pause_of;

/// Timeout for a deleted object to disappear. During this time its finalizers run, and its pods may have to end.
const GONE_WITHIN: Duration = Duration::from_secs(120);
const LOOKED_AT_EVERY: Duration = Duration::from_millis(200);
/// The suffix that the dry run adds to the object's name.
const DRY_RUN: &str = "-dry-run";
/// The maximum length of an object's name in a dry run, without the suffix. A label value has at most 63 characters, and some names are
/// also label values.
const LONGEST_NAME: usize = 63 - DRY_RUN.len();

/// The value of `--recreate` that selects this object.
pub fn selector(object: &Object) -> String {
    let Object { kind, namespace, name, .. } = object;
    let kind =
        if kind.group.is_empty() { kind.kind.clone() } else { format!("{}.{}", kind.kind, kind.group) };
    if namespace.is_empty() { format!("{kind}/{name}") } else { format!("{kind}/{namespace}/{name}") }
}

/// Whether a selector matches an object. A selector without a group matches every group. A selector without a namespace matches every
/// namespace.
fn means(selector: &str, object: &Object) -> bool {
    let Some((kind, place)) = selector.split_once('/') else { return false };
    let (namespace, name) = place.split_once('/').map_or((None, place), |(space, name)| (Some(space), name));
    let (kind, group) = kind.split_once('.').map_or((kind, None), |(kind, group)| (kind, Some(group)));
    kind == object.kind.kind
        && group.is_none_or(|group| group == object.kind.group)
        && namespace.is_none_or(|namespace| namespace == object.namespace)
        && name == object.name
}

/// Finds the selected objects in the manifest of the only add-on in `scene`. A dry run checks that the API server would create each of
/// them. With `is_meant`, deletes the objects; the caller then applies the add-on. Returns the selected objects and their states. Fails if
/// a selector does not match exactly one object, or if a deleted object still exists after the timeout.
pub async fn delete(scene: &Scene, selectors: &[String], is_meant: bool) -> Result<Vec<Recreation>> {
    let unusable = || Failure::new(Kind::AddonRefused, "the add-on has no usable entry in its channel");
    let addon = scene.addons().next().ok_or_else(unusable)?;
    if scene.installed().await?.paused.contains(&addon.record()) {
        return Err(
            Failure::new(Kind::AddonRefused, format!("the add-on is paused: {}", pause_of(addon))).into()
        );
    }
    let manifest = reading::manifest(&scene.store, addon).await?;
    let mut chosen = Vec::new();
    for selector in selectors {
        let object = the_one(selector, &manifest)?;
        chosen.push((object, check(&scene.objects, object).await.with_context(|| object.to_string())?));
    }
    let mut recreations = Vec::new();
    for (object, found) in chosen {
        let mut note = |state| recreations.push(Recreation { object: object.to_string(), state });
        let Some((resource, live)) = found else {
            note(RecreationState::Missing);
            continue;
        };
        if is_object_paused(&live) {
            return Err(Failure::new(
                Kind::AddonRefused,
                format!("{object} is paused by its annotation {PAUSED}"),
            )
            .into());
        }
        if !is_meant {
            note(RecreationState::Shown);
            continue;
        }
        remove(&scene.objects, &resource, object, &live).await.with_context(|| object.to_string())?;
        let message = format!("the add-on {}: deleted {object} to recreate it", addon.name);
        scene.objects.tell(Reason::AddonObjectDeleted, &message).await;
        note(RecreationState::Deleted);
    }
    Ok(recreations)
}

fn the_one<'a>(selector: &str, manifest: &'a [Object]) -> Result<&'a Object, Failure> {
    let found: Vec<&Object> = manifest.iter().filter(|object| means(selector, object)).collect();
    match found[..] {
        [object] if object.stage() == ApplyStage::Other => Ok(object),
        [object] => Err(Failure::new(
            Kind::AddonRefused,
            format!(
                "--recreate {selector}: kops-agent does not recreate {object}, because deleting a namespace \
                 or a CustomResourceDefinition also deletes its objects; use kubectl"
            ),
        )),
        [] => Err(Failure::new(
            Kind::AddonRefused,
            format!(
                "--recreate {selector}: the add-on's manifest has no such object; it has {}",
                listed(&mut manifest.iter())
            ),
        )),
        _ => Err(Failure::new(
            Kind::AddonRefused,
            format!(
                "--recreate {selector}: the add-on's manifest has several such objects: {}",
                listed(&mut found.iter().copied())
            ),
        )),
    }
}

fn listed(objects: &mut dyn Iterator<Item = &Object>) -> String {
    objects.map(selector).collect::<Vec<_>>().join(", ")
}

/// Checks that the API server would accept the new object. Returns the existing object; `None` if it does not exist.
async fn check(objects: &Objects, object: &Object) -> Result<Option<(Resource, Value)>> {
    let resource = objects.resources.find(&object.kind).await?;
    let unserved = || format!("the API server serves no {}", object.kind.kind);
    let resource = resource.ok_or_else(|| Failure::new(Kind::ApiServerRefused, unserved()))?;
    let Some(live) = objects.get(&resource, &object.namespace, &object.name).await? else { return Ok(None) };
    let mut copy = object.value.clone();
    let name: String = object.name.chars().take(LONGEST_NAME).chain(DRY_RUN.chars()).collect();
    copy["metadata"]["name"] = json!(name);
    let tried = objects.create_dry_run(&resource, &object.namespace, copy).await;
    tried.context("the old object stays, because the new one fails in a dry run")?;
    Ok(Some((resource, live)))
}

/// Deletes an object, and waits until it is gone or another object has its name.
async fn remove(objects: &Objects, resource: &Resource, object: &Object, live: &Value) -> Result<()> {
    let uid = |live: &Value| live.pointer("/metadata/uid").cloned();
    let Object { namespace, name, .. } = object;
    objects.delete(resource, namespace, name).await?;
    let deadline = Instant::now() + GONE_WITHIN;
    loop {
        match objects.get(resource, namespace, name).await? {
            Some(still) if uid(&still) == uid(live) => {}
            _ => return Ok(()),
        }
        if Instant::now() >= deadline {
            let seconds = GONE_WITHIN.as_secs();
            let problem =
                format!("the object still exists {seconds} s after its deletion: check metadata.finalizers");
            return Err(Failure::new(Kind::ObjectRemains, problem).into());
        }
        sleep(LOOKED_AT_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use kops_agent_cluster::addons::manifest;

    use super::*;

    #[test]
    fn a_selector_means_one_object_and_no_definition_or_namespace() {
        let object = |api_version: &str, kind: &str, namespace: &str, name: &str| {
            format!(
                "{{apiVersion: {api_version}, kind: {kind}, metadata: {{namespace: '{namespace}', name: {name}}}}}"
            )
        };
        let text = [
            object("v1", "Namespace", "", "a"),
            object("apps/v1", "Deployment", "a", "d"),
            object("apps/v1", "Deployment", "b", "d"),
            object("v1", "ServiceAccount", "b", "d"),
        ]
        .join("\n---\n");
        let manifest = manifest::objects(text.as_bytes(), "a.yaml").unwrap();
        for object in &manifest[1..] {
            assert_eq!(the_one(&selector(object), &manifest).unwrap(), object);
        }
        assert_eq!(selector(&manifest[1]), "Deployment.apps/a/d");
        assert_eq!(the_one("ServiceAccount/d", &manifest).unwrap(), &manifest[3]);
        for (selector, told) in [
            ("Deployment/d", "several such objects: Deployment.apps/a/d, Deployment.apps/b/d"),
            ("Deployment/b/e", "no such object; it has Namespace/a, "),
            ("Deployment", "no such object"),
            ("Namespace/a", "also deletes its objects"),
        ] {
            let problem = the_one(selector, &manifest).unwrap_err().to_string();
            assert!(problem.contains(told), "{problem}");
        }
    }
}
