//! Cilium's own etcd cluster: that there is an authority for its clients.

use kops_agent_spec::NodeupConfig;

use super::Problems;

/// Id of the keyset that signs the certificates of that cluster's clients.
pub const CILIUM_ETCD_CLIENTS_CA: &str = "etcd-clients-ca-cilium";

/// Whether the configuration names the key by which Cilium's certificate is signed.
pub(super) fn resolve(config: &NodeupConfig, problems: &mut Problems) {
    if config.use_cilium_etcd && config.keypair_ids.get(CILIUM_ETCD_CLIENTS_CA).is_none_or(String::is_empty) {
        problems.add(
            format!("KeypairIDs.{CILIUM_ETCD_CLIENTS_CA}"),
            "is missing, but UseCiliumEtcd is set; run `kops update cluster --yes`",
        );
    }
}
