//! Decides how to check that a component is healthy after a change. A run changes components one after another, and waits for each to
//! become healthy.
//!
//! The checks come from files that the node has anyway. kubelet's configuration has the addresses of kubelet and its container runtime. The
//! manifest of a static pod has its containers and its health probes.

use kops_agent_spec::yaml;
use serde::{Deserialize, Serialize};

use crate::desired::{ADDONS_MIRROR, paths};
use crate::diff::step::{Action, CONTAINER_RUNTIME, Change, KUBELET, Stage, Step};
use crate::resource::{Content, DesiredState, File, Kind, Resource, ResourceId};
use crate::static_pod::{self, API_SERVER};

pub use crate::static_pod::{Rank, StaticPod, is_manifest, mounted_paths, rank};

/// containerd's default socket.
const RUNTIME_SOCKET: &str = "/run/containerd/containerd.sock";
/// The default address of kubelet's health endpoint (pkg/kubelet/apis/config/v1beta1/defaults.go).
const HEALTHZ: (&str, u16) = ("127.0.0.1", 10248);
/// kops-agent's own systemd unit. Upstream's unit has the same name.
const AGENT: &str = "kops-configuration.service";

/// A condition that a healthy component meets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Check {
    /// The unit runs, or has completed its task.
    Unit { name: String },
    /// The container runtime answers and lists pods.
    Runtime { socket: String },
    /// A server on this machine answers with a status of 200 to 399.
    Answers {
        /// The URL. The server's certificate is not verified, because the request has no secrets and only the status is used.
        url: String,
    },
    Pod {
        pod: StaticPod,
        /// Path of the runtime's socket.
        socket: String,
    },
}

/// A component of a node, with its health checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Component {
    /// The unit that runs the component, or the file of its static pod.
    pub resource: ResourceId,
    /// The health checks. The component is healthy if all of them pass.
    pub checks: Vec<Check>,
}

/// A function that returns the text of the file at a path. The texts are either the desired texts or the texts on the machine.
pub type Texts<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Whether a run waits for components to become healthy. The run does not wait on a machine that does not run kubelet, such as a machine
/// that warms up for a warm pool.
pub fn is_awaited(desired: &DesiredState) -> bool {
    let kubelet = desired.get(&ResourceId::new(Kind::Unit, KUBELET));
    matches!(kubelet, Some(Resource::Unit(unit)) if unit.running)
}

/// The text of a desired file. `None` if the file is not desired or is not a text.
pub fn desired_text(desired: &DesiredState, path: &str) -> Option<String> {
    match desired.get(&ResourceId::new(Kind::File, path))? {
        Resource::File(File { content: Content::Text(text), .. }) => Some(text.clone()),
        _ => None,
    }
}

/// The component that must be healthy after this step. `None` if the step starts or restarts no component.
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

/// The health checks of a unit.
pub fn of_unit(name: &str, texts: Texts<'_>) -> Component {
    let mut checks = vec![Check::Unit { name: name.to_owned() }];
    match name {
        CONTAINER_RUNTIME => checks.push(Check::Runtime { socket: runtime_socket(texts) }),
        KUBELET => checks.extend(healthz(texts).map(|url| Check::Answers { url })),
        _ => {}
    }
    Component { resource: ResourceId::new(Kind::Unit, name), checks }
}

/// The health checks of the static pod in this file. `None` if the file is not a pod manifest.
pub fn of_manifest(path: &str, texts: Texts<'_>) -> Option<Component> {
    let manifest = static_pod::read(&texts(path)?)?;
    let mut checks = vec![Check::Pod { pod: manifest.pod, socket: runtime_socket(texts) }];
    // The probes of the add-ons service's mirror pod are skipped, because the service has its own unit check, and add-ons may take long.
    let is_mirror = path == paths::manifest(ADDONS_MIRROR);
    let mut urls = if is_mirror { Vec::new() } else { manifest.probes };
    if rank(path) == Rank::Etcd {
        let api_server = texts(&paths::manifest(API_SERVER)).and_then(|text| static_pod::read(&text));
        urls.extend(api_server.into_iter().flat_map(|manifest| manifest.probes));
    }
    checks.extend(urls.into_iter().map(|url| Check::Answers { url }));
    Some(Component { resource: ResourceId::new(Kind::File, path), checks })
}

/// The fields of kubelet's configuration with the addresses of kubelet and its runtime.
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

/// The socket of the container runtime: from kubelet's configuration, or else containerd's default socket.
fn runtime_socket(texts: Texts<'_>) -> String {
    let endpoint = kubelet_config(texts).container_runtime_endpoint;
    endpoint.strip_prefix("unix://").unwrap_or(RUNTIME_SOCKET).to_owned()
}

/// The URL of kubelet's health endpoint. `None` if the endpoint is disabled.
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

/// The unit that a file's command restarts. `None` for kops-agent's own unit, which some commands restart because upstream's commands do.
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
