//! Resolves kOps' configuration and the observed facts into a [`NodeConfig`]: sets every default, and reports
//! all user errors together. After that, only conflicts between resources can fail before the machine is
//! changed.

mod absolute_path;
mod addresses;
mod assets;
mod basis;
mod component_values;
mod containerd;
pub(crate) mod containerd_config;
mod containerd_keys;
pub(crate) mod containerd_version;
mod discovery_service;
pub(crate) mod distribution;
mod dotted_path;
mod feature_gates;
mod file_assets;
mod hooks;
mod images;
mod ipv6_prefix;
mod keypairs;
mod kube_apiserver;
mod kube_proxy;
mod kubectl;
mod kubelet;
mod kubernetes_version;
mod label_syntax;
mod named_files;
mod node_name;
mod one_line;
mod packages;
mod primary_interface;
mod problems;
mod programs;
mod protokube;
mod registry_mirrors;
mod stored_manifests;
mod stored_pod;
mod sysctls;
#[cfg(test)]
pub(crate) mod testing;
mod trimmed;
mod volume_mounts;
mod wanted;

use std::collections::{BTreeMap, BTreeSet};

pub use assets::{Asset, Assets};
pub use containerd::{Containerd, ContainerdRelease};
pub(crate) use containerd_version::CONFIG_VERSION_OF_1;
pub use containerd_version::ContainerdVersion;
pub use discovery_service::{DiscoveryService, JsonWebKey};
pub use distribution::{Distribution, PackageFormat, Project};
pub use file_assets::FileAsset;
pub use hooks::{Hook, HookAction, HookOrder};
pub use keypairs::{CILIUM_ETCD_CLIENTS_CA, DISCOVERY_CA, KUBERNETES_CA, etcd_manager_authorities};
pub use kube_apiserver::{KubeApiServer, TokenWebhook};
pub use kubectl::Kubectl;
pub use kubelet::{Kubelet, ReservedCgroup, Taint};
pub(crate) use kubelet::{repeated_taint, taint_problem};
pub use kubernetes_version::KubernetesVersion;
pub use node_name::{NodeName, possible_node_names};
pub use problems::{Problem, Problems};
pub use programs::Program;
pub use protokube::Protokube;
pub use stored_pod::StoredPod;

use basis::Basis;
use problems::ProblemRedactor;
use serde::Serialize;

use crate::resource::{ArchiveFiles, Image, Mount};
use kops_agent_spec::facts::{Distro, Facts, WARMED};
use kops_agent_spec::invalid::Invalid;
use kops_agent_spec::kops_release::{KopsRelease, Told, WrittenBy};
use kops_agent_spec::{
    BootConfig, Certificate, CloudProvider, ContainerdConfig, ControlPlaneConfig, InstanceGroupRole, Keyset,
    KubeProxyConfig, NodeupConfig,
};

#[derive(Clone, Debug)]
pub struct Inputs {
    /// The boot config from the machine's user-data.
    pub boot: BootConfig,
    /// The node's configuration: written by kOps, or derived from the cluster spec.
    pub config: NodeupConfig,
    /// The keysets of the store that this node may read, by id.
    pub keysets: BTreeMap<String, Keyset>,
    /// Names of the secrets of the store that this node may read.
    pub secret_names: BTreeSet<String>,
    /// The manifests that this node reads from the store and runs, by their URL in the configuration.
    pub manifests: BTreeMap<String, String>,
    pub facts: Facts,
    /// The kOps version from a source outside the configuration; `None` if no source has it.
    pub kops_version: Option<Told>,
    /// For each archive that this machine has downloaded, the names of the files in it.
    pub archives: ArchiveFiles,
}

impl Inputs {
    pub fn written_by(&self) -> Result<WrittenBy, Invalid> {
        WrittenBy::find(self.kops_version.as_ref(), &self.config)
    }
}

