//! Derives the whole configuration, field by field.

use super::{
    Inputs, api_server, assets, authorities, containerd, discovery, instance_group, kubelet, networking,
    prefix_delegation, scheduler_file, warm_pool,
};
use crate::resolve::Problems;
use kops_agent_spec::{
    ConfigStoreSpec, DiscoveryServiceOptions, FileAssetSpec, HookSpec, InstanceGroupRole, KubeProxyConfig,
    NodeupConfig, StaticManifest,
};

/// Derives the file that kOps writes to `igconfig/<role>/<group>/nodeupconfig.yaml`.
///
/// An asset with an unknown hash is in `Assets` as its bare URL, for display. Do not install it before its hash is known.
pub fn nodeup_config(inputs: &Inputs<'_>) -> Result<NodeupConfig, Problems> {
    let (config, problems) = nodeup_config_and_problems(inputs);
    problems.unless_any(config)
}

/// Like [`nodeup_config`], but returns the configuration even if it has problems, so that a caller can look for more problems.
pub fn nodeup_config_and_problems(inputs: &Inputs<'_>) -> (NodeupConfig, Problems) {
    let mut problems = Problems::default();
    instance_group::check_role(inputs, &mut problems);
    prefix_delegation::check(inputs, &mut problems);

    let spec = &inputs.cluster.spec;
    let group = &inputs.instance_group.spec;
    let aws = spec.cloud_provider.aws.as_ref();
    let aws_api_server = aws.filter(|_| inputs.runs_api_server());
    let gce = spec.cloud_provider.gce.as_ref();
    let (assets, images) = assets::assets_and_images(inputs, &mut problems);
    let (cas, keypair_ids) = authorities::cas_and_keypair_ids(inputs, &mut problems);

    let azure = azure(inputs);
    let config = NodeupConfig {
        assets,
        images,
        cluster_name: inputs.cluster.metadata.name.clone(),
        channels: channels(inputs),
        apiserver_additional_ips: apiserver_additional_ips(inputs),
        kubernetes_version: kubernetes_version(inputs),
        packages: [spec.packages.as_slice(), &group.packages].concat(),
        config_store: reads_the_store(inputs).then(|| ConfigStoreSpec {
            keypairs: spec.config_store.keypairs.clone(),
            secrets: spec.config_store.secrets.clone(),
            ..ConfigStoreSpec::default()
        }),
        etcd_cluster_names: etcd_cluster_names(inputs),
        etcd_manifests: etcd_manifests(inputs),
        channels_manifest: channels_manifest(inputs),
        cas,
        keypair_ids,
        default_machine_type: default_machine_type(inputs),
        enable_lifecycle_hook: warm_pool::enables_lifecycle_hook(inputs),
        static_manifests: static_manifests(inputs),
        kubelet_config: kubelet::kubelet_config(inputs),
        kube_proxy: kube_proxy(inputs),
        networking: networking::networking(inputs),
        install_cni_assets: networking::installs_cni_assets(inputs),
        use_cilium_etcd: networking::uses_cilium_etcd(inputs),
        uses_kubenet: networking::uses_kubenet(inputs),
        ntp_unmanaged: spec.ntp.as_ref().and_then(|ntp| ntp.managed) == Some(false),
        service_node_port_range: spec
            .kube_api_server
            .as_ref()
            .map(|api_server| api_server.service_node_port_range.clone())
            .unwrap_or_default(),
        sysctl_parameters: sysctl_parameters(inputs),
        update_policy: update_policy(inputs),
        volume_mounts: group.volume_mounts.clone(),
        file_assets: file_assets(inputs, &mut problems),
        hooks: vec![hooks(&group.hooks, inputs.role()), hooks(&spec.hooks, inputs.role())],
        containerd_config: containerd::containerd_config(inputs),
        api_server_config: api_server::api_server_config(inputs, &mut problems),
        control_plane_config: api_server::control_plane_config(inputs, &mut problems),
        gossip_config: spec.gossip_config.clone().filter(|_| discovery::uses_gossip(inputs)),
        dns_zone: dns_zone(inputs),
        nvidia_gpu: containerd::nvidia_gpu(inputs),
        gvisor: containerd::gvisor(inputs),
        disable_security_group_ingress: aws_api_server.and_then(|aws| aws.disable_security_group_ingress),
        elb_security_group: aws_api_server.and_then(|aws| aws.elb_security_group.clone()),
        nlb_security_group_mode: aws_api_server
            .filter(|_| inputs.release.knows_nlb_security_groups())
            .and_then(|aws| aws.nlb_security_group_mode.clone()),
        node_ip_families: aws_api_server.map(|aws| aws.node_ip_families.clone()).unwrap_or_default(),
        use_ip_based_node_names: inputs.release.tells_of_ip_based_names()
            && aws.and_then(|aws| aws.use_ip_based_node_names) == Some(true),
        warm_pool_images: warm_pool::images(inputs, &mut problems),
        azure_admin_user: spec
            .cloud_provider
            .azure
            .as_ref()
            .map(|azure| azure.admin_user.clone())
            .unwrap_or_default(),
        azure_location: azure.location,
        azure_subscription_id: azure.subscription_id,
        azure_tenant_id: azure.tenant_id,
        azure_resource_group: azure.resource_group,
        azure_route_table_name: azure.route_table_name,
        multizone: gce.and_then(|gce| gce.multizone),
        node_tags: gce.and_then(|gce| gce.node_tags.clone()),
        node_instance_prefix: gce.and_then(|gce| gce.node_instance_prefix.clone()),
        openstack: spec.cloud_provider.openstack.clone(),
        uses_legacy_gossip: inputs.release.has_gossip().then(|| discovery::uses_gossip(inputs)),
        uses_none_dns: discovery::uses_none_dns(inputs),
        discovery_service: discovery_service(inputs),
    };
    (config, problems)
}

