//! Cilium's own etcd cluster: checks that its clients have a CA.

use kops_agent_spec::NodeupConfig;

use super::Problems;

/// Id of the keyset that signs certificates for the clients of Cilium's etcd cluster.
pub const CILIUM_ETCD_CLIENTS_CA: &str = "etcd-clients-ca-cilium";

/// Checks that the configuration names the key that signs the certificate of Cilium.
pub(super) fn resolve(config: &NodeupConfig, problems: &mut Problems) {
    if config.use_cilium_etcd && config.keypair_ids.get(CILIUM_ETCD_CLIENTS_CA).is_none_or(String::is_empty) {
        problems.add(
            format!("KeypairIDs.{CILIUM_ETCD_CLIENTS_CA}"),
            "is missing, but UseCiliumEtcd is set; run `kops update cluster --yes`",
        );
    }
}
