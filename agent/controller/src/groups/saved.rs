//! The groups as `kops edit ig` has saved them, for clouds where kOps writes no node configurations. Upstream's kops-controller
//! reads the same files there (`cmd/kops-controller/pkg/controllerclientset/instancegroups.go`).

use std::collections::BTreeMap;

use anyhow::Result;
use kops_agent_process::output::error_text;
use kops_agent_source::cluster_files::{self, COMPLETED};
use kops_agent_source::failure::kind_of;
use kops_agent_spec::digest::sha256_hex;
use kops_agent_spec::failure::{Failure, Kind};
use kops_agent_store::Store;

use super::files::{BEHIND_INSTANCE_GROUPS, INSTANCE_GROUPS, Labels, group_of, is_of_file};

/// The saved groups for which kOps has written no configuration, each with a version. A version also changes with the cluster's spec and
/// with every other group, because the role of one group may change the labels of others. Fails if the store has groups but no spec of the
/// cluster.
pub(super) async fn versions(
    store: &Store,
    base: &str,
    written: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>> {
    // The labels of every group depend on the cluster's spec, too.
    let [first, last] = COMPLETED;
    let mut cluster = store.versions(base, first, last).await?;
    cluster.retain(|file, _| COMPLETED.contains(&file.as_str()));
    let groups = store.versions(base, INSTANCE_GROUPS, BEHIND_INSTANCE_GROUPS).await?;
    // A store that `kops toolbox enroll` has copied contains neither the cluster's spec nor groups.
    if cluster.is_empty() && !groups.is_empty() {
        let problem = format!("{base} has groups, but no {first}: run `kops update cluster --yes`");
        return Err(Failure::new(Kind::NoGroups, problem).into());
    }
    let all: Vec<String> =
        cluster.iter().chain(&groups).map(|(file, version)| format!("{file} {version}\n")).collect();
    let state = sha256_hex(all.concat().as_bytes());
    let is_written = |name: &str| written.keys().any(|file| group_of(file) == Some(name));
    let others = groups.into_keys().filter(|file| group_of(file).is_some_and(|name| !is_written(name)));
    Ok(others.map(|file| (file, state.clone())).collect())
}

/// The labels of a group's nodes. The inner error concerns only this group; other groups can still be read.
pub(super) async fn labels(store: &Store, base: &str, group: &str) -> Result<Result<Labels, Failure>> {
    match cluster_files::node_labels(store, base, group).await {
        Ok(labels) => Ok(Ok(labels)),
        Err(error) if is_of_file(kind_of(&error)) => {
            Ok(Err(Failure::new(kind_of(&error), error_text(&error))))
        }
        Err(error) => Err(error),
    }
}
