//! Derives the node's configuration from the cluster spec, and proves it. If the user-data pins `NodeupConfigHash`, the bytes that
//! kOps would have written must have this hash, asset hashes included.

use std::collections::BTreeMap;

use anyhow::Result;
use kops_agent_plan::derive::{self, Inputs, KnownHashes};
use kops_agent_plan::resolve::Problems;
use kops_agent_spec::facts::{Architecture, Facts};
use kops_agent_spec::failure::{Failing, Kind};
use kops_agent_spec::go_yaml;
use kops_agent_spec::invalid::Invalid;
use kops_agent_spec::kops_release::{KopsRelease, Told, WrittenBy};
use kops_agent_spec::{BootConfig, Cluster, InstanceGroup, NodeupConfig};
use kops_agent_store::Store;
use thiserror::Error;

use crate::asset_hashes::{self, HashSource};
use crate::cluster_files::ClusterFiles;
use crate::nodeup_config::Pinned;

/// All inputs for deriving a configuration.
pub struct Derivation {
    pub files: ClusterFiles,
    written_by: Result<WrittenBy, Invalid>,
    known: KnownHashes,
    machine_type: Option<String>,
    api_server_addresses: Vec<String>,
    etcd_addresses: Vec<String>,
    /// The downloads whose hash came from their own mirror or over plain http.
    pub told_by_mirrors: Vec<String>,
    /// Whether the derived configuration equals the configuration that the user-data pins, byte for byte.
    pub is_proven: bool,
}

pub struct Derived {
    /// The derived configuration. It may be incomplete if `problems` is not empty.
    pub config: NodeupConfig,
    /// The errors of the cluster spec.
    pub problems: Problems,
}

/// The result of comparing a derived configuration with the hash in the user-data.
#[derive(Debug, PartialEq, Eq)]
pub enum Proof {
    /// The derived configuration equals the configuration that kOps wrote.
    Proven,
    /// The hashes of these downloads are unknown, so the configurations cannot be compared.
    Unhashed(Vec<String>),
    /// The derived configuration has this hash, which differs from the pinned hash.
    Differs(String),
}

impl Derivation {
    /// A derivation for a group of the store, without a machine.
    pub fn of_group(files: ClusterFiles) -> Derivation {
        Derivation {
            written_by: WrittenBy::of_store(files.kops_version.as_deref()),
            files,
            known: KnownHashes::default(),
            machine_type: None,
            api_server_addresses: Vec::new(),
            etcd_addresses: Vec::new(),
            told_by_mirrors: Vec::new(),
            is_proven: false,
        }
    }

    /// A derivation for a machine of the group. The machine's user-data and type provide inputs that the store lacks.
    pub fn of_machine(files: ClusterFiles, boot: &BootConfig, facts: &Facts) -> Derivation {
        Derivation {
            machine_type: facts.cloud.instance_type().map(str::to_owned),
            api_server_addresses: boot.api_server_ips.clone(),
            etcd_addresses: boot.etcd_ips.clone(),
            ..Derivation::of_group(files)
        }
    }

    /// Uses the rules of the kOps release that wrote the pinned configuration, and the load balancer addresses in the pinned configuration.
    pub fn as_wrote(self, pinned: &NodeupConfig) -> Derivation {
        let told = self.files.kops_version.clone().map(Told::by_version_file);
        let written_by = WrittenBy::find(told.as_ref(), pinned);
        Derivation { written_by, ..self.with_addresses_of(pinned) }
    }

    /// Takes the addresses of the API's load balancer from a configuration that kOps wrote for the group. Only this configuration has all
    /// addresses, which kOps got from the cloud. The user-data has only the addresses that machines inside the cluster use.
    pub fn with_addresses_of(self, written: &NodeupConfig) -> Derivation {
        match written.apiserver_additional_ips.as_slice() {
            [] => self,
            addresses => Derivation { api_server_addresses: addresses.to_vec(), ..self },
        }
    }

    /// Marks the derivation as proven. The caller must know that the derived configuration equals the configuration that the
    /// user-data pins.
    pub fn proven(self) -> Derivation {
        Derivation { is_proven: true, ..self }
    }

