//! The downloads of a group's machines, for both architectures and in kOps' order (upstream: `pkg/nodemodel/fileassets.go`,
//! `pkg/nodemodel/wellknownassets/`).

use std::collections::BTreeMap;

use super::boot_config::api_server_ips;
use super::download_url::Url;
use super::releases::{self, OLDEST_RUNC, Release};
use super::{AssetHashes, Inputs, discovery, networking};
use crate::resolve::{KubernetesVersion, Problems};
use kops_agent_spec::digest::parse_sha256;
use kops_agent_spec::facts::Architecture;
use kops_agent_spec::{CloudProvider, ContainerdConfig, Image, InstanceGroupRole, PackagesConfig};

const ARCHITECTURES: [Architecture; 2] = [Architecture::Amd64, Architecture::Arm64];

/// A file that machines of the group download.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssetUrl {
    pub architecture: Architecture,
    /// The publisher's URL.
    pub canonical_url: String,
    /// The URL that this cluster uses: the publisher's URL, or a URL in the cluster's file repository.
    pub download_url: String,
    /// The SHA-256 in the cluster's spec, in lower-case hexadecimal.
    pub sha256: Option<String>,
    /// The publisher's mirror URL for a program of kOps. `None` for other files, and in a cluster with a file repository.
    mirror: Option<String>,
    is_image: bool,
}

impl AssetUrl {
    fn hash(&self, hashes: &dyn AssetHashes) -> Option<String> {
        self.sha256.clone().or_else(|| hashes.sha256(&self.canonical_url, &self.download_url))
    }

    /// The file's entry in the field `Assets`: `hash@url`, followed by a mirror URL if there is one. If the hash is unknown, the entry is
    /// only the URL, and the hash must be found before installation.
    fn entry(&self, hashes: &dyn AssetHashes) -> String {
        let mirror = self.mirror.iter().map(|mirror| format!(",{mirror}")).collect::<String>();
        match self.hash(hashes) {
            Some(hash) => format!("{hash}@{}{mirror}", self.download_url),
            None => format!("{}{mirror}", self.download_url),
        }
    }
}

/// All files that machines of the group may download. With this list, a caller can look up the files' hashes.
pub fn asset_urls(inputs: &Inputs<'_>) -> Result<Vec<AssetUrl>, Problems> {
    let mut problems = Problems::default();
    let urls = collect(inputs, &mut problems);
    problems.unless_any(urls)
}

/// The fields `Assets` and `images` of the configuration.
pub(super) fn assets_and_images(
    inputs: &Inputs<'_>,
    problems: &mut Problems,
) -> (BTreeMap<String, Vec<String>>, BTreeMap<String, Vec<Image>>) {
    let mut assets: BTreeMap<String, Vec<String>> =
        ARCHITECTURES.iter().map(|arch| (arch.name().to_owned(), Vec::new())).collect();
    let mut images: BTreeMap<String, Vec<Image>> = BTreeMap::new();
    for url in collect(inputs, problems) {
        let arch = url.architecture.name().to_owned();
        if url.is_image {
            let hash = url.hash(inputs.asset_hashes).unwrap_or_default();
            images.entry(arch).or_default().push(Image {
                sources: vec![url.download_url],
                hash,
                ..Image::default()
            });
        } else {
            assets.entry(arch).or_default().push(url.entry(inputs.asset_hashes));
        }
    }
    (assets, images)
}

fn collect(inputs: &Inputs<'_>, problems: &mut Problems) -> Vec<AssetUrl> {
    let repository = repository(inputs, problems);
    let mut collector = Collector { inputs, problems, repository, urls: Vec::new() };
    for arch in ARCHITECTURES {
        collector.kubernetes(arch);
        collector.credential_provider(arch);
        collector.cni_plugins(arch);
        collector.containerd(arch);
        collector.image_archives(arch);
    }
    for name in kops_programs(inputs, collector.problems) {
        for arch in ARCHITECTURES {
            collector.kops_program(arch, name);
        }
    }
    collector.urls
}

