//! Completes a cluster that a user wrote, as far as a check needs it. kOps completes a cluster when it writes the state store, with values of
//! its channel and of the cloud. If such a value decides a check, there is one completed cluster for each possible value. A problem that all
//! of them have does not depend on the value.

use kops_agent_spec::kops_release::KopsRelease;
use kops_agent_spec::{Cluster, ClusterSpec, ConfigStoreSpec, Duration, KubeletConfigSpec};

use crate::resolve::KubernetesVersion;

/// The default address ranges that kOps gives a cluster (`assignCIDRs` and `defaults.go` in upup/pkg/fi/cloudup).
const NON_MASQUERADE: &str = "100.64.0.0/10";
const SERVICES: &str = "100.64.0.0/13";
const SERVICES_IPV6: &str = "fd00:5e4f:ce::/108";
const PODS: &str = "100.96.0.0/11";
/// Possible versions of containerd: major and minor version, and the full version. The two versions have different configuration formats.
const CONTAINERD: [((u64, u64), &str); 2] = [((1, 7), "1.7.29"), ((2, 1), "2.1.4")];
const RUNC: &str = "1.3.0";

/// A cluster that a user wrote, with the fields that kOps would add. If the user chose no version of Kubernetes or containerd, `clusters`
/// has a cluster for each possible version.
#[derive(Clone, Debug)]
pub struct Completed {
    pub clusters: Vec<Cluster>,
    /// The fields that the user did not write and that influence checks, with their names in v1alpha2.
    pub fields: Vec<&'static str>,
}

/// Completes a cluster as a kOps release does. Fields that the user wrote stay unchanged.
pub fn completed(cluster: &Cluster, release: KopsRelease) -> Completed {
    let mut fields = Vec::new();
    let mut completed = cluster.clone();
    let spec = &mut completed.spec;
    let mut set = |field: &'static str, is_absent: bool| {
        if is_absent {
            fields.push(field);
        }
        is_absent
    };
    if set("spec.configBase", spec.config_store.base.is_empty()) {
        spec.config_store.base = format!("s3://supposed/{}", cluster.metadata.name);
    }
    complete_stores(&mut spec.config_store);
    let has_version = !spec.kubernetes_version.is_empty();
    set("spec.kubernetesVersion", !has_version);
    let version = spec.kubernetes_version.trim_start_matches('v').to_owned();
    let containerd = spec.containerd.get_or_insert_default();
    let names_containerd = containerd.version.is_some() || containerd.packages.is_some();
    set("spec.containerd.version", !names_containerd && !containerd.skip_install);
    let runc = containerd.runc.get_or_insert_default();
    if set("spec.containerd.runc.version", runc.version.is_none() && runc.packages.is_none()) {
        runc.version = Some(RUNC.to_owned());
    }
    for (field, is_absent) in [
        ("spec.kubelet", spec.kubelet.is_none()),
        ("spec.masterKubelet", spec.control_plane_kubelet.is_none()),
        ("spec.kubeAPIServer", spec.kube_api_server.is_none()),
        ("spec.kubeControllerManager", spec.kube_controller_manager.is_none()),
        ("spec.kubeScheduler", spec.kube_scheduler.is_none()),
        ("spec.kubeProxy", spec.kube_proxy.is_none()),
        ("spec.kubeDNS", spec.kube_dns.is_none()),
        ("spec.etcdClusters[*].version", spec.etcd_clusters.iter().any(|etcd| etcd.version.is_empty())),
    ] {
        set(field, is_absent);
    }
    complete_networking(spec);
    complete_kubelet(spec.kubelet.get_or_insert_default());
    complete_kubelet(spec.control_plane_kubelet.get_or_insert_default());

    let versions: Vec<String> = match has_version {
        true => vec![version],
        false => (release.oldest_kubernetes_minor()..=KubernetesVersion::NEWEST_KNOWN_MINOR)
            .map(|minor| format!("1.{minor}.0"))
            .collect(),
    };
    let clusters = versions.iter().flat_map(|version| {
        let mut cluster = completed.clone();
        complete_components(&mut cluster.spec, version);
        with_containerd(cluster, names_containerd, release)
    });
    Completed { clusters: clusters.collect(), fields }
}

fn with_containerd(cluster: Cluster, names_containerd: bool, release: KopsRelease) -> Vec<Cluster> {
    if names_containerd {
        return vec![cluster];
    }
    let with = |version: &str| {
        let mut cluster = cluster.clone();
        cluster.spec.containerd.get_or_insert_default().version = Some(version.to_owned());
        cluster
    };
    let possible = CONTAINERD.iter().filter(|(version, _)| *version >= release.oldest_containerd());
    possible.map(|(_, text)| with(text)).collect()
}

fn complete_stores(store: &mut ConfigStoreSpec) {
    let base = store.base.trim_end_matches('/').to_owned();
    for (folder, name) in [(&mut store.keypairs, "pki"), (&mut store.secrets, "secrets")] {
        if folder.is_empty() {
            *folder = format!("{base}/{name}");
        }
    }
}

