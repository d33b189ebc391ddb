//! Decides when a static pod needs a restart: when a file that its containers mount has changed. Programs read their keys and
//! configurations only at startup.
//!
//! kubelet restarts a pod only when its manifest changes. The [`Reading`] recorded at the pod's last start shows whether the pod has read
//! the present files. The agent decides in the same way about restarts of units.

use super::observed::{Observed, ObservedState};
use super::plan::Plan;
use super::reading::{Reading, must_be_read};
use super::step::Change;
use crate::resource::{Content, DesiredState, File, Resource, ResourceId};
use crate::static_pod::{is_manifest, mounted_paths};

/// The desired files and links that a static pod's containers mount. Empty if the file is not the manifest of a static pod.
pub fn mounted<'a>(manifest: &File, desired: &'a DesiredState) -> Vec<(&'a ResourceId, &'a Resource)> {
    let Content::Text(text) = &manifest.content else { return Vec::new() };
    if !is_manifest(&manifest.path) {
        return Vec::new();
    }
    let paths = mounted_paths(text);
    let is_mounted = |id: &ResourceId| paths.iter().any(|path| is_at_or_below(&id.name, path));
    desired
        .iter()
        .filter(|(id, resource)| match resource {
            // Programs write to create-only files, such as logs, by themselves. So a change of such a file needs no
            // restart.
            Resource::File(file) => !file.create_only && is_mounted(id),
            Resource::Symlink(_) => is_mounted(id),
            _ => false,
        })
        .collect()
}

/// The contents that a static pod would read if it started now: its mounted files, as observed. `None` if the pod mounts no resources of
/// the agent.
pub fn reading(manifest: &File, desired: &DesiredState, observed: &ObservedState) -> Option<Reading> {
    let mounted = mounted(manifest, desired);
    (!mounted.is_empty()).then(|| Reading::new(None, mounted.iter().map(|(id, _)| *id), observed))
}

/// The restart of a static pod, if the pod still needs a restart after all other steps in `plan`. `None` if the pod needs no restart.
pub(super) fn restart(
    manifest: &File,
    desired: &DesiredState,
    observed: &ObservedState,
    plan: &Plan,
) -> Option<Change> {
    let id = Resource::from(manifest.clone()).id();
    let Some(Observed::File(present)) = observed.get(&id) else { return None };
    let now = reading(manifest, desired, observed)?;
    let is_changed = |id: &&ResourceId| must_be_read(id, observed, plan);
    let mounted = mounted(manifest, desired);
    let because: Vec<ResourceId> =
        mounted.into_iter().map(|(id, _)| id).filter(is_changed).cloned().collect();
    let is_stale = !present.pod_mounted.as_ref().is_some_and(|noted| noted.serves_as(&now));
    (is_stale || !because.is_empty()).then_some(Change::Restart { because })
}

fn is_at_or_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder.trim_end_matches('/'))
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::{Access, Action, ObservedContent, ObservedFile, diff};
    use super::*;
    use kops_agent_spec::digest::sha256_hex;

    const MANIFEST: &str = "/etc/kubernetes/manifests/a.manifest";

    fn pod(paths: &[&str]) -> String {
        let volume = |path: &&str| format!("{{name: v, hostPath: {{path: {path}}}}}");
        let volumes: Vec<String> = paths.iter().map(volume).collect();
        format!("metadata: {{name: a}}\nspec: {{containers: [], volumes: [{}]}}\n", volumes.join(", "))
    }

    fn desired(paths: &[&str]) -> DesiredState {
        let mut desired = DesiredState::default();
        desired.add(File::text(MANIFEST, pod(paths)));
        desired.add(File::text("/srv/keys/a.key", "new"));
        desired.add(File::text("/srv/keys2", "new"));
        desired.add(File { create_only: true, ..File::text("/srv/keys/a.log", "") });
        desired
    }

    fn present(text: &str, pod_mounted: Option<Reading>) -> Observed {
        Observed::File(ObservedFile {
            access: Access::of_roots(),
            sha256: sha256_hex(text.as_bytes()),
            content: ObservedContent::Text(text.into()),
            commands_ran_for: None,
            serves: None,
            pod_mounted,
            free_text: None,
        })
    }

    fn file_id(path: &str) -> ResourceId {
        Resource::from(File::text(path, "")).id()
    }

    /// A machine with the desired manifest. The mounted key has the text `key`.
    fn observed(paths: &[&str], key: &str, noted: Option<Reading>) -> ObservedState {
        ObservedState::from([
            (file_id(MANIFEST), present(&pod(paths), noted)),
            (file_id("/srv/keys/a.key"), present(key, None)),
            (file_id("/srv/keys/a.log"), present("", None)),
            (file_id("/srv/keys2"), present("new", None)),
        ])
    }

    fn manifest(desired: &DesiredState) -> File {
        let Some(Resource::File(file)) = desired.get(&file_id(MANIFEST)) else { panic!("no manifest") };
        file.clone()
    }

    #[test]
    fn files_at_or_below_a_mounted_path_are_mounted_except_logs() {
        let of = |paths: &[&str]| {
            let desired = desired(paths);
            let manifest = manifest(&desired);
            mounted(&manifest, &desired).into_iter().map(|(id, _)| id.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(of(&["/srv/keys"]), ["/srv/keys/a.key"]);
        assert_eq!(of(&["/srv/keys/"]), ["/srv/keys/a.key"]);
        assert_eq!(of(&["/srv/keys/a.key", "/etc/ssl"]), ["/srv/keys/a.key"]);
        assert_eq!(of(&["/srv"]).len(), 2);
        assert!(
            of(&["/"]).is_empty(),
            "a pod that has the whole machine mounted reads what it wants by itself"
        );
        assert!(of(&[]).is_empty());
    }

    #[test]
    fn a_pod_restarts_if_a_mounted_file_changes_or_has_changed() {
        let paths = ["/srv/keys"];
        let desired = desired(&paths);
        let manifest = manifest(&desired);
        let right = reading(&manifest, &desired, &observed(&paths, "new", None));
        assert!(diff(&desired, &observed(&paths, "new", right.clone())).is_empty());

        let before = reading(&manifest, &desired, &observed(&paths, "old", None));
        let plan = diff(&desired, &observed(&paths, "old", before.clone()));
        let step = plan.step(&file_id(MANIFEST)).unwrap();
        assert_eq!(step.action, Action::Restart);
        assert_eq!(step.changes, [Change::Restart { because: vec![file_id("/srv/keys/a.key")] }]);
        assert_eq!(plan.summary().restart, 1);

        for noted in [before, None] {
            let plan = diff(&desired, &observed(&paths, "new", noted));
            assert_eq!(plan.step(&file_id(MANIFEST)).unwrap().changes, [Change::Restart { because: vec![] }]);
        }
    }

    #[test]
    fn a_pod_whose_manifest_changes_is_restarted_by_kubelet() {
        let desired = desired(&["/srv/keys"]);
        let plan = diff(&desired, &observed(&["/srv/keys", "/etc/ssl"], "old", None));
        let step = plan.step(&file_id(MANIFEST)).unwrap();
        assert!(step.writes() && !step.restarts());
        assert!(diff(&desired, &ObservedState::new()).steps.iter().all(|step| !step.restarts()));
    }
}
