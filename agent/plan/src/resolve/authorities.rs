//! The keysets that every cluster has, by the ids that kOps gives them.

/// Id of the keyset that signs Kubernetes' certificates.
pub const KUBERNETES_CA: &str = "kubernetes-ca";
/// Id of the keyset that signs the certificates with which control planes register with a discovery
/// service.
pub const DISCOVERY_CA: &str = "discovery-ca";