fn kops_programs(inputs: &Inputs<'_>, problems: &mut Problems) -> &'static [&'static str] {
    let uses_gossip = discovery::uses_gossip(inputs);
    if inputs.role() == InstanceGroupRole::Bastion || !inputs.release.has_gossip() {
        return &[];
    }
    if inputs.release.protokube_applies_addons() {
        return if inputs.is_control_plane() || uses_gossip { &["protokube", "channels"] } else { &[] };
    }
    let gossips = uses_gossip
        && inputs
            .cluster
            .cloud_provider()
            .is_none_or(|cloud| api_server_ips(inputs, cloud, problems).is_empty());
    if inputs.is_control_plane() || gossips { &["protokube"] } else { &[] }
}

/// The version of the Kubernetes files that the group's machines download.
fn kubernetes_version<'a>(inputs: &Inputs<'a>) -> &'a str {
    match inputs.worker_kubernetes_version {
        Some(version) if !inputs.runs_api_server() => version,
        _ => &inputs.cluster.spec.kubernetes_version,
    }
}

fn repository(inputs: &Inputs<'_>, problems: &mut Problems) -> Option<Url> {
    let repository = inputs.cluster.spec.assets.as_ref()?.file_repository.as_ref()?;
    problems.keep("spec.assets.fileRepository", Url::parse(repository))
}

struct Collector<'a> {
    inputs: &'a Inputs<'a>,
    problems: &'a mut Problems,
    repository: Option<Url>,
    urls: Vec<AssetUrl>,
}

