//! Serves the example cluster on loopback: its store over S3, and stand-ins for its downloads.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};

use crate::downloads::Downloads;
use crate::example_keys::Keyset;
use crate::example_store::{ExampleStore, REGION, releases};
use crate::s3::S3Server;

/// The example cluster with its servers. Dropping it stops the servers and keeps the folder.
pub struct ExampleCluster {
    pub store: ExampleStore,
    pub s3: S3Server,
    /// The server of the downloads. If `None`, machines download from the publishers.
    pub downloads: Option<Downloads>,
}

impl ExampleCluster {
    /// Writes the example store with these keysets to `folder`. Serves the store and the downloads.
    pub fn start(folder: &Path, keysets: &[Keyset]) -> anyhow::Result<ExampleCluster> {
        let downloads = Downloads::start(&releases())?;
        let store = ExampleStore::write_with_keys(folder, Some(&downloads.url()), keysets)?;
        let s3 = S3Server::start(&store.buckets())?;
        Ok(ExampleCluster { store, s3, downloads: Some(downloads) })
    }

    /// Like `start`, for machines that download Kubernetes from its publishers.
    pub fn start_without_mirror(folder: &Path, keysets: &[Keyset]) -> anyhow::Result<ExampleCluster> {
        let store = ExampleStore::write_with_keys(folder, None, keysets)?;
        let s3 = S3Server::start(&store.buckets())?;
        Ok(ExampleCluster { store, s3, downloads: None })
    }

    /// The environment variables with which clients access the store.
    pub fn environment(&self) -> [(&'static str, String); 4] {
        self.s3.environment(REGION)
    }

    /// The command line that calls the program `agent` for a machine of `group`. `verb` is the agent's command, followed by its
    /// subcommand if it has one. `config_base` is the store's URL, which the boot config of a worker does not contain.
    pub fn agent(&self, agent: &Path, verb: &str, group: &str, config_base: &str) -> Command {
        let mut command = Command::new(agent);
        command.env_clear().env("RUST_BACKTRACE", "1").envs(self.environment()).args(verb.split(' '));
        command.arg("--conf").arg(self.store.kube_env(group)).arg("--facts").arg(self.store.facts(group));
        command.args(["--config-base", config_base]);
        command
    }

    /// Replaces `old` by `new` in a file of the cluster's folder in the store. `old` must occur exactly once.
    pub fn edit(&self, path: &str, old: &str, new: &str) -> anyhow::Result<()> {
        edit(&self.store.cluster_folder().join(path), old, new)
    }
}

/// Replaces `old` by `new` in this file. `old` must occur exactly once.
pub fn edit(file: &Path, old: &str, new: &str) -> anyhow::Result<()> {
    let text = fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    let found = text.matches(old).count();
    ensure!(found == 1, "{} has {old:?} {found} times, not once", file.display());
    fs::write(file, text.replace(old, new)).with_context(|| format!("writing {}", file.display()))
}

/// Changes a converged control plane of the example into one that nodeup has made. `root` is the machine's root folder. Removes
/// kops-agent's record, and the list of kernel modules that kops-agent has written. Replaces the text of a licence by the text that nodeup
/// writes. The recorded state of systemd stays. Differences that a plan does not show are tested by `tests/conformance/take-over`.
pub fn leave_as_nodeup(root: &Path) -> anyhow::Result<()> {
    let own = root.join("var/lib/kops-agent");
    let state = own.join("recorded/state.json");
    let recorded = fs::read(&state).with_context(|| format!("reading {}", state.display()))?;
    fs::remove_dir_all(&own)?;
    fs::create_dir_all(own.join("recorded"))?;
    fs::write(&state, recorded)?;
    let modules = root.join("etc/modules-load.d/br_netfilter.conf");
    fs::remove_file(&modules).with_context(|| format!("removing {}", modules.display()))?;
    let licence = root.join("usr/share/doc/containerd/apache.txt");
    let text = fs::read_to_string(&licence).with_context(|| format!("reading {}", licence.display()))?;
    fs::write(licence, text.replace("http://www.apache.org", "https://www.apache.org"))?;
    Ok(())
}
