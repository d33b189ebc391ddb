//! Deriving the node's configuration from the cluster spec, and proving it: where the user-data pins
//! `NodeupConfigHash`, the bytes that kOps would have written must hash to it, asset hashes included.

use std::collections::BTreeMap;

use anyhow::Result;
use kops_agent_plan::derive::{self, Inputs, KnownHashes};
use kops_agent_plan::resolve::Problems;
use kops_agent_spec::facts::{Architecture, Facts};
use kops_agent_spec::go_yaml;
use kops_agent_spec::{BootConfig, Cluster, InstanceGroup, NodeupConfig};
use kops_agent_store::Store;

use super::cluster_spec::ClusterFiles;
use super::hashes::{self, HashSource};
use super::nodeup_config::Pinned;
use super::options::SourceOptions;

/// Everything that a configuration is derived from.
pub(crate) struct Derivation {
    /// What the store says.
    pub(crate) files: ClusterFiles,
    known: KnownHashes,
    machine_type: Option<String>,
    api_server_addresses: Vec<String>,
    etcd_addresses: Vec<String>,
    /// The downloads of which the mirror that they come from has told the hash.
    pub(super) told_by_mirrors: Vec<String>,
    /// Whether it gives the configuration that the user-data pins, byte for byte.
    pub(crate) is_proven: bool,
}

/// A cluster spec that gives another configuration than the one that the user-data pins.
#[derive(Debug, thiserror::Error)]
#[error("{problem}")]
pub(crate) struct SpecDiffers {
    /// What differs, and perhaps why.
    pub(crate) problem: String,
    /// The hash in the boot config.
    pub(crate) expected: String,
    /// The hash of the derived configuration.
    pub(crate) actual: String,
}

/// A derived configuration.
pub(crate) struct Derived {
    /// The configuration, as far as it can be derived in spite of the problems.
    pub(crate) config: NodeupConfig,
    /// What is wrong with the cluster spec.
    pub(crate) problems: Problems,
}

/// How a derived configuration stands to the hash in the user-data.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Proof {
    /// It is the one that kOps wrote.
    Proven,
    /// The hashes of these downloads are not known, so nothing can be proven.
    Unhashed(Vec<String>),
    /// It has this hash instead.
    Differs(String),
}

impl Derivation {
    /// For a group of the store, without a machine.
    pub(crate) fn of_group(files: ClusterFiles) -> Derivation {
        Derivation {
            files,
            known: KnownHashes::default(),
            machine_type: None,
            api_server_addresses: Vec::new(),
            etcd_addresses: Vec::new(),
            told_by_mirrors: Vec::new(),
            is_proven: false,
        }
    }

    /// For a machine of the group: its user-data and its type tell what the store does not.
    pub(super) fn of_machine(files: ClusterFiles, boot: &BootConfig, facts: &Facts) -> Derivation {
        Derivation {
            machine_type: facts.cloud.instance_type().map(str::to_owned),
            api_server_addresses: boot.api_server_ips.clone(),
            etcd_addresses: boot.etcd_ips.clone(),
            ..Derivation::of_group(files)
        }
    }

    /// The same, known to give the configuration that the user-data pins.
    pub(super) fn proven(self) -> Derivation {
        Derivation { is_proven: true, ..self }
    }

    /// Learns the hashes of downloads: those of the pinned file, those of `--asset-hashes`, and from publishers
    /// what is still missing of one architecture, or of both.
    ///
    /// # Errors
    /// If the file of hashes cannot be read, or no publisher be reached.
    pub(crate) async fn learn_hashes(
        &mut self,
        pinned: Option<&Pinned>,
        file: Option<&std::path::Path>,
        source: &HashSource,
        architecture: Option<Architecture>,
        store: &Store,
    ) -> Result<()> {
        self.known.extend(source.remembered());
        if let Some(pinned) = pinned {
            self.known.extend(KnownHashes::of_config(&pinned.config));
        }
        if let Some(file) = file {
            hashes::read_file(file, &mut self.known)?;
        }
        let told = hashes::missing(store, source, &self.inputs(), architecture, &self.known).await?;
        self.known.extend(told.known);
        self.told_by_mirrors = told.by_mirrors;
        Ok(())
    }

