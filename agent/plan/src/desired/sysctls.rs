//! Kernel parameters for a node with many connections, files and pods, and parameters that the user adds.
//!
//! Source: nodeup/pkg/model/sysctls.go.

use crate::resolve::{NodeConfig, Project};
use crate::resource::{DesiredState, File};
use kops_agent_spec::CloudProvider;

/// The kernel parameters at the beginning of every node's file. In the file, the range of Services' ports follows them.
const MEMORY_AND_LOCKUPS: &str = "\
# Databases and search engines map many files into memory.
vm.max_map_count = 1048576

# A CPU that hangs must not take the node's workloads with it in silence.
kernel.softlockup_panic = 1
kernel.softlockup_all_cpu_backtrace = 1
";

/// Kernel parameters that every node sets. In the file, they come after the parameter for the port range of Services.
const CONNECTIONS_AND_FILES: &str = "\
# Many connections, waiting and open, with buffers for fast networks.
net.core.somaxconn = 32768
net.core.rmem_max = 16777216
net.core.wmem_max = 16777216
net.ipv4.tcp_wmem = 4096 87380 16777216
net.ipv4.tcp_rmem = 4096 87380 16777216
net.ipv4.tcp_max_syn_backlog = 8096
net.ipv4.tcp_slow_start_after_idle = 0
net.ipv4.tcp_tw_reuse = 1
net.core.netdev_max_backlog = 16384

# Many files, and many watches of them by one user.
fs.file-max = 2097152
fs.inotify.max_user_instances = 8192
";

/// kOps up to 1.35 raises this limit. Newer kernels derive this limit from the machine's memory.
const WATCHES: &str = "fs.inotify.max_user_watches = 524288
";

const WHAT_KUBELET_CHECKS: &str = "
# kubelet checks these.
vm.overcommit_memory = 1
kernel.panic = 10
kernel.panic_on_oops = 1
";

/// AWS reuses the IP addresses of a subnet. By default, Linux keeps stale ARP entries while it has fewer than 128 entries. A new machine
/// with a reused address can then be unreachable (kubernetes/kubernetes#23395).
const AWS: &str = "
net.ipv4.neigh.default.gc_thresh1=0
";

/// Amazon Linux 2 hides bridged packets from iptables. kube-proxy's iptables rules need the packets of Flannel's
/// bridge (flannel-io/flannel#902).
const BRIDGES: &str = "
net.bridge.bridge-nf-call-ip6tables=1
net.bridge.bridge-nf-call-iptables=1
";

const FORWARD_IPV6: &str = "
net.ipv6.conf.all.forwarding=1
";

const FORWARD_IPV4: &str = "
net.ipv4.ip_forward=1
";

/// Packets of Cilium's pods arrive on one interface, and the replies leave through a different interface. The reverse path filter would
/// drop these packets.
const CILIUM: &str = "
net.ipv4.conf.all.rp_filter=0
net.ipv4.conf.lxc*.rp_filter=0
net.ipv4.conf.cilium_*.rp_filter=0
";

/// Adds the file of kernel parameters. `sysctl` applies the parameters whenever the file changes.
pub(super) fn add(node: &NodeConfig, state: &mut DesiredState) {
    let mut text = String::from(MEMORY_AND_LOCKUPS);
    text.push_str(&format!(
        "\n# Ports of Services are not for outgoing connections.\nnet.ipv4.ip_local_reserved_ports = {}\n\n",
        node.reserved_ports
    ));
    text.push_str(CONNECTIONS_AND_FILES);
    if node.release().raises_inotify_watches() {
        text.push_str(WATCHES);
    }
    text.push_str(WHAT_KUBELET_CHECKS);
    if node.cloud_provider() == CloudProvider::Aws {
        text.push_str(AWS);
    }
    if node.distribution.project == Project::AmazonLinux2 && is_flannel_over_iptables(node) {
        text.push_str(BRIDGES);
    }
    if node.is_ipv6_only() {
        text.push_str(&accept_router_advertisements(node));
        text.push_str(FORWARD_IPV6);
    } else {
        text.push_str(FORWARD_IPV4);
    }
    if node.config.networking.cilium.is_some() {
        text.push_str(CILIUM);
    }
    for parameter in &node.config.sysctl_parameters {
        text.push_str(parameter.trim_end());
        text.push('\n');
    }
    state.add(File::text("/etc/sysctl.d/99-k8s-general.conf", text).on_change(&["sysctl", "--system"]));
}

fn is_flannel_over_iptables(node: &NodeConfig) -> bool {
    let mode = node.config.kube_proxy.as_ref().map(|proxy| proxy.proxy_mode.as_str());
    node.config.networking.flannel.is_some() && matches!(mode, Some("" | "iptables"))
}

/// Debian 11 gets its IPv6 route from router advertisements. A kernel that forwards packets ignores router advertisements, unless
/// `accept_ra` is 2 for the interface. The setting for all interfaces only affects interfaces that appear later, so each present interface
/// gets its own setting.
fn accept_router_advertisements(node: &NodeConfig) -> String {
    let distribution = node.distribution;
    if distribution.project != Project::Debian || distribution.version >= 12.0 {
        return String::new();
    }
    let names = node.facts.interfaces.iter().map(|interface| &interface.name);
    names
        .filter(|name| name.starts_with("ens"))
        .map(|name| format!("net.ipv6.conf.{name}.accept_ra=2\n"))
        .collect()
}
