//! The key sets in the configuration of a group's machines (upstream: `pkg/nodemodel/nodeupconfigbuilder.go`, `BuildConfig`).
//!
//! The store has more key sets than a group needs. So the cluster's spec selects them, not a listing of the store.

use std::collections::{BTreeMap, BTreeSet};

use super::{Inputs, discovery};
use crate::resolve::{KUBERNETES_CA, Problems};
use kops_agent_spec::{Cluster, InstanceGroup, InstanceGroupRole, Keyset};

/// The key set that signs service account tokens.
pub(super) const SERVICE_ACCOUNT: &str = "service-account";
const DISCOVERY_CA: &str = "discovery-ca";

/// The key sets in a group's configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct KeysetNames {
    /// Key sets whose certificates and ids the configuration contains.
    pub(super) trusted: BTreeSet<String>,
    /// Key sets whose ids the configuration contains, but not their certificates.
    pub(super) named: BTreeSet<String>,
}

/// The key sets in the configuration of this group's machines.
pub(super) fn keyset_names(cluster: &Cluster, group: &InstanceGroup) -> KeysetNames {
    let mut names = KeysetNames::default();
    let role = group.spec.role;
    if role == InstanceGroupRole::Bastion {
        return names;
    }
    let etcd_clusters: Vec<&str> = cluster.spec.etcd_clusters.iter().map(|etcd| etcd.name.as_str()).collect();
    names.trusted.insert(KUBERNETES_CA.to_owned());
    if etcd_clusters.contains(&"cilium") {
        names.trusted.insert("etcd-clients-ca-cilium".to_owned());
    }
    if role.runs_api_server() {
        names.trusted.extend(["apiserver-aggregator-ca", "etcd-clients-ca"].map(str::to_owned));
        names.named.insert(SERVICE_ACCOUNT.to_owned());
    }
    if role == InstanceGroupRole::ControlPlane {
        for etcd in etcd_clusters {
            names.trusted.extend([format!("etcd-manager-ca-{etcd}"), format!("etcd-peers-ca-{etcd}")]);
            if !matches!(etcd, "main" | "events" | "leases") {
                names.trusted.insert(format!("etcd-clients-ca-{etcd}"));
            }
        }
        if has_discovery_service(cluster) {
            names.named.insert(DISCOVERY_CA.to_owned());
        }
    }
    names
}

fn has_discovery_service(cluster: &Cluster) -> bool {
    let discovery = cluster.spec.service_account_issuer_discovery.as_ref();
    let service = discovery.and_then(|discovery| discovery.discovery_service.as_ref());
    service.is_some_and(|service| !service.url.is_empty())
}

/// The fields `CAs` and `KeypairIDs`.
///
/// A machine that cannot read the store gets the cluster's own authority from the boot config. The machine's configuration contains only
/// the id of that authority.
pub(super) fn cas_and_keypair_ids(
    inputs: &Inputs<'_>,
    problems: &mut Problems,
) -> (BTreeMap<String, String>, BTreeMap<String, String>) {
    let KeysetNames { trusted, named } = keyset_names(inputs.cluster, inputs.instance_group);
    let (mut cas, mut ids) = (BTreeMap::new(), BTreeMap::new());
    for name in trusted {
        let Some(keyset) = keyset(inputs, &name, problems) else { continue };
        if name != KUBERNETES_CA || inputs.runs_api_server() || !discovery::asks_kops_controller(inputs) {
            cas.insert(name.clone(), keyset.trusted_certificates_pem());
        }
        ids.insert(name.clone(), primary_id(keyset, &name, problems));
    }
    for name in named {
        let Some(keyset) = keyset(inputs, &name, problems) else { continue };
        ids.insert(name.clone(), primary_id(keyset, &name, problems));
    }
    (cas, ids)
}

/// Returns a required key set. If the key set is missing, adds a problem.
pub(super) fn keyset<'a>(inputs: &Inputs<'a>, name: &str, problems: &mut Problems) -> Option<&'a Keyset> {
    let keyset = inputs.keysets.get(name);
    if keyset.is_none() {
        problems.add(
            file(name),
            "it is not in the store, or this machine may not read it; `kops update cluster --yes` writes it",
        );
    }
    keyset
}

fn primary_id(keyset: &Keyset, name: &str, problems: &mut Problems) -> String {
    match keyset.primary() {
        Some(primary) => primary.id.clone(),
        None => {
            problems.add(
                file(name),
                format!("it has no trusted key with a numeric id; create one with `kops create keypair {name} --primary`"),
            );
            String::new()
        }
    }
}

fn file(name: &str) -> String {
    format!("pki/private/{name}/keyset.yaml")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::derive::testing::Store;

    fn names(cluster: &str, role: &str) -> (Vec<String>, Vec<String>) {
        let store = Store::new(cluster, &format!("role: {role}"));
        let names = keyset_names(&store.cluster, &store.group);
        (names.trusted.into_iter().collect(), names.named.into_iter().collect())
    }

    const CILIUM: &str = "etcdClusters: [{name: main}, {name: cilium}]";

    #[test]
    fn each_role_gets_only_its_key_sets() {
        assert_eq!(names(CILIUM, "Bastion"), (vec![], vec![]));
        let (trusted, named) = names(CILIUM, "Node");
        assert_eq!((trusted, named), (vec!["etcd-clients-ca-cilium".into(), "kubernetes-ca".into()], vec![]));
        let (trusted, named) = names("etcdClusters: [{name: main}]", "APIServer");
        assert_eq!(trusted, ["apiserver-aggregator-ca", "etcd-clients-ca", "kubernetes-ca"]);
        assert_eq!(named, ["service-account"]);
        let (trusted, _) = names(CILIUM, "Master");
        assert_eq!(
            trusted,
            [
                "apiserver-aggregator-ca",
                "etcd-clients-ca",
                "etcd-clients-ca-cilium",
                "etcd-manager-ca-cilium",
                "etcd-manager-ca-main",
                "etcd-peers-ca-cilium",
                "etcd-peers-ca-main",
                "kubernetes-ca",
            ]
        );
    }

    #[test]
    fn a_discovery_service_has_its_own_authority() {
        let discovery = "serviceAccountIssuerDiscovery: {discoveryService: {url: 'https://d.example.com/u'}}";
        assert_eq!(names(discovery, "Master").1, ["discovery-ca", "service-account"]);
        assert_eq!(names(discovery, "APIServer").1, ["service-account"]);
    }

    #[test]
    fn every_missing_key_set_is_a_problem() {
        let store = Store::new("", "role: APIServer");
        let mut problems = Problems::default();
        cas_and_keypair_ids(&store.inputs(), &mut problems);
        assert_eq!(problems.iter().count(), 4, "{problems}");
    }
}
