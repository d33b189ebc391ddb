//! The files that this node can download. They are from kOps' list, which has their hashes, and are found by name.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::resource::{ArchiveFiles, ArchiveKind, AssetContent, Content};
use kops_agent_spec::NodeupConfig;
use kops_agent_spec::facts::Architecture;
use kops_agent_spec::invalid::Invalid;
use kops_agent_spec::urls::hash_and_urls;

/// A file to download.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Asset {
    /// Lower-case hexadecimal SHA-256. `None` if only the publisher knows the hash.
    pub sha256: Option<String>,
    pub url: String,
    pub mirrors: Vec<String>,
    /// The names of the files in the archive. `None` if this machine has not downloaded the archive yet.
    #[serde(skip)]
    pub files: Option<BTreeSet<String>>,
}

impl Asset {
    /// The members that a node takes from the archive. The key is the member's file name on the node. If the archive's files are unknown,
    /// the archive is assumed to have the files in `of_release`.
    pub fn taken<'a>(
        &'a self,
        kind: ArchiveKind,
        of_release: impl IntoIterator<Item = &'a str>,
    ) -> BTreeMap<String, String> {
        match &self.files {
            Some(files) => kind.taken(files.iter().map(String::as_str)),
            None => kind.taken(of_release),
        }
    }

    /// The last part of the URL's path.
    pub fn file_name(&self) -> &str {
        self.url.rsplit('/').next().unwrap_or(&self.url)
    }

    /// Whether the download is an archive. A node needs only members of an archive.
    pub fn is_archive(&self) -> bool {
        [".tgz", ".tar.gz", ".tar.xz", ".tar"].iter().any(|suffix| self.url.ends_with(suffix))
    }

    /// The content of a file on the node: the bytes of this download.
    pub fn content(&self) -> Content {
        self.asset_content(None)
    }

    /// The content of a file on the node: the bytes of this member of the downloaded archive.
    pub fn member(&self, member: &str) -> Content {
        self.asset_content(Some(member.to_owned()))
    }

    fn asset_content(&self, member: Option<String>) -> Content {
        Content::Asset(AssetContent {
            url: self.url.clone(),
            mirrors: self.mirrors.clone(),
            sha256: self.sha256.clone(),
            member,
        })
    }
}

/// All files that this node can download.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Assets(pub(super) Vec<Asset>);

impl Assets {
    /// Parses the entries of this architecture, each `sha256@url[,mirror…]`. If an entry has no hash, the hash must come from the
    /// publisher.
    pub(super) fn read(
        config: &NodeupConfig,
        arch: Architecture,
        known: &ArchiveFiles,
    ) -> Result<Assets, Invalid> {
        config
            .assets
            .get(arch.name())
            .into_iter()
            .flatten()
            .map(|entry| {
                let asset = read_entry(entry)?;
                let files = asset.sha256.as_ref().and_then(|sha256| known.get(sha256));
                Ok(Asset { files: files.cloned(), ..asset })
            })
            .collect::<Result<_, _>>()
            .map(Assets)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Asset> {
        self.0.iter()
    }

    /// The asset whose file name is `name`.
    pub fn named(&self, name: &str) -> Option<&Asset> {
        self.0.iter().find(|asset| asset.file_name() == name)
    }

    /// The asset whose file name starts with `prefix`.
    pub fn starting(&self, prefix: &str) -> Option<&Asset> {
        self.0.iter().find(|asset| asset.file_name().starts_with(prefix))
    }
}

fn read_entry(entry: &str) -> Result<Asset, Invalid> {
    let (sha256, urls) = hash_and_urls(entry);
    if let Some(hash) = sha256
        && !(hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()))
    {
        return Err(Invalid::new(format!("{entry:?} does not start with a SHA-256 in hexadecimal")));
    }
    let mut urls = urls.split(',').map(str::to_owned);
    let url = urls.next().unwrap_or_default();
    let mirrors: Vec<String> = urls.collect();
    if std::iter::once(&url).chain(&mirrors).any(|url| !url.contains("://")) {
        return Err(Invalid::new(format!(
            "{entry:?} contains text that is not a URL; the form of an entry is sha256@url[,mirror…]"
        )));
    }
    Ok(Asset { sha256: sha256.map(str::to_ascii_lowercase), url, mirrors, files: None })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn entries_are_read_with_and_without_a_hash() {
        let hash = "ab".repeat(32);
        let asset = read_entry(&format!("{hash}@https://a/b/kubelet,https://mirror/kubelet")).unwrap();
        assert_eq!((asset.file_name(), asset.sha256.as_deref()), ("kubelet", Some(hash.as_str())));
        assert_eq!(
            (asset.url.as_str(), asset.mirrors.as_slice()),
            ("https://a/b/kubelet", &["https://mirror/kubelet".to_owned()][..])
        );
        assert_eq!(read_entry("https://user@host/x").unwrap().sha256, None);
    }

    #[test]
    fn malformed_entries_are_rejected() {
        let problem = |entry: &str| read_entry(entry).unwrap_err().to_string();
        assert!(problem("abc@https://a/b").contains("SHA-256"));
        assert!(problem(&format!("{}@/local", "ab".repeat(32))).contains("not a URL"));
        assert!(problem("https://a/b,").contains("not a URL"));
    }
}
