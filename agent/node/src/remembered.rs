//! The facts that the cloud gave earlier runs, and the lists of files in archives. Both are in files beside the record.

use std::path::Path;

use anyhow::{Context, Result};
use kops_agent_cloud::RememberedFacts;
use kops_agent_host::Host;
use kops_agent_plan::resource::ArchiveFiles;
use serde::de::DeserializeOwned;

/// The facts that earlier runs saved below `root`; empty if there are none. An unreadable file is treated as empty, and
/// the facts are requested again.
pub fn read(root: &Path) -> RememberedFacts {
    read_file(root, Host::REMEMBERED_FACTS)
}

/// The lists of files in archives that the machine below `root` has downloaded.
pub fn archives(root: &Path) -> ArchiveFiles {
    read_file(root, Host::ARCHIVES)
}

fn read_file<T: Default + DeserializeOwned>(root: &Path, path: &str) -> T {
    let file = root.join(path.trim_start_matches('/'));
    let Ok(bytes) = std::fs::read(&file) else { return T::default() };
    serde_json::from_slice(&bytes).unwrap_or_else(|error| {
        log::warn!("cannot read {}: {error}; this run ignores the file", file.display());
        T::default()
    })
}

/// Saves the facts, if they differ from the saved facts. Fails if another run has the lock.
pub fn keep(remembered: &RememberedFacts, host: &Host, root: &Path) -> Result<()> {
    if *remembered == read(root) {
        return Ok(());
    }
    let mut json = serde_json::to_vec(remembered).context("writing the cloud's facts")?;
    json.push(b'\n');
    Ok(host.remember_facts(&json)?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use kops_agent_spec::facts::{AwsFacts, Facts, NetworkInterfaceLimits};

    use super::*;

    #[test]
    fn they_are_read_as_they_were_kept_and_once_they_are_broken_not_at_all() {
        let root = tempfile::tempdir().unwrap();
        let host = Host::scratch(root.path()).unwrap();
        let mut facts = Facts::default();
        facts.cloud.aws = Some(AwsFacts {
            instance_type: "m5.large".into(),
            network_interfaces: Some(NetworkInterfaceLimits { max: 3, ipv4_per_interface: 10 }),
            gpu: Some(false),
            ..AwsFacts::default()
        });
        let remembered = RememberedFacts::default().with(&facts, None);
        keep(&remembered, &host, root.path()).unwrap();
        assert_eq!(read(root.path()), remembered);
        let file = root.path().join(Host::REMEMBERED_FACTS.trim_start_matches('/'));
        std::fs::write(file, "{").unwrap();
        assert_eq!(read(root.path()), RememberedFacts::default());
    }
}
