//! kube-proxy: a static pod on every node. It sends the packets for a Service to the pods of the Service. If
//! the network plugin does this itself, there is no kube-proxy.
//!
//! Source: nodeup/pkg/model/kube_proxy.go.

use crate::resolve::NodeConfig;
use crate::resource::{DesiredState, File, Mode};
use kops_agent_spec::KubeProxyConfig;

use super::flags::Flags;
use super::pod::{Access, Container, Critical, Pod, Resources, SecurityContext, logged_command};
use super::{certificates, paths};

const NAME: &str = "kube-proxy";
const DIRECTORY: &str = "/var/lib/kube-proxy";

pub(super) fn add(node: &NodeConfig, state: &mut DesiredState) {
    let Some(config) = &node.kube_proxy else { return };
    let subject = certificates::user("system:kube-proxy");
    let kubeconfig = certificates::node_kubeconfig(state, node, NAME, subject);
    state.add(File::new(paths::KUBE_PROXY_KUBECONFIG, kubeconfig).mode(Mode(0o400)));
    state.add(File::text(paths::log(NAME), "").mode(Mode(0o400)).create_only());
    state.add(pod(node, config).manifest_file());
}

fn pod(node: &NodeConfig, config: &KubeProxyConfig) -> Pod {
    let mut pod = Pod::new(node, NAME, Critical::Node);
    pod.metadata.labels.insert("kubernetes.io/managed-by".into(), "nodeup".into());
    pod.metadata.labels.insert("tier".into(), "node".into());
    let (command, args) = logged_command(NAME, "/usr/local/bin/kube-proxy", flags(config));
    let mut container = Container {
        name: NAME.into(),
        image: node.image(&config.image),
        command,
        args,
        resources: resources(config),
        security_context: Some(SecurityContext { privileged: Some(true), ..SecurityContext::default() }),
        ..Container::default()
    };
    pod.mount(&mut container, "logfile", &paths::log(NAME), Access::ReadWrite);
    let kubeconfig = match node.release().kube_proxy_mounts_kubeconfig_alone() {
        true => paths::KUBE_PROXY_KUBECONFIG,
        false => DIRECTORY,
    };
    pod.mount(&mut container, "kubeconfig", kubeconfig, Access::ReadOnly);
    pod.mount(&mut container, "modules", "/lib/modules", Access::ReadOnly);
    pod.mount_as(
        &mut container,
        "ssl-certs-hosts",
        "/usr/share/ca-certificates",
        "/etc/ssl/certs",
        Access::ReadOnly,
        None,
    );
    if node.uses_gossip() {
        // kube-proxy finds the API server's addresses in `/etc/hosts`, because protokube writes them into this file.
        pod.mount(&mut container, "etchosts", "/etc/hosts", Access::ReadOnly);
    }
    let lock = "/run/xtables.lock";
    pod.mount_as(&mut container, "iptableslock", lock, lock, Access::ReadWrite, Some("FileOrCreate"));
    pod.spec.containers.push(container);
    pod
}

fn resources(config: &KubeProxyConfig) -> Resources {
    let mut resources = Resources::default();
    resources.requests.extend(config.cpu_request.clone().map(|cpu| ("cpu", cpu)));
    resources.requests.extend(config.memory_request.clone().map(|memory| ("memory", memory)));
    resources.limits.extend(config.cpu_limit.clone().map(|cpu| ("cpu", cpu)));
    resources.limits.extend(config.memory_limit.clone().map(|memory| ("memory", memory)));
    resources
}

fn flags(config: &KubeProxyConfig) -> Vec<String> {
    let KubeProxyConfig {
        log_level,
        cluster_cidr,
        hostname_override,
        bind_address,
        master,
        metrics_bind_address,
        proxy_mode,
        ipvs_exclude_cidrs,
        ipvs_min_sync_period,
        ipvs_scheduler,
        ipvs_sync_period,
        feature_gates,
        conntrack_max_per_core,
        conntrack_min,
        // These settings are fields of the pod's container, not flags.
        image: _,
        cpu_request: _,
        cpu_limit: _,
        memory_request: _,
        memory_limit: _,
        // This setting decides whether the node has kube-proxy.
        enabled: _,
    } = config;
    let mut flags = Flags::default();
    flags.set("bind-address", bind_address);
    flags.set("cluster-cidr", cluster_cidr);
    flags.set("conntrack-max-per-core", conntrack_max_per_core);
    flags.set("conntrack-min", conntrack_min);
    flags.set("feature-gates", feature_gates);
    flags.set("hostname-override", hostname_override);
    flags.set("ipvs-exclude-cidrs", ipvs_exclude_cidrs);
    flags.set("ipvs-min-sync-period", ipvs_min_sync_period);
    flags.set("ipvs-scheduler", ipvs_scheduler);
    flags.set("ipvs-sync-period", ipvs_sync_period);
    flags.set("kubeconfig", paths::KUBE_PROXY_KUBECONFIG);
    flags.set("master", master);
    flags.set("metrics-bind-address", metrics_bind_address);
    flags.set("oom-score-adj", &-998);
    flags.set("proxy-mode", proxy_mode);
    flags.set("v", log_level);
    flags.into_sorted()
}
