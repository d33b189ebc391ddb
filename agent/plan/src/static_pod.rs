//! A static pod's file: its place among the others, and its manifest as far as it says what runs, where its health is
//! asked for, and what it has mounted.

use std::collections::BTreeSet;

use kops_agent_spec::yaml;
use serde::{Deserialize, Serialize};

use crate::desired::paths;

/// The static pod whose health says how etcd is: it asks etcd, whose own pod has no probe.
pub(crate) const API_SERVER: &str = "kube-apiserver";

/// A pod that kubelet runs from a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StaticPod {
    pub namespace: String,
    /// Its name as the manifest has it; kubelet adds the node's.
    pub name: String,
    /// The names of its containers.
    pub containers: BTreeSet<String>,
    /// How many seconds they have to end.
    pub termination_grace_period_seconds: u64,
}

/// The paths of the machine that the pod of a manifest has mounted; none for what is no pod's, and not `/`: a pod that
/// has that finds what it wants by itself.
pub fn mounted_paths(manifest: &str) -> Vec<String> {
    read(manifest).map_or(vec![], |manifest| manifest.host_paths)
}

/// In which order static pods are changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// etcd: without it there is no API server.
    Etcd,
    /// The API server: all others are its clients, and may not be newer (Kubernetes' version skew policy).
    ApiServer,
    Other,
}

/// The name of a static pod, by its file: `kube-apiserver` for `/etc/kubernetes/manifests/kube-apiserver.manifest`.
pub(crate) fn name_by_file(path: &str) -> &str {
    let file = path.rsplit('/').next().unwrap_or_default();
    file.split_once('.').map_or(file, |(name, _)| name)
}

/// The place of a static pod's file in that order.
pub fn rank(path: &str) -> Rank {
    match name_by_file(path) {
        API_SERVER => Rank::ApiServer,
        name if name.starts_with("etcd-") => Rank::Etcd,
        _ => Rank::Other,
    }
}

/// Whether a path is that of a static pod's file.
pub fn is_manifest(path: &str) -> bool {
    path.strip_prefix(paths::MANIFESTS).is_some_and(|rest| rest.starts_with('/') && !rest[1..].contains('/'))
}

/// What a manifest says of health.
pub(crate) struct Manifest {
    pub(crate) pod: StaticPod,
    /// The URLs on this machine at which kubelet asks, too.
    pub(crate) probes: Vec<String>,
    /// The paths of this machine that it has mounted, other than `/`.
    pub(crate) host_paths: Vec<String>,
    /// The images that its containers run.
    pub(crate) images: BTreeSet<String>,
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

/// Reads a manifest; `None` where it is none of a pod.
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
    // Elsewhere than on the node's own network the pod's address would have to be known.
    let asked = if spec.host_network { spec.containers } else { Vec::new() };
    Some(Manifest { pod, probes: asked.into_iter().filter_map(probe).collect(), host_paths, images })
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
