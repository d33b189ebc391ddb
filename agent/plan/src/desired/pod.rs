//! Static pods, with the fields of Kubernetes' Pod that kOps' own static pods use. Unset fields are not
//! written.

use std::collections::BTreeMap;

use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_with::{apply, skip_serializing_none};

use crate::resolve::NodeConfig;
use crate::resource::{File, FreeText};
use kops_agent_spec::go_yaml::{self, is_zero};
use kops_agent_spec::{ContainerEnvVar, Quantity};

use super::paths;

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Pod {
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    kind: &'static str,
    pub(super) metadata: Metadata,
    pub(super) spec: PodSpec,
}

#[apply(BTreeMap => #[serde(skip_serializing_if = "BTreeMap::is_empty")])]
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Metadata {
    pub(super) name: String,
    pub(super) namespace: &'static str,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
}

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PodSpec {
    #[serde_with(skip_apply)]
    pub(super) host_network: bool,
    #[serde_with(skip_apply)]
    pub(super) containers: Entries<Container>,
    pub(super) priority_class_name: Option<&'static str>,
    pub(super) tolerations: Vec<Toleration>,
    pub(super) volumes: Entries<Volume>,
    pub(super) security_context: Option<PodSecurityContext>,
}

/// The containers or volumes of a pod: first the entries that this program writes, then the unchanged entries
/// of the state store.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entries<T> {
    own: Vec<T>,
    stored: Vec<Value>,
}

impl<T> Default for Entries<T> {
    fn default() -> Entries<T> {
        Entries { own: Vec::new(), stored: Vec::new() }
    }
}

impl<T> Entries<T> {
    /// Adds an entry that this program writes.
    pub(super) fn push(&mut self, entry: T) {
        self.own.push(entry);
    }

    /// Adds unchanged entries of the state store.
    pub(super) fn extend_stored(&mut self, entries: &[Value]) {
        self.stored.extend_from_slice(entries);
    }
}

impl<T: Serialize> Serialize for Entries<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.own.len() + self.stored.len()))?;
        for entry in &self.own {
            list.serialize_element(entry)?;
        }
        for entry in &self.stored {
            list.serialize_element(entry)?;
        }
        list.end()
    }
}

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Container {
    #[serde_with(skip_apply)]
    pub(super) name: String,
    #[serde_with(skip_apply)]
    pub(super) image: String,
    pub(super) command: Vec<String>,
    pub(super) args: Vec<String>,
    pub(super) env: Vec<EnvVar>,
    pub(super) ports: Vec<ContainerPort>,
    pub(super) liveness_probe: Option<Probe>,
    pub(super) readiness_probe: Option<Probe>,
    pub(super) startup_probe: Option<Probe>,
    #[serde_with(skip_apply)]
    pub(super) resources: Resources,
    pub(super) security_context: Option<SecurityContext>,
    pub(super) volume_mounts: Vec<VolumeMount>,
}

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EnvVar {
    #[serde_with(skip_apply)]
    name: String,
    value: String,
    value_from: Option<Value>,
}

impl EnvVar {
    pub(super) fn new(name: impl Into<String>, value: impl Into<String>) -> EnvVar {
        EnvVar { name: name.into(), value: value.into(), value_from: None }
    }
}

impl From<&ContainerEnvVar> for EnvVar {
    fn from(variable: &ContainerEnvVar) -> EnvVar {
        EnvVar {
            name: variable.name.clone(),
            value: variable.value.clone(),
            value_from: variable.value_from.clone(),
        }
    }
}

#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ContainerPort {
    pub(super) name: Option<&'static str>,
    pub(super) container_port: i32,
    pub(super) host_port: Option<i32>,
}

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Probe {
    pub(super) http_get: Option<HttpGet>,
    pub(super) initial_delay_seconds: i32,
    pub(super) timeout_seconds: i32,
    pub(super) period_seconds: i32,
    pub(super) failure_threshold: i32,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct HttpGet {
    pub(super) host: &'static str,
    pub(super) path: &'static str,
    pub(super) port: i32,
    pub(super) scheme: Option<&'static str>,
}

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Resources {
    pub(super) requests: BTreeMap<&'static str, Quantity>,
    pub(super) limits: BTreeMap<&'static str, Quantity>,
}

impl Resources {
    /// Resources of a control-plane component. The CPU request is always set. All other requests and limits are set
    /// only if the user sets them.
    pub(super) fn of_component(
        cpu_request: Option<&Quantity>,
        usual_cpu_request: &str,
        cpu_limit: Option<&Quantity>,
        memory_request: Option<&Quantity>,
        memory_limit: Option<&Quantity>,
    ) -> Resources {
        let amounts = |amounts: [(&'static str, Option<&Quantity>); 2]| {
            amounts.into_iter().filter_map(|(name, amount)| Some((name, amount?.clone()))).collect()
        };
        let usual_cpu_request = Quantity::from(usual_cpu_request);
        Resources {
            requests: amounts([
                ("cpu", Some(cpu_request.unwrap_or(&usual_cpu_request))),
                ("memory", memory_request),
            ]),
            limits: amounts([("cpu", cpu_limit), ("memory", memory_limit)]),
        }
    }
}

#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SecurityContext {
    pub(super) privileged: Option<bool>,
    pub(super) run_as_non_root: Option<bool>,
    pub(super) run_as_user: Option<i64>,
    pub(super) run_as_group: Option<i64>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PodSecurityContext {
    #[serde(rename = "seLinuxOptions")]
    pub(super) selinux_options: Option<SelinuxOptions>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct SelinuxOptions {
    #[serde(rename = "type")]
    pub(super) selinux_type: &'static str,
    pub(super) level: &'static str,
}

#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Toleration {
    pub(super) key: Option<&'static str>,
    pub(super) operator: &'static str,
}

/// A path of the node that a pod's containers can mount.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Volume {
    pub(super) name: String,
    pub(super) host_path: HostPath,
}

#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct HostPath {
    pub(super) path: String,
    #[serde(rename = "type")]
    pub(super) path_type: Option<&'static str>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct VolumeMount {
    pub(super) name: String,
    pub(super) mount_path: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) read_only: bool,
}

