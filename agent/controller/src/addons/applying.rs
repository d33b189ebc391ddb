//! Applying the objects of a manifest, as upstream's applier does, with two differences that add to it: definitions of kinds
//! are applied first, and their objects once they are established; and fields that are taken from other managers are told.
//!
//! Source: upstream's `pkg/applylib/applyset/applyset.go`, `channels/pkg/channels/clientapplier.go`.

use std::time::Duration;

use kops_agent_plan::addons::health;
use kops_agent_plan::addons::managed_fields;
use kops_agent_plan::addons::manifest::{Object, Turn, defines};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::objects::{Apply, Objects};
use super::resources::Resource;

/// How long the kinds that a manifest defines may take until they are served.
const SERVED_WITHIN: Duration = Duration::from_secs(30);
/// After how long that is looked at again.
const LOOKED_AT_EVERY: Duration = Duration::from_millis(200);

/// What applying came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// How many objects are as the manifest has them.
    pub objects: usize,
    /// Fields that were other managers' and are ours now, by object.
    pub taken_over: Vec<String>,
    /// Why objects could not be applied, or are not well; empty where all is as it should be.
    pub problems: Vec<String>,
}

/// What is wrong with where objects of a manifest are to be, as far as their kinds are served: nothing of it is applied then, and
/// nothing pruned, for what is kept is known by its namespace.
pub async fn misplaced(objects: &Objects, manifest: &[Object]) -> Vec<String> {
    let mut problems = Vec::new();
    for object in manifest {
        // What cannot be told now is told where the object is applied.
        if let Ok(Some(resource)) = objects.resources.find(&object.kind).await {
            problems.extend(scope_problem(object, &resource).map(|problem| format!("{object} {problem}")));
        }
    }
    problems
}

/// Applies all objects of a manifest; one that fails keeps none of the others back.
pub async fn apply(objects: &Objects, manifest: &[Object]) -> Applied {
    let mut applied = Applied::default();
    let defined: Vec<&Object> = manifest.iter().filter(|object| object.defines().is_some()).collect();
    let deadline = Instant::now() + SERVED_WITHIN;
    let mut is_past_definitions = false;
    for object in manifest {
        if object.turn() == Turn::Other && !is_past_definitions {
            is_past_definitions = true;
            applied.problems.extend(established(objects, &defined, deadline).await);
        }
        let waits = defines(manifest, &object.kind.group, &object.kind.kind);
        match apply_one(objects, object, waits.then_some(deadline)).await {
            Ok((live, taken_over)) => {
                applied.objects += 1;
                applied.taken_over.extend(taken_over.into_iter().map(|field| format!("{object}: {field}")));
                // Of a definition `established` tells, which waits for it.
                if object.turn() != Turn::Definition {
                    applied
                        .problems
                        .extend(health::problem(&live).map(|why| format!("{object} is not well: {why}")));
                }
            }
            Err(problem) => applied.problems.push(format!("{object}: {problem}")),
        }
    }
    if !is_past_definitions {
        applied.problems.extend(established(objects, &defined, deadline).await);
    }
    applied
}

/// Waits until the kinds of definitions are served, and tells of those that are not in time.
async fn established(objects: &Objects, definitions: &[&Object], deadline: Instant) -> Vec<String> {
    let mut problems = Vec::new();
    for definition in definitions {
        let problem = loop {
            let found = match objects.resources.find(&definition.kind).await {
                Ok(Some(resource)) => objects.get(&resource, "", &definition.name).await,
                Ok(None) => Ok(None),
                Err(error) => Err(error),
            };
            let problem = match found {
                Ok(Some(live)) if health::is_established(&live) => break health::problem(&live),
                Ok(Some(live)) => {
                    health::problem(&live).unwrap_or_else(|| "it is not established".to_owned())
                }
                Ok(None) => "it is not there".to_owned(),
                Err(error) => error.to_string(),
            };
            if Instant::now() >= deadline {
                break Some(format!("{problem}, after {} s", SERVED_WITHIN.as_secs()));
            }
            sleep(LOOKED_AT_EVERY).await;
        };
        problems.extend(problem.map(|why| format!("{definition} is not well: {why}")));
    }
    if !definitions.is_empty() {
        objects.resources.forget();
    }
    problems
}

/// Applies an object, whose kind may take until the deadline to be served, and gives it as it is after that, with the fields that
/// were taken from others.
async fn apply_one(
    objects: &Objects,
    object: &Object,
    deadline: Option<Instant>,
) -> Result<(Value, Vec<String>), String> {
    loop {
        let tried = try_one(objects, object).await;
        match tried {
            // The API server says in two places at different times that it serves a kind.
            Err(Unapplied::NotServed(_)) if deadline.is_some_and(|deadline| Instant::now() < deadline) => {
                objects.resources.forget();
                sleep(LOOKED_AT_EVERY).await;
            }
            Err(Unapplied::NotServed(problem) | Unapplied::Other(problem)) => return Err(problem),
            Ok(applied) => return Ok(applied),
        }
    }
}

enum Unapplied {
    NotServed(String),
    Other(String),
}

async fn try_one(objects: &Objects, object: &Object) -> Result<(Value, Vec<String>), Unapplied> {
    let Object { namespace, name, value, .. } = object;
    let other = |problem: &dyn ToString| Unapplied::Other(problem.to_string());
    let not_served = || {
        Unapplied::NotServed(format!(
            "the API server serves no {} of {}; what defines it is not there",
            object.kind.kind,
            object.kind.api_version()
        ))
    };
    let resource = objects.resources.find(&object.kind).await.map_err(|error| other(&error))?;
    let resource = resource.ok_or_else(not_served)?;
    if let Some(problem) = scope_problem(object, &resource) {
        return Err(Unapplied::Other(format!("it {problem}")));
    }
    if let Some(live) = objects.get(&resource, namespace, name).await.map_err(|error| other(&error))? {
        let migration = managed_fields::migration(&live).map_err(|problem| other(&problem))?;
        if let Some(patch) = migration {
            let merged = objects.merge(&resource, namespace, name, &patch).await;
            merged.map_err(|error| Unapplied::Other(format!("taking over its fields: {error}")))?;
        }
    }
    let polite = objects.apply(&resource, namespace, name, value, Apply::Polite).await;
    let (applied, conflicts) = match polite {
        Err(error) if !error.field_conflicts().is_empty() => {
            let forced = objects.apply(&resource, namespace, name, value, Apply::Forced).await;
            (forced, error.field_conflicts())
        }
        applied => (applied, Vec::new()),
    };
    match applied {
        Ok(live) => Ok((live, conflicts)),
        // Of an object to be applied only its namespace or its kind can be missing.
        Err(error) if error.is_not_found() && namespace.is_empty() => Err(not_served()),
        Err(error) if error.is_not_found() => Err(Unapplied::NotServed(error.to_string())),
        Err(error) => Err(other(&error)),
    }
}

/// Why an object cannot be where its manifest has it, of whose kind this is the resource; its subject is the object.
pub fn scope_problem(object: &Object, resource: &Resource) -> Option<&'static str> {
    match (resource.is_namespaced, object.namespace.is_empty()) {
        (true, true) => Some("has no metadata.namespace, but its kind is in namespaces"),
        (false, false) => Some("has a metadata.namespace, but its kind is in none"),
        _ => None,
    }
}
