//! The node's configuration, as kOps wrote it or as the cluster spec gives it.

use crate::asset_hashes::{self, HashSource};
use crate::cluster_files::{self, ClusterFiles};
use crate::nodeup_config::Pinned;
use crate::{Derivation, Derived, Proof};
use anyhow::Result;
use kops_agent_plan::derive::KnownHashes;
use kops_agent_plan::resolve::Problems;
use kops_agent_spec::facts::Facts;
use kops_agent_spec::failure::{Failure, Kind};
use kops_agent_spec::{BootConfig, NodeupConfig};
use kops_agent_store::{Store, StoreError};

use crate::options::{OnHashMismatch, SourceOptions};
use crate::origin::Origin;
use kops_agent_process::output::error_text;

pub struct Configuration {
    pub config: NodeupConfig,
    pub problems: Problems,
    pub origin: Origin,
    /// Files that the derivation ignored, because this machine may not read them.
    pub denied: Vec<StoreError>,
}

impl Configuration {
    pub fn of_pinned(pinned: Pinned) -> Configuration {
        Configuration {
            config: pinned.config,
            problems: Problems::default(),
            origin: Origin::NodeupConfig(pinned.file),
            denied: Vec::new(),
        }
    }

    fn of_proven(derivation: Derivation, derived: Derived) -> Configuration {
        Configuration::of_derived(derivation.proven(), derived)
    }

    pub fn of_derived(derivation: Derivation, derived: Derived) -> Configuration {
        Configuration {
            config: derived.config,
            problems: derived.problems,
            origin: Origin::ClusterSpec(Box::new(derivation)),
            denied: Vec::new(),
        }
    }
}

/// The pinned configuration, with warnings about the cluster spec. If the configuration that is derived from the cluster spec has the
/// pinned hash, returns the derived configuration instead, because its origin also contains the derivation.
pub(crate) async fn pinned_and_proven(
    store: &Store,
    base: &str,
    options: &SourceOptions,
    boot: &BootConfig,
    facts: &Facts,
    pinned: Pinned,
) -> Configuration {
    let derived = async {
        let files = cluster_files::read(store, base, &boot.instance_group_name).await?;
        derive_for_machine(files, options, boot, facts, Some(&pinned), &HashSource::offline(), store).await
    };
    let mut warnings = Problems::default();
    match derived.await {
        Ok((derivation, derived)) => match derived.prove(&boot.nodeup_config_hash) {
            Proof::Proven if derived.problems.is_empty() => {
                log::debug!("the cluster spec gives the pinned nodeupconfig, byte for byte");
                return Configuration::of_proven(derivation, derived);
            }
            _ => {
                log::warn!(
                    "the cluster spec gives another configuration than the pinned {}; kops-agent uses the \
                     pinned configuration:\n{}",
                    pinned.file.url,
                    indented(&derivation.differences(&derived, Some(&pinned)))
                );
                warnings.add_warnings(derived.problems.warnings());
            }
        },
        Err(error) => log::warn!(
            "cannot compare the cluster spec with the pinned {}: {}",
            pinned.file.url,
            error_text(&error)
        ),
    }
    Configuration { problems: warnings, ..Configuration::of_pinned(pinned) }
}

/// The configuration that is derived from the cluster spec. It is unproven if its hash is not the pinned hash, or if some hashes of
/// downloads are unknown. `--on-hash-mismatch` decides whether an unproven configuration is used. An unproven configuration is never used
/// if the hash of a download came over plain http, or from the mirror that serves the download.
pub(crate) async fn derived(
    store: &Store,
    base: &str,
    options: &SourceOptions,
    boot: &BootConfig,
    facts: &Facts,
    pinned: Option<Pinned>,
    hashes: HashSource,
) -> Result<Configuration> {
    let mut files = cluster_files::read(store, base, &boot.instance_group_name).await?;
    let denied = std::mem::take(&mut files.denied);
    let (derivation, derived) =
        derive_for_machine(files, options, boot, facts, pinned.as_ref(), &hashes, store).await?;
    if !boot.nodeup_config_hash.is_empty() {
        let problem = match derived.prove(&boot.nodeup_config_hash) {
            Proof::Proven => {
                log::debug!(
                    "the configuration derived from the cluster spec is the one that the user-data pins"
                );
                // The derived bytes equal the pinned configuration. So it does not matter that this machine may not read some files.
                return Ok(Configuration::of_proven(derivation, derived));
            }
            Proof::Unhashed(urls) => format!(
                "cannot compare the cluster spec with the configuration that the user-data pins, because the hashes of these \
                 downloads are unknown; give the hashes with --asset-hashes FILE:\n{}",
                indented(&urls)
            ),
            Proof::Differs(actual) => format!(
                "the configuration that is derived from the cluster spec has the hash {actual}, but the user-data pins the hash {} \
                 (NodeupConfigHash):\n{}",
                boot.nodeup_config_hash,
                indented(&derivation.differences(&derived, pinned.as_ref()))
            ),
        };
        match options.on_hash_mismatch {
            // A mirror could give a wrong hash for its own download. Only a match with the pinned hash of the configuration would prove the
            // mirror's hash right. Without this proof, the configuration is refused.
            OnHashMismatch::Warn if !derivation.told_by_mirrors.is_empty() => {
                return Err(Failure::new(Kind::SpecDiffers, format!(
                    "{problem}\nthe derived configuration is not used, because mirrors gave the hashes of their own downloads; give the \
                     hashes with --asset-hashes:\n{}",
                    indented(&derivation.told_by_mirrors)
                ))
                .into());
            }
            OnHashMismatch::Refuse => return Err(refused(problem, &derived, &boot.nodeup_config_hash)),
            OnHashMismatch::Warn => {
                log::warn!("{problem}\nthe derived configuration is used anyway (--on-hash-mismatch warn)")
            }
        }
    }
    Ok(Configuration { denied, ..Configuration::of_derived(derivation, derived) })
}

/// Derives the configuration of a machine. If the hash of a download is neither in `pinned` nor in the file of `--asset-hashes`, the hash
/// comes from `source`.
async fn derive_for_machine(
    files: ClusterFiles,
    options: &SourceOptions,
    boot: &BootConfig,
    facts: &Facts,
    pinned: Option<&Pinned>,
    source: &HashSource,
    store: &Store,
) -> Result<(Derivation, Derived)> {
    let mut derivation = Derivation::of_machine(files, boot, facts);
    if let Some(pinned) = pinned {
        derivation = derivation.as_wrote(&pinned.config);
    }
    // A nodeupconfig lists the downloads of both architectures. So a comparison with the pinned hash needs the hashes of both.
    let architecture = if boot.nodeup_config_hash.is_empty() { Some(facts.arch) } else { None };
    let mut given = pinned.map(|pinned| KnownHashes::of_config(&pinned.config)).unwrap_or_default();
    given.extend(asset_hashes::read_file(options.asset_hashes.as_deref())?);
    derivation.learn_hashes(given, source, architecture, store).await?;
    let derived = derivation.derive();
    Ok((derivation, derived))
}

/// The error of a run that refuses the derived configuration, because it may differ from the pinned configuration.
fn refused(problem: String, derived: &Derived, nodeup_config_hash: &str) -> anyhow::Error {
    let different = Failure::new(Kind::SpecDiffers, problem);
    match derived.prove(nodeup_config_hash) {
        Proof::Differs(actual) if derived.problems.is_empty() => {
            different.with_hashes(nodeup_config_hash, actual).into()
        }
        _ => different.into(),
    }
}

fn indented(lines: &[String]) -> String {
    lines.iter().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}