/// A node's validated configuration, from which every component takes its decisions.
///
/// The serialized form has no private key and no secret. It has only the ids of the keys of each keyset.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeConfig {
    pub boot: BootConfig,
    pub config: NodeupConfig,
    pub facts: Facts,
    /// The keysets that this node may read, by id.
    pub keysets: BTreeMap<String, Keyset>,
    /// Names of the secrets that this node may read.
    pub secret_names: BTreeSet<String>,
    /// Manifests of the store, by URL.
    #[serde(serialize_with = "crate::shown::manifests")]
    pub manifests: BTreeMap<String, String>,
    /// The kOps release that wrote the configuration.
    pub written_by: WrittenBy,
    pub kubernetes_version: KubernetesVersion,
    pub distribution: &'static Distribution,
    pub assets: Assets,
    pub node_name: String,
    pub kubelet: Kubelet,
    pub container_runtime: Containerd,
    /// kube-proxy's configuration; `None` if the network plugin replaces kube-proxy.
    pub kube_proxy: Option<KubeProxyConfig>,
    /// kubectl, on machines with an API server.
    pub kubectl: Option<Kubectl>,
    /// The units that hooks add or disable.
    pub hooks: Vec<Hook>,
    /// The files that fileAssets add.
    pub file_assets: Vec<FileAsset>,
    /// The volumes to format and mount.
    pub volume_mounts: Vec<Mount>,
    /// The images to load from archives.
    pub images: Vec<Image>,
    /// The archive of the standard CNI plugins. `None` if the network has its own plugins.
    pub cni_plugins: Option<Asset>,
    /// Ports of Services, as `first-last` or as one port. The kernel must not use these ports for outgoing
    /// connections.
    pub reserved_ports: String,
    /// Whether the machine updates its packages automatically.
    pub updates_itself: bool,
    /// The machine's primary network interface. `None` if this interface need not be distinguished from the interfaces
    /// of pods.
    pub primary_interface: Option<String>,
    /// The API server. `None` if this machine runs no API server.
    pub api_server: Option<KubeApiServer>,
    /// The pod that applies addons, on control-plane machines.
    pub kops_channels: Option<StoredPod>,
    /// protokube, if this machine runs it.
    pub protokube: Option<Protokube>,
    /// The discovery service with which control-plane machines register. `None` if the cluster has no
    /// discovery service.
    pub discovery_service: Option<DiscoveryService>,
    /// Warnings about settings that have less effect than the user intended.
    #[serde(skip)]
    pub warnings: Vec<Problem>,
    /// Reasons why this machine never becomes a node, although its configuration can be resolved
    /// ([`Problems::refuse`]).
    #[serde(skip)]
    pub refusals: Vec<Problem>,
}

/// Validates the inputs, and sets all defaults.
pub fn resolve(inputs: Inputs) -> Result<NodeConfig, Problems> {
    let config = inputs.config.clone();
    resolve_all(inputs).map_err(|problems| problems.refused().without(&ProblemRedactor::from_config(&config)))
}

/// Resolves the configuration for each of these machines, like [`resolve`]. Collects the free text of the configuration only once for all
/// machines.
pub fn resolve_each(
    inputs: &Inputs,
    machines: impl IntoIterator<Item = Facts>,
) -> impl Iterator<Item = (Facts, Result<NodeConfig, Problems>)> {
    let free_text = std::cell::OnceCell::new();
    machines.into_iter().map(move |facts| {
        let free_text = || free_text.get_or_init(|| ProblemRedactor::from_config(&inputs.config));
        let resolved = resolve_all(Inputs { facts: facts.clone(), ..inputs.clone() });
        (facts, resolved.map_err(|problems| problems.refused().without(free_text())))
    })
}

