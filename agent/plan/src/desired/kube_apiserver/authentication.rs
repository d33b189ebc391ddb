//! Webhooks on the machine that verify tokens for the API server: Kopeio's authentication and AWS IAM
//! Authenticator. Each of them runs in its own pod. This file configures how the API server calls them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use crate::resolve::{KUBERNETES_CA, KubeApiServer, NodeConfig, TokenWebhook};
use crate::resource::{CertificateType, Content, DesiredState, File, Mode, User};
use kops_agent_spec::go_yaml;

use crate::desired::certificates;

/// The kubeconfig with which the API server calls the token webhook.
pub(super) const CONFIG_FILE: &str = "/etc/kubernetes/authn.config";

const AUTHENTICATOR: &str = "aws-iam-authenticator";
/// The user that the authenticator's container runs as (pkg/wellknownusers).
const AUTHENTICATOR_UID: u32 = 10000;
/// The directory from which the authenticator's container reads its certificate, on every distribution.
const AUTHENTICATOR_DIRECTORY: &str = "/srv/kubernetes/aws-iam-authenticator";

/// Adds the webhook's kubeconfig. For AWS IAM Authenticator, also adds the authenticator's user and serving certificate.
pub(super) fn add(node: &NodeConfig, api_server: &KubeApiServer, state: &mut DesiredState) {
    match api_server.token_webhook {
        None => {}
        Some(TokenWebhook::Kopeio) => state.add(File::text(CONFIG_FILE, kopeio_config())),
        Some(TokenWebhook::AwsIamAuthenticator) => {
            state.add(File::text(CONFIG_FILE, authenticator_config(node)).mode(Mode::PRIVATE));
            add_authenticator(node, state);
        }
    }
}

fn add_authenticator(node: &NodeConfig, state: &mut DesiredState) {
    state.add(User {
        name: AUTHENTICATOR.into(),
        uid: AUTHENTICATOR_UID,
        home: AUTHENTICATOR_DIRECTORY.into(),
        shell: "/sbin/nologin".into(),
    });
    state.add(certificates::issued(
        node,
        AUTHENTICATOR,
        KUBERNETES_CA,
        CertificateType::Server,
        certificates::user(AUTHENTICATOR),
        vec!["localhost".into(), "127.0.0.1".into()],
    ));
    let mut add = |file: &str, content: Content| {
        let path = format!("{AUTHENTICATOR_DIRECTORY}/{file}");
        state.add(File::new(path, content).mode(Mode::PRIVATE).owned_by(AUTHENTICATOR).group(AUTHENTICATOR));
    };
    add("cert.pem", Content::Certificate(AUTHENTICATOR.into()));
    add("key.pem", Content::PrivateKey(AUTHENTICATOR.into()));
}

fn kopeio_config() -> String {
    let cluster =
        Cluster { server: "http://127.0.0.1:9001/hooks/authn", certificate_authority_data: String::new() };
    go_yaml::to_string(&WebhookConfig::new("Config", "v1", "webhook", cluster))
}

fn authenticator_config(node: &NodeConfig) -> String {
    let cluster = Cluster {
        server: "https://127.0.0.1:21362/authenticate",
        certificate_authority_data: STANDARD.encode(node.ca(KUBERNETES_CA)),
    };
    // kOps has always omitted kind and version in this file, and the API server accepts that.
    go_yaml::to_string(&WebhookConfig::new("", "", AUTHENTICATOR, cluster))
}

/// A kubeconfig with which the API server calls a webhook without credentials.
#[derive(Serialize)]
struct WebhookConfig {
    kind: &'static str,
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    #[serde(rename = "current-context")]
    current_context: &'static str,
    clusters: [NamedCluster; 1],
    contexts: [NamedContext; 1],
    users: [NamedUser; 1],
}

#[derive(Serialize)]
struct NamedCluster {
    name: &'static str,
    cluster: Cluster,
}

#[derive(Serialize)]
struct Cluster {
    server: &'static str,
    #[serde(rename = "certificate-authority-data", skip_serializing_if = "String::is_empty")]
    certificate_authority_data: String,
}

#[derive(Serialize)]
struct NamedContext {
    name: &'static str,
    context: Context,
}

#[derive(Serialize)]
struct Context {
    cluster: &'static str,
    user: &'static str,
}

#[derive(Serialize)]
struct NamedUser {
    name: &'static str,
    user: NoCredentials,
}

#[derive(Serialize)]
struct NoCredentials {}

impl WebhookConfig {
    fn new(
        kind: &'static str,
        api_version: &'static str,
        cluster_name: &'static str,
        cluster: Cluster,
    ) -> WebhookConfig {
        let (context, user) = ("webhook", "kube-apiserver");
        WebhookConfig {
            kind,
            api_version,
            current_context: context,
            clusters: [NamedCluster { name: cluster_name, cluster }],
            contexts: [NamedContext { name: context, context: Context { cluster: cluster_name, user } }],
            users: [NamedUser { name: user, user: NoCredentials {} }],
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::resolve::testing::control_plane;
    use crate::resource::{Kind, ResourceId};
    use kops_agent_spec::AuthenticationSpec;

    use super::*;

    fn state(authentication: &AuthenticationSpec) -> DesiredState {
        let node = control_plane(|inputs| {
            let settings = inputs.config.api_server_config.as_mut().unwrap();
            settings.authentication = Some(authentication.clone());
        });
        let mut state = DesiredState::default();
        add(&node, node.api_server.as_ref().unwrap(), &mut state);
        state
    }

    fn config_file(state: &DesiredState) -> serde_json::Value {
        serde_json::to_value(state.get(&ResourceId::new(Kind::File, CONFIG_FILE)).unwrap()).unwrap()
    }

    #[test]
    fn kopeio_is_called_without_tls() {
        let state =
            state(&AuthenticationSpec { kopeio: Some(Default::default()), ..AuthenticationSpec::default() });
        let file = config_file(&state);
        assert_eq!((state.len(), &file["mode"]), (1, &"0644".into()));
        assert_eq!(
            file["content"]["text"],
            "apiVersion: v1\nclusters:\n- cluster:\n    server: http://127.0.0.1:9001/hooks/authn\n  name: webhook\n\
             contexts:\n- context:\n    cluster: webhook\n    user: kube-apiserver\n  name: webhook\n\
             current-context: webhook\nkind: Config\nusers:\n- name: kube-apiserver\n  user: {}\n"
        );
    }

    #[test]
    fn aws_iam_authenticator_is_called_with_tls_and_owns_its_key() {
        let state =
            state(&AuthenticationSpec { aws: Some(Default::default()), ..AuthenticationSpec::default() });
        let file = config_file(&state);
        assert_eq!(file["mode"], "0600");
        let text = file["content"]["text"].as_str().unwrap();
        assert!(text.contains("server: https://127.0.0.1:21362/authenticate\n"), "{text}");
        assert!(
            text.contains(&format!("certificate-authority-data: {}\n", STANDARD.encode("CA\\n"))),
            "{text}"
        );
        let key = ResourceId::new(Kind::File, "/srv/kubernetes/aws-iam-authenticator/key.pem");
        let key = serde_json::to_value(state.get(&key).unwrap()).unwrap();
        assert_eq!((&key["owner"], &key["mode"]), (&AUTHENTICATOR.into(), &"0600".into()));
    }

    #[test]
    fn without_a_webhook_nothing_is_added() {
        assert!(state(&AuthenticationSpec::default()).is_empty());
    }
}
