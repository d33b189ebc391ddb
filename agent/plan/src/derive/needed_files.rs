//! The files of the store that a derivation needs, so that the caller can fetch them first.

use std::collections::BTreeSet;

use super::{api_server, authorities, warm_pool};
use crate::resolve::KUBERNETES_CA;
use kops_agent_spec::{Cluster, InstanceGroup, SpecError};

/// The files of the store that a derivation needs besides the completed cluster and the groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NeededFiles {
    /// The ids of key sets: `<keypairs>/private/<id>/keyset.yaml`.
    pub keysets: BTreeSet<String>,
    /// The ids of secrets: `<secrets>/<id>`.
    pub secrets: BTreeSet<String>,
    /// Optional files below the cluster's folder: `config` for [`super::Inputs::user_cluster`], and `clusteraddons/default` for
    /// [`super::Inputs::cluster_addons`].
    pub optional: BTreeSet<&'static str>,
    /// Whether the derivation needs `addons/bootstrap-channel.yaml`. If so, the derivation also uses every manifest in this channel
    /// ([`addon_manifests`]) that can be read.
    pub bootstrap_channel: bool,
}

/// The files that the derivation for a group reads.
pub fn needed_files(cluster: &Cluster, group: &InstanceGroup) -> NeededFiles {
    let names = authorities::keyset_names(cluster, group);
    let runs_api_server = group.spec.role.runs_api_server();
    let encrypts = runs_api_server && cluster.spec.encryption_config == Some(true);
    let aws = cluster.spec.cloud_provider.aws.as_ref();
    NeededFiles {
        keysets: names.trusted.into_iter().chain(names.named).collect(),
        secrets: encrypts.then(|| api_server::ENCRYPTION_CONFIG.to_owned()).into_iter().collect(),
        optional: if runs_api_server {
            BTreeSet::from(["config", "clusteraddons/default"])
        } else {
            BTreeSet::new()
        },
        bootstrap_channel: aws.is_some_and(|aws| {
            warm_pool::has_images(aws.warm_pool.as_ref(), group.spec.warm_pool.as_ref(), group.spec.role)
        }),
    }
}

/// The manifests in a bootstrap channel, as paths below `addons/`. Fails if the text is not kOps' own channel.
pub fn addon_manifests(bootstrap_channel: &str) -> Result<BTreeSet<String>, SpecError> {
    let addons = warm_pool::addons_of(bootstrap_channel)?;
    Ok(addons.into_iter().map(|addon| addon.manifest).collect())
}

/// The id that a key set has in stores of older kOps releases. `None` if all releases use the same id (upstream:
/// `upup/pkg/fi/vfs_keystorereader.go`).
pub fn former_keyset_name(id: &str) -> Option<&'static str> {
    match id {
        KUBERNETES_CA => Some("ca"),
        authorities::SERVICE_ACCOUNT => Some("master"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::derive::testing::Store;

    #[test]
    fn a_worker_needs_one_key_set() {
        let store = Store::new("encryptionConfig: true", "role: Node");
        let needed = needed_files(&store.cluster, &store.group);
        assert_eq!(
            needed,
            NeededFiles { keysets: BTreeSet::from(["kubernetes-ca".into()]), ..NeededFiles::default() }
        );
    }

    #[test]
    fn control_planes_and_warm_pools_need_more_files() {
        let store = Store::new("encryptionConfig: true, warmPool: {}", "role: APIServer");
        let needed = needed_files(&store.cluster, &store.group);
        assert!(needed.keysets.contains("service-account") && needed.secrets.contains("encryptionconfig"));
        assert!(needed.optional.contains("config") && needed.bootstrap_channel);
        let channel = |spec: &str| format!("{{kind: Addons, metadata: {{name: bootstrap}}, spec: {spec}}}");
        let manifests = addon_manifests(&channel("{addons: [{name: a, manifest: a/b.yaml}]}")).unwrap();
        assert_eq!(manifests, BTreeSet::from(["a/b.yaml".to_owned()]));
        for other in [channel("{addons: {}}"), "a: manifest".to_owned(), String::new()] {
            let problem = addon_manifests(&other).unwrap_err().to_string();
            assert!(problem.contains("addons/bootstrap-channel.yaml: it "), "{problem}");
        }
    }
}
