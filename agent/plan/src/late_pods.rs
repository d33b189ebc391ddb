//! Static pods that a machine which boots for the first time gets only once its API server answers, for `agent/host` to hold
//! their files back.
//!
//! The controller manager and the scheduler end where no API server answers, and where it has not made their rights yet.
//! kubelet starts an ended container again at once, then after 10 s, after 20 s, and so on
//! (pkg/kubelet/kuberuntime/kuberuntime_manager.go, `doBackOff`), and all Nodes of the cluster wait for that. Those that start
//! once the API server answers stay.

use std::collections::BTreeSet;

use crate::desired::paths;
use crate::diff::{Plan, Stage};
use crate::health;
use crate::resource::{DesiredState, Kind, ResourceId};
use crate::static_pod::{self, API_SERVER, Rank, rank};

/// The pods that end where no API server answers. kube-proxy goes on asking.
const ENDING: [&str; 2] = ["kube-controller-manager", "kube-scheduler"];

/// What is held back until the API server of the same machine answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LatePods {
    /// The files of the pods.
    pub manifests: BTreeSet<ResourceId>,
    /// The images that they run, by the names that kubelet has them pulled by.
    pub images: BTreeSet<String>,
    /// The images of etcd and the API server, which are needed before those.
    pub images_before: BTreeSet<String>,
}

/// What of a plan is held back: nothing where the machine is to have no API server, or is to run no kubelet.
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
    let pods = desired.iter().map(|(id, _)| id).filter(|id| Stage::of(id) == Stage::Pods);
    let images_before =
        pods.filter(|id| rank(&id.name) != Rank::Other).flat_map(|id| images(&id.name)).collect();
    let images = manifests.iter().flat_map(|manifest| images(&manifest.name)).collect();
    LatePods { manifests, images, images_before }
}

/// The name by which containerd has an image that kubelet asks for: with its registry, and by its digest alone where it has one
/// (`ParseDockerRef` in github.com/distribution/reference, which containerd's CRI uses). kOps' images have a tag and a digest.
fn pulled_as(image: &str) -> String {
    let (name, digest) = match image.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (image, None),
    };
    let (repository, tag) = match name.rsplit_once(':') {
        // What is before a slash is a registry's port.
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
    fn the_clients_of_the_api_server_wait_for_it_with_their_images_known() {
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
    fn images_are_known_by_the_names_that_containerd_has_them_by() {
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
    fn nothing_waits_where_there_is_no_api_server_and_nothing_that_is_there_already() {
        assert_eq!(late(&desired(&api_server(|_| {})).unwrap()).manifests, BTreeSet::new());

        let desired = desired(&control_plane(|_| {})).unwrap();
        let nothing_to_do = late_pods(&Plan::default(), &desired);
        assert!(nothing_to_do.manifests.is_empty() && nothing_to_do.images.is_empty());
    }
}
