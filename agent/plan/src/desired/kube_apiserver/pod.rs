//! The API server's pod: its container, its mounts and its probes.

use std::collections::BTreeMap;
use std::path::Path;

use crate::desired::paths;
use crate::desired::pod::{
    Access, Container, ContainerPort, Critical, EnvVar, HttpGet, Pod, Probe, Resources, logged_command,
    proxy_env,
};
use crate::resolve::{KubeApiServer, NodeConfig};
use kops_agent_cluster::takeover::bootstrap_name;
use kops_agent_spec::KubeAPIServerConfig;

use super::{NAME, directory};
use super::{authentication, flags};

const HEALTHCHECK_PORT: i32 = 3990;

/// The DNS names under which dns-controller publishes a machine's addresses while the pod of the machine's API server
/// exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::desired) enum Published {
    ApiServer,
    /// Includes the name of the bootstrap server. The API server's pod has this name in its annotations, because the bootstrap server is a
    /// service of the machine and has no pod of its own.
    ApiServerAndBootstrapServer,
}

pub(super) fn pod(node: &NodeConfig, api_server: &KubeApiServer, published: Published) -> Pod {
    let config = &api_server.config;
    let mut pod = Pod::new(node, NAME, Critical::Cluster);
    pod.metadata.annotations = annotations(node, api_server, published);
    let (command, args) =
        logged_command(NAME, "/usr/local/bin/kube-apiserver", flags::flags(node, api_server));
    let mut container = Container {
        name: NAME.into(),
        image: node.image(&config.image),
        command,
        args,
        env: config.env.iter().map(EnvVar::from).chain(proxy_env(node)).collect(),
        ports: ports(config),
        resources: resources(config),
        ..Container::default()
    };
    add_probes(node, api_server, &mut container);
    add_mounts(node, api_server, &mut pod, &mut container);
    pod.spec.containers.push(container);
    if let Some(sidecar) = &api_server.healthcheck {
        pod.spec.containers.extend_stored(sidecar.containers());
        pod.spec.volumes.extend_stored(sidecar.volumes());
    }
    pod
}

/// The pod's annotations. dns-controller publishes the machine's addresses under the names in these annotations, separated by commas
/// (upstream: `updatePodRecords` in `dns-controller/pkg/watchers/pod.go`; external-dns does so too with
/// `--compatibility=kops-dns-controller`).
fn annotations(
    node: &NodeConfig,
    api_server: &KubeApiServer,
    published: Published,
) -> BTreeMap<String, String> {
    let api = &api_server.api;
    let mut annotations =
        BTreeMap::from([("kubectl.kubernetes.io/default-container".to_owned(), NAME.to_owned())]);
    if node.config.uses_none_dns {
        return annotations;
    }
    let mut internal = Vec::new();
    if !api.load_balancer.as_ref().is_some_and(|balancer| balancer.use_for_internal_api) {
        internal.push(node.api_internal_name());
    }
    if published == Published::ApiServerAndBootstrapServer {
        internal.push(bootstrap_name(node.cluster_name()));
    }
    if !internal.is_empty() {
        annotations.insert("dns.alpha.kubernetes.io/internal".into(), internal.join(","));
    }
    if api.dns.is_some() && !api.public_name.is_empty() {
        annotations.insert("dns.alpha.kubernetes.io/external".into(), api.public_name.clone());
    }
    annotations
}

fn ports(config: &KubeAPIServerConfig) -> Vec<ContainerPort> {
    let port = |name: &'static str, port: i32| ContainerPort {
        name: Some(name),
        container_port: port,
        host_port: (port != 0).then_some(port),
    };
    let mut ports = vec![port("https", config.secure_port)];
    ports.extend(insecure_port(config).map(|insecure| port("local", insecure)));
    ports
}

fn insecure_port(config: &KubeAPIServerConfig) -> Option<i32> {
    config.insecure_port.filter(|port| *port != 0)
}

