//! Derives the configuration that kOps would have written for a group.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use kops_agent_source::asset_hashes::{self, HashSource};
use kops_agent_source::{Derivation, Incomplete, cluster_files, nodeup_config};
use kops_agent_spec::failure::{Failing, Failure};
use kops_agent_store::Store;

use super::redaction::error_text;

/// The text of the configuration. `given` is a file with hashes of downloads, so that the publishers need not be asked
/// for these hashes.
pub async fn of_group(store: &Store, base: &str, group: &str, given: Option<&Path>) -> Result<String> {
    let files = cluster_files::read(store, base, group).await?;
    let role = files.group.spec.role;
    let mut derivation = Derivation::of_group(files);
    match nodeup_config::last_written(store, base, role, group).await {
        Ok(Some(written)) => derivation = derivation.with_addresses_of(&written),
        Ok(None) => {}
        // `config derive` prints a replacement for the nodeupconfig.yaml that kOps wrote last. So it must work even if
        // that file is unreadable.
        Err(error) => log::warn!(
            "the addresses of the API's load balancer are left out, because kops-agent cannot read the \
             nodeupconfig.yaml that has them: {}",
            error_text(&error)
        ),
    }
    let given = asset_hashes::read_file(given)?;
    derivation.learn_hashes(given, &HashSource::publishers(BTreeMap::new()), None, store).await?;
    match derivation.derive().whole() {
        Ok(text) => Ok(text),
        Err(unhashed @ Incomplete::Unhashed(_)) => Err(Failure::new(
            unhashed.kind(),
            format!("{unhashed}\ngive the hashes with --asset-hashes FILE"),
        )
        .into()),
        Err(wrong @ Incomplete::Wrong(_)) => Err(wrong.into()),
    }
}
