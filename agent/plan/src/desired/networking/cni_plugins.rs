//! The standard CNI plugins, which most networks use. Until the archive is downloaded, its version tells which plugins it has.
//!
//! Upstream copies all downloads into this directory, including kubelet and containerd (`AddCNIBinAssets` in nodeup/pkg/model/context.go).
//! No program reads those copies, so kops-agent does not copy them.

use crate::desired::paths;
use crate::resolve::{Asset, NodeConfig};
use crate::resource::{ArchiveKind, DesiredState, File, Mode};

/// CNI plugins that every release of the CNI plugins since 0.8 has.
const ALWAYS: [&str; 15] = [
    "bandwidth",
    "bridge",
    "dhcp",
    "firewall",
    "host-device",
    "host-local",
    "ipvlan",
    "loopback",
    "macvlan",
    "portmap",
    "ptp",
    "sbr",
    "static",
    "tuning",
    "vlan",
];

/// Plugins that were added after 0.8, each with the first version that has it (plugins/ in
/// github.com/containernetworking/plugins, tag by tag).
const SINCE: [(&str, (u32, u32)); 3] = [("dummy", (1, 2)), ("tap", (1, 3)), ("vrf", (0, 9))];

/// CNI plugins that a release no longer has, each with the first release that lacks it.
const UNTIL: [(&str, (u32, u32)); 1] = [("flannel", (1, 0))];

/// Adds the CNI plugins if the cluster's network uses them.
pub(super) fn add(node: &NodeConfig, state: &mut DesiredState) {
    let Some(archive) = &node.cni_plugins else { return };
    if let (None, Some(sha256)) = (&archive.files, &archive.sha256) {
        state.assumes_files_of(sha256, ArchiveKind::CniPlugins);
    }
    for (plugin, member) in archive.taken(ArchiveKind::CniPlugins, plugins(archive)) {
        let path = format!("{}/{plugin}", paths::CNI_BIN);
        state.add(File::new(path, archive.member(&member)).mode(Mode::EXECUTABLE));
    }
}

/// The plugins in an archive. If the archive's name has no version, the plugins of the newest version are assumed.
fn plugins(archive: &Asset) -> Vec<&'static str> {
    let version = version(archive.file_name());
    let has = |first: (u32, u32)| version.is_none_or(|version| version >= first);
    let since = SINCE.iter().filter(|(_, first)| has(*first)).map(|(plugin, _)| *plugin);
    let until = UNTIL.iter().filter(|(_, first)| !has(*first)).map(|(plugin, _)| *plugin);
    ALWAYS.into_iter().chain(since).chain(until).collect()
}

/// Major and minor version in a name such as `cni-plugins-linux-amd64-v1.6.2.tgz`.
fn version(file_name: &str) -> Option<(u32, u32)> {
    let (_, version) = file_name.rsplit_once("-v")?;
    let mut parts = version.split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plugins_of(file_name: &str) -> Vec<&'static str> {
        plugins(&Asset {
            sha256: None,
            url: format!("https://mirror/{file_name}"),
            mirrors: vec![],
            files: None,
        })
    }

    #[test]
    fn each_release_has_its_plugins() {
        let new = plugins_of("cni-plugins-linux-amd64-v1.6.2.tgz");
        assert_eq!(new.len(), 18);
        assert!(new.contains(&"tap") && !new.contains(&"flannel"));
        let old = plugins_of("cni-plugins-linux-arm64-v0.8.7.tgz");
        assert_eq!(old.len(), 16);
        assert!(!old.contains(&"vrf") && old.contains(&"flannel"));
        assert_eq!(plugins_of("cni-plugins-custom.tgz"), new);
    }
}
