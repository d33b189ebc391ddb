//! Everything that decides the nodes of a cluster which is only in manifests: there is no state store, keyset or machine yet.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kops_agent_pki::self_signed_authority;
use kops_agent_plan::derive;
use kops_agent_plan::resolve::Problems;
use kops_agent_spec::facts::Facts;
use kops_agent_spec::kops_release::Told;
use kops_agent_spec::{Cluster, InstanceGroup, InstanceGroupRole, Keyset, Secret};
use time::OffsetDateTime;

use crate::cluster_files::ClusterFiles;
use crate::configuration::Configuration;
use crate::reading::{UNWRITTEN_MANIFEST, boot_config_of_group};
use crate::{Derivation, NodeSpec, StoreFile};

/// The keyset that replaces each keyset that kOps has not made yet.
pub struct SupposedKeyset(Keyset);

impl SupposedKeyset {
    /// Makes a keyset with a new authority.
    pub fn new() -> Result<SupposedKeyset> {
        let pair = self_signed_authority("kubernetes-ca", OffsetDateTime::now_utc())?;
        let text = format!(
            "{{kind: Keyset, metadata: {{name: kubernetes-ca}}, spec: {{primaryID: '1', keys: [{{id: '1', publicMaterial: {}, \
             privateMaterial: {}}}]}}}}",
            STANDARD.encode(pair.certificate),
            STANDARD.encode(pair.private_key)
        );
        Ok(SupposedKeyset(Keyset::parse(text.as_bytes(), "keyset.yaml")?))
    }
}

/// The inputs for the nodes of a group, if the cluster is in no state store. For a cluster in a store, [`crate::read_of_group`] returns
/// such inputs. `cluster` must already have the fields that kOps adds.
pub fn suppose(
    cluster: &Cluster,
    group: &InstanceGroup,
    roles: &BTreeSet<InstanceGroupRole>,
    kops_version: &str,
    SupposedKeyset(keyset): &SupposedKeyset,
) -> Result<NodeSpec, Problems> {
    let needed = derive::needed_files(cluster, group);
    let keysets: BTreeMap<String, Keyset> =
        needed.keysets.into_iter().map(|id| (id, keyset.clone())).collect();
    let secrets: BTreeMap<String, Secret> =
        needed.secrets.into_iter().map(|id| (id, Secret::new(Vec::new()))).collect();
    let file = |url: &str| StoreFile { url: url.to_owned(), text: Vec::new() };
    let derivation = Derivation::of_group(ClusterFiles {
        cluster: cluster.clone(),
        cluster_file: file("cluster"),
        user_cluster: None,
        group: group.clone(),
        group_file: file("group"),
        kops_version: Some(kops_version.to_owned()),
        roles: roles.clone(),
        keysets,
        secrets: secrets.clone(),
        cluster_addons: None,
        bootstrap_channel: None,
        addon_manifests: BTreeMap::new(),
        denied: Vec::new(),
        denied_keysets: BTreeMap::new(),
    });
    let derived = derivation.derive();
    let boot = boot_config_of_group(&derivation, &derived)?;
    let mut spec = NodeSpec::new(boot, Facts::default(), Configuration::of_derived(derivation, derived));
    spec.inputs.kops_version = Some(Told::by_version_file(kops_version.to_owned()));
    spec.inputs.keysets = spec.inputs.wanted_keysets().into_iter().map(|id| (id, keyset.clone())).collect();
    spec.inputs.manifests = spec
        .inputs
        .wanted_manifests()
        .into_iter()
        .map(|path| (path, UNWRITTEN_MANIFEST.to_owned()))
        .collect();
    for (name, secret) in secrets {
        spec.keep_secret(name, secret);
    }
    Ok(spec)
}