impl Collector<'_> {
    fn kubernetes(&mut self, arch: Architecture) {
        let version = kubernetes_version(self.inputs);
        let base = if is_base_url(version) {
            version.to_owned()
        } else {
            format!("{}/v{version}", releases::KUBERNETES)
        };
        let Some(base) = self.problems.keep("spec.kubernetesVersion", Url::parse(&base)) else { return };
        let is_gce = self.inputs.cluster.cloud_provider() == Some(CloudProvider::Gce);
        let mounter = (is_gce && self.inputs.release.has_mounter()).then_some("mounter");
        for name in ["kubelet", "kubectl"].into_iter().chain(mounter) {
            self.add(arch, base.join(&format!("/bin/linux/{arch}/{name}")), None);
        }
    }

    fn credential_provider(&mut self, arch: Architecture) {
        let clouds = &self.inputs.cluster.spec.cloud_provider;
        match self.inputs.cluster.cloud_provider() {
            Some(CloudProvider::Gce) => {
                let location = clouds.gce.as_ref().and_then(|gce| gce.binaries_location.as_deref());
                if self.inputs.release.has_dated_gce_credential_provider() {
                    return self.gce_credential_provider_of_1_34(location, arch);
                }
                let location = location.unwrap_or(releases::GCP_BINARIES);
                self.add_text(
                    "spec.cloudProvider.gce.binariesLocation",
                    arch,
                    &format!("{location}/auth-provider-gcp/linux/{arch}/auth-provider-gcp"),
                    None,
                );
            }
            Some(CloudProvider::Aws) => {
                let location = clouds.aws.as_ref().and_then(|aws| aws.binaries_location.as_deref());
                let location = location.unwrap_or(releases::AWS_BINARIES);
                self.add_text(
                    "spec.cloudProvider.aws.binariesLocation",
                    arch,
                    &format!("{location}/linux/{arch}/ecr-credential-provider-linux-{arch}"),
                    None,
                );
            }
            _ => {}
        }
    }

    fn gce_credential_provider_of_1_34(&mut self, location: Option<&str>, arch: Architecture) {
        let location = location.unwrap_or(releases::GCP_BINARIES_OF_1_34);
        let name = self.inputs.release.gce_credential_provider();
        self.add_text(
            "spec.cloudProvider.gce.binariesLocation",
            arch,
            &format!("{location}/linux-{arch}/{name}"),
            Some(releases::gcp_sha256_of_1_34(arch).to_owned()),
        );
    }

    fn kops_program(&mut self, arch: Architecture, name: &str) {
        let field = "kops-version.txt";
        let Some(version) = self.inputs.kops_version else {
            let why = format!(
                "is missing, so the URL of {name} is not known; `kops update cluster --yes` writes it"
            );
            return self.problems.add(field, why);
        };
        self.add_text(field, arch, &releases::kops(version, arch, name), None);
        if self.repository.is_none()
            && let Some(last) = self.urls.last_mut()
        {
            last.mirror = Some(releases::kops_mirror(version, arch, name));
        }
    }

    fn cni_plugins(&mut self, arch: Architecture) {
        if !networking::installs_cni_assets(self.inputs) {
            return;
        }
        let version = kubernetes_version(self.inputs);
        let release = self.inputs.release;
        let parsed = KubernetesVersion::parse(version);
        match parsed.and_then(|version| version.cni_plugins_release(release)) {
            Some(release) => {
                self.add_text(
                    "spec.kubernetesVersion",
                    arch,
                    &releases::cni_plugins(release, arch.name()),
                    None,
                );
            }
            None => self.problems.add(
                "spec.kubernetesVersion",
                format!(
                    "no release of the CNI plugins is known for Kubernetes {version:?}; supported are {}",
                    KubernetesVersion::supported_range(release)
                ),
            ),
        }
    }

    /// Adds containerd and its tools, by the settings of the cluster. As in kOps, a containerd version in the group's settings changes the
    /// group's containerdConfig, but not the downloads.
    fn containerd(&mut self, arch: Architecture) {
        let Some(containerd) = &self.inputs.cluster.spec.containerd else {
            self.problems.add("spec.containerd", "it is missing, but a completed cluster spec always has it");
            return;
        };
        if containerd.skip_install {
            return;
        }
        self.containerd_itself(containerd, arch);
        self.runc(containerd, arch);
        if containerd.install_nerd_ctl {
            self.add_text("spec.containerd", arch, &releases::nerdctl(arch.name()), None);
        }
        if containerd.install_cri_ctl {
            self.add_text("spec.containerd", arch, &releases::crictl(arch.name()), None);
        }
    }

    fn containerd_itself(&mut self, containerd: &ContainerdConfig, arch: Architecture) {
        if self.package("spec.containerd.packages", containerd.packages.as_ref(), arch) {
            return;
        }
        let field = "spec.containerd.version";
        let (major, minor) = self.inputs.release.oldest_containerd();
        let oldest = Release::new(major, minor, 0);
        if let Some(version) = self.supported(field, containerd.version.as_deref(), oldest) {
            self.add_text(field, arch, &releases::containerd(&version, arch.name()), None);
        }
    }

    fn runc(&mut self, containerd: &ContainerdConfig, arch: Architecture) {
        let Some(runc) = &containerd.runc else {
            self.problems
                .add("spec.containerd.runc", "it is missing, but a completed cluster spec always has it");
            return;
        };
        if self.package("spec.containerd.runc.packages", runc.packages.as_ref(), arch) {
            return;
        }
        let field = "spec.containerd.runc.version";
        if let Some(version) = self.supported(field, runc.version.as_deref(), OLDEST_RUNC) {
            self.add_text(field, arch, &releases::runc(&version, arch.name()), None);
        }
    }

    /// Adds the download that the user gives for this architecture. Returns whether both its URL and its hash are set.
    fn package(&mut self, field: &str, packages: Option<&PackagesConfig>, arch: Architecture) -> bool {
        let Some(packages) = packages else { return false };
        let (url, hash, suffix) = match arch {
            Architecture::Amd64 => (&packages.url_amd64, &packages.hash_amd64, "Amd64"),
            Architecture::Arm64 => (&packages.url_arm64, &packages.hash_arm64, "Arm64"),
        };
        let (Some(url), Some(hash)) = (url, hash) else { return false };
        if url.is_empty() {
            return false;
        }
        let hash = hash.strip_prefix("sha256:").unwrap_or(hash);
        if hash.is_empty() {
            self.add_text(&format!("{field}.url{suffix}"), arch, url, None);
        } else if let Some(hash) = parse_sha256(hash) {
            self.add_text(&format!("{field}.url{suffix}"), arch, url, Some(hash));
        } else {
            self.problems.add(
                format!("{field}.hash{suffix}"),
                "it is no SHA-256; write the 64 hexadecimal digits that `sha256sum` prints",
            );
        }
        true
    }

    fn supported(&mut self, field: &str, version: Option<&str>, oldest: Release) -> Option<String> {
        let version = version.unwrap_or_default();
        match Release::parse(version) {
            _ if version.is_empty() => {
                self.problems.add(field, "it is missing, but a completed cluster spec always has it");
                None
            }
            None => {
                self.problems
                    .add(field, format!("{version:?} is not a version; use a version such as 2.1.4"));
                None
            }
            Some(release) if release < oldest => {
                self.problems.add(
                    field,
                    format!(
                        "{version} is older than the oldest version that kOps installs; use a newer version"
                    ),
                );
                None
            }
            Some(_) => Some(version.to_owned()),
        }
    }

    /// Adds the archives of Kubernetes' images for a custom build, because no registry has these images.
    fn image_archives(&mut self, arch: Architecture) {
        let version = &self.inputs.cluster.spec.kubernetes_version;
        if !is_base_url(version) {
            return;
        }
        let Ok(base) = Url::parse(version) else { return };
        let of_role: &[&str] = match self.inputs.role() {
            InstanceGroupRole::ControlPlane => {
                &["kube-apiserver", "kube-controller-manager", "kube-scheduler"]
            }
            InstanceGroupRole::APIServer => &["kube-apiserver"],
            _ => &[],
        };
        for component in ["kube-proxy"].iter().chain(of_role) {
            self.add(arch, base.join(&format!("/bin/linux/{arch}/{component}.tar")), None);
            if let Some(last) = self.urls.last_mut() {
                last.is_image = true;
            }
        }
    }

    fn add_text(&mut self, field: &str, arch: Architecture, url: &str, sha256: Option<String>) {
        if let Some(url) = self.problems.keep(field, Url::parse(url)) {
            self.add(arch, url, sha256);
        }
    }

    fn add(&mut self, architecture: Architecture, canonical: Url, sha256: Option<String>) {
        let download = match &self.repository {
            Some(repository) => canonical.in_repository(repository),
            None => canonical.clone(),
        };
        self.urls.push(AssetUrl {
            architecture,
            canonical_url: canonical.to_string(),
            download_url: download.to_string(),
            sha256,
            mirror: None,
            is_image: false,
        });
    }
}

