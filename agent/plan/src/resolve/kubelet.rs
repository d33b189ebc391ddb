//! kubelet's configuration, with all defaults and with all its texts parsed.
//!
//! Source: nodeup/pkg/model/kubelet.go.

mod durations;
mod eviction;
mod places;
mod reservations;
mod reserved_cgroups;
mod unsafe_sysctls;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde::Serialize;

use kops_agent_spec::invalid::Invalid;
use kops_agent_spec::{CloudProvider, Duration, KubeletConfigSpec, NodeupConfig};

use super::basis::Basis;
use super::feature_gates::{self, Gates};
use super::keypairs::KUBERNETES_CA;
use super::{Asset, Problems, label_syntax, primary_interface};
use eviction::Eviction;
pub use reserved_cgroups::ReservedCgroup;
pub(super) use values::{CIPHER_SUITES, TLS_VERSIONS, no_quantity};

/// kubelet's settings on this node.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Kubelet {
    pub config: KubeletConfigSpec,
    pub program: Asset,
    /// The program that gives kubelet credentials for the cloud's own registries. `None` if there is no such program.
    pub credential_provider: Option<Asset>,
    /// The cloud's id of this machine; empty if kubelet gets no id.
    pub provider_id: String,
    /// Addresses that the node announces instead of kubelet's own choice.
    pub node_ips: Vec<String>,
    /// Names and addresses in the certificate of kubelet's own server. The first is the certificate's common name.
    pub serving_names: Vec<String>,
    pub feature_gates: BTreeMap<String, bool>,
    /// Taints with which the node registers.
    pub taints: Vec<Taint>,
    /// Thresholds of each resource below which kubelet evicts pods immediately.
    pub eviction_hard: BTreeMap<String, String>,
    /// Thresholds of each resource below which kubelet evicts pods after a grace period.
    pub eviction_soft: BTreeMap<String, String>,
    /// Grace periods of the soft thresholds.
    pub eviction_soft_grace_period: BTreeMap<String, String>,
    /// Minimum amount of each resource that an eviction must reclaim.
    pub eviction_minimum_reclaim: BTreeMap<String, String>,
    /// Cgroups that must exist when kubelet starts.
    pub reserved_cgroups: Vec<ReservedCgroup>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Taint {
    pub key: String,
    /// The taint's value; may be empty.
    pub value: String,
    /// The effect on pods that do not tolerate the taint, such as `NoSchedule`.
    pub effect: String,
}

/// The valid effects of a taint in Kubernetes.
const EFFECTS: [&str; 3] = ["NoExecute", "NoSchedule", "PreferNoSchedule"];

/// kubelet's default maximum number of pods.
const DEFAULT_MAX_PODS: i64 = 110;

