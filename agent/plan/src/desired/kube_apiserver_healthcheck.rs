//! kube-apiserver-healthcheck: the sidecar in the API server's pod that asks it how it is, so that kubelet's
//! probes need no credentials. Its containers come from the state store; here are its user and its
//! certificate.
//!
//! Source: nodeup/pkg/model/kube_apiserver_healthcheck.go.

use crate::resolve::{KUBERNETES_CA, NodeConfig};
use crate::resource::{CertificateType, DesiredState, User};

use super::certificates;

/// Its user on the machine (pkg/wellknownusers) and at the API server; also the name of its certificate.
const NAME: &str = "kube-apiserver-healthcheck";
/// As whom its container runs.
const UID: u32 = 10012;
const SECRETS: &str = "/etc/kubernetes/kube-apiserver-healthcheck/secrets";

/// Adds the user and the certificate where the API server has the sidecar.
pub(super) fn add(node: &NodeConfig, state: &mut DesiredState) {
    if node.api_server.as_ref().is_none_or(|api_server| api_server.healthcheck.is_none()) {
        return;
    }
    state.add(User { name: NAME.into(), uid: UID, home: SECRETS.into(), shell: "/sbin/nologin".into() });
    let certificate = certificates::issued(
        node,
        NAME,
        KUBERNETES_CA,
        CertificateType::Client,
        certificates::user(NAME),
        Vec::new(),
    );
    certificates::add_with_files(state, certificate, SECRETS, "client", Some("ca"), NAME);
}
