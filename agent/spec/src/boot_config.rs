//! The boot config: the settings in a machine's user-data with which the machine finds the rest of its configuration.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::apply;

use super::cloud_provider::CloudProvider;
use super::error::SpecError;
use super::go_yaml::is_zero;
use super::role::InstanceGroupRole;
use super::user_data::find_kube_env;
use super::yaml::{from_document, parse_yaml};

/// The content of `kube_env.yaml` in the user-data (upstream: `pkg/apis/nodeup/config.go`, `BootConfig`).
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct BootConfig {
    #[serde_with(skip_apply)]
    pub cloud_provider: CloudProvider,
    /// URL of the cluster's folder in the state store. Only machines that may read the store have this URL.
    #[serde(default)]
    pub config_base: Option<String>,
    /// The kops-controller that gives this machine its configuration, if the machine may not read the store.
    #[serde(default)]
    pub config_server: Option<ConfigServerOptions>,
    /// Addresses of the API server for `/etc/hosts`, if the cluster has no DNS.
    #[serde(rename = "APIServerIPs", default)]
    pub api_server_ips: Vec<String>,
    #[serde(default)]
    pub cluster_name: String,
    #[serde(default)]
    pub instance_group_name: String,
    #[serde_with(skip_apply)]
    pub instance_group_role: InstanceGroupRole,
    /// Standard base64 of the SHA-256 of the group's `nodeupconfig.yaml`.
    #[serde(default)]
    #[serde_with(skip_apply)]
    pub nodeup_config_hash: String,
    /// Addresses of etcd for `/etc/hosts`, if etcd is not on this machine.
    #[serde(rename = "EtcdIPs", default)]
    pub etcd_ips: Vec<String>,
}

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ConfigServerOptions {
    /// URLs of the bootstrap servers (kops-controller). All of them give equal responses.
    pub servers: Vec<String>,
    /// The name that the server's certificate must have. Empty means the name in the URL.
    #[serde(rename = "tlsServerName")]
    pub tls_server_name: String,
    /// PEM certificates of `kubernetes-ca`, which signs the server's certificate.
    #[serde(rename = "CACertificates")]
    #[serde_with(skip_apply)]
    pub ca_certificates: String,
}

impl BootConfig {
    /// Reads a `kube_env.yaml`. Errors contain `source_file`.
    pub fn parse(text: &[u8], source_file: &str) -> Result<BootConfig, SpecError> {
        parse_yaml(text, source_file)
    }

    /// Like [`BootConfig::parse`], for a document that is already parsed.
    pub fn from_document(document: &Value, source_file: &str) -> Result<BootConfig, SpecError> {
        from_document(document, source_file)
    }

    /// Finds the boot config in an instance's user-data. The user-data may have three forms: kOps' boot script, a MIME message with this
    /// script as a part, or `kube_env.yaml` itself. Each form may be gzipped. Fails if the user-data has no boot config.
    pub fn from_user_data(user_data: &[u8]) -> Result<BootConfig, SpecError> {
        let kube_env = find_kube_env(user_data)
            .map_err(|problem| SpecError::of_file("the user-data", problem.to_string()))?;
        BootConfig::parse(&kube_env, "kube_env.yaml in the user-data")
    }

    /// Whether the machine requests its configuration from kops-controller.
    pub fn asks_server(&self) -> bool {
        self.config_server.as_ref().is_some_and(|server| !server.servers.is_empty())
    }

    /// URL of the cluster's folder in the state store. `None` if the machine requests its configuration from a server. `kops toolbox
    /// enroll` writes both a store and a server, and the machine then uses the server (upstream: `Run` in `upup/pkg/fi/nodeup/command.go`).
    pub fn store_base(&self) -> Option<&str> {
        self.config_base.as_deref().filter(|base| !base.is_empty() && !self.asks_server())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_config_server_takes_precedence_over_the_store() {
        let base = "ConfigBase: file:///etc/kubernetes/kops/config";
        for (text, store, server) in [
            (base, Some("file:///etc/kubernetes/kops/config"), false),
            ("ConfigBase: ''", None, false),
            ("ConfigServer: {servers: [https://10.0.0.1:3988/]}", None, true),
            (&format!("{base}\nConfigServer: {{servers: [https://10.0.0.1:3988/]}}"), None, true),
            (
                &format!("{base}\nConfigServer: {{servers: []}}"),
                Some("file:///etc/kubernetes/kops/config"),
                false,
            ),
        ] {
            let text = format!("CloudProvider: metal\nInstanceGroupRole: Node\n{text}\n");
            let boot = BootConfig::parse(text.as_bytes(), "kube_env.yaml").unwrap();
            assert_eq!((boot.store_base(), boot.asks_server()), (store, server), "{text}");
        }
    }
}
