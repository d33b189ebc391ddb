//! Archives from which a node takes all files of one kind. These files are known only after the archive is downloaded.
//!
//! Sources: `installContainerd` in nodeup/pkg/model/containerd.go of kOps 1.34 and later, `AddCNIBinAssets` in
//! nodeup/pkg/model/context.go.

use std::collections::{BTreeMap, BTreeSet};

/// The names of the files in downloaded archives, by the SHA-256 of the archive.
pub type ArchiveFiles = BTreeMap<String, BTreeSet<String>>;

/// The kind of files that a node takes from an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArchiveKind {
    /// containerd's programs, including every shim.
    Containerd,
    CniPlugins,
}

/// Directories with programs in containerd's archives, each with the prefixes of the programs' names. If an archive has
/// several of these directories, the node takes the programs from the directory that comes first in this list.
const CONTAINERD: [(&str, &[&str]); 3] = [
    ("bin/", &["containerd", "ctr"]),
    ("usr/local/bin/", &["containerd", "crictl", "ctr"]),
    ("docker/", &["containerd", "ctr"]),
];
/// Files that are in the CNI archive, but are not plugins.
const NO_PLUGINS: [&str; 2] = ["LICENSE", "README.md"];

impl ArchiveKind {
    /// The members that a node takes from an archive with these files. The key is the member's file name on the node.
    pub fn taken<'a>(self, files: impl IntoIterator<Item = &'a str>) -> BTreeMap<String, String> {
        let named: Vec<(&str, &str)> = files.into_iter().filter_map(named).collect();
        let taken: Vec<(&str, &str)> = match self {
            ArchiveKind::CniPlugins => {
                named.into_iter().filter(|(name, _)| !NO_PLUGINS.contains(name)).collect()
            }
            ArchiveKind::Containerd => {
                let of_folder = |(folder, beginnings): &(&str, &[&str])| -> Vec<(&str, &str)> {
                    let is_taken = |member: &str| {
                        let below = member.strip_prefix(folder);
                        below.is_some_and(|below| beginnings.iter().any(|begin| below.starts_with(begin)))
                    };
                    named.iter().copied().filter(|(_, member)| is_taken(member)).collect()
                };
                CONTAINERD.iter().map(of_folder).find(|found| !found.is_empty()).unwrap_or_default()
            }
        };
        taken.into_iter().map(|(name, member)| (name.to_owned(), member.to_owned())).collect()
    }
}

/// The file name and the path of an archive's member. `None` if no file can have this name.
fn named(member: &str) -> Option<(&str, &str)> {
    let member = member.trim_start_matches("./");
    let name = member.rsplit('/').next()?;
    let is_name = !matches!(name, "" | "." | "..") && !name.contains(char::is_control);
    is_name.then_some((name, member))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(kind: ArchiveKind, files: &[&str]) -> Vec<(String, String)> {
        kind.taken(files.iter().copied()).into_iter().collect()
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, member)| ((*name).to_owned(), (*member).to_owned())).collect()
    }

    #[test]
    fn only_programs_and_shims_are_taken_from_containerds_archive() {
        let files =
            ["bin/containerd", "./bin/containerd-shim-spin-v2", "bin/ctr", "bin/cri-tools", "LICENSE"];
        assert_eq!(
            taken(ArchiveKind::Containerd, &files),
            pairs(&[
                ("containerd", "bin/containerd"),
                ("containerd-shim-spin-v2", "bin/containerd-shim-spin-v2"),
                ("ctr", "bin/ctr")
            ])
        );
    }

    #[test]
    fn the_first_folder_with_programs_of_containerd_counts() {
        let of_cri = ["./usr/local/bin/containerd", "usr/local/bin/crictl", "usr/local/sbin/runc"];
        assert_eq!(
            taken(ArchiveKind::Containerd, &of_cri),
            pairs(&[("containerd", "usr/local/bin/containerd"), ("crictl", "usr/local/bin/crictl")])
        );
        let both = [&of_cri[..], &["bin/containerd"]].concat();
        assert_eq!(taken(ArchiveKind::Containerd, &both), pairs(&[("containerd", "bin/containerd")]));
        assert_eq!(taken(ArchiveKind::Containerd, &["sbin/containerd"]), []);
    }

    #[test]
    fn every_plugin_with_a_valid_file_name_is_taken() {
        let files = ["./bridge", "./LICENSE", "README.md", "extra/cni-x", "a\nb", "..", "x/.."];
        assert_eq!(
            taken(ArchiveKind::CniPlugins, &files),
            pairs(&[("bridge", "bridge"), ("cni-x", "extra/cni-x")])
        );
    }
}