fn resolve_all(inputs: Inputs) -> Result<NodeConfig, Problems> {
    let mut problems = Problems::default();
    // All other rules depend on the release. If the release is wrong or unknown, no other rule is checked.
    let Some(written_by) = problems.keep("kops-version.txt", inputs.written_by()) else {
        return Err(problems);
    };
    let Inputs { boot, mut config, keysets, secret_names, manifests, facts, kops_version: _, archives } =
        inputs;
    trimmed::trim(&mut config);
    let release = written_by.release;
    if let Some(warning) = written_by.warning() {
        problems.warn("kops-version.txt", warning);
    }

    let kubernetes_version =
        problems.keep("KubernetesVersion", supported_kubernetes_version(&config.kubernetes_version, release));
    let distribution = problems.keep("os-release", supported_distribution(&facts, release));
    let assets = problems.keep("Assets", Assets::read(&config, facts.arch, &archives));
    let node_name = problems
        .keep("KubeletConfig.hostnameOverride", node_name::node_name(boot.cloud_provider, &config, &facts));

    one_line::resolve(&boot, &mut problems);
    one_line::resolve(&config, &mut problems);
    addresses::resolve(&boot, &mut problems);
    keypairs::check_cilium_etcd(&config, &mut problems);
    if let Some(distribution) = distribution {
        packages::resolve(&config, distribution.package_format, &mut problems);
    }
    let hooks = hooks::resolve(&config, &mut problems);
    let volume_mounts = volume_mounts::resolve(&config, &mut problems);
    let images = images::resolve(&config, facts.arch, &mut problems);
    let reserved_ports = sysctls::resolve(&config, &mut problems);
    let updates_itself = packages::updates_itself(&config, &mut problems);

    match (kubernetes_version, distribution, assets, node_name) {
        (Some(kubernetes_version), Some(distribution), Some(assets), Some(node_name)) => {
            let basis = Basis {
                boot: &boot,
                config: &config,
                keysets: &keysets,
                secret_names: &secret_names,
                manifests: &manifests,
                facts: &facts,
                release,
                kubernetes_version: &kubernetes_version,
                distribution,
                assets: &assets,
                node_name: &node_name,
            };
            let kubelet = kubelet::resolve(&basis, &mut problems);
            let container_runtime = containerd::resolve(&basis, &mut problems);
            let kube_proxy = kube_proxy::resolve(&basis, &mut problems);
            let kubectl = kubectl::resolve(&basis, &mut problems);
            let api_server = kube_apiserver::resolve(&basis, &mut problems);
            let kops_channels = stored_manifests::kops_channels(&basis, &mut problems);
            let protokube = protokube::resolve(&basis, &mut problems);
            let discovery_service = discovery_service::resolve(&basis, &mut problems);
            check_control_plane(&basis, &mut problems);
            feature_gates::check(&config, &kubernetes_version, &mut problems);
            if let Some(warning) = kubernetes_version.newer_than_known() {
                problems.warn("KubernetesVersion", warning);
            }
            stored_manifests::check_etcd_manifests(&basis, &mut problems);
            keypairs::check(&basis, &mut problems);
            ipv6_prefix::check(&basis, &mut problems);
            if config.takes_any_certificate_of_openstack() {
                problems.warn(
                    "Openstack.insecureSkipVerify",
                    "is true, so OpenStack's certificates are not verified, and a server that impersonates OpenStack gets the login of \
                     this cluster; add the CA of OpenStack's certificates to the machines' CA bundle, and unset \
                     insecureSkipVerify",
                );
            }
            let default_directory = format!("{}/assets", distribution.srv_kubernetes);
            let file_assets = file_assets::resolve(&config, &default_directory, &mut problems);
            named_files::check(&basis, kubelet.as_ref(), api_server.as_ref(), &file_assets, &mut problems);
            component_values::check(&basis, api_server.as_ref(), kube_proxy.as_ref(), &mut problems);
            let cni_plugins = programs::cni_plugins(&config, &assets, &mut problems);
            let primary_interface = primary_interface::resolve(&basis, &mut problems);

            match (kubelet, container_runtime) {
                (Some(kubelet), Some(container_runtime)) => problems.clone().unless_any(NodeConfig {
                    boot,
                    config,
                    facts,
                    keysets,
                    secret_names,
                    manifests,
                    written_by,
                    kubernetes_version,
                    distribution,
                    assets,
                    node_name: node_name.name,
                    kubelet,
                    container_runtime,
                    kube_proxy,
                    kubectl,
                    hooks,
                    file_assets,
                    volume_mounts,
                    images,
                    cni_plugins,
                    reserved_ports,
                    updates_itself,
                    primary_interface,
                    api_server,
                    kops_channels,
                    protokube,
                    discovery_service,
                    warnings: problems.warnings().to_vec(),
                    refusals: problems.refusals().to_vec(),
                }),
                _ => Err(problems),
            }
        }
        _ => Err(problems),
    }
}

