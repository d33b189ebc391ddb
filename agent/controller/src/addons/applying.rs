//! Applies the objects of a manifest, as upstream's applier does, with two additions. It applies CustomResourceDefinitions first, and
//! their objects once the definitions are established. It reports fields that it takes over from other managers.
//!
//! Source: upstream's `pkg/applylib/applyset/applyset.go`, `channels/pkg/channels/clientapplier.go`.

use std::collections::BTreeSet;
use std::time::Duration;

use kops_agent_cluster::addons::Addon;
use kops_agent_cluster::addons::health;
use kops_agent_cluster::addons::managed_fields::{self, Migration};
use kops_agent_cluster::addons::manifest::{ApplyStage, Object};
use kops_agent_cluster::addons::pause::is_object_paused;
use kops_agent_cluster::addons::prune::Tried;
use kops_agent_spec::failure::{Failing as _, Failure, Kind};
use kops_agent_spec::kops_release::KopsRelease;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::objects::{Apply, Objects};
use super::recreate;
use super::resources::Resource;
use kops_agent_kube::api_error::ApiError;
use kops_agent_kube::events::Reason;

/// Timeout for the API server to serve the kinds that a manifest defines.
const SERVED_WITHIN: Duration = Duration::from_secs(30);
const LOOKED_AT_EVERY: Duration = Duration::from_millis(200);

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Applied<'a> {
    /// The objects of the manifest, in order, each with its result.
    pub tried: Vec<Tried<'a>>,
    /// The fields taken over from other managers, each with its object.
    pub taken_over: Vec<String>,
    /// Objects that a person has paused.
    pub paused: Vec<String>,
    /// Why objects could not be applied or are not healthy. Empty if all objects are healthy.
    pub problems: Vec<String>,
}

/// Returns a problem for each object whose namespace does not fit its kind. Kinds that the API server does not serve are not checked. If
/// there are problems, the caller applies and prunes nothing, because pruning recognizes the objects to keep by their namespace.
pub async fn misplaced(objects: &Objects, manifest: &[Object]) -> Vec<String> {
    let mut problems = Vec::new();
    for object in manifest {
        // If the kind is not served or the API server does not answer, `apply_one` reports this problem.
        if let Ok(Some(resource)) = objects.resources.find(&object.kind).await {
            problems.extend(scope_problem(object, &resource).map(|problem| format!("{object} {problem}")));
        }
    }
    problems
}

/// Applies all objects of an add-on's manifest. An object that fails does not stop the others.
pub async fn apply<'a>(objects: &Objects, addon: &Addon, manifest: &'a [Object]) -> Applied<'a> {
    let mut applied = Applied::default();
    let deadline = Instant::now() + SERVED_WITHIN;
    let mut served: BTreeSet<(String, String)> = BTreeSet::new();
    let mut is_past_definitions = false;
    for object in manifest {
        if object.stage() == ApplyStage::Other && !is_past_definitions {
            is_past_definitions = true;
            served = established(objects, addon.release, &mut applied, deadline).await;
        }
        let is_new_kind = served.contains(&(object.kind.api_version(), object.kind.kind.clone()));
        let deadline = is_new_kind.then_some(deadline);
        let live = match apply_one(objects, &addon.name, object, deadline, &mut applied.taken_over).await {
            Ok(live) => {
                if is_object_paused(&live) {
                    applied.paused.push(object.to_string());
                }
                // `established` waits for CustomResourceDefinitions, and reports their health.
                if object.stage() != ApplyStage::Definition {
                    let problem = health::problem(&live, addon.release);
                    applied.problems.extend(problem.map(|why| format!("{object} is not healthy: {why}")));
                }
                Ok(live)
            }
            Err(failure) => {
                applied.problems.push(format!("{object}: {failure}"));
                Err(failure)
            }
        };
        applied.tried.push(Tried { object, live });
    }
    if !is_past_definitions {
        established(objects, addon.release, &mut applied, deadline).await;
    }
    applied
}

/// Waits until the applied CustomResourceDefinitions are established, and notes their health. Returns the kinds that they define. The API
/// server serves these kinds now or soon.
async fn established(
    objects: &Objects,
    release: KopsRelease,
    applied: &mut Applied<'_>,
    deadline: Instant,
) -> BTreeSet<(String, String)> {
    let mut served = BTreeSet::new();
    let Applied { tried, problems, .. } = applied;
    for one in tried.iter_mut().filter(|one| one.object.stage() == ApplyStage::Definition && one.live.is_ok())
    {
        match established_one(objects, release, one.object, deadline).await {
            Ok(live) => {
                served.extend(one.object.serves());
                let problem = health::problem(&live, release);
                problems.extend(problem.map(|why| format!("{} is not healthy: {why}", one.object)));
                one.live = Ok(live);
            }
            Err(failure) => {
                problems.push(format!("{} is not healthy: {failure}", one.object));
                one.live = Err(failure);
            }
        }
        objects.resources.forget();
    }
    served
}

