//! kube-apiserver's settings from kOps, completed with values of this machine, and checked.
//!
//! Source: nodeup/pkg/model/kube_apiserver.go.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use serde::Serialize;

use kops_agent_spec::facts::Facts;
use kops_agent_spec::invalid::Invalid;
use kops_agent_spec::{
    APIServerConfig, APISpec, AuthenticationSpec, CloudProvider, KubeAPIServerConfig, OIDCAuthenticationSpec,
};

use super::basis::Basis;
use super::{Problems, StoredPod, stored_manifests};

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KubeApiServer {
    pub config: KubeAPIServerConfig,
    /// Names and load balancer of the API.
    pub api: APISpec,
    /// The OpenID provider that the API server trusts. `None` if there is no provider.
    pub oidc: Option<OIDCAuthenticationSpec>,
    /// The webhook that verifies tokens. `None` if there is no webhook.
    pub token_webhook: Option<TokenWebhook>,
    /// Whether the API server encrypts its data in etcd, as the secret `encryptionconfig` configures.
    pub encrypts: bool,
    /// Public keys that verify tokens of service accounts, in PEM.
    pub service_account_public_keys: String,
    /// Names and addresses at which clients reach the API server.
    pub serving_names: Vec<String>,
    /// The sidecar that answers kubelet's probes. `None` if kOps has no sidecar for this machine.
    pub healthcheck: Option<StoredPod>,
}

/// A webhook on this machine that verifies tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum TokenWebhook {
    Kopeio,
    AwsIamAuthenticator,
}

/// Resolves the API server's settings. `None` on machines without an API server, or if the API server's
/// configuration, its Service address or this machine's own address is missing.
pub(super) fn resolve(basis: &Basis<'_>, problems: &mut Problems) -> Option<KubeApiServer> {
    if !basis.boot.instance_group_role.runs_api_server() {
        return None;
    }
    let Some(settings) = &basis.config.api_server_config else {
        problems.add(
            "APIServerConfig",
            "is missing, but an API server runs on this machine; run `kops update cluster --yes`",
        );
        return None;
    };
    let healthcheck = stored_manifests::kube_apiserver_healthcheck(basis, problems);
    let encrypts = encrypts(basis, settings, problems);
    let local_address = problems.keep("cloud", local_address(basis));
    let service_address = problems.keep(
        "Networking.serviceClusterIPRange",
        first_address(&basis.config.networking.service_cluster_ip_range),
    );
    let config = config(basis, settings, local_address.clone().flatten().as_deref());
    check_audit_paths(&config, problems);

    let authentication = settings.authentication.as_ref();
    Some(KubeApiServer {
        config,
        api: settings.api.clone(),
        oidc: authentication.and_then(|authentication| authentication.oidc.clone()),
        token_webhook: authentication.and_then(token_webhook),
        encrypts,
        service_account_public_keys: settings.service_account_public_keys.clone(),
        serving_names: serving_names(basis, settings, service_address?, local_address?),
        healthcheck,
    })
}

fn config(basis: &Basis<'_>, settings: &APIServerConfig, local_address: Option<&str>) -> KubeAPIServerConfig {
    let mut config = settings.kube_api_server.clone().unwrap_or_default();
    match basis.boot.cloud_provider {
        CloudProvider::Hetzner => {
            if let Some(address) = local_address {
                config.advertise_address = address.to_owned();
            }
        }
        // The API server does not find an IPv6 address by itself:
        // https://github.com/kubernetes/kubernetes/issues/111671.
        CloudProvider::Metal if basis.is_ipv6_only() => {
            if let Some(address) = global_ipv6_address(basis.facts) {
                config.advertise_address = address.to_string();
            }
        }
        _ => {}
    }
    if !basis.is_control_plane() {
        name_etcd_of_the_control_plane(&mut config, &basis.config.cluster_name);
    }
    // Very old clusters have the ordered list `admissionControl`. The list replaces `enableAdmissionPlugins`, because the
    // API server does not accept the flag `--admission-control` together with `--enable-admission-plugins`.
    if !config.admission_control.is_empty() {
        config.enable_admission_plugins = std::mem::take(&mut config.admission_control);
    }
    config
}

