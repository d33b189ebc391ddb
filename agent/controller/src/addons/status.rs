//! The state of each add-on in the channels and in the cluster.

use anyhow::Result;
use serde::Serialize;

use super::states::{AddonState, Scene};

/// The state of an add-on in the cluster, compared with the channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    /// The cluster has the channel's version.
    Current,
    /// The installed version is not the channel's.
    UpdateDue,
    /// The cluster has no version of the add-on.
    New,
    /// Only the add-on's own certificate authority is missing.
    AuthorityDue,
    /// The channel's entry is invalid, so kops-agent cannot apply the add-on.
    Wrong,
    /// A person has paused the add-on, so the add-on stays unchanged.
    Paused,
    /// The add-on is installed, but no channel has it. The add-on stays unchanged.
    Unlisted,
}

impl State {
    fn from_addon_state(addon_state: &AddonState) -> State {
        match (&addon_state.problem, &addon_state.due, &addon_state.installed) {
            (Some(_), _, _) => State::Wrong,
            _ if addon_state.is_paused => State::Paused,
            (None, None, _) => State::Current,
            (None, Some(due), _) if due.version.is_none() => State::AuthorityDue,
            (None, Some(_), None) => State::New,
            (None, Some(_), Some(_)) => State::UpdateDue,
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    pub name: String,
    pub namespace: String,
    pub state: State,
    /// The hash of the installed version; empty if the add-on is new or its entry was skipped.
    pub installed: String,
    /// The hash of the channel's version; empty if the channel's entry has no hash.
    pub wanted: String,
    pub channel: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl Row {
    /// Whether the add-on needs no work.
    pub fn is_healthy(&self) -> bool {
        matches!(self.state, State::Current | State::Paused | State::Unlisted)
    }
}

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
        state: State::from_addon_state(addon_state),
        installed: addon_state.installed.as_ref().map(|one| one.manifest_hash.clone()).unwrap_or_default(),
        wanted: addon_state.addon.spec.manifest_hash.clone(),
        channel: addon_state.addon.channel.clone(),
        problem: addon_state.problem.clone(),
    }
}
