//! kube-apiserver-healthcheck: the sidecar in the API server's pod. It checks the API server's health, so
//! kubelet's probes need no credentials. The sidecar's containers come from the state store. This file adds
//! the sidecar's user and certificate.
//!
//! Source: nodeup/pkg/model/kube_apiserver_healthcheck.go.

use crate::resolve::{KUBERNETES_CA, NodeConfig};
use crate::resource::{CertificateType, DesiredState, User};

use super::certificates;

/// The sidecar's user on the machine (pkg/wellknownusers) and at the API server. The sidecar's certificate
/// has this name too.
const NAME: &str = "kube-apiserver-healthcheck";
/// The uid of the sidecar's container.
const UID: u32 = 10012;
const SECRETS: &str = "/etc/kubernetes/kube-apiserver-healthcheck/secrets";

/// If the API server has the sidecar, adds the sidecar's user and client certificate.
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::resolve::testing::{api_server, control_plane};
    use crate::resource::{Kind, ResourceId};

    use super::*;

    #[test]
    fn the_sidecars_user_owns_its_key() {
        for node in [control_plane(|_| {}), api_server(|_| {})] {
            let mut state = DesiredState::default();
            add(&node, &mut state);
            let key = state.get(&ResourceId::new(Kind::File, format!("{SECRETS}/client.key"))).unwrap();
            let key = serde_json::to_value(key).unwrap();
            assert_eq!((&key["owner"], &key["mode"]), (&NAME.into(), &"0600".into()));
            assert!(state.get(&ResourceId::new(Kind::File, format!("{SECRETS}/ca.crt"))).is_some());
        }
    }

    #[test]
    fn without_the_sidecar_nothing_is_added() {
        let mut state = DesiredState::default();
        add(&control_plane(|inputs| inputs.config.static_manifests.clear()), &mut state);
        assert!(state.is_empty());
    }
}