    /// The hashes that were told, by URL.
    pub(super) fn known_hashes(&self) -> BTreeMap<String, String> {
        self.known.iter().map(|(url, sha256)| (url.to_owned(), sha256.to_owned())).collect()
    }

    /// Derives.
    pub(crate) fn derive(&self) -> Derived {
        let (config, problems) = derive::nodeup_config_and_problems(&self.inputs());
        Derived { config, problems }
    }

    /// Derives from another cluster and group in place of the store's.
    ///
    /// # Errors
    /// What is wrong with them.
    pub(crate) fn of_changed(
        &self,
        cluster: &Cluster,
        instance_group: &InstanceGroup,
    ) -> Result<NodeupConfig, Problems> {
        derive::nodeup_config(&Inputs { cluster, instance_group, ..self.inputs() })
    }

    /// What derivation sees.
    pub(crate) fn inputs(&self) -> Inputs<'_> {
        let files = &self.files;
        Inputs {
            cluster: &files.cluster,
            user_cluster: files.user_cluster.as_ref(),
            instance_group: &files.group,
            roles: &files.roles,
            keysets: &files.keysets,
            secrets: &files.secrets,
            cluster_addons: files.cluster_addons.as_deref(),
            bootstrap_channel: files.bootstrap_channel.as_deref(),
            addon_manifests: &files.addon_manifests,
            asset_hashes: &self.known,
            machine_type: self.machine_type.as_deref(),
            machine_type_has_gpu: None,
            worker_kubernetes_version: None,
            api_server_addresses: &self.api_server_addresses,
            etcd_addresses: &self.etcd_addresses,
        }
    }

    /// Why the derived configuration may not be the pinned one, in lines for people.
    pub(super) fn differences(&self, derived: &Derived, pinned: Option<&Pinned>) -> Vec<String> {
        let differences = pinned.map(|pinned| derive::differences(&derived.config, &pinned.config));
        let unknown_fields = pinned.map(Pinned::unknown_fields).unwrap_or_default();
        let of_pinned = differences.as_deref().map(|differences| (differences, unknown_fields.as_slice()));
        let reasons = derive::reasons(&self.inputs(), of_pinned);

        let mut lines: Vec<String> = differences.iter().flatten().map(ToString::to_string).collect();
        lines.extend(unknown_fields.iter().map(|field| format!("{field}: only kOps wrote it")));
        lines.extend(reasons.into_iter().map(|reason| format!("perhaps {}", reason.text())));
        lines
    }
}

/// Derives for a machine, learning hashes as far as its arguments allow.
///
/// # Errors
/// The store's, and those of learning hashes.
pub(super) async fn derive(
    files: ClusterFiles,
    options: &SourceOptions,
    boot: &BootConfig,
    facts: &Facts,
    pinned: Option<&Pinned>,
    source: &HashSource,
    store: &Store,
) -> Result<(Derivation, Derived)> {
    let mut derivation = Derivation::of_machine(files, boot, facts);
    // The file lists both architectures, so its bytes are known only with the hashes of both.
    let architecture = if boot.nodeup_config_hash.is_empty() { Some(facts.arch) } else { None };
    derivation.learn_hashes(pinned, options.asset_hashes.as_deref(), source, architecture, store).await?;
    let derived = derivation.derive();
    Ok((derivation, derived))
}

impl Derived {
    /// The bytes that kOps would have written.
    pub(crate) fn text(&self) -> String {
        go_yaml::to_string(&self.config)
    }

    /// Holds the bytes against the hash that the user-data pins.
    pub(super) fn prove(&self, nodeup_config_hash: &str) -> Proof {
        let actual = NodeupConfig::hash(self.text().as_bytes());
        if actual == nodeup_config_hash {
            return Proof::Proven;
        }
        match derive::unhashed(&self.config) {
            unhashed if unhashed.is_empty() => Proof::Differs(actual),
            unhashed => Proof::Unhashed(unhashed),
        }
    }
}
