//! The components of a machine whose settings name files, with the files that kOps gives them.
//!
//! A field's path is empty in a list if the field is unset, or if the list's check does not apply to the field. For example, a file that
//! kOps replaces need not exist.
//!
//! Source: nodeup/pkg/model/kube_apiserver.go, kube_controller_manager.go, kube_scheduler.go and kubelet.go.

use std::path::Path;

use crate::desired::paths;
use crate::resolve::basis::Basis;
use crate::resolve::{KubeApiServer, TokenWebhook};

use super::Component;

/// Files that kOps itself writes into the API server's directory.
const API_SERVER_FILES: [&str; 13] = [
    "apiserver-aggregator-ca.crt",
    "apiserver-aggregator.crt",
    "apiserver-aggregator.key",
    "etcd-ca.crt",
    "etcd-client.crt",
    "etcd-client.key",
    "known_tokens.csv",
    "kubelet-api.crt",
    "kubelet-api.key",
    "server.crt",
    "server.key",
    "service-account.key",
    "service-account.pub",
];
/// The kubeconfig of a token webhook. kOps writes this file.
const TOKEN_WEBHOOK_CONFIG: &str = "/etc/kubernetes/authn.config";
/// The file and the directories in which the machine's services write resolver configurations at run time.
const RESOLVER_CONFIGURATIONS: [&str; 3] = ["/etc/resolv.conf", "/run", "/var/run"];

pub(super) fn api_server<'a>(basis: &Basis<'_>, api_server: &'a KubeApiServer) -> Component<'a> {
    let config = &api_server.config;
    let directory = format!("{}/kube-apiserver", basis.distribution.srv_kubernetes);
    let kubernetes_ca = paths::kubernetes_ca(basis.distribution);
    let encryption = api_server.encrypts.then_some("encryptionconfig.yaml");
    let mut own = in_directory(&directory, API_SERVER_FILES.into_iter().chain(encryption));
    own.push(kubernetes_ca.clone());
    own.extend(api_server.token_webhook.map(|_| TOKEN_WEBHOOK_CONFIG.to_owned()));

    let parent = |path: &str| Path::new(path).parent()?.to_str().map(str::to_owned);
    let mut seen = ssl_directories(basis);
    seen.extend([directory.as_str(), &kubernetes_ca, basis.distribution.srv_sshproxy].map(str::to_owned));
    seen.extend(config.audit_log_path.as_deref().filter(|path| *path != "-").and_then(parent));
    seen.extend(parent(&config.audit_policy_file));
    seen.extend(api_server.token_webhook.map(|_| TOKEN_WEBHOOK_CONFIG.to_owned()));
    seen.retain(|place| !place.is_empty());

    let of_aws = api_server.token_webhook == Some(TokenWebhook::AwsIamAuthenticator);
    let token_webhook = config.authentication_token_webhook_config_file.as_deref().filter(|_| !of_aws);
    let encryption = config.encryption_provider_config.as_deref().filter(|_| !api_server.encrypts);
    let of_directory = |name: &str| format!("{directory}/{name}");
    let encryption_file = of_directory("encryptionconfig.yaml");
    let replaced = vec![
        (
            "authenticationTokenWebhookConfigFile",
            config.authentication_token_webhook_config_file.as_deref().filter(|_| of_aws).unwrap_or_default(),
            TOKEN_WEBHOOK_CONFIG.to_owned(),
        ),
        (
            "encryptionProviderConfig",
            config.encryption_provider_config.as_deref().filter(|_| api_server.encrypts).unwrap_or_default(),
            encryption_file,
        ),
        ("etcdCAFile", config.etcd_ca_file.as_str(), of_directory("etcd-ca.crt")),
        ("etcdCertFile", &config.etcd_cert_file, of_directory("etcd-client.crt")),
        ("etcdKeyFile", &config.etcd_key_file, of_directory("etcd-client.key")),
        ("kubeletClientCertificate", &config.kubelet_client_certificate, of_directory("kubelet-api.crt")),
        ("kubeletClientKey", &config.kubelet_client_key, of_directory("kubelet-api.key")),
        (
            "proxyClientCertFile",
            config.proxy_client_cert_file.as_deref().unwrap_or_default(),
            of_directory("apiserver-aggregator.crt"),
        ),
        (
            "proxyClientKeyFile",
            config.proxy_client_key_file.as_deref().unwrap_or_default(),
            of_directory("apiserver-aggregator.key"),
        ),
        (
            "requestheaderClientCAFile",
            &config.requestheader_client_ca_file,
            of_directory("apiserver-aggregator-ca.crt"),
        ),
        ("tlsCertFile", &config.tls_cert_file, of_directory("server.crt")),
        ("tlsPrivateKeyFile", &config.tls_private_key_file, of_directory("server.key")),
    ];
    let mut named = vec![
        ("admissionControlConfigFile", config.admission_control_config_file.as_str()),
        ("auditPolicyFile", &config.audit_policy_file),
        ("auditWebhookConfigFile", &config.audit_webhook_config_file),
        ("authenticationConfigFile", &config.authentication_config_file),
        ("authenticationTokenWebhookConfigFile", token_webhook.unwrap_or_default()),
        (
            "authorizationWebhookConfigFile",
            config.authorization_webhook_config_file.as_deref().unwrap_or_default(),
        ),
        ("clientCAFile", &config.client_ca_file),
        ("encryptionProviderConfig", encryption.unwrap_or_default()),
        ("kubeletCertificateAuthority", &config.kubelet_certificate_authority),
        ("oidcCAFile", config.oidc_ca_file.as_deref().unwrap_or_default()),
        (
            "serviceAccountSigningKeyFile",
            config.service_account_signing_key_file.as_deref().unwrap_or_default(),
        ),
        ("tokenAuthFile", &config.token_auth_file),
    ];
    named.extend(config.service_account_key_file.iter().map(|path| ("serviceAccountKeyFile", path.as_str())));
    Component {
        name: "the API server",
        settings: "APIServerConfig.KubeAPIServer",
        directory,
        seen: Some(seen),
        own,
        named,
        replaced,
    }
}

