//! `kops-agent addons diff`: shows the changes that an apply would make, by a dry run on the API server.

use std::fmt::Write as _;

use anyhow::Result;
use kops_agent_cluster::addons::Addon;
use kops_agent_cluster::addons::manifest::{Object, defines};
use kops_agent_cluster::addons::object_diff::unified;
use kops_agent_process::output::{Output, error_text};
use kops_agent_process::{exit, output};
use serde::Serialize;

use super::applying::scope_problem;
use super::objects::{Apply, Objects};
use super::standing::{Scene, Standing};
use super::{authority, pruning, reading};

/// The changes that an apply of one add-on would make.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Difference {
    name: String,
    /// Objects that would change or be created.
    changed: Vec<Changed>,
    /// Objects that would be deleted.
    pruned: Vec<String>,
    /// Objects of the add-on's authority that would be created.
    authority: Vec<String>,
    /// Why parts of the difference are unknown.
    problems: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Changed {
    object: String,
    diff: String,
}

impl Difference {
    fn is_none(&self) -> bool {
        self.changed.is_empty() && self.pruned.is_empty() && self.authority.is_empty()
    }
}

/// Prints the differences. Returns exit code 1 if a part is unknown, or 4 if `exit_code` is set and something differs.
pub async fn run(scene: &Scene, how: Output, exit_code: bool) -> Result<u8> {
    for left_out in scene.left_out() {
        log::warn!("the add-on {} is skipped: {}", left_out.name, left_out.problem);
    }
    let installed = scene.installed().await?;
    let mut differences = Vec::new();
    for standing in scene.standings(scene.addons(), &installed).await? {
        differences.push(difference(scene, &standing).await);
    }
    match how {
        Output::Json => output::print_json(&differences)?,
        Output::Text => output::print_text(&text(&differences))?,
    };
    let is_told = differences.iter().all(|one| one.problems.is_empty());
    let is_none = differences.iter().all(Difference::is_none);
    Ok(match (is_told, is_none || !exit_code) {
        (false, _) => exit::FAILED,
        (true, true) => exit::CONVERGED,
        (true, false) => exit::DIFFERENT,
    })
}

async fn difference(scene: &Scene, standing: &Standing) -> Difference {
    let addon = &standing.addon;
    let mut difference = Difference { name: addon.name.clone(), ..Difference::default() };
    if standing.due.as_ref().is_some_and(|due| due.pki) {
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
            Err(problem) => difference.problems.push(problem),
        }
    }
}

/// The diff of an object; `None` if it would not change.
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

fn text(differences: &[Difference]) -> String {
    let mut text = String::new();
    for difference in differences.iter().filter(|one| !one.is_none() || !one.problems.is_empty()) {
        let _ = writeln!(text, "add-on {}", output::one_line(&difference.name, usize::MAX));
        for Changed { object, diff } in &difference.changed {
            let _ = writeln!(text, "  ~ {}", output::one_line(object, usize::MAX));
            for line in diff.lines() {
                let _ = writeln!(text, "      {}", output::one_line(line, usize::MAX));
            }
        }
        for object in &difference.authority {
            let _ = writeln!(text, "  + {object}");
        }
        for object in &difference.pruned {
            let _ = writeln!(text, "  - {}", output::one_line(object, usize::MAX));
        }
        for problem in &difference.problems {
            let _ = writeln!(text, "  ! {}", output::one_line(problem, usize::MAX));
        }
    }
    if text.is_empty() {
        text.push_str("Nothing would change.\n");
    }
    text
}