async fn established_one(
    objects: &Objects,
    release: KopsRelease,
    definition: &Object,
    deadline: Instant,
) -> Result<Value, Failure> {
    loop {
        let found = match objects.resources.find(&definition.kind).await {
            Ok(Some(resource)) => objects.get(&resource, "", &definition.name).await,
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        };
        let refused = |problem: String| Failure::new(Kind::ApiServerRefused, problem);
        let failure = match found {
            Ok(Some(live)) if health::is_established(&live) => return Ok(live),
            Ok(Some(live)) => match health::refused_names(&live) {
                Some(problem) => return Err(refused(problem)),
                None => refused(
                    health::problem(&live, release).unwrap_or_else(|| "it is not established".to_owned()),
                ),
            },
            Ok(None) => refused("it does not exist".to_owned()),
            Err(error) => error.into(),
        };
        if Instant::now() >= deadline {
            return Err(Failure::new(
                failure.kind,
                format!("{failure}, after {} s", SERVED_WITHIN.as_secs()),
            ));
        }
        sleep(LOOKED_AT_EVERY).await;
    }
}

/// Applies an object, and returns the object that the API server has after the apply. If the API server does not serve the kind, retries
/// until `deadline`. Without a deadline, does not retry.
async fn apply_one(
    objects: &Objects,
    addon: &str,
    object: &Object,
    deadline: Option<Instant>,
    taken_over: &mut Vec<String>,
) -> Result<Value, Failure> {
    loop {
        let tried = try_one(objects, addon, object, taken_over).await;
        match tried {
            // Discovery may list a kind before or after the API server starts to serve the kind's endpoint.
            Err(Unapplied::NotServed(_)) if deadline.is_some_and(|deadline| Instant::now() < deadline) => {
                objects.resources.forget();
                sleep(LOOKED_AT_EVERY).await;
            }
            Err(Unapplied::NotServed(failure) | Unapplied::Other(failure)) => return Err(failure),
            Ok(applied) => return Ok(applied),
        }
    }
}

enum Unapplied {
    NotServed(Failure),
    Other(Failure),
}

impl From<ApiError> for Unapplied {
    fn from(error: ApiError) -> Unapplied {
        Unapplied::Other(error.into())
    }
}

async fn try_one(
    objects: &Objects,
    addon: &str,
    object: &Object,
    taken_over: &mut Vec<String>,
) -> Result<Value, Unapplied> {
    let Object { namespace, name, value, .. } = object;
    let not_served = || {
        let problem = format!(
            "the API server serves no {} of {}; the definition of this kind is missing",
            object.kind.kind,
            object.kind.api_version()
        );
        Unapplied::NotServed(Failure::new(Kind::ApiServerRefused, problem))
    };
    let resource = objects.resources.find(&object.kind).await?;
    let resource = resource.ok_or_else(not_served)?;
    if let Some(problem) = scope_problem(object, &resource) {
        return Err(Unapplied::Other(Failure::new(Kind::AddonRefused, format!("it {problem}"))));
    }
    let before = objects.get(&resource, namespace, name).await?;
    if let Some(paused) = before.as_ref().filter(|live| is_object_paused(live)) {
        return Ok(paused.clone());
    }
    let migration =
        before.as_ref().and_then(|live| managed_fields::migration(live, &object.kind.api_version()));
    if let Some(Migration { patch, taken_over: fields }) = migration {
        let merged = objects.merge(&resource, namespace, name, &patch).await;
        merged.map_err(|error| {
            let problem = format!("taking over fields of the object: {error}");
            Unapplied::Other(Failure::new(error.kind(), problem))
        })?;
        note_taken_over(objects, addon, object, fields, taken_over).await;
    }
    let mut applied = objects.apply(&resource, namespace, name, value, Apply::Polite).await;
    let conflicts = applied.as_ref().err().map(ApiError::field_conflicts).unwrap_or_default();
    if !conflicts.is_empty() {
        applied = objects.apply(&resource, namespace, name, value, Apply::Forced).await;
    }
    match applied {
        Ok(live) => {
            note_taken_over(objects, addon, object, conflicts, taken_over).await;
            Ok(live)
        }
        // If an apply answers 404, either the namespace or the kind is missing.
        Err(error) if error.is_not_found() && namespace.is_empty() => Err(not_served()),
        Err(error) if error.is_not_found() => Err(Unapplied::NotServed(error.into())),
        Err(error) if before.is_some() && error.is_of_immutable_field() => {
            let problem = format!(
                "{error}; to preview deleting and recreating it, run `kops-agent addons apply {addon} --recreate {}`",
                recreate::selector(object)
            );
            Err(Unapplied::Other(Failure::new(error.kind(), problem)))
        }
        Err(error) => Err(error.into()),
    }
}

async fn note_taken_over(
    objects: &Objects,
    addon: &str,
    object: &Object,
    fields: Vec<String>,
    taken_over: &mut Vec<String>,
) {
    for field in fields {
        let told = format!("the add-on {addon} took over fields of {object}: {field}");
        objects.tell(Reason::AddonFieldsTakenOver, &told).await;
        taken_over.push(format!("{object}: {field}"));
    }
}

/// Returns why the object's namespace does not fit `resource`, its kind. The text continues a sentence whose subject is the object.
pub fn scope_problem(object: &Object, resource: &Resource) -> Option<&'static str> {
    match (resource.is_namespaced, object.namespace.is_empty()) {
        (true, true) => Some("has no metadata.namespace, but its kind is namespaced"),
        (false, false) => Some("has a metadata.namespace, but its kind is cluster-scoped"),
        _ => None,
    }
}
