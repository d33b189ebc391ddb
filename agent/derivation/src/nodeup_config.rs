//! The node's configuration as kOps wrote it for the instance group: `igconfig/<role>/<group>/nodeupconfig.yaml`.

use anyhow::Result;
use kops_agent_spec::{BootConfig, InstanceGroupRole, NodeupConfig, SpecError};
use kops_agent_store::{Found, Store};

use crate::store_files::StoreFile;

/// The configuration that kOps wrote.
pub struct Pinned {
    /// The file that it is in.
    pub file: StoreFile,
    pub config: NodeupConfig,
}

impl Pinned {
    /// Fields of the file that we do not know. Reads it once more: only a difference asks for them.
    pub fn unknown_fields(&self) -> Vec<String> {
        // It was read as a configuration, so it is one.
        NodeupConfig::ignored_fields(&self.file.text, &self.file.url).unwrap_or_default()
    }
}

/// Where kOps writes it.
fn url(base: &str, boot: &BootConfig) -> String {
    url_of_group(base, boot.instance_group_role, &boot.instance_group_name)
}

fn url_of_group(base: &str, role: InstanceGroupRole, group: &str) -> String {
    format!("{base}/igconfig/{}/{group}/nodeupconfig.yaml", role.folder())
}

/// What kOps last wrote for a group, where that is written and may be read.
///
/// # Errors
/// If the store does not answer, or the file is no configuration.
pub async fn last_written(
    store: &Store,
    base: &str,
    role: InstanceGroupRole,
    group: &str,
) -> Result<Option<NodeupConfig>> {
    let url = url_of_group(base, role, group);
    match store.look(&url).await? {
        Found::There(text) => Ok(Some(NodeupConfig::parse(&text, &url)?)),
        Found::Absent | Found::Denied(_) => Ok(None),
    }
}

/// Reads it, and refuses one that does not have the hash that the boot config pins.
///
/// # Errors
/// If it cannot be read, is not the pinned one, or is no configuration.
pub async fn read(store: &Store, base: &str, boot: &BootConfig) -> Result<Pinned> {
    let url = url(base, boot);
    let text = store.read(&url).await?;
    parse(text, boot, url)
}

/// Reads it where the boot config pins one and this machine may read it. Where it may not, the cluster spec gives the same, which
/// the hash proves.
///
/// # Errors
/// If the store does not answer, or the file is not the pinned one, or is no configuration.
pub async fn pinned(store: &Store, base: &str, boot: &BootConfig) -> Result<Option<Pinned>> {
    match boot.nodeup_config_hash.as_str() {
        "" => Ok(None),
        _ => written(store, base, boot).await,
    }
}

/// Reads it where it is written and this machine may read it.
///
/// # Errors
/// As of [`pinned`].
pub async fn written(store: &Store, base: &str, boot: &BootConfig) -> Result<Option<Pinned>> {
    let url = url(base, boot);
    match store.look(&url).await? {
        Found::There(text) => parse(text, boot, url).map(Some),
        Found::Absent | Found::Denied(_) => Ok(None),
    }
}

/// What was read, if it is the one that the boot config pins.
///
/// # Errors
/// If it is not the pinned one, or is no configuration.
pub fn parse(text: Vec<u8>, boot: &BootConfig, url: String) -> Result<Pinned> {
    if !boot.nodeup_config_hash.is_empty()
        && let Err(other) = NodeupConfig::verify_hash(&text, &boot.nodeup_config_hash, &url)
    {
        // Only a configuration takes the place of another: what is none is a mistake, or half a file.
        return match whole(&text, &url) {
            Ok(()) => Err(other.into()),
            Err(spoilt) => Err(anyhow::Error::new(spoilt).context(format!(
                "{url} is not the file the user-data names, nor a configuration of kOps; is it written whole, or does a proxy answer \
                 in the store's place?"
            ))),
        };
    }
    let config = NodeupConfig::parse(&text, &url)?;
    Ok(Pinned { file: StoreFile { url, text }, config })
}

/// Whether a file is a configuration as kOps writes it, which always names the version
/// (upstream: `NewConfig` in `pkg/apis/nodeup/config.go`).
fn whole(text: &[u8], url: &str) -> Result<(), SpecError> {
    match NodeupConfig::parse(text, url)?.kubernetes_version.as_str() {
        "" => Err(SpecError::of_field(url, "KubernetesVersion", "it is empty: this is not what kOps wrote")),
        _ => Ok(()),
    }
}