    /// Adds the `given` hashes of downloads, and requests missing hashes from `source`, for one architecture or for both. If the request
    /// fails or the future is dropped, the hashes that have arrived are kept.
    pub async fn learn_hashes(
        &mut self,
        given: KnownHashes,
        source: &HashSource,
        architecture: Option<Architecture>,
        store: &Store,
    ) -> Result<()> {
        self.known.extend(source.remembered());
        self.known.extend(given);
        // An error is ignored here, because the derivation reports invalid names of downloads later.
        let assets = derive::asset_urls(&self.inputs()).unwrap_or_default();
        let told = asset_hashes::Told { known: &mut self.known, by_mirrors: &mut self.told_by_mirrors };
        asset_hashes::learn_missing(store, source, assets, architecture, told).await
    }

    /// The SHA-256 of each download whose hash is known, by URL.
    pub fn known_hashes(&self) -> BTreeMap<String, String> {
        self.known.iter().map(|(url, sha256)| (url.to_owned(), sha256.to_owned())).collect()
    }

    pub fn derive(&self) -> Derived {
        let (config, mut problems) = derive::nodeup_config_and_problems(&self.inputs());
        if let Err(problem) = &self.written_by {
            problems.add("kops-version.txt", problem.clone());
        }
        Derived { config, problems }
    }

    /// Derives the configuration from this cluster and group instead of the cluster and group in the store.
    pub fn of_changed(
        &self,
        cluster: &Cluster,
        instance_group: &InstanceGroup,
    ) -> Result<NodeupConfig, Problems> {
        derive::nodeup_config(&Inputs { cluster, instance_group, ..self.inputs() })
    }

    pub fn inputs(&self) -> Inputs<'_> {
        let files = &self.files;
        let written_by = self.written_by.as_ref().ok();
        Inputs {
            cluster: &files.cluster,
            user_cluster: files.user_cluster.as_ref(),
            instance_group: &files.group,
            release: written_by.map_or(KopsRelease::NEWEST, |written_by| written_by.release),
            kops_version: written_by.and_then(|written_by| written_by.version.as_deref()),
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

    /// Reasons why the derived configuration may differ from the pinned configuration, as lines for people.
    pub fn differences(&self, derived: &Derived, pinned: Option<&Pinned>) -> Vec<String> {
        let differences = pinned.map(|pinned| derive::differences(&derived.config, &pinned.config));
        let unknown_fields = pinned.map(Pinned::unknown_fields).unwrap_or_default();
        let of_pinned = differences.as_deref().map(|differences| (differences, unknown_fields.as_slice()));
        let reasons = derive::reasons(&self.inputs(), of_pinned);

        let mut lines: Vec<String> = differences.iter().flatten().map(ToString::to_string).collect();
        lines.extend(unknown_fields.iter().map(|field| format!("{field}: only in the file from kOps")));
        lines.extend(reasons.into_iter().map(|reason| format!("perhaps {}", reason.text())));
        lines
    }
}

/// Why the derived configuration cannot equal the configuration that kOps writes.
#[derive(Debug, Error)]
pub enum Incomplete {
    #[error("the cluster spec is wrong")]
    Wrong(#[source] Problems),
    #[error(
        "the SHA-256 of these downloads is not known; without these hashes, the file differs from the file that kOps writes:\n  {}",
        .0.join("\n  ")
    )]
    Unhashed(Vec<String>),
}

impl Failing for Incomplete {
    fn kind(&self) -> Kind {
        match self {
            Incomplete::Wrong(problems) => problems.kind(),
            Incomplete::Unhashed(_) => Kind::HashesUnknown,
        }
    }
}

impl Derived {
    /// The nodeupconfig.yaml that kOps would write, byte for byte. Fails if there is a problem, or if the hash of a download is unknown.
    pub fn whole(self) -> Result<String, Incomplete> {
        if !self.problems.is_empty() {
            return Err(Incomplete::Wrong(self.problems));
        }
        match self.unhashed() {
            unhashed if unhashed.is_empty() => Ok(self.text()),
            unhashed => Err(Incomplete::Unhashed(unhashed)),
        }
    }

    pub fn unhashed(&self) -> Vec<String> {
        derive::unhashed(&self.config)
    }

    /// The nodeupconfig.yaml that kOps would write, byte for byte if the hashes of all downloads are known.
    pub fn text(&self) -> String {
        go_yaml::to_string(&self.config)
    }

    /// Compares the hash of the derived configuration with the hash in the user-data.
    pub fn prove(&self, nodeup_config_hash: &str) -> Proof {
        let actual = NodeupConfig::hash(self.text().as_bytes());
        if actual == nodeup_config_hash {
            return Proof::Proven;
        }
        match self.unhashed() {
            unhashed if unhashed.is_empty() => Proof::Differs(actual),
            unhashed => Proof::Unhashed(unhashed),
        }
    }
}