fn is_base_url(version: &str) -> bool {
    ["http:", "https:", "memfs:"].iter().any(|scheme| version.starts_with(scheme))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::derive::testing::Store;

    fn downloads(cluster: &str, group: &str) -> Vec<String> {
        let store = Store::new(cluster, group);
        let urls = asset_urls(&store.inputs()).unwrap();
        urls.into_iter()
            .filter(|url| url.architecture == Architecture::Arm64)
            .map(|url| url.download_url)
            .collect()
    }

    #[test]
    fn a_cluster_on_aws_downloads_in_kops_order() {
        assert_eq!(
            downloads("containerd: {installNerdCtl: true, installCriCtl: true}", "role: Node"),
            [
                "https://dl.k8s.io/release/v1.34.1/bin/linux/arm64/kubelet",
                "https://dl.k8s.io/release/v1.34.1/bin/linux/arm64/kubectl",
                "https://artifacts.k8s.io/binaries/cloud-provider-aws/v1.31.7/linux/arm64/ecr-credential-provider-linux-arm64",
                "https://github.com/containernetworking/plugins/releases/download/v1.7.1/cni-plugins-linux-arm64-v1.7.1.tgz",
                "https://github.com/containerd/containerd/releases/download/v2.1.4/containerd-2.1.4-linux-arm64.tar.gz",
                "https://github.com/opencontainers/runc/releases/download/v1.3.0/runc.arm64",
                "https://github.com/containerd/nerdctl/releases/download/v1.7.4/nerdctl-1.7.4-linux-arm64.tar.gz",
                "https://github.com/kubernetes-sigs/cri-tools/releases/download/v1.29.0/crictl-v1.29.0-linux-arm64.tar.gz",
            ]
        );
    }

    #[test]
    fn machines_without_a_cloud_download_no_credential_provider() {
        let urls = downloads(
            "labels: {alpha.kops.k8s.io/cloud: metal}, containerd: {skipInstall: true}",
            "role: Node",
        );
        assert_eq!(urls.len(), 3, "{urls:?}");
    }

    #[test]
    fn custom_kubernetes_builds_download_their_images() {
        let store = Store::new("kubernetesVersion: 'https://host/ci/v1.36.0-alpha.1+abc'", "role: Master");
        let mut problems = Problems::default();
        let (assets, images) = assets_and_images(&store.inputs(), &mut problems);
        assert!(problems.is_empty(), "{problems}");
        assert_eq!(assets["amd64"][0], "https://host/ci/v1.36.0-alpha.1+abc/bin/linux/amd64/kubelet");
        assert!(assets["amd64"][3].contains("cni-plugins-linux-amd64-v1.9.1"));
        let sources: Vec<&str> = images["arm64"].iter().map(|image| image.sources[0].as_str()).collect();
        assert_eq!(sources.len(), 4);
        assert_eq!(sources[0], "https://host/ci/v1.36.0-alpha.1+abc/bin/linux/arm64/kube-proxy.tar");
    }

    #[test]
    fn users_packages_need_url_and_hash() {
        let hash = "ab".repeat(32);
        let store = Store::new(
            &format!(
                "assets: {{fileRepository: 'https://files.example.com/k'}}, containerd: {{packages: {{urlAmd64: 'https://me/c.tgz', hashAmd64: {hash}, urlArm64: 'https://me/a.tgz'}}}}"
            ),
            "role: Node",
        );
        let mut problems = Problems::default();
        let (assets, _) = assets_and_images(&store.inputs(), &mut problems);
        assert_eq!(assets["amd64"][4], format!("{hash}@https://files.example.com/k/c.tgz"));
        assert_eq!(
            assets["arm64"][4],
            "https://files.example.com/k/containerd/containerd/releases/download/v2.1.4/containerd-2.1.4-linux-arm64.tar.gz"
        );
    }

    #[test]
    fn only_workers_keep_the_older_version_during_an_upgrade() {
        for (role, version) in [("Node", "1.33.5"), ("Master", "1.34.1"), ("APIServer", "1.34.1")] {
            let store = Store::new("", &format!("role: {role}"));
            let inputs = Inputs { worker_kubernetes_version: Some("1.33.5"), ..store.inputs() };
            let urls = asset_urls(&inputs).unwrap();
            assert!(urls[0].canonical_url.contains(version), "{role}: {}", urls[0].canonical_url);
        }
    }

    #[test]
    fn all_problems_are_reported_together() {
        let store = Store::new(
            "kubernetesVersion: 1.31.0, assets: {fileRepository: nowhere}, containerd: {version: 1.7.0, runc: {packages: {urlAmd64: 'https://a/b', hashAmd64: abc}}}",
            "role: Node",
        );
        let problems = asset_urls(&store.inputs()).unwrap_err();
        let fields: Vec<&str> = problems.iter().map(|problem| problem.field.as_str()).collect();
        assert_eq!(
            fields,
            [
                "spec.assets.fileRepository",
                "spec.kubernetesVersion",
                "spec.containerd.version",
                "spec.containerd.runc.packages.hashAmd64",
                "spec.containerd.runc.version",
            ]
        );
    }
}