pub(super) fn resolve(basis: &Basis<'_>, problems: &mut Problems) -> Option<Kubelet> {
    let config = &basis.config.kubelet_config;
    if !basis.boot.instance_group_role.runs_api_server()
        && !basis.config.keypair_ids.contains_key(KUBERNETES_CA)
    {
        problems.add(
            format!("KeypairIDs.{KUBERNETES_CA}"),
            "is missing, so kops-agent cannot request certificates; run `kops update cluster --yes`",
        );
    }
    let eviction = |problems: &mut Problems, field: &str, list: &str, separator: char| {
        let list = match basis.release.kubelet_settings_are_flags() {
            true => without_empty_entries(list),
            false => list.to_owned(),
        };
        problems.keep(&format!("KubeletConfig.{field}"), key_values(&list, separator))
    };
    let eviction_hard =
        eviction(problems, "evictionHard", config.eviction_hard.as_deref().unwrap_or_default(), '<');
    let eviction_soft = eviction(problems, "evictionSoft", &config.eviction_soft, '<');
    let eviction_soft_grace_period =
        eviction(problems, "evictionSoftGracePeriod", &config.eviction_soft_grace_period, '=');
    let eviction_minimum_reclaim =
        eviction(problems, "evictionMinimumReclaim", &config.eviction_minimum_reclaim, '=');
    let feature_gates = feature_gates::read(
        "KubeletConfig.featureGates",
        &config.feature_gates,
        basis.kubernetes_version,
        problems,
    );
    let taints = taints(&config.taints, problems);
    check_labels(&config.node_labels, problems);
    if !config.cluster_dns.is_empty() && config.cluster_dns.parse::<IpAddr>().is_err() {
        problems.warn(
            "KubeletConfig.clusterDNS",
            format!(
                "{:?} is no address, so kubelet gives pods no name server; correct it",
                config.cluster_dns
            ),
        );
    }
    let max_pods = problems.keep("KubeletConfig.maxPods", max_pods(basis));
    let node_ips = problems.keep("Networking", node_ips(basis));
    let provider_id = problems.keep("CloudProvider", provider_id(basis));
    let assets = basis.assets_field();
    let program = problems.keep(&assets, basis.required("kubelet"));
    let credential_provider = problems.keep(&assets, credential_provider(basis));

    let config = with_defaults(basis, max_pods.flatten());
    values::check(
        &config,
        &Gates::new(&feature_gates, basis.kubernetes_version),
        basis.kubernetes_version,
        problems,
    );
    let reserved_cgroups = reserved_cgroups::resolve(&config, problems);
    let (eviction_hard, eviction_soft) = (eviction_hard?, eviction_soft?);
    let (eviction_soft_grace_period, eviction_minimum_reclaim) =
        (eviction_soft_grace_period?, eviction_minimum_reclaim?);
    let eviction = Eviction {
        hard: &eviction_hard,
        soft: &eviction_soft,
        soft_grace_period: &eviction_soft_grace_period,
        minimum_reclaim: &eviction_minimum_reclaim,
    };
    eviction.check(problems);
    reservations::check(&config, &eviction_hard, basis.facts, problems);
    places::check(&config, problems);
    durations::check(&config, problems);

    Some(Kubelet {
        config,
        program: program?,
        credential_provider: credential_provider?,
        provider_id: provider_id?,
        node_ips: node_ips?,
        serving_names: serving_names(basis),
        feature_gates,
        taints,
        eviction_hard,
        eviction_soft,
        eviction_soft_grace_period,
        eviction_minimum_reclaim,
        reserved_cgroups,
    })
}

fn with_defaults(basis: &Basis<'_>, max_pods: Option<i32>) -> KubeletConfigSpec {
    let mut config = basis.config.kubelet_config.clone();
    config.hostname_override = basis.node_name.hostname_override.clone();
    config.max_pods = max_pods;
    config.runtime_request_timeout.get_or_insert(Duration::from_seconds(15 * 60));
    config.authentication_token_webhook.get_or_insert(true);
    if config.authorization_mode.is_empty() {
        config.authorization_mode = "Webhook".into();
    }
    if config.volume_plugin_directory.is_empty() {
        config.volume_plugin_directory = basis.distribution.volume_plugin_directory.into();
    }
    if basis.distribution.has_loopback_resolv_conf || basis.facts.systemd_resolved {
        // Pods cannot reach the loopback address that systemd-resolved puts into /etc/resolv.conf, so they get a
        // different file.
        config.resolv_conf.get_or_insert_with(|| "/run/systemd/resolve/resolv.conf".into());
    }
    let limits_crash_loops = basis.release.limits_crash_loops();
    if basis.is_control_plane()
        && limits_crash_loops
        && basis.kubernetes_version.can_limit_crash_loop_back_off()
    {
        config.crash_loop_back_off_max_container_restart_period = Some(Duration::from_seconds(60));
    }
    // kubelet may not set kOps' labels on its own Node, so kops-controller sets these labels.
    config.node_labels.clear();
    config
}

