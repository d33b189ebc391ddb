//! The keysets of a cluster, by the ids that kOps gives them. Checks the keypairs whose private keys a machine
//! with an API server uses: all of them must be in the state store.
//!
//! Source: `buildCertificatePairTask` in nodeup/pkg/model/context.go and `newStaticKeystore` in
//! upup/pkg/fi/nodeup/nodetasks/issue_cert.go.

use std::collections::BTreeSet;

use kops_agent_spec::NodeupConfig;
use kops_agent_spec::invalid::Invalid;

use super::basis::Basis;
use super::problems::Problems;

/// Id of the keyset that signs Kubernetes' certificates.
pub const KUBERNETES_CA: &str = "kubernetes-ca";
/// Id of the keyset that signs the certificates with which control planes register with a discovery
/// service.
pub const DISCOVERY_CA: &str = "discovery-ca";
/// Id of the keyset that signs certificates for the clients of Cilium's etcd cluster.
pub const CILIUM_ETCD_CLIENTS_CA: &str = "etcd-clients-ca-cilium";

/// Adds a problem for each keypair of this machine that is missing in the store, or that lacks its certificate or
/// private key.
pub(super) fn check(basis: &Basis<'_>, problems: &mut Problems) {
    for keyset in used(basis) {
        let _ = problems.keep(&format!("KeypairIDs.{keyset}"), usable(basis, &keyset));
    }
}

/// Checks that the configuration names the key that signs the certificate of Cilium, if Cilium has an etcd cluster.
pub(super) fn check_cilium_etcd(config: &NodeupConfig, problems: &mut Problems) {
    if config.use_cilium_etcd && config.keypair_ids.get(CILIUM_ETCD_CLIENTS_CA).is_none_or(String::is_empty) {
        problems.add(
            format!("KeypairIDs.{CILIUM_ETCD_CLIENTS_CA}"),
            "is missing, but UseCiliumEtcd is set; run `kops update cluster --yes`",
        );
    }
}

/// The keysets with which etcd-manager signs certificates for one etcd cluster. Each entry has etcd-manager's
/// name for the keyset, and then the keyset. The API server has one client certificate for all its etcd
/// clusters, so its etcd clusters share one CA for clients (nodeup/pkg/model/etcd_manager_tls.go).
pub fn etcd_manager_authorities(cluster: &str) -> [(&'static str, String); 3] {
    let clients = match cluster {
        "main" | "events" | "leases" => "etcd-clients-ca".to_owned(),
        cluster => format!("etcd-clients-ca-{cluster}"),
    };
    [
        ("etcd-manager-ca", format!("etcd-manager-ca-{cluster}")),
        ("etcd-peers-ca", format!("etcd-peers-ca-{cluster}")),
        ("etcd-clients-ca", clients),
    ]
}

fn used(basis: &Basis<'_>) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    if basis.boot.instance_group_role.runs_api_server() {
        used.extend(
            [KUBERNETES_CA, "etcd-clients-ca", "apiserver-aggregator-ca", "service-account"]
                .map(str::to_owned),
        );
    }
    if basis.is_control_plane() {
        for cluster in &basis.config.etcd_cluster_names {
            used.extend(etcd_manager_authorities(cluster).map(|(_, keyset)| keyset));
        }
        if basis.config.use_cilium_etcd {
            used.insert(CILIUM_ETCD_CLIENTS_CA.to_owned());
        }
        if basis.config.discovery_service.is_some() {
            used.insert(DISCOVERY_CA.to_owned());
        }
    }
    used
}

fn usable(basis: &Basis<'_>, keyset: &str) -> Result<(), Invalid> {
    let id = basis.config.keypair_ids.get(keyset).map_or("", String::as_str);
    if id.is_empty() {
        return Err(Invalid::new(
            "is not set, but this machine uses it; run `kops update cluster --yes` and replace this instance",
        ));
    }
    let file = format!("pki/private/{keyset}/keyset.yaml");
    let items = basis.keysets.get(keyset).ok_or_else(|| {
        format!("is {id}, but {file} is not in the state store, or this machine may not read it; run `kops update cluster --yes`")
    })?;
    let item = items.item(id).ok_or_else(|| {
        format!(
            "is {id}, which {file} does not have; run `kops update cluster --yes` and replace this instance"
        )
    })?;
    if item.certificate.is_none() || item.private_material.is_none() {
        return Err(Invalid::new(format!(
            "is {id}, but {file} does not have both the certificate and the private key of this keypair; \
             create another keypair with `kops create keypair {keyset} --primary`"
        )));
    }
    Ok(())
}