/// Whether a container may write to a mounted path of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    ReadOnly,
    ReadWrite,
}

/// The pod's priority class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Critical {
    Cluster,
    Node,
}

impl Pod {
    /// A pod in kube-system that uses the node's network, is critical, and may read host paths under SELinux.
    pub(super) fn new(node: &NodeConfig, name: &str, critical: Critical) -> Pod {
        Pod {
            api_version: "v1",
            kind: "Pod",
            metadata: Metadata {
                name: name.into(),
                namespace: "kube-system",
                labels: BTreeMap::from([("k8s-app".into(), name.into())]),
                annotations: BTreeMap::new(),
            },
            spec: PodSpec {
                host_network: true,
                priority_class_name: Some(match critical {
                    Critical::Cluster => "system-cluster-critical",
                    Critical::Node => "system-node-critical",
                }),
                tolerations: vec![Toleration { key: Some("CriticalAddonsOnly"), operator: "Exists" }],
                security_context: unconfined_by_selinux(node),
                ..PodSpec::default()
            },
        }
    }

    /// Mounts the node's `path` in the container at the same path.
    pub(super) fn mount(&mut self, container: &mut Container, name: &str, path: &str, access: Access) {
        self.mount_as(container, name, path, path, access, None);
    }

    /// Mounts the node's `host_path` in the container at `mount_path`. `path_type` is the `type` of the
    /// hostPath volume.
    pub(super) fn mount_as(
        &mut self,
        container: &mut Container,
        name: &str,
        host_path: &str,
        mount_path: &str,
        access: Access,
        path_type: Option<&'static str>,
    ) {
        self.spec
            .volumes
            .push(Volume { name: name.into(), host_path: HostPath { path: host_path.into(), path_type } });
        container.volume_mounts.push(VolumeMount {
            name: name.into(),
            mount_path: mount_path.into(),
            read_only: access == Access::ReadOnly,
        });
    }

    /// Mounts the distribution's directories of trusted certificates in the container.
    pub(super) fn mount_ssl_directories(&mut self, node: &NodeConfig, container: &mut Container) {
        for directory in node.distribution.ssl_directories {
            self.mount(container, &directory.replace('/', ""), directory, Access::ReadOnly);
        }
    }

    /// The file from which kubelet runs this pod.
    pub(super) fn manifest_file(&self) -> File {
        manifest_file(&self.metadata.name, go_yaml::to_string(self))
    }
}

/// The file from which kubelet runs the pod of this name. All users can read it, as in upstream.
pub(super) fn manifest_file(name: &str, text: String) -> File {
    File::text(paths::manifest(name), text).with_free_text(FreeText::Variables)
}

/// The context that lets a pod without privileges read the host's files under SELinux
/// (pkg/kubemanifest/selinux.go). `None` if containerd does not use SELinux.
fn unconfined_by_selinux(node: &NodeConfig) -> Option<PodSecurityContext> {
    let selinux_options = Some(unconfined_selinux_options(node)?);
    Some(PodSecurityContext { selinux_options })
}

/// The options that let a pod without privileges read the host's files under SELinux. A manifest from the
/// state store can have these options too. `None` if containerd does not use SELinux.
pub(super) fn unconfined_selinux_options(node: &NodeConfig) -> Option<SelinuxOptions> {
    node.containerd().selinux_enabled.then_some(SelinuxOptions { selinux_type: "spc_t", level: "s0" })
}

/// The command and arguments that run `program` through `go-runner`, which Kubernetes' images include.
/// `go-runner` copies the program's output to a log file.
pub(super) fn logged_command(
    component: &str,
    program: &str,
    flags: Vec<String>,
) -> (Vec<String>, Vec<String>) {
    let mut args =
        vec![format!("--log-file={}", paths::log(component)), "--also-stdout".into(), program.to_owned()];
    args.extend(flags);
    (vec!["/go-runner".into()], args)
}

/// The proxy's environment variables, in the four spellings that programs read.
pub(super) fn proxy_env(node: &NodeConfig) -> Vec<EnvVar> {
    node.proxy_environment().into_iter().map(|(name, value)| EnvVar::new(name, value)).collect()
}