/// Removes the empty entries of a list, as kubelet does when it reads the list from a flag (`MapStringString.Set` in
/// k8s.io/component-base/cli/flag). If kOps writes kubelet's configuration file instead of flags, nodeup rejects empty entries.
fn without_empty_entries(list: &str) -> String {
    list.split(',').filter(|entry| !entry.is_empty()).collect::<Vec<_>>().join(",")
}

/// Parses a list such as `a<1,b<2` into a map. In this example, `separator` is `<`. Whitespace around names and values is ignored.
fn key_values(list: &str, separator: char) -> Result<BTreeMap<String, String>, Invalid> {
    if list.is_empty() {
        return Ok(BTreeMap::new());
    }
    list.split(',')
        .map(|pair| {
            let (key, value) = pair
                .split_once(separator)
                .ok_or_else(|| format!("{pair:?} has no {separator:?}; entries are NAME{separator}VALUE"))?;
            Ok((key.trim().to_owned(), value.trim().to_owned()))
        })
        .collect()
}

/// The taints with which the node registers. kubelet does not start if a taint has an unknown effect (`CheckTaintValidation` and
/// `parseTaint` in k8s.io/kubernetes/pkg/util/taints). The API server rejects a Node with a taint that is invalid in another way.
fn taints(texts: &[String], problems: &mut Problems) -> Vec<Taint> {
    let mut taints = Vec::new();
    let mut seen = BTreeSet::new();
    for (index, text) in texts.iter().enumerate() {
        let field = format!("KubeletConfig.taints[{index}]");
        let Some(taint) = problems.keep(&field, Taint::parse(text)) else { continue };
        if !seen.insert((taint.key.clone(), taint.effect.clone())) {
            problems.add(field.clone(), repeated_taint(text));
        }
        if let Some(problem) = taint.wrong_effect(text) {
            problems.refuse(field, problem);
        }
        taints.push(taint);
    }
    taints
}

/// Checks that the API server will accept the node's labels.
fn check_labels(labels: &BTreeMap<String, String>, problems: &mut Problems) {
    for (key, value) in labels {
        problems.keep("KubeletConfig.nodeLabels", label_syntax::check_key(key));
        problems.keep(&format!("KubeletConfig.nodeLabels.{key}"), label_syntax::check_value(value));
    }
}

/// The problem of one taint. `None` if the taint is valid. Does not compare the taint with other taints of the node.
pub(crate) fn taint_problem(text: &str) -> Option<String> {
    Taint::parse(text).map_or_else(|invalid| Some(invalid.into()), |taint| taint.wrong_effect(text))
}

/// The problem of a taint that repeats the key and the effect of an earlier taint.
pub(crate) fn repeated_taint(text: &str) -> String {
    format!("{text:?} has the same key and effect as another taint; remove one of them")
}

impl Taint {
    fn wrong_effect(&self, text: &str) -> Option<String> {
        (!EFFECTS.contains(&self.effect.as_str())).then(|| {
            format!(
                "the effect {:?} of the taint {text:?} is unknown, so this machine never becomes a node; \
                 use {}",
                self.effect,
                EFFECTS.join(", ")
            )
        })
    }

    /// Parses `key=value:Effect`, `key:Effect` or `key` (pkg/apis/kops/util/taints.go). The API server must accept the key and the value
    /// (`validateNodeTaints` in pkg/apis/core/validation).
    fn parse(text: &str) -> Result<Taint, Invalid> {
        let unreadable =
            || Invalid::new(format!("{text:?} is no taint; taints are key=value:Effect or key:Effect"));
        let (name, effect) = match text.split(':').collect::<Vec<_>>()[..] {
            [name] => (name, ""),
            [name, effect] => (name, effect),
            _ => return Err(unreadable()),
        };
        let (key, value) = match name.split('=').collect::<Vec<_>>()[..] {
            [key] => (key, ""),
            [key, value] => (key, value),
            _ => return Err(unreadable()),
        };
        label_syntax::check_key(key)?;
        label_syntax::check_value(value)?;
        Ok(Taint { key: key.to_owned(), value: value.to_owned(), effect: effect.to_owned() })
    }
}