/// Reads a Kubernetes version that the kOps release supports.
pub fn supported_kubernetes_version(text: &str, release: KopsRelease) -> Result<KubernetesVersion, Invalid> {
    let range = KubernetesVersion::supported_range(release);
    let version = KubernetesVersion::parse(text)
        .ok_or_else(|| format!("{text:?} is no Kubernetes version; supported are {range}"))?;
    if version.is_supported(release) {
        Ok(version)
    } else {
        Err(Invalid::new(format!("Kubernetes {text} is not supported; supported are {range}")))
    }
}

fn supported_distribution(facts: &Facts, release: KopsRelease) -> Result<&'static Distribution, Invalid> {
    let Distro { id, version_id } = &facts.distro;
    let why = match id.as_str() {
        "cos" if release.has_mounter() => {
            ", whose kubelet mounts volumes there through a helper that kops-agent does not install; upgrade the cluster to \
             kOps 1.36 or newer first, or choose another image"
        }
        _ => "",
    };
    Distribution::find(&facts.distro, release).ok_or_else(|| {
        let supported = Distribution::supported_names(release);
        Invalid::new(format!("distribution {id} {version_id} is not supported with kOps {release}{why}; supported are {supported}"))
    })
}

fn check_control_plane(basis: &Basis<'_>, problems: &mut Problems) {
    if basis.is_control_plane() && basis.config.control_plane_config.is_none() {
        problems.add(
            "ControlPlaneConfig",
            "is missing, but this is a control-plane machine; run `kops update cluster --yes`",
        );
    }
}

impl NodeConfig {
    /// The kOps release whose rules apply to this node.
    pub fn release(&self) -> KopsRelease {
        self.written_by.release
    }

    pub fn cluster_name(&self) -> &str {
        &self.config.cluster_name
    }

    pub fn cloud_provider(&self) -> CloudProvider {
        self.boot.cloud_provider
    }

    pub fn is_control_plane(&self) -> bool {
        self.boot.instance_group_role == InstanceGroupRole::ControlPlane
    }

    /// Whether this machine runs an API server: it is a control-plane machine, or a dedicated API server
    /// machine.
    pub fn has_api_server(&self) -> bool {
        self.boot.instance_group_role.runs_api_server()
    }

    /// Configuration of kube-controller-manager and kube-scheduler. `None` on machines outside of the control
    /// plane.
    pub fn control_plane(&self) -> Option<&ControlPlaneConfig> {
        self.config.control_plane_config.as_ref().filter(|_| self.is_control_plane())
    }

    /// Whether protokube distributes the cluster's names by gossip.
    pub fn uses_gossip(&self) -> bool {
        self.config.uses_legacy_gossip == Some(true)
    }

    /// Whether kubelet and the API server get a configuration file for Kubernetes' in-tree cloud provider.
    pub fn uses_in_tree_cloud_config(&self) -> bool {
        self.release().has_in_tree_cloud_config() && self.kubernetes_version.has_in_tree_clouds()
    }

