//! The API server's serving certificate, its client certificates for etcd, kubelets and aggregated API
//! servers, and the keys of service accounts.

use crate::resolve::{KUBERNETES_CA, KubeApiServer, NodeConfig};
use crate::resource::{Certificate, CertificateType, DesiredState, File, Mode};

use crate::desired::certificates;

use super::{directory, file};

const ETCD_CLIENTS_CA: &str = "etcd-clients-ca";
const AGGREGATOR_CA: &str = "apiserver-aggregator-ca";
const SERVICE_ACCOUNT: &str = "service-account";

pub(super) fn add(node: &NodeConfig, api_server: &KubeApiServer, state: &mut DesiredState) {
    add_serving_certificate(node, api_server, state);
    add_client_certificate(node, state, "etcd-client", ETCD_CLIENTS_CA, "kube-apiserver");
    add_client_certificate(node, state, "kubelet-api", KUBERNETES_CA, "kubelet-api");
    // Aggregated API servers expect this common name (`requestheaderAllowedNames`).
    add_client_certificate(node, state, "apiserver-aggregator", AGGREGATOR_CA, "aggregator");
    state.add(File::text(file(node, "etcd-ca.crt"), node.ca(ETCD_CLIENTS_CA)));
    state.add(File::text(file(node, "apiserver-aggregator-ca.crt"), node.ca(AGGREGATOR_CA)));
    add_service_account_keys(node, api_server, state);
}

fn add_serving_certificate(node: &NodeConfig, api_server: &KubeApiServer, state: &mut DesiredState) {
    let certificate = Certificate {
        // AWS' web identity federation needs the CA in the chain.
        include_root: true,
        ..certificates::issued(
            node,
            "master",
            KUBERNETES_CA,
            CertificateType::Server,
            certificates::user("kubernetes-master"),
            api_server.serving_names.clone(),
        )
    };
    certificates::add_with_files(state, certificate, &directory(node), "server", None, "root");
}

fn add_client_certificate(
    node: &NodeConfig,
    state: &mut DesiredState,
    name: &str,
    signer: &str,
    common_name: &str,
) {
    let subject = certificates::user(common_name);
    let certificate = certificates::issued(node, name, signer, CertificateType::Client, subject, Vec::new());
    certificates::add_with_files(state, certificate, &directory(node), name, None, "root");
}

fn add_service_account_keys(node: &NodeConfig, api_server: &KubeApiServer, state: &mut DesiredState) {
    let public_keys = api_server.service_account_public_keys.as_str();
    state.add(File::text(file(node, "service-account.pub"), public_keys).mode(Mode::PRIVATE));
    if api_server.config.service_account_signing_key_file.is_none() {
        state.add(certificates::private_key_file(node, SERVICE_ACCOUNT, &file(node, "service-account.key")));
    }
}