/// Replaces localhost in etcd's URLs with the members' names. kOps writes localhost for machines that run an etcd
/// member. A dedicated API server runs no etcd member.
fn name_etcd_of_the_control_plane(config: &mut KubeAPIServerConfig, cluster_name: &str) {
    let named = |url: &str, etcd_cluster: &str| {
        url.replace("127.0.0.1", &format!("{etcd_cluster}.etcd.internal.{cluster_name}"))
    };
    for url in &mut config.etcd_servers {
        *url = named(url, "main");
    }
    for rule in &mut config.etcd_servers_overrides {
        if rule.starts_with("/events") {
            *rule = named(rule, "events");
        } else if rule.starts_with("coordination.k8s.io/leases") {
            *rule = named(rule, "leases");
        }
    }
}

/// The webhook that verifies tokens. If the user sets both webhooks, Kopeio's webhook is used.
fn token_webhook(authentication: &AuthenticationSpec) -> Option<TokenWebhook> {
    match authentication {
        AuthenticationSpec { kopeio: Some(_), .. } => Some(TokenWebhook::Kopeio),
        AuthenticationSpec { aws: Some(_), .. } => Some(TokenWebhook::AwsIamAuthenticator),
        _ => None,
    }
}

fn encrypts(basis: &Basis<'_>, settings: &APIServerConfig, problems: &mut Problems) -> bool {
    let encrypts = !settings.encryption_config_secret_hash.is_empty();
    if encrypts && !basis.secret_names.contains("encryptionconfig") {
        problems.add(
            "APIServerConfig.EncryptionConfigSecretHash",
            "says that etcd is encrypted, but the secret encryptionconfig is not in the state store; \
             create it with `kops create secret encryptionconfig`",
        );
    }
    encrypts
}

/// Checks that the paths of the audit files are absolute, because the pod mounts the directories of these files.
fn check_audit_paths(config: &KubeAPIServerConfig, problems: &mut Problems) {
    let log = config.audit_log_path.as_deref().filter(|path| *path != "-").unwrap_or_default();
    for (field, path) in [("auditLogPath", log), ("auditPolicyFile", config.audit_policy_file.as_str())] {
        if !path.is_empty() && !path.starts_with('/') {
            problems.add(
                format!("APIServerConfig.KubeAPIServer.{field}"),
                format!("is {path:?}; give an absolute path"),
            );
        }
    }
}

fn serving_names(
    basis: &Basis<'_>,
    settings: &APIServerConfig,
    service_address: IpAddr,
    local_address: Option<String>,
) -> Vec<String> {
    let mut names: Vec<String> =
        ["kubernetes", "kubernetes.default", "kubernetes.default.svc"].map(str::to_owned).into();
    names.push(format!("kubernetes.default.svc.{}", settings.cluster_dns_domain));
    names.push(settings.api.public_name.clone());
    names.push(basis.config.api_internal_name());
    names.extend(settings.api.additional_sans.iter().cloned());
    names.extend(basis.config.apiserver_additional_ips.iter().cloned());
    names.push(service_address.to_string());
    names.push("127.0.0.1".to_owned());
    names.extend(local_address);
    names.retain(|name| !name.trim().is_empty());
    names
}

/// The machine's own address, for the API server's certificate on Hetzner and OpenStack. On Hetzner, the API server
/// also advertises this address. `None` on other clouds.
fn local_address(basis: &Basis<'_>) -> Result<Option<String>, Invalid> {
    let cloud = &basis.facts.cloud;
    let address = match basis.boot.cloud_provider {
        CloudProvider::Hetzner => {
            let hetzner = cloud.hetzner.as_ref().ok_or_else(|| Invalid::new(
                "the API server announces the address of the first private network, but Hetzner's metadata service could not be read on this machine",
            ))?;
            hetzner.private_ipv4.clone()
        }
        CloudProvider::Openstack => {
            cloud.openstack.as_ref().map(|openstack| openstack.local_ipv4.clone()).unwrap_or_default()
        }
        _ => String::new(),
    };
    Ok(Some(address).filter(|address| !address.is_empty()))
}

/// The first IPv6 address of this machine that is reachable from other machines.
fn global_ipv6_address(facts: &Facts) -> Option<Ipv6Addr> {
    let addresses = facts.interfaces.iter().flat_map(|interface| &interface.addresses);
    addresses.filter_map(|address| address.split('/').next()?.parse::<Ipv6Addr>().ok()).find(|address| {
        address.to_ipv4_mapped().is_none()
            && !address.is_unicast_link_local()
            && !address.is_multicast()
            && !address.is_loopback()
    })
}

