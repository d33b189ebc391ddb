//! Static pods that wait for the API server on the first boot of a machine. `agent/host` writes their files only when the API server
//! answers.
//!
//! The controller manager and the scheduler exit if the API server does not answer, or if it has not created their permissions yet. kubelet
//! restarts an exited container immediately, then after 10 s, then after 20 s, and so on (pkg/kubelet/kuberuntime/kuberuntime_manager.go,
//! `doBackOff`). All Nodes of the cluster wait for these restarts. A pod that starts after the API server answers keeps running.

use std::collections::BTreeSet;

use crate::desired::paths;
use crate::diff::{Plan, Stage};
use crate::health;
use crate::resource::{DesiredState, Kind, ResourceId};
use crate::static_pod::{self, API_SERVER, Rank, rank};

/// The pods that exit if the API server does not answer. kube-proxy is not in this list, because it retries.
const ENDING: [&str; 2] = ["kube-controller-manager", "kube-scheduler"];

/// The pods and images that wait for the API server of this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LatePods {
    /// The manifest files of the pods.
    pub manifests: BTreeSet<ResourceId>,
    /// The images of the pods, by the names under which kubelet pulls them.
    pub images: BTreeSet<String>,
    /// The images of etcd and the API server, which must be pulled before `images`.
    pub images_before: BTreeSet<String>,
}

/// The pods of a plan that wait for the API server. Empty if the machine runs no API server or no kubelet.
pub fn late_pods(plan: &Plan, desired: &DesiredState) -> LatePods {
    let images = |path: &str| {
        let manifest = health::desired_text(desired, path).and_then(|text| static_pod::read(&text));
        let images = manifest.map_or_else(BTreeSet::new, |manifest| manifest.images);
        images.iter().map(|image| pulled_as(image)).collect::<BTreeSet<String>>()
    };
    let has_api_server = health::desired_text(desired, &paths::manifest(API_SERVER)).is_some();
    if !has_api_server || !health::is_awaited(desired) {
        return LatePods::default();
    }
    let ending = ENDING.map(paths::manifest);
    let is_late = |id: &&ResourceId| id.kind == Kind::File && ending.contains(&id.name);
    let started = plan.stage(Stage::Pods).filter(|step| step.starts_pod());
    let manifests: BTreeSet<ResourceId> =
        started.map(|step| &step.resource).filter(is_late).cloned().collect();
    let pods = desired.iter().map(|(id, _)| id).filter(|id| Stage::from_resource(id) == Stage::Pods);
    let images_before =
        pods.filter(|id| rank(&id.name) != Rank::Other).flat_map(|id| images(&id.name)).collect();
    let images = manifests.iter().flat_map(|manifest| images(&manifest.name)).collect();
    LatePods { manifests, images, images_before }
}

/// The name under which containerd stores an image that kubelet requests. The name includes the registry. If the image has a digest, the
/// name has the digest and no tag (`ParseDockerRef` in github.com/distribution/reference, which containerd's CRI plugin uses). kOps' images
/// have both a tag and a digest.
fn pulled_as(image: &str) -> String {
    let (name, digest) = match image.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (image, None),
    };
    let (repository, tag) = match name.rsplit_once(':') {
        // If a slash follows the colon, the colon separates the registry's host from its port.
        Some((repository, tag)) if !tag.contains('/') => (repository, tag),
        _ => (name, "latest"),
    };
    let is_registry = |part: &str| part.contains(['.', ':']) || part == "localhost";
    let repository = match repository.split_once('/') {
        Some((first, _)) if is_registry(first) => repository.to_owned(),
        Some(_) => format!("docker.io/{repository}"),
        None => format!("docker.io/library/{repository}"),
    };
    match digest {
        Some(digest) => format!("{repository}@{digest}"),
        None => format!("{repository}:{tag}"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::desired::desired;
    use crate::diff::{ObservedState, diff};
    use crate::resolve::testing::{api_server, control_plane};

    use super::*;

    fn late(desired: &DesiredState) -> LatePods {
        late_pods(&diff(desired, &ObservedState::new()), desired)
    }

    #[test]
    fn clients_of_the_api_server_wait_with_their_images() {
        let late = late(&desired(&control_plane(|_| {})).unwrap());
        let names: Vec<&str> = late.manifests.iter().map(|manifest| manifest.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "/etc/kubernetes/manifests/kube-controller-manager.manifest",
                "/etc/kubernetes/manifests/kube-scheduler.manifest"
            ]
        );
        let is_of = |images: &BTreeSet<String>, name: &str| images.iter().any(|image| image.contains(name));
        assert!(is_of(&late.images, "/kube-controller-manager") && is_of(&late.images, "/kube-scheduler"));
        assert!(is_of(&late.images_before, "/kube-apiserver"), "{late:?}");
    }

    #[test]
    fn images_have_containerds_names() {
        for (image, name) in [
            ("registry.k8s.io/kube-scheduler:v1.36.3", "registry.k8s.io/kube-scheduler:v1.36.3"),
            (
                "registry.k8s.io/kube-scheduler:v1.36.3@sha256:abc",
                "registry.k8s.io/kube-scheduler@sha256:abc",
            ),
            ("registry.k8s.io/kube-scheduler@sha256:abc", "registry.k8s.io/kube-scheduler@sha256:abc"),
            ("localhost:5000/a/b", "localhost:5000/a/b:latest"),
            ("me/mine:1", "docker.io/me/mine:1"),
            ("mine", "docker.io/library/mine:latest"),
        ] {
            assert_eq!(pulled_as(image), name);
        }
    }

    #[test]
    fn no_pod_waits_without_an_api_server_or_without_changes() {
        assert_eq!(late(&desired(&api_server(|_| {})).unwrap()).manifests, BTreeSet::new());

        let desired = desired(&control_plane(|_| {})).unwrap();
        let nothing_to_do = late_pods(&Plan::default(), &desired);
        assert!(nothing_to_do.manifests.is_empty() && nothing_to_do.images.is_empty());
    }
}
