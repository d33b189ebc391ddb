//! A repository of apt: its list, and the key that must sign its packages. The key is valid for this repository only.
//!
//! Upstream passes the key to `apt-key`, which makes it valid for every repository
//! (upup/pkg/fi/nodeup/nodetasks/aptsource.go). Debian 13 and later have no `apt-key`. See sources.list(5) for
//! `signed-by`.

use kops_agent_plan::resource::{PackageSource, Resource};
use kops_agent_spec::urls::shown_url;
use nix::unistd::Uid;

use crate::error::{Error, Result};
use crate::root::{Metadata, Root};
use crate::staged::write_file;

/// The start of a comment line in a list file. The rest of the line is the URL of the key. `find` compares this URL
/// with the wanted URL.
const KEY_COMMENT: &str = "# Signed with the key ";

/// The two formats of a key that apt reads: armored text, or binary OpenPGP.
const EXTENSIONS: [&str; 2] = ["asc", "gpg"];

/// The files that were written for a repository.
pub(crate) struct Written {
    pub(crate) list: String,
    /// The previous content of each path, if there was a file. The file may be an operator's, or an older key of the
    /// agent.
    before: Vec<(String, Option<Before>)>,
}

struct Before {
    bytes: Vec<u8>,
    metadata: Metadata,
}

impl Written {
    pub(super) fn revert(&self, root: &Root) -> Result<()> {
        self.before.iter().try_for_each(|(path, before)| match before {
            Some(Before { bytes, metadata }) => {
                // Only root can change owners. If the agent does not run as root, the old file belonged to the agent's
                // own user, and no owner is set.
                let owner = Uid::effective().is_root().then_some((metadata.uid, metadata.gid));
                write_file(root, path, metadata.mode, owner, bytes)
            }
            None => remove(root, path),
        })
    }
}

fn before(root: &Root, path: &str) -> Result<Option<Before>> {
    let Some(metadata) = root.metadata(path)? else { return Ok(None) };
    Ok(root.read(path)?.map(|bytes| Before { bytes, metadata }))
}

pub(crate) fn list_path(name: &str) -> String {
    format!("/etc/apt/sources.list.d/{name}.list")
}

fn key_path(name: &str, extension: &str) -> String {
    format!("/etc/apt/keyrings/{name}.{extension}")
}

/// The repository's present configuration on this machine. If the repository's list and key are correct, the result
/// equals `wanted`. `None` if the list is missing or not readable for all users.
pub(crate) fn find(root: &Root, wanted: &PackageSource) -> Result<Option<PackageSource>> {
    let list = list_path(&wanted.name);
    let Some(text) = root.read(&list)? else { return Ok(None) };
    if !root.is_for_all_to_read(&list)? {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(&text);
    for extension in EXTENSIONS {
        let key = key_path(&wanted.name, extension);
        if text == render(wanted, &key)
            && root.read(&key)?.is_some_and(|bytes| armor(&bytes) == Some(extension))
            && root.is_for_all_to_read(&key)?
        {
            return Ok(Some(wanted.clone()));
        }
    }
    let sources = text.lines().filter(|line| line.starts_with("deb")).map(str::to_owned).collect();
    // The list or the key differs from `wanted`. The empty keyring makes the result differ from `wanted`, because no wanted
    // repository has an empty keyring.
    Ok(Some(PackageSource { name: wanted.name.clone(), keyring: String::new(), sources }))
}

/// Writes a repository's key first, and then its list.
pub(crate) fn write(
    root: &Root,
    source: &PackageSource,
    key: &[u8],
    owner: Option<(u32, u32)>,
) -> Result<Written> {
    let extension = armor(key).ok_or_else(|| Error::Invalid {
        id: Resource::from(source.clone()).id(),
        reason: format!("{} serves no OpenPGP key", shown_url(&source.keyring)),
    })?;
    let list = list_path(&source.name);
    let key_file = key_path(&source.name, extension);
    // `revert` restores the keys before the list, because a list without its key is useless.
    let paths = EXTENSIONS.map(|extension| key_path(&source.name, extension));
    let paths = paths.into_iter().chain([list.clone()]);
    let before = paths.map(|path| Ok((path.clone(), before(root, &path)?))).collect::<Result<_>>()?;
    let written = Written { list, before };
    // apt reads the key as an unprivileged user, so the key must be readable for all users.
    write_file(root, &key_file, 0o644, owner, key)?;
    write_file(root, &written.list, 0o644, owner, render(source, &key_file).as_bytes())?;
    for other in EXTENSIONS.into_iter().filter(|other| *other != extension) {
        remove(root, &key_path(&source.name, other))?;
    }
    Ok(written)
}

/// Removes the keys of a repository. The caller has already removed the repository's list file.
pub(crate) fn remove_keys(root: &Root, name: &str) -> Result<()> {
    EXTENSIONS.iter().try_for_each(|extension| remove(root, &key_path(name, extension)))
}

fn remove(root: &Root, path: &str) -> Result<()> {
    match root.parent(path)? {
        Some((dir, name)) => dir.remove(&name).and_then(|()| dir.sync()),
        None => Ok(()),
    }
}

/// The file extension for the format of a key. `None` if the bytes are no key.
fn armor(key: &[u8]) -> Option<&'static str> {
    if key.trim_ascii_start().starts_with(b"-----BEGIN PGP PUBLIC KEY BLOCK-----") {
        return Some("asc");
    }
    // A packet of type 6 (public key), in the old or the new format (RFC 9580, section 4.2).
    let is_key = key.first().is_some_and(|tag| tag & 0xfc == 0x98 || *tag == 0xc6);
    is_key.then_some("gpg")
}

