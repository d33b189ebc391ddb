//! The programs in the archives that a node downloads.
//!
//! Resolving a configuration downloads nothing, so this file lists the programs of a release. After the download, the archive's own list of
//! files replaces this list.

use serde::Serialize;

use crate::resource::{ArchiveKind, Content};
use kops_agent_spec::{ContainerdConfig, NodeupConfig};

use super::{Asset, Assets, ContainerdVersion, Problems};

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Program {
    pub name: String,
    /// The source of the program's bytes.
    pub content: Content,
}

/// The programs in `bin/` of containerd's releases since 2.0. These releases have no `containerd-shim` and no `containerd-shim-runc-v1`.
const CONTAINERD_2: [&str; 4] =
    ["bin/containerd", "bin/containerd-shim-runc-v2", "bin/containerd-stress", "bin/ctr"];
/// The programs in `bin/` of containerd's 1.x releases.
const CONTAINERD_1: [&str; 6] = [
    "bin/containerd",
    "bin/containerd-shim",
    "bin/containerd-shim-runc-v1",
    "bin/containerd-shim-runc-v2",
    "bin/containerd-stress",
    "bin/ctr",
];

impl Assets {
    /// The programs of this containerd version; empty if the node downloads no containerd.
    pub fn containerd(&self, config: &ContainerdConfig, version: &ContainerdVersion) -> Vec<Program> {
        let Some(archive) = self.containerd_archive(config) else { return Vec::new() };
        let of_release: &[&str] = if version.is_before_2() { &CONTAINERD_1 } else { &CONTAINERD_2 };
        let taken = archive.taken(ArchiveKind::Containerd, of_release.iter().copied());
        taken.into_iter().map(|(name, member)| Program { name, content: archive.member(&member) }).collect()
    }

    /// A program that has a separate archive. The archive's file name starts with the program's name.
    pub fn packed(&self, name: &str) -> Option<Program> {
        let archive = self.starting(&format!("{name}-"))?;
        Some(Program { name: name.to_owned(), content: archive.member(name) })
    }

    /// The archive of containerd: the user's own archive, or else kOps' archive. The user's archive is found by its file name, because its
    /// URL may be a mirror's URL.
    pub fn containerd_archive(&self, config: &ContainerdConfig) -> Option<&Asset> {
        let of_user = config.packages.iter().flat_map(|packages| [&packages.url_amd64, &packages.url_arm64]);
        of_user
            .flatten()
            .filter_map(|url| self.named(url.rsplit('/').next()?))
            .next()
            .or_else(|| self.starting("containerd-"))
    }
}

/// The archive of the standard CNI plugins; `None` if the network has its own plugins.
pub(super) fn cni_plugins(config: &NodeupConfig, assets: &Assets, problems: &mut Problems) -> Option<Asset> {
    if !config.install_cni_assets {
        return None;
    }
    let archive = assets.starting("cni-plugins-").cloned();
    if archive.is_none() {
        problems.add("Assets", "InstallCNIAssets is set, but there is no cni-plugins-* archive for this architecture; run `kops update cluster --yes`");
    }
    archive
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::resource::AssetContent;
    use kops_agent_spec::PackagesConfig;

    fn assets(urls: &[&str]) -> Assets {
        Assets(
            urls.iter()
                .map(|url| Asset { sha256: None, url: (*url).to_owned(), mirrors: vec![], files: None })
                .collect(),
        )
    }

    #[test]
    fn containerd_2_has_no_old_shims() {
        let assets = assets(&["https://a/containerd-linux-amd64.tar.gz"]);
        let programs = |version: &str| {
            let version = ContainerdVersion::parse(version).unwrap();
            assets.containerd(&ContainerdConfig::default(), &version).len()
        };
        assert_eq!(programs("1.7.29"), 6);
        assert_eq!(programs("2.3.4"), 4);
    }

    #[test]
    fn a_downloaded_archives_own_file_list_counts() {
        let mut assets = assets(&["https://a/containerd-linux-amd64.tar.gz"]);
        let files =
            ["bin/containerd", "bin/containerd-shim-runc-v2", "bin/containerd-shim-spin-v2", "bin/README"];
        assets.0[0].files = Some(files.map(str::to_owned).into());
        let version = ContainerdVersion::parse("2.3.4").unwrap();
        let programs = assets.containerd(&ContainerdConfig::default(), &version);
        let names: Vec<&str> = programs.iter().map(|program| program.name.as_str()).collect();
        assert_eq!(names, ["containerd", "containerd-shim-runc-v2", "containerd-shim-spin-v2"]);
    }

    #[test]
    fn a_users_package_is_found_by_file_name_on_any_mirror() {
        let url = "https://mirror/files/my-runtime.tar.gz";
        let config = ContainerdConfig {
            packages: Some(PackagesConfig {
                url_amd64: Some("https://example.com/my-runtime.tar.gz".into()),
                ..PackagesConfig::default()
            }),
            ..ContainerdConfig::default()
        };
        let version = ContainerdVersion::parse("2.1.0").into_iter().next();
        let programs =
            version.map(|version| assets(&[url]).containerd(&config, &version)).unwrap_or_default();
        assert_eq!(
            programs.first().map(|program| &program.content),
            Some(&Content::Asset(AssetContent {
                url: url.into(),
                mirrors: vec![],
                sha256: None,
                member: Some("bin/containerd".into())
            }))
        );
    }

    #[test]
    fn without_a_download_there_are_no_programs() {
        assert_eq!(assets(&[]).packed("crictl"), None);
        assert_eq!(assets(&["https://a/runc.amd64"]).packed("crictl"), None);
        assert!(assets(&["https://a/crictl-v1.29.0-linux-amd64.tar.gz"]).packed("crictl").is_some());
    }
}
