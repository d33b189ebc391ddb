//! What the agent notes about what it has done, so that the next run can tell.
//!
//! A note is written after the deed: where a run is interrupted between the two, the deed is done
//! again. None of it is needed to recover; without any, a run does too much and never too little.

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::root::Root;
use crate::staged::{Staged, place, write_file};

/// Where the agent keeps its own files.
pub(crate) const STATE: &str = "/var/lib/kops-agent";

/// What a note is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Stamp {
    /// A unit: the digest of what it had read when it was last started.
    Unit,
    /// A unit that runs once: the boot of the machine in which it last did, to its end.
    Run,
    /// A file: the digest for which its commands last ran to their end.
    Commands,
    /// A file of kernel parameters: those that the kernel has otherwise than the file says, as they were once they were set.
    Parameters,
    /// A file: the archive and member from which it was unpacked, and its own digest.
    Member,
    /// An image: the digest of the archive that was loaded.
    Image,
    /// The file of a static pod: the digest of what it had mounted when it was last started.
    Pod,
    /// A unit: the text that another, a package or nodeup, had written where the agent's is; put back when that goes.
    Replaced,
    /// Something asked of others over the network: the digest of what was asked.
    Remote,
    /// What a package manager has installed and does not list by that name, by its digest: what it was given.
    Package,
}

impl Stamp {
    fn folder(self) -> &'static str {
        match self {
            Stamp::Unit => "units",
            Stamp::Run => "runs",
            Stamp::Commands => "commands",
            Stamp::Parameters => "parameters",
            Stamp::Member => "members",
            Stamp::Image => "images",
            Stamp::Pod => "pods",
            Stamp::Replaced => "replaced",
            Stamp::Remote => "remote",
            Stamp::Package => "packages",
        }
    }

    fn path(self, name: &str) -> String {
        format!("{STATE}/{}/{}", self.folder(), as_file_name(name))
    }

    /// What was noted about `name`.
    pub(crate) fn read(self, root: &Root, name: &str) -> Result<Option<String>> {
        let bytes = root.read(&self.path(name))?;
        let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
        // Without its end it is a part of one.
        Ok(text.and_then(|text| text.strip_suffix('\n').map(str::to_owned)))
    }

    /// Notes many things at once, without waiting for each of them to be on the disk.
    pub(crate) fn write_all<'a>(
        self,
        root: &Root,
        notes: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<()> {
        let written = notes.into_iter().map(|(name, value)| {
            let mut staged = Staged::new(root, &self.path(name), 0o600, None)?;
            staged.write(format!("{value}\n").as_bytes())?;
            Ok(staged.seal_loosely())
        });
        place(written.collect::<Result<_>>()?)
    }

    /// Notes again what was noted about `name` at an earlier time, which may have been nothing.
    pub(crate) fn put_back(self, root: &Root, name: &str, value: Option<&str>) -> Result<()> {
        match (value, root.parent(&self.path(name))?) {
            (Some(value), _) => self.write(root, name, value),
            (None, Some((dir, file))) => dir.remove(&file).and_then(|()| dir.sync()),
            (None, None) => Ok(()),
        }
    }

    /// Notes `value` about `name`.
    pub(crate) fn write(self, root: &Root, name: &str, value: &str) -> Result<()> {
        write_file(root, &self.path(name), 0o600, None, format!("{value}\n").as_bytes())
    }
}

/// A name or path as one file name. In a path `/` becomes `-`, and what would be mistaken for it is escaped: in lower case, which no
/// library writes, as in the names of notes that earlier versions have left.
fn as_file_name(name: &str) -> String {
    let escaped = name.replace('%', "%25");
    match escaped.strip_prefix('/') {
        Some(path) => path.replace('-', "%2d").replace('/', "-"),
        None => escaped.replace('/', "%2f"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_of_different_paths_are_kept_apart() {
        let temp = tempfile::tempdir().unwrap();
        let root = Root::open(temp.path()).unwrap();
        for (number, path) in ["/a/b", "/a-b", "/a%2db", "/a/b.c"].iter().enumerate() {
            Stamp::Member.write(&root, path, &number.to_string()).unwrap();
        }
        for (number, path) in ["/a/b", "/a-b", "/a%2db", "/a/b.c"].iter().enumerate() {
            assert_eq!(Stamp::Member.read(&root, path).unwrap(), Some(number.to_string()));
        }
        assert_eq!(Stamp::Unit.read(&root, "/a/b").unwrap(), None);
        Stamp::Member.write_all(&root, [("/a/b", "new"), ("/c", "other")]).unwrap();
        assert_eq!(Stamp::Member.read(&root, "/a/b").unwrap().as_deref(), Some("new"));
        assert_eq!(Stamp::Member.read(&root, "/c").unwrap().as_deref(), Some("other"));
        std::fs::write(temp.path().join("var/lib/kops-agent/members/c"), "oth").unwrap();
        assert_eq!(Stamp::Member.read(&root, "/c").unwrap(), None, "a part of a note is none");
        Stamp::Unit.write(&root, "iptables-setup.service", "x").unwrap();
        assert!(temp.path().join("var/lib/kops-agent/units/iptables-setup.service").exists());
    }
}