fn render(source: &PackageSource, key: &str) -> String {
    let mut text = format!("{KEY_COMMENT}{}\n", shown_url(&source.keyring));
    for line in &source.sources {
        let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
        let signed = match rest.trim_start().strip_prefix('[') {
            Some(options) => format!("{kind} [signed-by={key} {}\n", options.trim_start()),
            None => format!("{kind} [signed-by={key}] {}\n", rest.trim_start()),
        };
        text.push_str(&signed);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const ARMORED: &[u8] =
        b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmQINBF\n-----END PGP PUBLIC KEY BLOCK-----\n";

    fn gvisor() -> PackageSource {
        PackageSource {
            name: "gvisor".into(),
            keyring: "https://gvisor.example.com/archive.key".into(),
            sources: vec![
                "deb [arch=amd64] https://storage.example.com/gvisor release main".into(),
                "deb-src https://storage.example.com/gvisor release main".into(),
            ],
        }
    }

    fn root() -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        (folder, root)
    }

    #[test]
    fn a_key_is_valid_for_its_own_repository_only() {
        let (folder, root) = root();
        assert_eq!(find(&root, &gvisor()).unwrap(), None);
        write(&root, &gvisor(), ARMORED, None).unwrap();
        assert_eq!(
            std::fs::read_to_string(folder.path().join("etc/apt/sources.list.d/gvisor.list")).unwrap(),
            "# Signed with the key https://gvisor.example.com/archive.key\n\
             deb [signed-by=/etc/apt/keyrings/gvisor.asc arch=amd64] https://storage.example.com/gvisor release main\n\
             deb-src [signed-by=/etc/apt/keyrings/gvisor.asc] https://storage.example.com/gvisor release main\n"
        );
        assert_eq!(find(&root, &gvisor()).unwrap(), Some(gvisor()));
    }

    #[test]
    fn a_list_with_another_key_or_without_its_key_is_not_the_wanted_one() {
        let (folder, root) = root();
        write(&root, &gvisor(), &[0x99, 1, 0x0d], None).unwrap();
        assert!(folder.path().join("etc/apt/keyrings/gvisor.gpg").exists());
        write(&root, &gvisor(), ARMORED, None).unwrap();
        assert!(!folder.path().join("etc/apt/keyrings/gvisor.gpg").exists());
        let rotated = PackageSource { keyring: "https://gvisor.example.com/new.key".into(), ..gvisor() };
        assert_ne!(find(&root, &rotated).unwrap(), Some(rotated));
        std::fs::remove_file(folder.path().join("etc/apt/keyrings/gvisor.asc")).unwrap();
        assert_ne!(find(&root, &gvisor()).unwrap(), Some(gvisor()));
        // Upstream's nodeup writes this form of the list.
        let list = folder.path().join("etc/apt/sources.list.d/gvisor.list");
        std::fs::write(&list, gvisor().sources.join("\n")).unwrap();
        let found = find(&root, &gvisor()).unwrap().unwrap();
        assert_eq!((found.keyring.as_str(), &found.sources), ("", &gvisor().sources));
    }

    #[test]
    fn an_invalid_key_is_refused_and_a_written_repository_can_be_reverted() {
        let (folder, root) = root();
        let error = write(&root, &gvisor(), b"<html>Not found</html>", None).err().unwrap().to_string();
        assert!(error.contains("archive.key serves no OpenPGP key"), "{error}");
        let written = write(&root, &gvisor(), ARMORED, None).unwrap();
        written.revert(&root).unwrap();
        assert_eq!(find(&root, &gvisor()).unwrap(), None);
        assert!(!folder.path().join("etc/apt/keyrings/gvisor.asc").exists());
    }

    #[test]
    fn reverting_restores_the_earlier_files() {
        let (folder, root) = root();
        let (list, key) = (list_path("gvisor"), key_path("gvisor", "gpg"));
        write_file(&root, &list, 0o640, None, b"deb https://operators.example.com ./\n").unwrap();
        write_file(&root, &key, 0o644, None, &[0x99, 1, 0x0d]).unwrap();
        let written = write(&root, &gvisor(), ARMORED, None).unwrap();
        assert_eq!(find(&root, &gvisor()).unwrap(), Some(gvisor()));
        written.revert(&root).unwrap();
        let read = |path: &str| root.read(path).unwrap();
        assert_eq!(read(&list).unwrap(), b"deb https://operators.example.com ./\n");
        assert_eq!(read(&key).unwrap(), [0x99, 1, 0x0d]);
        assert_eq!(read(&key_path("gvisor", "asc")), None);
        let mode = std::fs::metadata(folder.path().join(&list[1..])).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
    }
}