fn complete_networking(spec: &mut ClusterSpec) {
    let networking = &mut spec.networking;
    complete(&mut networking.non_masquerade_cidr, NON_MASQUERADE);
    let is_ipv6 = networking.non_masquerade_cidr.contains(':');
    complete(&mut networking.service_cluster_ip_range, if is_ipv6 { SERVICES_IPV6 } else { SERVICES });
    if !is_ipv6 {
        complete(&mut networking.pod_cidr, PODS);
    }
    complete(&mut spec.cluster_dns_domain, "cluster.local");
}

/// Sets kOps' defaults (upstream: `BuildOptions` in pkg/model/components/kubelet.go).
fn complete_kubelet(kubelet: &mut KubeletConfigSpec) {
    complete(&mut kubelet.cgroup_root, "/");
    complete(&mut kubelet.cluster_domain, "cluster.local");
    complete(&mut kubelet.pod_manifest_path, "/etc/kubernetes/manifests");
    kubelet.shutdown_grace_period.get_or_insert(Duration::from_seconds(30));
    kubelet.shutdown_grace_period_critical_pods.get_or_insert(Duration::from_seconds(10));
}

/// Adds an image to each component for which the user set no image. The image's tag is the Kubernetes version (upstream:
/// pkg/model/components).
fn complete_components(spec: &mut ClusterSpec, version: &str) {
    spec.kubernetes_version = version.to_owned();
    let cluster_cidr = spec.networking.pod_cidr.clone();
    let image = |image: &mut String, name: &str| {
        if !version.contains("://") {
            complete(image, &format!("registry.k8s.io/{name}:v{version}"));
        }
    };
    image(&mut spec.kube_api_server.get_or_insert_default().image, "kube-apiserver");
    let controller_manager = spec.kube_controller_manager.get_or_insert_default();
    image(&mut controller_manager.image, "kube-controller-manager");
    complete(&mut controller_manager.cluster_cidr, &cluster_cidr);
    image(&mut spec.kube_scheduler.get_or_insert_default().image, "kube-scheduler");
    image(&mut spec.kube_proxy.get_or_insert_default().image, "kube-proxy");
}

fn complete(field: &mut String, value: &str) {
    if field.is_empty() {
        value.clone_into(field);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn cluster(spec: &str) -> Cluster {
        let text = format!(
            "{{kind: Cluster, metadata: {{name: c.example.com}}, spec: {{cloudProvider: aws, {spec}}}}}"
        );
        Cluster::parse(text.as_bytes(), "cluster").unwrap()
    }

    #[test]
    fn values_from_the_user_stay_in_a_completed_spec() {
        let Completed { clusters, fields } = completed(
            &cluster(
                "kubernetesVersion: v1.35.1, containerd: {version: 2.0.1, runc: {version: 1.2.0}}, kubelet: {cgroupRoot: /a}, \
                 kubeScheduler: {image: mine}, nonMasqueradeCIDR: '::/0', configBase: 's3://a/b'",
            ),
            KopsRelease::NEWEST,
        );
        let [cluster] = clusters.as_slice() else { panic!("{clusters:?}") };
        let spec = &cluster.spec;
        assert_eq!(spec.kubernetes_version, "1.35.1");
        assert_eq!(spec.kubelet.as_ref().unwrap().cgroup_root, "/a");
        assert_eq!(spec.kube_scheduler.as_ref().unwrap().image, "mine");
        assert_eq!(spec.kube_api_server.as_ref().unwrap().image, "registry.k8s.io/kube-apiserver:v1.35.1");
        assert_eq!(
            (spec.networking.service_cluster_ip_range.as_str(), spec.networking.pod_cidr.as_str()),
            (SERVICES_IPV6, "")
        );
        assert_eq!(spec.config_store.keypairs, "s3://a/b/pki");
        let written = [
            "spec.kubernetesVersion",
            "spec.containerd.version",
            "spec.kubelet",
            "spec.kubeScheduler",
            "spec.configBase",
        ];
        assert!(written.iter().all(|field| !fields.contains(field)), "{fields:?}");
        assert!(fields.contains(&"spec.kubeAPIServer") && fields.contains(&"spec.kubeDNS"), "{fields:?}");
    }

    #[test]
    fn each_possible_version_has_its_cluster() {
        let Completed { clusters, fields } = completed(&cluster(""), KopsRelease::NEWEST);
        let versions: Vec<String> = clusters
            .iter()
            .map(|Cluster { spec, .. }| {
                format!(
                    "{} {}",
                    spec.kubernetes_version,
                    spec.containerd.as_ref().unwrap().version.as_ref().unwrap()
                )
            })
            .collect();
        let newest = KubernetesVersion::NEWEST_KNOWN_MINOR;
        assert!(versions.contains(&format!("1.{newest}.0 2.1.4")), "{versions:?}");
        assert!(
            !versions.iter().any(|version| version.contains("1.7")),
            "kOps 1.37 installs no containerd 1: {versions:?}"
        );
        let older = KopsRelease::supported().next().unwrap();
        let clusters = completed(&cluster("kubernetesVersion: 1.34.0"), older).clusters;
        assert_eq!(clusters.len(), CONTAINERD.len());
        assert!(fields.contains(&"spec.kubernetesVersion") && fields.contains(&"spec.containerd.version"));
    }
}
