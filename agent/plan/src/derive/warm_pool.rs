//! Warm pools on AWS: whether machines report that they are ready, and the images that they pull in advance (upstream:
//! `pkg/nodemodel/nodeupconfigbuilder.go`, `buildWarmPoolImages`; `pkg/apis/kops/cluster.go`, `ResolveDefaults`).

use std::collections::BTreeSet;

use serde_json::Value;

use super::Inputs;
use super::images::remap_image;
use crate::resolve::Problems;
use kops_agent_cluster::addons::{BOOTSTRAP_CHANNEL, Channel, collect_images};
use kops_agent_spec::invalid::Invalid;
use kops_agent_spec::kops_release::KopsRelease;
use kops_agent_spec::{InstanceGroupRole, SpecError, WarmPoolSpec, yaml};

/// Prefixes of the names of images to pull in advance. Nodes need these images early, and pulling them needs no credentials.
const PULLED_BEFOREHAND: [&str; 8] = [
    "registry.k8s.io/kube-proxy:",
    "registry.k8s.io/provider-aws/",
    "registry.k8s.io/sig-storage/csi-node-driver-registrar:",
    "registry.k8s.io/sig-storage/livenessprobe:",
    "quay.io/calico/",
    "quay.io/cilium/",
    "quay.io/coreos/flannel:",
    "quay.io/weaveworks/",
];

/// The addon with the user's own objects. kOps ignores its images.
const CLUSTER_ADDONS: &str = "cluster-addons.kops.k8s.io";

pub(super) fn enables_lifecycle_hook(inputs: &Inputs<'_>) -> bool {
    let Some(aws) = &inputs.cluster.spec.cloud_provider.aws else { return false };
    let of_cluster = aws.warm_pool.as_ref().filter(|_| may_share_the_clusters(inputs.role()));
    let of_group = inputs.instance_group.spec.warm_pool.as_ref();
    let either = [of_group, of_cluster];
    let max_size = either.iter().flatten().find_map(|pool| pool.max_size);
    let has_hook = either.iter().flatten().any(|pool| pool.enable_lifecycle_hook);
    has_hook && max_size != Some(0)
}

/// Whether the cluster's warm pool also applies to a group of this role. It does not apply to control planes and bastions.
fn may_share_the_clusters(role: InstanceGroupRole) -> bool {
    !matches!(role, InstanceGroupRole::ControlPlane | InstanceGroupRole::Bastion)
}

/// Whether the field `warmPoolImages` is set. If the cluster or the group has a warm pool, even a disabled one, the field is set for all
/// roles except the control plane.
pub(super) fn has_images(
    of_cluster: Option<&WarmPoolSpec>,
    of_group: Option<&WarmPoolSpec>,
    role: InstanceGroupRole,
) -> bool {
    role != InstanceGroupRole::ControlPlane && (of_cluster.is_some() || of_group.is_some())
}

/// The value of the field `warmPoolImages`.
pub(super) fn images(inputs: &Inputs<'_>, problems: &mut Problems) -> Vec<String> {
    let spec = &inputs.cluster.spec;
    let Some(aws) = &spec.cloud_provider.aws else { return Vec::new() };
    let of_group = inputs.instance_group.spec.warm_pool.as_ref();
    if !has_images(aws.warm_pool.as_ref(), of_group, inputs.role()) {
        return Vec::new();
    }
    let assets = spec.assets.as_ref();
    let starts = PULLED_BEFOREHAND.map(|start| remap_image(assets, start));
    let mut images: BTreeSet<String> = known_images(inputs, problems)
        .into_iter()
        .map(|image| image.split('@').next().unwrap_or_default().to_owned())
        .filter(|image| starts.iter().any(|start| image.starts_with(start.as_str())))
        .collect();
    let additional = of_group.into_iter().flat_map(|pool| &pool.additional_images);
    images.extend(additional.map(|image| remap_image(assets, image)));
    images.into_iter().collect()
}

/// The images that kOps itself runs in the cluster. Their names have the changes that `spec.assets` requires (a proxy or a registry).
fn known_images(inputs: &Inputs<'_>, problems: &mut Problems) -> BTreeSet<String> {
    let mut images: BTreeSet<String> = kube_proxy_image(inputs).into_iter().collect();
    for addon in addons(inputs, problems) {
        match inputs.addon_manifests.get(&addon.manifest) {
            Some(manifest) => images.extend(images_in(manifest, &addon.manifest, problems)),
            None => images.extend(images_of_release(inputs, &addon.name)),
        }
    }
    images
}

