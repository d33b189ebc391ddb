//! The node's configuration as kOps wrote it for the instance group: `igconfig/<role>/<group>/nodeupconfig.yaml`.

use anyhow::Result;
use kops_agent_spec::{BootConfig, InstanceGroupRole, NodeupConfig, SpecError};
use kops_agent_store::{Found, Store};

use crate::store_files::StoreFile;

pub struct Pinned {
    pub file: StoreFile,
    pub config: NodeupConfig,
}

impl Pinned {
    /// The fields of the file that the agent does not know. Only a report of differences needs these fields. So they are not stored, and
    /// this method parses the file again.
    pub fn unknown_fields(&self) -> Vec<String> {
        // The file has been parsed as a configuration earlier, so parsing it again does not fail.
        NodeupConfig::ignored_fields(&self.file.text, &self.file.url).unwrap_or_default()
    }
}

/// The URL to which kOps writes the configuration.
fn url(base: &str, boot: &BootConfig) -> String {
    url_of_group(base, boot.instance_group_role, &boot.instance_group_name)
}

fn url_of_group(base: &str, role: InstanceGroupRole, group: &str) -> String {
    format!("{base}/igconfig/{}/{group}/nodeupconfig.yaml", role.folder())
}

/// The configuration that kOps wrote for a group most recently. `None` if the file is missing, or if this machine may not read it.
pub async fn last_written(
    store: &Store,
    base: &str,
    role: InstanceGroupRole,
    group: &str,
) -> Result<Option<NodeupConfig>> {
    let url = url_of_group(base, role, group);
    match store.read_if_present(&url).await? {
        Found::There(text) => Ok(Some(NodeupConfig::parse(&text, &url)?)),
        Found::Absent | Found::Denied(_) => Ok(None),
    }
}

/// Reads the configuration. Fails if the file's hash differs from the hash that the boot config pins.
pub async fn read(store: &Store, base: &str, boot: &BootConfig) -> Result<Pinned> {
    let url = url(base, boot);
    let text = store.read(&url).await?;
    parse(text, boot, url)
}

/// Reads the configuration if the boot config pins one. If the file is missing or this machine may not read it, returns `None`. The agent
/// then derives the configuration from the cluster spec, and compares it with the pinned hash.
pub async fn pinned(store: &Store, base: &str, boot: &BootConfig) -> Result<Option<Pinned>> {
    match boot.nodeup_config_hash.as_str() {
        "" => Ok(None),
        _ => written(store, base, boot).await,
    }
}

/// Reads the configuration. `None` if the file is missing, or if this machine may not read it.
pub async fn written(store: &Store, base: &str, boot: &BootConfig) -> Result<Option<Pinned>> {
    let url = url(base, boot);
    match store.read_if_present(&url).await? {
        Found::There(text) => parse(text, boot, url).map(Some),
        Found::Absent | Found::Denied(_) => Ok(None),
    }
}

/// Parses a nodeupconfig. Fails if its hash differs from the hash that the boot config pins. If the boot config pins no hash, every
/// nodeupconfig is accepted.
pub fn parse(text: Vec<u8>, boot: &BootConfig, url: String) -> Result<Pinned> {
    if !boot.nodeup_config_hash.is_empty()
        && let Err(other) = NodeupConfig::verify_hash(&text, &boot.nodeup_config_hash, &url)
    {
        // A valid configuration with another hash means that kOps has written the file again since the hash was pinned. An invalid
        // configuration means that this is a wrong file, or that the file is incomplete.
        return match whole(&text, &url) {
            Ok(()) => Err(other.into()),
            Err(spoilt) => Err(anyhow::Error::new(spoilt).context(format!(
                "{url} is neither the file that the user-data names nor a configuration of kOps; check \
                 whether the file is truncated, or whether a proxy answers in place of the store"
            ))),
        };
    }
    let config = NodeupConfig::parse(&text, &url)?;
    Ok(Pinned { file: StoreFile { url, text }, config })
}

/// Checks that a file is a configuration that kOps wrote. kOps always writes the version of Kubernetes (upstream: `NewConfig` in
/// `pkg/apis/nodeup/config.go`).
fn whole(text: &[u8], url: &str) -> Result<(), SpecError> {
    match NodeupConfig::parse(text, url)?.kubernetes_version.as_str() {
        "" => Err(SpecError::of_field(url, "KubernetesVersion", "it is empty: this is not what kOps wrote")),
        _ => Ok(()),
    }
}
