//! What tells that a component is well again after it was changed, for a run that changes one after another and goes on
//! only once the last one is back.
//!
//! It follows from texts that the node has anyway: kubelet's configuration says where kubelet and its runtime answer,
//! a static pod's manifest what runs in it and where it is asked how it is.

use kops_agent_spec::yaml;
use serde::{Deserialize, Serialize};

use crate::desired::{ADDONS_MIRROR, paths};
use crate::diff::step::{Action, CONTAINER_RUNTIME, Change, KUBELET, Stage, Step};
use crate::resource::{Content, DesiredState, File, Kind, Resource, ResourceId};
use crate::static_pod::{self, API_SERVER};

pub use crate::static_pod::{Rank, StaticPod, is_manifest, mounted_paths, rank};

/// Where containerd listens unless it is told otherwise.
const RUNTIME_SOCKET: &str = "/run/containerd/containerd.sock";
/// Where kubelet says how it is unless it is told otherwise (pkg/kubelet/apis/config/v1beta1/defaults.go).
const HEALTHZ: (&str, u16) = ("127.0.0.1", 10248);
/// Upstream's unit of the agent itself.
const AGENT: &str = "kops-configuration.service";

/// One thing that tells that a component is well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Check {
    /// A unit runs, or has done what it is for.
    Unit { name: String },
    /// The container runtime answers, and can be asked for pods.
    Runtime { socket: String },
    /// A server on this machine answers 200 or thereabouts.
    Answers {
        /// The URL. Whose certificate it is by HTTPS does not matter: nothing is told, and little believed.
        url: String,
    },
    /// All containers of a static pod run.
    Pod {
        pod: StaticPod,
        /// Path of the socket of the runtime that has them.
        socket: String,
    },
}

/// Something that runs on a node, and by what it is known to be well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Component {
    /// What runs it: a unit, or the file of a static pod.
    pub resource: ResourceId,
    /// All of them have to hold.
    pub checks: Vec<Check>,
}

/// The texts of files, by path, from which health follows: those that are desired, or those that are there.
pub type Texts<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Whether a run waits for components to be healthy. On a node that is to run no pods, as one that warms up for a pool, nothing could
/// tell that they are.
pub fn is_awaited(desired: &DesiredState) -> bool {
    let kubelet = desired.get(&ResourceId::new(Kind::Unit, KUBELET));
    matches!(kubelet, Some(Resource::Unit(unit)) if unit.running)
}

/// The text of a desired file.
pub fn desired_text(desired: &DesiredState, path: &str) -> Option<String> {
    match desired.get(&ResourceId::new(Kind::File, path))? {
        Resource::File(File { content: Content::Text(text), .. }) => Some(text.clone()),
        _ => None,
    }
}

/// What is to be well after this step; `None` where it starts nothing anew.
pub fn after(step: &Step, texts: Texts<'_>) -> Option<Component> {
    match step.resource.kind {
        _ if step.action == Action::Remove => None,
        Kind::Unit => {
            let is_started = |change: &Change| matches!(change, Change::Start | Change::Restart { .. });
            step.changes.iter().any(is_started).then(|| of_unit(&step.resource.name, texts))
        }
        Kind::File if step.stage == Stage::Pods => {
            step.starts_pod().then(|| of_manifest(&step.resource.name, texts)).flatten()
        }
        Kind::File => step.changes.iter().find_map(restarted_unit).map(|unit| of_unit(unit, texts)),
        _ => None,
    }
}

/// What tells that a unit is well.
pub fn of_unit(name: &str, texts: Texts<'_>) -> Component {
    let mut checks = vec![Check::Unit { name: name.to_owned() }];
    match name {
        CONTAINER_RUNTIME => checks.push(Check::Runtime { socket: runtime_socket(texts) }),
        KUBELET => checks.extend(healthz(texts).map(|url| Check::Answers { url })),
        _ => {}
    }
    Component { resource: ResourceId::new(Kind::Unit, name), checks }
}

/// What tells that the static pod of this file is well; `None` where the file says nothing of a pod.
pub fn of_manifest(path: &str, texts: Texts<'_>) -> Option<Component> {
    let manifest = static_pod::read(&texts(path)?)?;
    let mut checks = vec![Check::Pod { pod: manifest.pod, socket: runtime_socket(texts) }];
    // A unit of its own is asked how the service is, and add-ons take as long as they take.
    let is_mirror = path == paths::manifest(ADDONS_MIRROR);
    let mut urls = if is_mirror { Vec::new() } else { manifest.probes };
    if rank(path) == Rank::Etcd {
        let api_server = texts(&paths::manifest(API_SERVER)).and_then(|text| static_pod::read(&text));
        urls.extend(api_server.into_iter().flat_map(|manifest| manifest.probes));
    }
    checks.extend(urls.into_iter().map(|url| Check::Answers { url }));
    Some(Component { resource: ResourceId::new(Kind::File, path), checks })
}

/// What kubelet's configuration says of where it and its runtime answer.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct KubeletConfig {
    container_runtime_endpoint: String,
    healthz_port: Option<u16>,
    healthz_bind_address: Option<String>,
}

fn kubelet_config(texts: Texts<'_>) -> KubeletConfig {
    let text = texts(paths::KUBELET_CONFIG).unwrap_or_default();
    yaml::from_str(&text).unwrap_or_default()
}

/// Where the runtime listens: kubelet has to know it, too.
fn runtime_socket(texts: Texts<'_>) -> String {
    let endpoint = kubelet_config(texts).container_runtime_endpoint;
    endpoint.strip_prefix("unix://").unwrap_or(RUNTIME_SOCKET).to_owned()
}

/// Where kubelet says how it is; `None` where it is told not to.
fn healthz(texts: Texts<'_>) -> Option<String> {
    let config = kubelet_config(texts);
    let port = config.healthz_port.unwrap_or(HEALTHZ.1);
    let host = match config.healthz_bind_address.as_deref().unwrap_or(HEALTHZ.0) {
        "0.0.0.0" => HEALTHZ.0.to_owned(),
        "::" => "[::1]".to_owned(),
        v6 if v6.contains(':') => format!("[{v6}]"),
        other => other.to_owned(),
    };
    (port != 0).then(|| format!("http://{host}:{port}/healthz"))
}

/// The unit that a file's command restarts; upstream has the agent's own restarted, too.
fn restarted_unit(change: &Change) -> Option<&str> {
    match change {
        Change::Run { command } if command.len() == 3 && command[..2] == ["systemctl", "restart"] => {
            Some(command[2].as_str()).filter(|unit| *unit != AGENT)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