    /// The domain of names inside the cluster; empty on machines without an API server.
    pub fn cluster_dns_domain(&self) -> &str {
        self.config.api_server_config.as_ref().map_or("", |api_server| &api_server.cluster_dns_domain)
    }

    /// The name under which the nodes find the API server.
    pub fn api_internal_name(&self) -> String {
        self.config.api_internal_name()
    }

    /// URL of the API server for components of this node. If the node runs an API server, it is the URL of
    /// that API server.
    pub fn api_server_url(&self) -> String {
        if self.has_api_server() {
            "https://127.0.0.1".into()
        } else {
            format!("https://{}", self.api_internal_name())
        }
    }

    /// Whether pods have IPv6 addresses only.
    pub fn is_ipv6_only(&self) -> bool {
        self.config.networking.non_masquerade_cidr.contains(':')
    }

    /// Whether pods get addresses of the instance's additional interfaces (ENIs).
    pub fn pods_use_enis(&self) -> bool {
        primary_interface::pods_use_enis(&self.config.networking)
    }

    /// Directory for file assets that have no path of their own.
    pub fn file_assets_directory(&self) -> String {
        self.srv_kubernetes("assets")
    }

    /// A path below the directory where kOps keeps Kubernetes' keys and certificates.
    pub fn srv_kubernetes(&self, name: &str) -> String {
        format!("{}/{name}", self.distribution.srv_kubernetes)
    }

    /// containerd's configuration. If kOps wrote none, all its fields are unset.
    pub fn containerd(&self) -> &ContainerdConfig {
        &self.container_runtime.config
    }

    /// Whether the machine only warms up for an AWS warm pool, and joins the cluster later
    /// (`getAWSConfigurationMode` in upup/pkg/fi/nodeup/command.go).
    pub fn is_warming(&self) -> bool {
        let state = self.facts.cloud.aws.as_ref().map_or("", |aws| &aws.target_lifecycle_state);
        self.cloud_provider() == CloudProvider::Aws
            && !self.config.warm_pool_images.is_empty()
            && !self.is_control_plane()
            && state.starts_with(WARMED)
    }

    /// The id of the keyset's signing item, as kOps chose it. Empty if kOps chose no item.
    pub fn keypair_id(&self, keyset: &str) -> &str {
        self.config.keypair_ids.get(keyset).map_or("", String::as_str)
    }

    /// The trusted certificates of this authority, in PEM. Empty if the configuration has none.
    pub fn ca(&self, keyset: &str) -> &str {
        self.config.cas.get(keyset).map_or("", String::as_str)
    }

    /// The certificate of the keyset's signing item, in PEM. Empty if the item has no certificate.
    pub fn keypair_certificate(&self, keyset: &str) -> String {
        let item = self.keysets.get(keyset).and_then(|items| items.item(self.keypair_id(keyset)));
        item.and_then(|item| item.certificate.as_ref()).map(Certificate::pem).unwrap_or_default()
    }

    /// The name of an image for this machine's architecture (`RemapImage` in nodeup/pkg/model/context.go).
    /// Old names of images contain `-amd64`.
    pub fn image(&self, image: &str) -> String {
        match self.facts.arch {
            kops_agent_spec::facts::Architecture::Amd64 => image.to_owned(),
            arch => image.replacen("-amd64", &format!("-{arch}"), 1),
        }
    }

    /// The environment variables that send a program's requests through the cluster's egress proxy.
    pub fn proxy_environment(&self) -> Vec<(&'static str, String)> {
        let Some(proxy) = &self.config.networking.egress_proxy else { return Vec::new() };
        let http = &proxy.http_proxy;
        let url = if http.port == 0 {
            format!("http://{}", http.host)
        } else {
            format!("http://{}:{}", http.host, http.port)
        };
        let excludes = proxy.excludes.clone();
        vec![
            ("http_proxy", url.clone()),
            ("https_proxy", url),
            ("NO_PROXY", excludes.clone()),
            ("no_proxy", excludes),
        ]
    }
}