/// The sorted addresses of the API's load balancer, which only the cloud knows. Empty for machines without an API server.
fn apiserver_additional_ips(inputs: &Inputs<'_>) -> Vec<String> {
    if !inputs.runs_api_server() {
        return Vec::new();
    }
    let mut addresses = inputs.api_server_addresses.to_vec();
    addresses.sort();
    addresses
}

fn kubernetes_version(inputs: &Inputs<'_>) -> String {
    let of_cluster = inputs.cluster.spec.kubernetes_version.as_str();
    let held_back = inputs.worker_kubernetes_version.filter(|_| !inputs.runs_api_server());
    held_back.unwrap_or(of_cluster).to_owned()
}

fn etcd_cluster_names(inputs: &Inputs<'_>) -> Vec<String> {
    let clusters = inputs.cluster.spec.etcd_clusters.iter().filter(|_| inputs.is_control_plane());
    clusters.map(|cluster| cluster.name.clone()).collect()
}

/// The URL of the manifest of each etcd member in this group.
fn etcd_manifests(inputs: &Inputs<'_>) -> Vec<String> {
    let group = inputs.instance_group.metadata.name.as_str();
    let clusters = inputs.cluster.spec.etcd_clusters.iter().filter(|_| inputs.is_control_plane());
    let members =
        clusters.flat_map(|cluster| cluster.etcd_members.iter().map(move |member| (&cluster.name, member)));
    members
        .filter(|(_, member)| member.instance_group.as_deref() == Some(group))
        .map(|(cluster, _)| store_url(inputs, &format!("manifests/etcd/{cluster}-{group}.yaml")))
        .collect()
}

/// Whether machines of the group read the store. All other machines get their configuration from kops-controller.
fn reads_the_store(inputs: &Inputs<'_>) -> bool {
    inputs.runs_api_server() || !discovery::asks_kops_controller(inputs)
}

fn dns_zone(inputs: &Inputs<'_>) -> String {
    match inputs.is_control_plane() || discovery::uses_gossip(inputs) {
        true => inputs.cluster.spec.dns_zone.clone(),
        false => String::new(),
    }
}

/// Settings of Azure's cloud provider, for a file on each machine (kOps up to 1.35).
#[derive(Default)]
struct AzureFile {
    location: String,
    subscription_id: String,
    tenant_id: String,
    resource_group: String,
    route_table_name: String,
}

fn azure(inputs: &Inputs<'_>) -> AzureFile {
    let spec = &inputs.cluster.spec;
    let Some(azure) =
        spec.cloud_provider.azure.as_ref().filter(|_| inputs.release.has_in_tree_cloud_config())
    else {
        return AzureFile::default();
    };
    let or_name = |name: &str| match name {
        "" => inputs.cluster.metadata.name.clone(),
        name => name.to_owned(),
    };
    AzureFile {
        location: spec.networking.subnets.first().map(|subnet| subnet.region.clone()).unwrap_or_default(),
        subscription_id: azure.subscription_id.clone(),
        tenant_id: azure.tenant_id.clone(),
        resource_group: or_name(&azure.resource_group_name),
        route_table_name: or_name(&azure.route_table_name),
    }
}

/// The channels for protokube: kOps' own channel, and the cluster's channels.
fn channels(inputs: &Inputs<'_>) -> Vec<String> {
    let runs_protokube = inputs.is_control_plane()
        || discovery::uses_gossip(inputs) && inputs.role() != InstanceGroupRole::Bastion;
    if !inputs.release.protokube_applies_addons() || !runs_protokube {
        return Vec::new();
    }
    let own = store_url(inputs, "addons/bootstrap-channel.yaml");
    let of_cluster = inputs.cluster.spec.addons.iter().map(|addon| addon.manifest.clone());
    std::iter::once(own).chain(of_cluster).collect()
}

