//! The manifest file of a static pod: its rank, and the parts of the manifest about its containers, health probes and mounts.

use std::collections::BTreeSet;

use kops_agent_spec::yaml;
use serde::{Deserialize, Serialize};

use crate::desired::paths;

/// The static pod of the API server. Its health check also covers etcd, whose own pod has no probe.
pub(crate) const API_SERVER: &str = "kube-apiserver";

/// A pod that kubelet runs from a manifest file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StaticPod {
    pub namespace: String,
    /// The pod's name in the manifest. kubelet appends the node's name.
    pub name: String,
    pub containers: BTreeSet<String>,
    /// Seconds that the containers get to stop before kubelet kills them.
    pub termination_grace_period_seconds: u64,
}

/// The host paths that the pod of a manifest mounts. Empty if the text is not a pod manifest. Mounts of the whole host (`/`) are left out,
/// because they do not show which files the pod reads.
pub fn mounted_paths(manifest: &str) -> Vec<String> {
    read(manifest).map_or(vec![], |manifest| manifest.host_paths)
}

/// The order in which static pods change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// etcd changes first, because the API server needs etcd.
    Etcd,
    /// The API server changes before all other pods. The other pods are clients of the API server, and must not be newer than it
    /// (Kubernetes' version skew policy).
    ApiServer,
    Other,
}

/// The name of a static pod from the path of its file: `kube-apiserver` for `/etc/kubernetes/manifests/kube-apiserver.manifest`.
pub(crate) fn name_by_file(path: &str) -> &str {
    let file = path.rsplit('/').next().unwrap_or_default();
    file.split_once('.').map_or(file, |(name, _)| name)
}

/// The rank of a static pod, from the path of its file.
pub fn rank(path: &str) -> Rank {
    match name_by_file(path) {
        API_SERVER => Rank::ApiServer,
        name if name.starts_with("etcd-") => Rank::Etcd,
        _ => Rank::Other,
    }
}

/// Whether a path is a static pod's file.
pub fn is_manifest(path: &str) -> bool {
    path.strip_prefix(paths::MANIFESTS).is_some_and(|rest| rest.starts_with('/') && !rest[1..].contains('/'))
}

/// The parts of a pod manifest that health checks and plans use.
pub(crate) struct Manifest {
    pub(crate) pod: StaticPod,
    /// The URLs on this machine that kubelet probes.
    pub(crate) probes: Vec<String>,
    /// The host paths that the pod mounts. A mount of the whole host (`/`) is left out.
    pub(crate) host_paths: Vec<String>,
    pub(crate) images: BTreeSet<String>,
}

/// The default termination grace period in Kubernetes, in seconds (pkg/apis/core/v1/defaults.go).
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
    #[serde(default)]
    image: String,
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

/// Reads a manifest. Returns `None` if it is not a pod manifest.
pub(crate) fn read(text: &str) -> Option<Manifest> {
    let Pod { metadata, spec } = yaml::from_str(text).ok()?;
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
    let images = spec.containers.iter().map(|container| container.image.clone());
    let images = images.filter(|image| !image.is_empty()).collect();
    // The agent does not probe a pod without the host network: the probe's URL would contain the pod's address, which is unknown here.
    let asked = if spec.host_network { spec.containers } else { Vec::new() };
    Some(Manifest { pod, probes: asked.into_iter().filter_map(probe).collect(), host_paths, images })
}

/// The URL of a container's health probe. The readiness probe is preferred, because a container can be live before it is
/// ready.
fn probe(container: Container) -> Option<String> {
    let get = [container.readiness_probe, container.liveness_probe]
        .into_iter()
        .flatten()
        .find_map(|probe| probe.http_get)?;
    // A named port is not supported, because its number is in another part of the container.
    let port = get.port.as_u64()?;
    let host = if get.host.is_empty() { "127.0.0.1" } else { &get.host };
    let scheme = if get.scheme.as_deref() == Some("HTTPS") { "https" } else { "http" };
    Some(format!("{scheme}://{host}:{port}/{}", get.path.trim_start_matches('/')))
}
