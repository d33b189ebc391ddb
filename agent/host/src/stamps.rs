//! Stamps: notes about completed actions, for the next run.
//!
//! A stamp is written after its action. If a run is interrupted between the two, the next run repeats the action. So a
//! missing stamp is safe: it makes a run repeat an action, and never makes a run skip one.

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::root::Root;
use crate::staged::{Staged, place, write_file};

/// The folder of the agent's own files.
pub(crate) const STATE: &str = "/var/lib/kops-agent";

/// The kinds of stamps. Each comment names the object of the stamp, and the value that the stamp stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Stamp {
    /// For a unit: the digest of the files that the unit read at its last start.
    Unit,
    /// For a run-once unit: the ID of the boot in which the unit last completed.
    Run,
    /// For a file with commands that run after a change: the digest of the file's content when the commands last succeeded.
    Commands,
    /// For a file of kernel parameters: the parameters whose value in the kernel still differed from the file after the agent had set them.
    Parameters,
    /// For a file: the archive and member from which the file was unpacked, and the file's digest.
    Member,
    /// For an image: the digest of the loaded archive.
    Image,
    /// For the manifest of a static pod: the digest of the files that the pod mounted at its last start.
    Pod,
    /// For a unit whose file the agent has overwritten: the text of the earlier unit file, which comes from a package or from nodeup. When
    /// the agent's unit is removed, this text is restored.
    Replaced,
    /// For a request to a remote service: the digest of the request.
    Remote,
    /// For a package that the package manager lists under another name, or does not list at all: the requested name. The name of the stamp
    /// is the digest of the requested name.
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

    pub(crate) fn read(self, root: &Root, name: &str) -> Result<Option<String>> {
        let bytes = root.read(&self.path(name))?;
        let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
        // If the final newline is missing, the stamp was only written in part.
        Ok(text.and_then(|text| text.strip_suffix('\n').map(str::to_owned)))
    }

    /// Writes many stamps, without waiting until each stamp is on the disk.
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

    /// Restores an earlier stamp of `name`. `None` removes the stamp.
    pub(crate) fn put_back(self, root: &Root, name: &str, value: Option<&str>) -> Result<()> {
        match (value, root.parent(&self.path(name))?) {
            (Some(value), _) => self.write(root, name, value),
            (None, Some((dir, file))) => dir.remove(&file).and_then(|()| dir.sync()),
            (None, None) => Ok(()),
        }
    }

    pub(crate) fn write(self, root: &Root, name: &str, value: &str) -> Result<()> {
        write_file(root, &self.path(name), 0o600, None, format!("{value}\n").as_bytes())
    }
}

/// Encodes a name or path as one file name. In a path, `/` becomes `-`, and a literal `-` is escaped. Does not use a library, because
/// libraries write upper-case escapes, but stamps of earlier versions have lower-case escapes.
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
    fn stamps_of_different_paths_are_separate() {
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
        assert_eq!(
            Stamp::Member.read(&root, "/c").unwrap(),
            None,
            "a partly written stamp counts as missing"
        );
        Stamp::Unit.write(&root, "iptables-setup.service", "x").unwrap();
        assert!(temp.path().join("var/lib/kops-agent/units/iptables-setup.service").exists());
    }
}