/// The image that kOps records for kube-proxy. The image has the cluster's version, and `kubeProxy.image` is ignored (upstream: `Image` in
/// `pkg/model/components/context.go`). `None` if the version is a URL.
fn kube_proxy_image(inputs: &Inputs<'_>) -> Option<String> {
    let spec = &inputs.cluster.spec;
    let version = spec.kubernetes_version.trim_start_matches('v');
    let image = format!("registry.k8s.io/kube-proxy:v{version}");
    (!version.contains("://")).then(|| remap_image(spec.assets.as_ref(), &image))
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Addon {
    pub(super) name: String,
    /// The path of the addon's manifest below `addons/`.
    pub(super) manifest: String,
}

/// All of kOps' own addons in the text of the bootstrap channel. These include entries for other Kubernetes versions than the cluster's
/// version.
pub(super) fn addons_of(text: &str) -> Result<Vec<Addon>, SpecError> {
    let channel = Channel::parse(text.as_bytes(), BOOTSTRAP_CHANNEL, KopsRelease::NEWEST)?;
    if !channel.is_bootstrap {
        let problem = "it has no document of kind Addons with the name bootstrap; `kops update cluster --yes` writes it";
        return Err(SpecError::of_file(BOOTSTRAP_CHANNEL, problem));
    }
    let addons = channel.entries().filter(|(name, _)| *name != CLUSTER_ADDONS).map(|(name, entry)| Addon {
        name: name.to_owned(),
        manifest: entry.manifest.clone().unwrap_or_default(),
    });
    Ok(addons.collect())
}

fn addons(inputs: &Inputs<'_>, problems: &mut Problems) -> Vec<Addon> {
    let Some(channel) = inputs.bootstrap_channel else {
        problems.add(
            BOOTSTRAP_CHANNEL,
            "it is missing, or this machine may not read it, so the images of the warm pool are not known; \
             `kops update cluster --yes` writes it",
        );
        return Vec::new();
    };
    let addons = addons_of(channel).map_err(|error| Invalid::new(error.to_string()));
    problems.keep(BOOTSTRAP_CHANNEL, addons).unwrap_or_default()
}

fn images_in(manifest: &str, path: &str, problems: &mut Problems) -> BTreeSet<String> {
    let mut images = BTreeSet::new();
    for document in yaml::documents::<Value>(manifest) {
        match document {
            Ok(document) => collect_images(&document, &mut images),
            Err(error) => problems.add(format!("addons/{path}"), format!("it cannot be read: {error}")),
        }
    }
    images
}

/// The images that the kOps release uses in an addon whose manifest is missing. Returns only images that machines on AWS may pull in
/// advance.
fn images_of_release(inputs: &Inputs<'_>, addon: &str) -> Vec<String> {
    let spec = &inputs.cluster.spec;
    let images = match addon {
        "aws-cloud-controller.addons.k8s.io" => {
            spec.cloud_controller_manager.iter().map(|manager| manager.image.clone()).collect()
        }
        "aws-ebs-csi-driver.addons.k8s.io" => ebs_csi_driver_images(inputs),
        "networking.cilium.io" => cilium_images(inputs),
        "networking.projectcalico.org" => calico_images(inputs),
        _ => Vec::new(),
    };
    images.iter().map(|image| remap_image(spec.assets.as_ref(), image)).collect()
}

fn ebs_csi_driver_images(inputs: &Inputs<'_>) -> Vec<String> {
    let aws = inputs.cluster.spec.cloud_provider.aws.as_ref();
    let driver = aws.and_then(|aws| aws.ebs_csi_driver.as_ref());
    let version = driver.and_then(|driver| driver.version.as_deref()).unwrap_or_default();
    let (registrar, probe) = inputs.release.sidecars_of_ebs();
    vec![
        format!("registry.k8s.io/provider-aws/aws-ebs-csi-driver:{version}"),
        format!("registry.k8s.io/sig-storage/csi-node-driver-registrar:{registrar}"),
        format!("registry.k8s.io/sig-storage/livenessprobe:{probe}"),
    ]
}

fn cilium_images(inputs: &Inputs<'_>) -> Vec<String> {
    let Some(cilium) = &inputs.cluster.spec.networking.cilium else { return Vec::new() };
    let registry = if cilium.registry.is_empty() { "quay.io" } else { &cilium.registry };
    let has_hubble = cilium.hubble.as_ref().and_then(|hubble| hubble.enabled) == Some(true);
    let hubble = has_hubble.then_some("hubble-relay");
    ["cilium", "operator"]
        .into_iter()
        .chain(hubble)
        .map(|name| format!("{registry}/cilium/{name}:{}", cilium.version))
        .collect()
}

fn calico_images(inputs: &Inputs<'_>) -> Vec<String> {
    let Some(calico) = &inputs.cluster.spec.networking.calico else { return Vec::new() };
    let registry = if calico.registry.is_empty() { "docker.io" } else { &calico.registry };
    let version = if calico.version.is_empty() { inputs.release.calico() } else { &calico.version };
    let typha = (calico.typha_replicas > 0).then_some("typha");
    ["cni", "node", "kube-controllers"]
        .into_iter()
        .chain(typha)
        .map(|name| format!("{registry}/calico/{name}:{version}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::derive::testing::Store;

    #[test]
    fn a_groups_pool_inherits_settings_of_the_clusters_pool() {
        for (cluster, group, hook) in [
            ("", "role: Node", false),
            ("warmPool: {enableLifecycleHook: true}", "role: Node", true),
            ("warmPool: {enableLifecycleHook: true}", "role: Master", false),
            ("warmPool: {enableLifecycleHook: true}", "role: APIServer", true),
            ("warmPool: {enableLifecycleHook: true}", "role: Bastion", false),
            ("warmPool: {enableLifecycleHook: true, maxSize: 0}", "role: Node", false),
            ("warmPool: {enableLifecycleHook: true, maxSize: 0}", "role: Node, warmPool: {maxSize: 3}", true),
            (
                "warmPool: {enableLifecycleHook: true, maxSize: 0}",
                "role: Node, warmPool: {minSize: 3}",
                false,
            ),
            ("warmPool: {enableLifecycleHook: true}", "role: Master, warmPool: {maxSize: 3}", false),
            ("", "role: Node, warmPool: {enableLifecycleHook: true}", true),
            ("", "role: Node, warmPool: {enableLifecycleHook: true, maxSize: 0}", false),
        ] {
            let store = Store::new(cluster, group);
            assert_eq!(enables_lifecycle_hook(&store.inputs()), hook, "{cluster} / {group}");
        }
    }

    const CHANNEL: &str = "{kind: Addons, metadata: {name: bootstrap}, spec: {addons: [{name: aws-ebs-csi-driver.addons.k8s.io, manifest: ebs.yaml}, \
        {name: networking.cilium.io, manifest: cilium.yaml}, {name: cluster-addons.kops.k8s.io, manifest: mine.yaml}]}}";

    #[test]
    fn images_come_from_manifests_and_else_from_the_release() {
        let mut store = Store::new(
            "warmPool: {maxSize: 0}, kubeProxy: {image: 'registry.k8s.io/kube-proxy:v1.33.9@sha256:abc'}, networking: {cilium: {version: v1.18.0}}, cloudConfig: {awsEBSCSIDriver: {version: v1.2.3}}",
            "role: Node, warmPool: {additionalImages: [debian]}",
        );
        store.manifests.insert("cilium.yaml".into(), "spec: {containers: [{image: 'quay.io/cilium/cilium:v9'}, {image: busybox}]}\n---\nimage: quay.io/cilium/operator:v9\n".into());
        store.manifests.insert("mine.yaml".into(), "image: quay.io/cilium/mine:v1".into());
        let mut problems = Problems::default();
        let found = images(&Inputs { bootstrap_channel: Some(CHANNEL), ..store.inputs() }, &mut problems);
        assert!(problems.is_empty(), "{problems}");
        assert_eq!(
            found,
            [
                "debian",
                "quay.io/cilium/cilium:v9",
                "quay.io/cilium/operator:v9",
                "registry.k8s.io/kube-proxy:v1.34.1",
                "registry.k8s.io/provider-aws/aws-ebs-csi-driver:v1.2.3",
                "registry.k8s.io/sig-storage/csi-node-driver-registrar:v2.16.0",
                "registry.k8s.io/sig-storage/livenessprobe:v2.18.0",
            ]
        );
    }

    #[test]
    fn control_planes_pull_no_images_in_advance() {
        let store = Store::new("warmPool: {}", "role: Master");
        assert!(images(&store.inputs(), &mut Problems::default()).is_empty());
    }
}
