//! The state of each add-on in the channels and in the cluster.

use anyhow::Result;

use kops_agent_cluster::addons::{Row, State};

use super::states::{AddonState, Scene};

/// Returns the state of each add-on in the scene. If the user named no add-on, also returns installed add-ons that no channel has.
pub async fn rows(scene: &Scene) -> Result<Vec<Row>> {
    let installed = scene.installed().await?;
    let addon_states = scene.states(scene.addons(), &installed).await?;
    let mut rows: Vec<Row> = addon_states.iter().map(row).collect();
    for left_out in scene.left_out() {
        rows.push(Row {
            name: left_out.name.clone(),
            namespace: String::new(),
            state: State::Wrong,
            installed: String::new(),
            wanted: String::new(),
            channel: left_out.problem.source_file.clone(),
            problem: Some(left_out.problem.to_string()),
        });
    }
    if !scene.is_of_one {
        let is_listed = |namespace: &str, name: &str| {
            addon_states.iter().any(|one| one.addon.namespace() == namespace && one.addon.name == name)
        };
        let unlisted =
            installed.versions.into_iter().filter(|((namespace, name), _)| !is_listed(namespace, name));
        rows.extend(unlisted.map(|((namespace, name), version)| Row {
            name,
            namespace,
            state: State::Unlisted,
            installed: version.manifest_hash,
            wanted: String::new(),
            channel: version.channel.unwrap_or_default(),
            problem: None,
        }));
    }
    Ok(rows)
}

fn row(addon_state: &AddonState) -> Row {
    Row {
        name: addon_state.addon.name.clone(),
        namespace: addon_state.addon.namespace().to_owned(),
        state: state(addon_state),
        installed: addon_state.installed.as_ref().map(|one| one.manifest_hash.clone()).unwrap_or_default(),
        wanted: addon_state.addon.spec.manifest_hash.clone(),
        channel: addon_state.addon.channel.clone(),
        problem: addon_state.problem.clone(),
    }
}

fn state(addon_state: &AddonState) -> State {
    match (&addon_state.problem, &addon_state.due, &addon_state.installed) {
        (Some(_), _, _) => State::Wrong,
        _ if addon_state.is_paused => State::Paused,
        (None, None, _) => State::Current,
        (None, Some(due), _) if due.version.is_none() => State::AuthorityDue,
        (None, Some(_), None) => State::New,
        (None, Some(_), Some(_)) => State::UpdateDue,
    }
}
