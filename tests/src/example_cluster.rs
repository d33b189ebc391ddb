//! The example cluster, served: its store over S3 and stand-ins for its downloads, both on loopback.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};

use crate::downloads::Downloads;
use crate::example_keys::Keyset;
use crate::example_store::{ExampleStore, REGION, releases};
use crate::s3::S3Server;

/// The example cluster with its servers; dropping it stops them and leaves the folder.
pub struct ExampleCluster {
    pub store: ExampleStore,
    /// The server of the store.
    pub s3: S3Server,
    /// The server of the downloads; without it machines go to the publishers.
    pub downloads: Option<Downloads>,
}

impl ExampleCluster {
    /// Writes the example with these keys to `folder` and serves it.
    ///
    /// # Errors
    /// If the folder cannot be written, or there is no free port.
    pub fn start(folder: &Path, keysets: &[Keyset]) -> anyhow::Result<ExampleCluster> {
        let downloads = Downloads::start(&releases())?;
        let store = ExampleStore::write_with_keys(folder, Some(&downloads.url()), keysets)?;
        let s3 = S3Server::start(&store.buckets())?;
        Ok(ExampleCluster { store, s3, downloads: Some(downloads) })
    }

    /// The same for machines that download Kubernetes from its publishers.
    ///
    /// # Errors
    /// If the folder cannot be written, or there is no free port.
    pub fn start_without_mirror(folder: &Path, keysets: &[Keyset]) -> anyhow::Result<ExampleCluster> {
        let store = ExampleStore::write_with_keys(folder, None, keysets)?;
        let s3 = S3Server::start(&store.buckets())?;
        Ok(ExampleCluster { store, s3, downloads: None })
    }

    /// The variables by which the store is reached.
    pub fn environment(&self) -> [(&'static str, String); 4] {
        self.s3.environment(REGION)
    }

    /// The call of `agent` that does `verb` (a word, or a command and its own) for a machine of `group`, with the store at `config_base`: a
    /// worker has none in its boot config.
    pub fn agent(&self, agent: &Path, verb: &str, group: &str, config_base: &str) -> Command {
        let mut command = Command::new(agent);
        command.env_clear().env("RUST_BACKTRACE", "1").envs(self.environment()).args(verb.split(' '));
        command.arg("--conf").arg(self.store.kube_env(group)).arg("--facts").arg(self.store.facts(group));
        command.args(["--config-base", config_base]);
        command
    }

    /// Replaces `old`, which must be there once, by `new` in a file of the cluster's folder in the store.
    ///
    /// # Errors
    /// If it is not there once, or the file cannot be written.
    pub fn edit(&self, path: &str, old: &str, new: &str) -> anyhow::Result<()> {
        edit(&self.store.cluster_folder().join(path), old, new)
    }
}

/// Replaces `old`, which must be there once, by `new` in this file.
///
/// # Errors
/// If it is not there once, or the file cannot be written.
pub fn edit(file: &Path, old: &str, new: &str) -> anyhow::Result<()> {
    let text = fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    let found = text.matches(old).count();
    ensure!(found == 1, "{} has {old:?} {found} times, not once", file.display());
    fs::write(file, text.replace(old, new)).with_context(|| format!("writing {}", file.display()))
}
