//! The ConfigMap of a rollout: the operator's part and the controller's part.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::core::ObjectMeta;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use kops_agent_cluster::pacing::NAMESPACE;
use kops_agent_cluster::rollout::{
    CONFIG_MAP, POLICY_KEY, POLICY_STATE_KEY, POLICY_STATUS_KEY, PolicyState, PolicyStatus, ROLLOUT_KEY,
    Rollout, STATUS_KEY, Status,
};
use kops_agent_kube::api_error::{ApiError, answer};
use kops_agent_spec::failure::{Failure, Kind};

const FIELD_MANAGER: &str = "kops-agent";

#[derive(Clone)]
pub struct Stored {
    api: Api<ConfigMap>,
}

/// The contents of the rollout's ConfigMap from one read.
pub struct Read {
    /// The operator's rollout. `None` if someone removed its key; an error if the text is not a valid rollout.
    pub rollout: Result<Option<Rollout>, Failure>,
    /// The controller's status of the rollout. The default if the status is missing or cannot be read.
    pub status: Status,
    /// The text of the policy; empty if the ConfigMap has no policy.
    pub policy: String,
    /// The state of the policy, as operators have set it by `pause` and `resume`. The default if no operator has set the state; an error if
    /// the state cannot be read.
    pub policy_state: Result<PolicyState, Failure>,
    /// The controller's status of the policy. The default if the status is missing or cannot be read.
    pub policy_status: PolicyStatus,
    version: Option<String>,
}

impl Stored {
    pub fn new(client: Client) -> Stored {
        Stored { api: Api::namespaced(client, NAMESPACE) }
    }

    /// Reads the ConfigMap; `None` if it does not exist.
    pub async fn read(&self) -> Result<Option<Read>, ApiError> {
        let found = answer(self.api.get_opt(CONFIG_MAP)).await?;
        Ok(found.map(|found| Read::from_config_map(&found)))
    }

    /// Writes a new rollout, and removes the status. `before` is the ConfigMap as it was read. The policy stays. Fails with 409 if someone
    /// has changed the ConfigMap after it was read.
    pub async fn start(&self, rollout: &Rollout, before: Option<&Read>) -> Result<(), ApiError> {
        let Some(before) = before else {
            let map = ConfigMap {
                metadata: ObjectMeta { name: Some(CONFIG_MAP.to_owned()), ..ObjectMeta::default() },
                data: Some([(ROLLOUT_KEY.to_owned(), text(rollout))].into()),
                ..ConfigMap::default()
            };
            let parameters =
                PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() };
            return answer(self.api.create(&parameters, &map)).await.map(drop);
        };
        self.patch(json!({ROLLOUT_KEY: text(rollout), STATUS_KEY: null}), before).await
    }

    /// Changes the operator's rollout in the ConfigMap. Fails with 409 if the ConfigMap has changed after `before` was read.
    pub async fn change(&self, rollout: &Rollout, before: &Read) -> Result<(), ApiError> {
        self.patch(json!({ROLLOUT_KEY: text(rollout)}), before).await
    }

    /// Pauses or resumes the policy. Fails with 409 if the ConfigMap has changed after `before` was read.
    pub async fn change_policy(&self, state: &PolicyState, before: &Read) -> Result<(), ApiError> {
        self.patch(json!({POLICY_STATE_KEY: text(state)}), before).await
    }

    /// Changes the controller's statuses in the ConfigMap. Fails if the ConfigMap has changed after `before` was read. So the controller
    /// writes no orders for a rollout that an operator has just paused.
    pub async fn tell(
        &self,
        status: Option<&Status>,
        policy_status: &PolicyStatus,
        before: &Read,
    ) -> Result<(), ApiError> {
        let mut data = json!({POLICY_STATUS_KEY: compact_text(policy_status)});
        if let Some(status) = status {
            data[STATUS_KEY] = compact_text(status).into();
        }
        self.patch(data, before).await
    }

    async fn patch(&self, data: Value, before: &Read) -> Result<(), ApiError> {
        let patch = Patch::Merge(json!({"metadata": {"resourceVersion": before.version}, "data": data}));
        let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
        answer(self.api.patch(CONFIG_MAP, &parameters, &patch)).await.map(drop)
    }
}

impl Read {
    pub(super) fn from_config_map(map: &ConfigMap) -> Read {
        let policy_state = parsed(map, POLICY_STATE_KEY).map(Option::unwrap_or_default);
        Read {
            rollout: parsed(map, ROLLOUT_KEY),
            status: parsed(map, STATUS_KEY).ok().flatten().unwrap_or_default(),
            policy: value(map, POLICY_KEY).cloned().unwrap_or_default(),
            policy_state: policy_state.map_err(|failure| unreadable(format!("{failure}; remove this key"))),
            policy_status: parsed(map, POLICY_STATUS_KEY).ok().flatten().unwrap_or_default(),
            version: map.metadata.resource_version.clone(),
        }
    }
}

fn value<'a>(map: &'a ConfigMap, key: &str) -> Option<&'a String> {
    map.data.as_ref()?.get(key)
}

/// Parses the JSON of a key; `None` if the ConfigMap does not have the key.
fn parsed<T: DeserializeOwned>(map: &ConfigMap, key: &str) -> Result<Option<T>, Failure> {
    let parsed = value(map, key).map(|text| serde_json::from_str(text)).transpose();
    parsed.map_err(|error| {
        unreadable(format!("the key {key} of the ConfigMap {NAMESPACE}/{CONFIG_MAP} is not valid: {error}"))
    })
}

fn unreadable(problem: String) -> Failure {
    Failure::new(Kind::RolloutUnreadable, problem)
}

/// The JSON of a ConfigMap key that operators set. It has line breaks, because people read it with kubectl.
fn text(part: &impl serde::Serialize) -> String {
    serde_json::to_string_pretty(part).unwrap_or_default()
}

/// The JSON of the controller's status. It has no line breaks, because it grows with the number of ordered nodes, and a ConfigMap has at
/// most 1 MiB.
fn compact_text(part: &impl serde::Serialize) -> String {
    serde_json::to_string(part).unwrap_or_default()
}