/// The address of the Service `kubernetes`: the first address after the range's network address.
fn first_address(range: &str) -> Result<IpAddr, Invalid> {
    let range: IpNet =
        range.parse().map_err(|_| format!("{range:?} is no address range; use one like 100.64.0.0/13"))?;
    Ok(match range.network() {
        IpAddr::V4(network) => Ipv4Addr::from_bits(network.to_bits().wrapping_add(1)).into(),
        IpAddr::V6(network) => Ipv6Addr::from_bits(network.to_bits().wrapping_add(1)).into(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::resolve::testing::{api_server, control_plane, problems};
    use kops_agent_spec::InstanceGroupRole;
    use kops_agent_spec::facts::{HetznerFacts, Interface, OpenstackFacts};

    use super::*;

    fn kube_api_server(config: &mut kops_agent_spec::NodeupConfig) -> &mut KubeAPIServerConfig {
        config.api_server_config.as_mut().unwrap().kube_api_server.as_mut().unwrap()
    }

    #[test]
    fn the_first_address_of_a_range_follows_the_networks_own() {
        assert_eq!(first_address("100.64.0.0/13").unwrap().to_string(), "100.64.0.1");
        assert_eq!(first_address("100.64.0.5/13").unwrap().to_string(), "100.64.0.1");
        assert_eq!(first_address("fd00:5e4f:ce::/108").unwrap().to_string(), "fd00:5e4f:ce::1");
        assert!(first_address("100.64.0.1").unwrap_err().to_string().contains("100.64.0.1"));
    }

    #[test]
    fn the_certificate_has_every_name_of_the_api_server() {
        let node = control_plane(|inputs| {
            let settings = inputs.config.api_server_config.as_mut().unwrap();
            settings.api.public_name = "api.example.com".into();
            settings.api.additional_sans = vec!["extra.example.com".into()];
            inputs.config.apiserver_additional_ips = vec!["203.0.113.9".into()];
        });
        assert_eq!(
            node.api_server.unwrap().serving_names,
            [
                "kubernetes",
                "kubernetes.default",
                "kubernetes.default.svc",
                "kubernetes.default.svc.cluster.local",
                "api.example.com",
                "api.internal.c.example.com",
                "extra.example.com",
                "203.0.113.9",
                "100.64.0.1",
                "127.0.0.1",
            ]
        );
    }

    #[test]
    fn on_hetzner_the_api_server_uses_the_private_address() {
        let node = control_plane(|inputs| {
            inputs.boot.cloud_provider = CloudProvider::Hetzner;
            let private_ipv4 = "10.0.0.2".into();
            inputs.facts.cloud.hetzner = Some(HetznerFacts { instance_id: "1".into(), private_ipv4 });
        });
        let api_server = node.api_server.unwrap();
        assert_eq!(api_server.config.advertise_address, "10.0.0.2");
        assert_eq!(api_server.serving_names.last().unwrap(), "10.0.0.2");

        let problems = problems(|inputs| inputs.boot.cloud_provider = CloudProvider::Hetzner);
        assert!(problems.contains("Hetzner's metadata service"), "{problems}");
    }

    #[test]
    fn on_openstack_the_api_server_uses_the_metadata_address() {
        let last_name = |local_ipv4: &str| {
            let node = control_plane(|inputs| {
                inputs.boot.cloud_provider = CloudProvider::Openstack;
                inputs.facts.cloud.openstack =
                    Some(OpenstackFacts { local_ipv4: local_ipv4.into(), ..OpenstackFacts::default() });
            });
            node.api_server.unwrap().serving_names.last().unwrap().clone()
        };
        assert_eq!(last_name("10.0.0.5"), "10.0.0.5");
        assert_eq!(last_name(""), "127.0.0.1");
    }

    #[test]
    fn on_metal_with_ipv6_the_api_server_announces_the_first_global_address() {
        let interface = |name: &str, addresses: &[&str]| Interface {
            name: name.into(),
            mac: None,
            is_virtual: false,
            addresses: addresses.iter().map(|address| (*address).to_owned()).collect(),
        };
        let node = control_plane(|inputs| {
            inputs.boot.cloud_provider = CloudProvider::Metal;
            inputs.config.networking.non_masquerade_cidr = "::/0".into();
            inputs.facts.interfaces = vec![
                interface("lo", &["127.0.0.1/8", "::1/128"]),
                interface("eth0", &["10.0.0.2/24", "fe80::1/64", "2001:db8::2/64", "2001:db8::3/64"]),
            ];
        });
        assert_eq!(node.api_server.unwrap().config.advertise_address, "2001:db8::2");
    }

    #[test]
    fn a_dedicated_api_server_reaches_etcd_by_name() {
        let etcd = |config: &mut KubeAPIServerConfig| {
            config.etcd_servers = vec!["https://127.0.0.1:4001".into()];
            config.etcd_servers_overrides = vec![
                "/events#https://127.0.0.1:4002".into(),
                "coordination.k8s.io/leases#https://127.0.0.1:4003".into(),
                "/other#https://127.0.0.1:4004".into(),
            ];
        };
        let config =
            api_server(|inputs| etcd(kube_api_server(&mut inputs.config))).api_server.unwrap().config;
        assert_eq!(config.etcd_servers, ["https://main.etcd.internal.c.example.com:4001"]);
        assert_eq!(
            config.etcd_servers_overrides,
            [
                "/events#https://events.etcd.internal.c.example.com:4002",
                "coordination.k8s.io/leases#https://leases.etcd.internal.c.example.com:4003",
                "/other#https://127.0.0.1:4004",
            ]
        );
        let config =
            control_plane(|inputs| etcd(kube_api_server(&mut inputs.config))).api_server.unwrap().config;
        assert_eq!(config.etcd_servers, ["https://127.0.0.1:4001"]);
    }

    #[test]
    fn the_old_list_of_admission_plugins_becomes_the_new_one() {
        let node = control_plane(|inputs| {
            let config = kube_api_server(&mut inputs.config);
            config.admission_control = vec!["A".into(), "B".into()];
            config.enable_admission_plugins = vec!["C".into()];
        });
        let config = node.api_server.unwrap().config;
        assert!(config.admission_control.is_empty());
        assert_eq!(config.enable_admission_plugins, ["A", "B"]);
    }

    #[test]
    fn kopeios_webhook_takes_precedence_over_aws() {
        let both = AuthenticationSpec {
            kopeio: Some(Default::default()),
            aws: Some(Default::default()),
            ..AuthenticationSpec::default()
        };
        assert_eq!(token_webhook(&both), Some(TokenWebhook::Kopeio));
        let aws = AuthenticationSpec { kopeio: None, ..both };
        assert_eq!(token_webhook(&aws), Some(TokenWebhook::AwsIamAuthenticator));
        assert_eq!(token_webhook(&AuthenticationSpec::default()), None);
    }

    #[test]
    fn every_problem_names_its_field() {
        let problems = problems(|inputs| {
            inputs.config.networking.service_cluster_ip_range.clear();
            inputs.config.api_server_config.as_mut().unwrap().encryption_config_secret_hash = "x".into();
            let config = kube_api_server(&mut inputs.config);
            config.audit_log_path = Some("audit.log".into());
            config.audit_policy_file = "policy.yaml".into();
            inputs.manifests.clear();
            inputs.keysets.remove("service-account");
            inputs.config.keypair_ids.remove("etcd-clients-ca");
        });
        for field in [
            "Networking.serviceClusterIPRange: ",
            "APIServerConfig.EncryptionConfigSecretHash: ",
            "APIServerConfig.KubeAPIServer.auditLogPath: ",
            "APIServerConfig.KubeAPIServer.auditPolicyFile: ",
            "etcdManifests: names s3://clusters/c.example.com/manifests/etcd/main.yaml",
            "channelsManifest: names s3://clusters/c.example.com/manifests/kops-channels.yaml",
            "staticManifests: names manifests/static/kube-apiserver-healthcheck.yaml",
            "KeypairIDs.service-account: is 7, but pki/private/service-account/keyset.yaml",
            "KeypairIDs.etcd-clients-ca: is not set",
        ] {
            assert!(problems.contains(field), "{field} is not in\n{problems}");
        }
    }

    #[test]
    fn a_machine_with_an_api_server_needs_its_configuration() {
        let problems = problems(|inputs| inputs.config.api_server_config = None);
        assert!(problems.contains("APIServerConfig: is missing"), "{problems}");
        let problems = self::problems(|inputs| inputs.config.control_plane_config = None);
        assert!(problems.contains("ControlPlaneConfig: is missing"), "{problems}");
        let node = api_server(|inputs| inputs.config.control_plane_config = None);
        assert_eq!(node.boot.instance_group_role, InstanceGroupRole::APIServer);
    }
}