fn channels_manifest(inputs: &Inputs<'_>) -> String {
    if !inputs.is_control_plane() || inputs.release.protokube_applies_addons() {
        return String::new();
    }
    store_url(inputs, "manifests/channels/kops-channels.yaml")
}

fn static_manifests(inputs: &Inputs<'_>) -> Vec<StaticManifest> {
    if !inputs.runs_api_server() {
        return Vec::new();
    }
    vec![StaticManifest {
        key: "kube-apiserver-healthcheck".to_owned(),
        path: "manifests/static/kube-apiserver-healthcheck.yaml".to_owned(),
    }]
}

/// The URL of a file in the store, spelled as kOps spells it (upstream: `util/pkg/vfs`).
fn store_url(inputs: &Inputs<'_>, path: &str) -> String {
    format!("{}/{path}", config_base(inputs).trim_end_matches('/'))
}

/// The cluster's folder in the store. A local folder is a path without a scheme.
pub(super) fn config_base(inputs: &Inputs<'_>) -> String {
    let base = inputs.cluster.spec.config_store.base.as_str();
    base.strip_prefix("file://").unwrap_or(base).to_owned()
}

fn default_machine_type(inputs: &Inputs<'_>) -> Option<String> {
    if !networking::depends_on_machine_type(inputs) {
        return None;
    }
    let machine_types = instance_group::machine_type(inputs);
    Some(machine_types.split(',').next().unwrap_or_default().to_owned())
}

fn kube_proxy(inputs: &Inputs<'_>) -> Option<KubeProxyConfig> {
    let spec = &inputs.cluster.spec;
    let config = spec.kube_proxy.clone().unwrap_or_default();
    let is_isolated = inputs.is_control_plane() && spec.networking.isolate_control_plane == Some(true);
    Some(config).filter(|config| config.enabled != Some(false) && !is_isolated)
}

fn sysctl_parameters(inputs: &Inputs<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    for (whose, parameters) in [
        ("instance group", &inputs.instance_group.spec.sysctl_parameters),
        ("cluster", &inputs.cluster.spec.sysctl_parameters),
    ] {
        if !parameters.is_empty() {
            lines.extend([format!("# Custom sysctl parameters from {whose} spec"), String::new()]);
            lines.extend_from_slice(parameters);
        }
    }
    lines
}

fn update_policy(inputs: &Inputs<'_>) -> String {
    let of_group = inputs.instance_group.spec.update_policy.as_deref();
    of_group.or(inputs.cluster.spec.update_policy.as_deref()).unwrap_or("automatic").to_owned()
}

/// The file assets for the group's role. A role must be spelled exactly, so `Master` matches no role here.
fn file_assets(inputs: &Inputs<'_>, problems: &mut Problems) -> Vec<FileAssetSpec> {
    let cluster = &inputs.cluster.spec.file_assets;
    for (whose, assets) in [("instance group", &inputs.instance_group.spec.file_assets), ("cluster", cluster)]
    {
        warn_of_unknown_roles(whose, assets, problems);
    }
    let all = inputs.instance_group.spec.file_assets.iter().chain(&inputs.cluster.spec.file_assets);
    let of_role = all.filter(|asset| {
        asset.roles.is_empty() || asset.roles.iter().any(|role| role == inputs.role().name())
    });
    let mut assets: Vec<FileAssetSpec> =
        of_role.map(|asset| FileAssetSpec { roles: Vec::new(), ..asset.clone() }).collect();
    assets.extend(scheduler_file::scheduler_file(inputs, problems));
    assets
}

fn warn_of_unknown_roles(whose: &str, assets: &[FileAssetSpec], problems: &mut Problems) {
    for (index, asset) in assets.iter().enumerate() {
        for role in &asset.roles {
            let known = InstanceGroupRole::ALL.map(InstanceGroupRole::name);
            if !known.contains(&role.as_str()) {
                problems.warn(
                    format!("spec.fileAssets[{index}].roles"),
                    format!(
                        "{role:?} in the {whose} is not the role of any machine, so this role adds the file {} to no machine; use {}",
                        if asset.name.is_empty() { &asset.path } else { &asset.name },
                        known.join(", ")
                    ),
                );
            }
        }
    }
}

fn hooks(hooks: &[HookSpec], role: InstanceGroupRole) -> Vec<HookSpec> {
    let of_role = hooks.iter().filter(|hook| hook.roles.is_empty() || hook.roles.contains(&role));
    of_role.map(|hook| HookSpec { roles: Vec::new(), ..hook.clone() }).collect()
}

fn discovery_service(inputs: &Inputs<'_>) -> Option<DiscoveryServiceOptions> {
    let discovery = inputs.cluster.spec.service_account_issuer_discovery.as_ref()?;
    discovery.discovery_service.clone().filter(|_| inputs.release.has_discovery_service())
}
