//! Serving certificates and liveness probes of kube-scheduler and kube-controller-manager, which serve HTTPS
//! on their machine. The certificate is for the DNS name that a Service in front of them would have.
//!
//! Source: nodeup/pkg/model/kube_scheduler.go, kube_controller_manager.go.

use crate::resolve::{KUBERNETES_CA, NodeConfig};
use crate::resource::{CertificateType, DesiredState};

use super::certificates;
use super::pod::{HttpGet, Probe};

/// Adds `server.crt` and `server.key` to the component's own directory.
pub(super) fn add_certificate(node: &NodeConfig, component: &str, state: &mut DesiredState) {
    let certificate = certificates::issued(
        node,
        &format!("{component}-server"),
        KUBERNETES_CA,
        CertificateType::Server,
        certificates::user(component),
        vec![format!("{component}.kube-system.svc.{}", node.cluster_dns_domain())],
    );
    certificates::add_with_files(state, certificate, &node.srv_kubernetes(component), "server", None, "root");
}

/// kubelet restarts the component if this probe fails.
pub(super) fn liveness_probe(port: i32) -> Probe {
    Probe {
        http_get: Some(HttpGet { host: "127.0.0.1", path: "/healthz", port, scheme: Some("HTTPS") }),
        initial_delay_seconds: 15,
        timeout_seconds: 15,
        ..Probe::default()
    }
}