fn resources(config: &KubeAPIServerConfig) -> Resources {
    Resources::of_component(
        config.cpu_request.as_ref(),
        "150m",
        config.cpu_limit.as_ref(),
        config.memory_request.as_ref(),
        config.memory_limit.as_ref(),
    )
}

fn add_probes(node: &NodeConfig, api_server: &KubeApiServer, container: &mut Container) {
    let (port, scheme) = probed_port(api_server);
    let get = |path: &'static str| Some(HttpGet { host: "127.0.0.1", path, port, scheme });
    if node.kubernetes_version.has_only_a_liveness_probe() {
        container.liveness_probe = Some(Probe {
            http_get: get("/healthz"),
            initial_delay_seconds: 45,
            timeout_seconds: 15,
            failure_threshold: 0,
            period_seconds: 0,
        });
        return;
    }
    container.startup_probe = Some(Probe {
        http_get: get("/livez"),
        initial_delay_seconds: 10,
        timeout_seconds: 5 * 60,
        failure_threshold: 30,
        period_seconds: 10,
    });
    container.liveness_probe = Some(Probe {
        http_get: get("/livez"),
        initial_delay_seconds: 10,
        timeout_seconds: 15,
        failure_threshold: 8,
        period_seconds: 10,
    });
    container.readiness_probe = Some(Probe {
        http_get: get("/healthz"),
        initial_delay_seconds: 0,
        timeout_seconds: 15,
        failure_threshold: 3,
        period_seconds: 1,
    });
}

/// The port and scheme of kubelet's probes. Without the healthcheck sidecar, kubelet probes the API server directly. The API server must
/// then accept requests without credentials.
fn probed_port(api_server: &KubeApiServer) -> (i32, Option<&'static str>) {
    let config = &api_server.config;
    match insecure_port(config) {
        _ if api_server.healthcheck.is_some() => (HEALTHCHECK_PORT, None),
        Some(port) => (port, None),
        None if config.secure_port != 0 => (config.secure_port, Some("HTTPS")),
        None => (HEALTHCHECK_PORT, None),
    }
}

fn add_mounts(node: &NodeConfig, api_server: &KubeApiServer, pod: &mut Pod, container: &mut Container) {
    pod.mount(container, "logfile", &paths::log(NAME), Access::ReadWrite);
    pod.mount_ssl_directories(node, container);
    if node.release().has_in_tree_cloud_config() {
        pod.mount(container, "cloudconfig", paths::IN_TREE_CLOUD_CONFIG, Access::ReadOnly);
    }
    pod.mount(container, "kubernetesca", &paths::kubernetes_ca(node.distribution), Access::ReadOnly);
    pod.mount(container, "srvkapi", &directory(node), Access::ReadOnly);
    pod.mount(container, "srvsshproxy", node.distribution.srv_sshproxy, Access::ReadOnly);
    add_audit_mounts(node, &api_server.config, pod, container);
    if api_server.token_webhook.is_some() {
        pod.mount(container, "authn-config", authentication::CONFIG_FILE, Access::ReadOnly);
    }
}

fn add_audit_mounts(
    node: &NodeConfig,
    config: &KubeAPIServerConfig,
    pod: &mut Pod,
    container: &mut Container,
) {
    let log = config.audit_log_path.as_deref().filter(|path| *path != "-").unwrap_or_default();
    if let Some(log_directory) = directory_of(log) {
        // The API server rotates the log by renaming it. A mounted file cannot be renamed, so the directory of the log is mounted instead.
        pod.mount(container, "auditlogpathdir", log_directory, Access::ReadWrite);
    }
    if let Some(policy_directory) = directory_of(&config.audit_policy_file)
        && policy_directory != directory(node)
    {
        pod.mount(container, "auditconfigdir", policy_directory, Access::ReadOnly);
    }
}

fn directory_of(path: &str) -> Option<&str> {
    Path::new(path).parent()?.to_str().filter(|directory| !directory.is_empty())
}

#[cfg(test)]
mod tests;
