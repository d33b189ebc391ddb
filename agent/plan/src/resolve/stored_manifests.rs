//! The manifests that a control-plane machine takes from the state store. All of them must be present. If
//! kops-agent changes a manifest, it must be a manifest of a pod.
//!
//! Source: nodeup/pkg/model/manifests.go, channels.go and kube_apiserver_healthcheck.go.

use kops_agent_spec::invalid::Invalid;

use super::basis::Basis;
use super::{Problems, StoredPod};

/// Adds a problem for each missing manifest of etcd.
pub(super) fn check_etcd_manifests(basis: &Basis<'_>, problems: &mut Problems) {
    if basis.is_control_plane() {
        for url in &basis.config.etcd_manifests {
            let _ = problems.keep("etcdManifests", manifest(basis, url));
        }
    }
}

/// The pod that applies addons. `None` on machines without this pod, and for kOps releases in which protokube
/// applies addons.
pub(super) fn kops_channels(basis: &Basis<'_>, problems: &mut Problems) -> Option<StoredPod> {
    if !basis.is_control_plane() || basis.release.protokube_applies_addons() {
        return None;
    }
    let url = &basis.config.channels_manifest;
    if url.is_empty() {
        problems.add(
            "channelsManifest",
            "is not set, so nothing would apply addons; run `kops update cluster --yes` with a kOps that sets it",
        );
        return None;
    }
    problems.keep("channelsManifest", manifest(basis, url).and_then(|text| StoredPod::parse(text, url)))
}

/// The API server's sidecar, which answers probes. `None` if kOps configures no sidecar.
pub(super) fn kube_apiserver_healthcheck(basis: &Basis<'_>, problems: &mut Problems) -> Option<StoredPod> {
    let manifests = &basis.config.static_manifests;
    let path = &manifests.iter().find(|manifest| manifest.key == "kube-apiserver-healthcheck")?.path;
    problems.keep("staticManifests", manifest(basis, path).and_then(|text| StoredPod::parse(text, path)))
}

fn manifest<'a>(basis: &Basis<'a>, url: &str) -> Result<&'a str, Invalid> {
    basis.manifests.get(url).map(String::as_str).ok_or_else(|| {
        Invalid::new(format!("names {url}, which is not in the state store, or which this machine may not read; run `kops update cluster --yes`"))
    })
}