/// Whether `maxPods` is derived from the instance type. It is derived if `maxPods` is unset and each pod has an address of one of the
/// machine's network interfaces.
pub(super) fn derives_max_pods(config: &NodeupConfig) -> bool {
    config.kubelet_config.max_pods.is_none() && primary_interface::pods_use_enis(&config.networking)
}

/// The maximum number of pods on this node. If each pod has an address of one of the machine's network interfaces, the instance type
/// limits the number. The first address of each interface is the node's own, so no pod can have it. Two pods need no such address, because
/// they use the node's network.
fn max_pods(basis: &Basis<'_>) -> Result<Option<i32>, Invalid> {
    if !derives_max_pods(basis.config) {
        return Ok(basis.config.kubelet_config.max_pods);
    }
    let limits = basis.aws().and_then(|aws| aws.network_interfaces).ok_or_else(|| {
        Invalid::new(
            "is derived from the network interfaces of the instance type, but the facts do not have them \
         (cloud.aws.networkInterfaces, from EC2's DescribeInstanceTypes); set maxPods, or complete the facts",
        )
    })?;
    let (interfaces, addresses) = (i64::from(limits.max), i64::from(limits.ipv4_per_interface));
    let most = if interfaces > 0 && addresses > 0 {
        DEFAULT_MAX_PODS.min(interfaces * (addresses - 1) + 2)
    } else {
        DEFAULT_MAX_PODS
    };
    Ok(i32::try_from(most).ok())
}

/// The addresses that kubelet announces. If a network plugin attaches more interfaces to the host, kubelet must know which address belongs
/// to the node. In an IPv6-only cluster, `::` lets kubelet choose an IPv6 address.
fn node_ips(basis: &Basis<'_>) -> Result<Vec<String>, Invalid> {
    let networking = &basis.config.networking;
    let cloud = &basis.facts.cloud;
    let mut addresses = Vec::new();
    if networking.cni.as_ref().is_some_and(|cni| cni.uses_secondary_ip)
        || networking.amazon_vpc.is_some()
        || basis.uses_cilium_eni()
        || basis.boot.cloud_provider == CloudProvider::Hetzner
    {
        let address = match basis.boot.cloud_provider {
            CloudProvider::Aws => {
                cloud.aws.as_ref().map(|aws| aws.local_ipv4.clone()).filter(|address| !address.is_empty())
            }
            CloudProvider::Hetzner => cloud.hetzner.as_ref().map(|hetzner| hetzner.private_ipv4.clone()),
            other => {
                return Err(Invalid::new(format!(
                    "a network plugin that attaches further interfaces to the node is not supported on {other}"
                )));
            }
        };
        let address = address.ok_or_else(|| {
            Invalid::new("needs the machine's local address, which its cloud's metadata did not give")
        })?;
        addresses.extend(Some(address).filter(|address| !address.is_empty()));
    }
    if basis.is_ipv6_only() {
        addresses.push("::".into());
    }
    Ok(addresses)
}

fn provider_id(basis: &Basis<'_>) -> Result<String, Invalid> {
    let cloud = &basis.facts.cloud;
    match basis.boot.cloud_provider {
        CloudProvider::Aws => cloud
            .aws
            .as_ref()
            .map(|aws| format!("aws:///{}/{}", aws.availability_zone, aws.instance_id))
            .ok_or_else(|| Invalid::new("aws: EC2's instance metadata could not be read on this machine")),
        CloudProvider::Azure if !basis.release.azure_nodes_have_provider_ids() => Ok(String::new()),
        CloudProvider::Azure => cloud
            .azure
            .as_ref()
            .map(|azure| format!("azure://{}", azure.resource_id))
            .ok_or_else(|| Invalid::new("azure: the instance metadata could not be read on this machine")),
        _ => Ok(String::new()),
    }
}