/// The settings of kube-controller-manager. `None` on machines outside of the control plane.
pub(super) fn kube_controller_manager<'a>(
    basis: &Basis<'a>,
    volume_plugin_directory: &str,
) -> Option<Component<'a>> {
    let config = &basis
        .config
        .control_plane_config
        .as_ref()
        .filter(|_| basis.is_control_plane())?
        .kube_controller_manager;
    let kubernetes_ca = paths::kubernetes_ca(basis.distribution);
    let directory = format!("{}/kube-controller-manager", basis.distribution.srv_kubernetes);
    let signing_key = format!("{directory}/service-account.key");
    let home = "/var/lib/kube-controller-manager";
    let kubeconfig = format!("{home}/kubeconfig");
    let mut own = in_directory(&directory, ["ca.crt", "ca.key", "service-account.key"]);
    own.extend([kubernetes_ca.clone(), kubeconfig.clone()]);
    let mut seen = ssl_directories(basis);
    seen.extend([directory.as_str(), &kubernetes_ca, home, volume_plugin_directory].map(str::to_owned));
    Some(Component {
        name: "kube-controller-manager",
        settings: "ControlPlaneConfig.KubeControllerManager",
        directory,
        seen: Some(seen),
        own,
        named: serving(config.tls_cert_file.as_deref(), &config.tls_private_key_file),
        replaced: vec![
            ("authenticationKubeconfig", config.authentication_kubeconfig.as_str(), kubeconfig.clone()),
            ("authorizationKubeconfig", &config.authorization_kubeconfig, kubeconfig),
            ("rootCAFile", &config.root_ca_file, kubernetes_ca),
            ("serviceAccountPrivateKeyFile", &config.service_account_private_key_file, signing_key),
        ],
    })
}

/// The settings of kube-scheduler. `None` on machines outside of the control plane.
pub(super) fn kube_scheduler<'a>(basis: &Basis<'a>) -> Option<Component<'a>> {
    let config =
        &basis.config.control_plane_config.as_ref().filter(|_| basis.is_control_plane())?.kube_scheduler;
    let directory = format!("{}/kube-scheduler", basis.distribution.srv_kubernetes);
    let kubeconfig = paths::KUBE_SCHEDULER_KUBECONFIG.to_owned();
    Some(Component {
        name: "kube-scheduler",
        settings: "ControlPlaneConfig.KubeScheduler",
        seen: Some(vec![directory.clone(), "/var/lib/kube-scheduler".to_owned()]),
        directory,
        own: vec![kubeconfig.clone(), paths::KUBE_SCHEDULER_CONFIG.to_owned()],
        named: serving(config.tls_cert_file.as_deref(), &config.tls_private_key_file),
        replaced: vec![
            ("authenticationKubeconfig", config.authentication_kubeconfig.as_str(), kubeconfig.clone()),
            ("authorizationKubeconfig", &config.authorization_kubeconfig, kubeconfig),
        ],
    })
}

/// kubelet's settings that name files. `bootstrapKubeconfig` is not among them: kubelet does not need this file, because
/// kOps gives kubelet a kubeconfig.
pub(super) fn kubelet<'a>(basis: &Basis<'a>) -> Component<'a> {
    let config = &basis.config.kubelet_config;
    let resolver = config.resolv_conf.as_deref().unwrap_or_default();
    let is_of_a_service = RESOLVER_CONFIGURATIONS.iter().any(|place| Path::new(resolver).starts_with(place));
    Component {
        name: "kubelet",
        settings: "KubeletConfig",
        directory: basis.distribution.srv_kubernetes.to_owned(),
        seen: None,
        own: vec![paths::KUBELET_KUBECONFIG.to_owned()],
        named: vec![
            ("kubeconfigPath", config.kubeconfig_path.as_str()),
            ("resolvConf", if is_of_a_service { "" } else { resolver }),
        ],
        replaced: vec![
            ("clientCAFile", config.client_ca_file.as_str(), paths::kubernetes_ca(basis.distribution)),
            ("tlsCertFile", &config.tls_cert_file, paths::kubelet_server_certificate(basis.distribution)),
            (
                "tlsPrivateKeyFile",
                &config.tls_private_key_file,
                paths::kubelet_server_key(basis.distribution),
            ),
        ],
    }
}

/// The fields of the serving certificate and its key. If the user gives no certificate, kOps makes the certificate and the key, and
/// replaces the user's key.
fn serving<'a>(certificate: Option<&'a str>, key: &'a str) -> Vec<(&'static str, &'a str)> {
    let key = certificate.map_or("", |_| key);
    vec![("tlsCertFile", certificate.unwrap_or_default()), ("tlsPrivateKeyFile", key)]
}

fn ssl_directories(basis: &Basis<'_>) -> Vec<String> {
    basis.distribution.ssl_directories.iter().map(|directory| (*directory).to_owned()).collect()
}

fn in_directory<'a>(directory: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    names.into_iter().map(|name| format!("{directory}/{name}")).collect()
}
