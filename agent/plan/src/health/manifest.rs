//! A static pod's manifest, as far as it says who runs and where to ask how they are.

use serde::Deserialize;

use super::StaticPod;

/// What a manifest says of health.
pub(super) struct Manifest {
    /// Who runs.
    pub(super) pod: StaticPod,
    /// The URLs on this machine at which kubelet asks, too.
    pub(super) probes: Vec<String>,
    /// The paths of this machine that it has mounted, other than `/`.
    pub(super) host_paths: Vec<String>,
}

/// How long containers have to end where the manifest does not say (pkg/apis/core/v1/defaults.go).
const TERMINATION_GRACE_PERIOD_SECONDS: u64 = 30;

#[derive(Deserialize)]
struct Pod {
    metadata: Metadata,
    spec: Spec,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
    #[serde(default)]
    namespace: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default)]
    host_network: bool,
    containers: Vec<Container>,
    #[serde(default)]
    volumes: Vec<Volume>,
    termination_grace_period_seconds: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Volume {
    host_path: Option<HostPath>,
}

#[derive(Deserialize)]
struct HostPath {
    path: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Container {
    name: String,
    readiness_probe: Option<Probe>,
    liveness_probe: Option<Probe>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Probe {
    http_get: Option<HttpGet>,
}

#[derive(Deserialize)]
struct HttpGet {
    #[serde(default)]
    host: String,
    #[serde(default)]
    path: String,
    port: serde_json::Value,
    #[serde(default)]
    scheme: Option<String>,
}

/// Reads a manifest; `None` where it is none of a pod.
pub(super) fn read(text: &str) -> Option<Manifest> {
    let Pod { metadata, spec } = serde_yaml::from_str(text).ok()?;
    let pod = StaticPod {
        namespace: metadata.namespace.unwrap_or_else(|| "default".into()),
        name: metadata.name,
        containers: spec.containers.iter().map(|container| container.name.clone()).collect(),
        termination_grace_period_seconds: spec
            .termination_grace_period_seconds
            .unwrap_or(TERMINATION_GRACE_PERIOD_SECONDS),
    };
    let host_paths = spec.volumes.into_iter().filter_map(|volume| Some(volume.host_path?.path));
    let host_paths = host_paths.filter(|path| path != "/").collect();
    // Elsewhere than on the node's own network the pod's address would have to be known.
    let asked = if spec.host_network { spec.containers } else { Vec::new() };
    Some(Manifest { pod, probes: asked.into_iter().filter_map(probe).collect(), host_paths })
}

/// Where to ask a container: whether it is ready says more than whether it lives.
fn probe(container: Container) -> Option<String> {
    let get = [container.readiness_probe, container.liveness_probe]
        .into_iter()
        .flatten()
        .find_map(|probe| probe.http_get)?;
    // Ports by name are the containers' own.
    let port = get.port.as_u64()?;
    let host = if get.host.is_empty() { "127.0.0.1" } else { &get.host };
    let scheme = if get.scheme.as_deref() == Some("HTTPS") { "https" } else { "http" };
    Some(format!("{scheme}://{host}:{port}/{}", get.path.trim_start_matches('/')))
}