/// The names of kubelet's serving certificate (upstream: `kubeletNames` in nodeup/pkg/model/kubelet.go). On AWS, the names are, in this
/// order: the node name (only if the kOps release uses it), the instance's id, the local hostname, and the addresses. A name that equals
/// the first name is left out. On other clouds, the names are the host's own name and the addresses to which the host resolves this name.
fn serving_names(basis: &Basis<'_>) -> Vec<String> {
    let facts = basis.facts;
    let Some(aws) = basis.aws() else {
        let mut names = facts.hostname_addresses.clone();
        if is_named_by_us(basis) {
            // If the host still has its previous name, `names` has the addresses of that name. The certificate must not have these
            // addresses (`desired/linode.rs`).
            names.retain(|_| facts.hostname == basis.node_name.name);
            names.push(basis.node_name.name.clone());
            return names;
        }
        if names.is_empty() {
            names.push("127.0.0.1".into());
        }
        names.push(facts.hostname.clone());
        return names;
    };
    let own_name = match basis.release.kubelet_serves_by_node_name() {
        true => &basis.node_name.name,
        false => &aws.instance_id,
    };
    let mut names = vec![own_name.clone()];
    if aws.instance_id != names[0] {
        names.push(aws.instance_id.clone());
    }
    if aws.local_hostname != names[0] {
        names.push(aws.local_hostname.clone());
    }
    names.extend([&aws.local_ipv4, &aws.public_ipv4, &aws.ipv6].map(String::clone));
    names.retain(|name| !name.is_empty());
    names
}

/// Whether kops-agent sets the host's name.
fn is_named_by_us(basis: &Basis<'_>) -> bool {
    basis.boot.cloud_provider == CloudProvider::Linode
}

fn credential_provider(basis: &Basis<'_>) -> Result<Option<Asset>, Invalid> {
    match basis.boot.cloud_provider {
        CloudProvider::Aws => {
            basis.required(&format!("ecr-credential-provider-linux-{}", basis.facts.arch)).map(Some)
        }
        CloudProvider::Gce => basis.required(basis.release.gce_credential_provider()).map(Some),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn eviction_thresholds_are_read_with_space_around_them() {
        let read = key_values("memory.available<100Mi, nodefs.available < 10%", '<').unwrap();
        assert_eq!(read["memory.available"], "100Mi");
        assert_eq!(read["nodefs.available"], "10%");
        assert!(key_values("", '<').unwrap().is_empty());
        assert!(
            key_values("memory.available=1", '<').unwrap_err().to_string().contains("memory.available=1")
        );
        assert!(key_values("memory.available<100Mi,", '<').is_err());
        let of_a_flag = without_empty_entries(",memory.available<100Mi,,nodefs.available<10%,");
        assert_eq!(of_a_flag, "memory.available<100Mi,nodefs.available<10%");
    }

    #[test]
    fn taints_are_read_in_each_of_their_forms() {
        let taint = |key: &str, value: &str, effect: &str| Taint {
            key: key.into(),
            value: value.into(),
            effect: effect.into(),
        };
        assert_eq!(Taint::parse("a=b:NoSchedule"), Ok(taint("a", "b", "NoSchedule")));
        assert_eq!(Taint::parse("a=:NoSchedule"), Ok(taint("a", "", "NoSchedule")));
        assert_eq!(Taint::parse("a:NoExecute"), Ok(taint("a", "", "NoExecute")));
        assert_eq!(Taint::parse("a"), Ok(taint("a", "", "")));
        for wrong in ["a=b=c:NoSchedule", "a:b:c", "a b:NoSchedule", "a=b c:NoSchedule"] {
            assert!(Taint::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_node_has_one_taint_of_a_key_and_an_effect() {
        let told = |texts: &[&str]| {
            let mut problems = Problems::default();
            taints(&texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>(), &mut problems);
            problems.to_string()
        };
        assert_eq!(told(&["a=1:NoSchedule", "a=1:NoExecute", "b:NoSchedule"]), "");
        assert!(told(&["a=1:NoSchedule", "a=2:NoSchedule"]).starts_with("KubeletConfig.taints[1]: "));
    }
}
