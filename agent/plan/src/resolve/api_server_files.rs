//! Checks the files that the API server's flags name. The API server does not start if a file is missing, or if its pod
//! does not see the file.

use std::path::Path;

use crate::desired::paths;

use super::basis::Basis;
use super::{FileAsset, KubeApiServer, Problems, TokenWebhook};

/// Files that kOps itself writes into the API server's directory (nodeup/pkg/model/kube_apiserver.go).
const OWN_FILES: [&str; 13] = [
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
/// The kubeconfig of a token webhook, which kOps writes.
const TOKEN_WEBHOOK_CONFIG: &str = "/etc/kubernetes/authn.config";

/// Adds a problem for each file that the pod does not see, and a warning for each file that neither kOps nor fileAssets
/// write.
pub(super) fn check(
    basis: &Basis<'_>,
    api_server: &KubeApiServer,
    files: &[FileAsset],
    problems: &mut Problems,
) {
    let own_directory = format!("{}/kube-apiserver", basis.distribution.srv_kubernetes);
    let kubernetes_ca = paths::kubernetes_ca(basis.distribution);
    let seen = seen(basis, api_server, &own_directory, &kubernetes_ca);
    for (field, path) in named(api_server) {
        // Another check rejects relative paths of the two audit files, whose directories are mounted.
        if !path.starts_with('/') {
            continue;
        }
        let is_seen = seen.iter().any(|place| Path::new(path).starts_with(place));
        let is_own = path == kubernetes_ca
            || api_server.token_webhook.is_some() && path == TOKEN_WEBHOOK_CONFIG
            || path.strip_prefix(&format!("{own_directory}/")).is_some_and(|name| {
                OWN_FILES.contains(&name) || name == "encryptionconfig.yaml" && api_server.encrypts
            });
        let is_added = files.iter().any(|file| file.path == path);
        let field = format!("APIServerConfig.KubeAPIServer.{field}");
        if !is_seen {
            problems.add(
                field,
                format!(
                    "names {path}, which is not mounted into the API server's pod, so the API server does not start; use fileAssets \
                     to put the file into {own_directory}, and set this field to the new path"
                ),
            );
        } else if !is_own && !is_added {
            problems.warn(
                field,
                format!(
                    "names {path}, but neither fileAssets nor kOps writes this file, and the API server does not start without it; \
                     add it to fileAssets, unless the machine's image or a hook contains it"
                ),
            );
        }
    }
}

/// The files and directories of the machine that the pod sees (`add_mounts` of `desired/kube_apiserver/pod.rs`).
fn seen(
    basis: &Basis<'_>,
    api_server: &KubeApiServer,
    own_directory: &str,
    kubernetes_ca: &str,
) -> Vec<String> {
    let config = &api_server.config;
    let directory = |path: &str| Path::new(path).parent()?.to_str().map(str::to_owned);
    let mut seen: Vec<String> =
        basis.distribution.ssl_directories.iter().map(|directory| (*directory).to_owned()).collect();
    seen.extend([own_directory, kubernetes_ca, basis.distribution.srv_sshproxy].map(str::to_owned));
    seen.extend(config.audit_log_path.as_deref().filter(|path| *path != "-").and_then(directory));
    seen.extend(directory(&config.audit_policy_file));
    seen.extend(api_server.token_webhook.map(|_| TOKEN_WEBHOOK_CONFIG.to_owned()));
    seen.retain(|place| !place.is_empty());
    seen
}

/// The fields that become flags with a file's path. The path is empty if the field is unset, or if kOps replaces the
/// flag.
fn named(api_server: &KubeApiServer) -> Vec<(&'static str, &str)> {
    let config = &api_server.config;
    let is_replaced = api_server.token_webhook == Some(TokenWebhook::AwsIamAuthenticator);
    let token_webhook = config
        .authentication_token_webhook_config_file
        .as_deref()
        .filter(|_| !is_replaced)
        .unwrap_or_default();
    let encryption =
        config.encryption_provider_config.as_deref().filter(|_| !api_server.encrypts).unwrap_or_default();
    let mut named = vec![
        ("admissionControlConfigFile", config.admission_control_config_file.as_str()),
        ("auditPolicyFile", &config.audit_policy_file),
        ("auditWebhookConfigFile", &config.audit_webhook_config_file),
        ("authenticationConfigFile", &config.authentication_config_file),
        ("authenticationTokenWebhookConfigFile", token_webhook),
        (
            "authorizationWebhookConfigFile",
            config.authorization_webhook_config_file.as_deref().unwrap_or_default(),
        ),
        ("clientCAFile", &config.client_ca_file),
        ("encryptionProviderConfig", encryption),
        ("kubeletCertificateAuthority", &config.kubelet_certificate_authority),
        ("oidcCAFile", config.oidc_ca_file.as_deref().unwrap_or_default()),
        (
            "serviceAccountSigningKeyFile",
            config.service_account_signing_key_file.as_deref().unwrap_or_default(),
        ),
        ("tokenAuthFile", &config.token_auth_file),
    ];
    named.extend(config.service_account_key_file.iter().map(|path| ("serviceAccountKeyFile", path.as_str())));
    named
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::resolve::Inputs;
    use crate::resolve::testing::{control_plane, problems};

    fn with(set: &str) -> impl FnOnce(&mut Inputs) {
        let set = set.to_owned();
        move |inputs| {
            let config = inputs.config.api_server_config.as_mut().unwrap().kube_api_server.as_mut().unwrap();
            let mut value = serde_json::to_value(&*config).unwrap();
            let more: serde_json::Value = serde_yaml::from_str(&set).unwrap();
            value.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            *config = serde_json::from_value(value).unwrap();
        }
    }

    fn warnings(set: &str, files: &str) -> Vec<String> {
        let node = control_plane(|inputs| {
            with(set)(inputs);
            inputs.config.file_assets = serde_yaml::from_str(files).unwrap();
        });
        node.warnings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_file_that_the_pod_does_not_see_is_refused() {
        for field in
            ["admissionControlConfigFile", "authenticationTokenWebhookConfigFile", "encryptionProviderConfig"]
        {
            let told = problems(with(&format!("{{{field}: /etc/mine/file}}")));
            let start = format!("APIServerConfig.KubeAPIServer.{field}: names /etc/mine/file");
            assert!(told.starts_with(&start) && told.contains("/srv/kubernetes/kube-apiserver"), "{told}");
        }
    }

    #[test]
    fn a_file_that_nothing_writes_is_warned_of() {
        let told = warnings("{auditPolicyFile: /etc/audit/policy.yaml}", "[]");
        assert!(
            told[0]
                .starts_with("APIServerConfig.KubeAPIServer.auditPolicyFile: names /etc/audit/policy.yaml")
        );
        assert_eq!(told.len(), 1, "{told:?}");
        let file = "[{path: /etc/audit/policy.yaml, content: x}]";
        assert_eq!(warnings("{auditPolicyFile: /etc/audit/policy.yaml}", file), [""; 0]);
    }

    #[test]
    fn kops_own_files_are_there() {
        let own = "{clientCAFile: /srv/kubernetes/ca.crt, tokenAuthFile: /srv/kubernetes/kube-apiserver/known_tokens.csv}";
        assert_eq!(warnings(own, "[]"), [""; 0]);
    }
}
