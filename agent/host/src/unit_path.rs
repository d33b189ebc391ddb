//! Where the file of a unit is: where upstream's nodeup writes it, so that either program overwrites the other's
//! (upup/pkg/fi/nodeup/nodetasks/service.go, `systemdSystemPath`).
//!
//! What is in `/etc` wins over that in silence (systemd.unit(5)). A unit that an earlier version of the agent has left there
//! is written there until it is moved, once all is well; an operator's is left ([`crate::unit_overrides`]).

use kops_agent_plan::diff::Step;
use kops_agent_plan::resource::ResourceId;

use crate::error::Result;
use crate::facts::parse_os_release;
use crate::host::Host;
use crate::root::{Dir, Root};
use crate::staged::write_file;
use crate::stamps::Stamp;
use crate::unit_overrides;

/// Where administrators write units.
pub(crate) const OVERRIDES: &str = "/etc/systemd/system";

/// The agent's own units, of which upstream has none and packages may bring the files.
const OWN: &str = "kops-agent";

/// The file of a unit that the agent writes.
pub(crate) fn unit_path(root: &Root, name: &str) -> String {
    let in_etc = format!("{OVERRIDES}/{name}");
    let is_own = || root.has_own_unit_in_etc(name) && root.metadata(&in_etc).is_ok_and(|file| file.is_some());
    if is_own() { in_etc } else { upstreams_unit_path(root, name) }
}

/// Where upstream writes a unit, whatever there is elsewhere.
pub(crate) fn upstreams_unit_path(root: &Root, name: &str) -> String {
    let folder = if name.starts_with(OWN) { OVERRIDES } else { root.units_folder() };
    format!("{folder}/{name}")
}

/// Whether a step writes a unit where another may be, which is kept then.
pub(crate) fn is_kept_when_written(root: &Root, step: &Step) -> bool {
    step.writes() && is_kept(root, &step.resource.name, &unit_path(root, &step.resource.name))
}

/// Whether what another has written at a path is kept when a unit is written there: not what an earlier version of the
/// agent has.
fn is_kept(root: &Root, name: &str, path: &str) -> bool {
    !name.starts_with(OWN) && path == upstreams_unit_path(root, name)
}

fn is_there(root: &Root, path: &str) -> Result<bool> {
    match root.parent(path)? {
        Some((dir, name)) => Ok(dir.entry(&name)?.is_some()),
        None => Ok(false),
    }
}

/// The folder of units in which upstream writes on this distribution; that of administrators where it cannot be written
/// to, and where the distribution is not known.
pub(crate) fn find_folder(root: &Root) -> &'static str {
    let text =
        ["/etc/os-release", "/usr/lib/os-release"].iter().find_map(|path| root.read(path).ok().flatten());
    let folder = match parse_os_release(&String::from_utf8_lossy(&text.unwrap_or_default())).id.as_str() {
        "debian" | "ubuntu" => "/lib/systemd/system",
        "amzn" | "centos" | "fedora" | "rhel" | "rocky" => "/usr/lib/systemd/system",
        _ => return OVERRIDES,
    };
    let is_writable = |path: &str| root.dir(path).ok().flatten().map(|dir| dir.is_writable());
    // The nearest folder above that is there says it of what is yet to be made.
    let nearest = is_writable(folder).or_else(|| is_writable("/usr")).or_else(|| is_writable("/"));
    if nearest.unwrap_or(false) { folder } else { OVERRIDES }
}

impl Host {
    /// Where upstream's nodeup writes a unit of this name.
    pub fn upstreams_unit_path(&self, name: &str) -> String {
        upstreams_unit_path(&self.root, name)
    }

    /// Removes a unit's file from the folder of administrators, once it is where upstream writes it. It is for units that
    /// only the agent, of an earlier version, can have written there.
    ///
    /// # Errors
    /// It cannot be removed, or systemd refuses.
    pub fn remove_superseded_unit(&self, name: &str) -> Result<()> {
        let _lock = self.lock()?;
        let right = upstreams_unit_path(&self.root, name);
        let in_etc = format!("{OVERRIDES}/{name}");
        if in_etc == right || !is_there(&self.root, &right)? || !is_there(&self.root, &in_etc)? {
            return Ok(());
        }
        self.remove_from_overrides(name, true)
    }

    /// Removes a unit's file from the folder of administrators, and has systemd read that which is elsewhere.
    pub(crate) fn remove_from_overrides(&self, name: &str, enabled: bool) -> Result<()> {
        let path = format!("{OVERRIDES}/{name}");
        let Some((dir, file)) = self.root.parent(&path)? else { return Ok(()) };
        // The links by which it starts at boot lead to the file that goes.
        if enabled {
            self.systemd.disable(name)?;
        }
        dir.remove(&file)?;
        dir.sync()?;
        self.systemd.reload()?;
        if enabled { self.systemd.enable(name) } else { Ok(()) }
    }

    /// Keeps the text of another's unit that is about to be written over, to put it back when the agent's goes.
    pub(crate) fn keep_replaced(&self, path: &str, id: &ResourceId, text: &[u8]) -> Result<()> {
        let is_new = Stamp::Replaced.read(&self.root, &id.name)?.is_none();
        let found = match is_new && is_kept(&self.root, &id.name, path) {
            true => self.root.read(path)?.and_then(|bytes| String::from_utf8(bytes).ok()),
            false => None,
        };
        match found {
            Some(found) if found.as_bytes() != text => Stamp::Replaced.write(&self.root, &id.name, &found),
            _ => Ok(()),
        }
    }

    /// Removes the file of a unit, or puts back what the agent has written it over. A mask in its place stays.
    pub(crate) fn remove_unit(&self, id: &ResourceId, dir: &Dir, name: &str) -> Result<()> {
        let path = unit_path(&self.root, &id.name);
        if unit_overrides::find(&self.root, &id.name)?.is_some_and(|theirs| theirs.path() == path) {
            return Ok(());
        }
        match Stamp::Replaced.read(&self.root, &id.name)? {
            Some(text) => {
                write_file(&self.root, &path, 0o644, None, text.as_bytes())?;
                Stamp::Replaced.put_back(&self.root, &id.name, None)
            }
            None => dir.remove(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root_of(os_release: &str) -> (tempfile::TempDir, Root) {
        let temp = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(temp.path().join("usr/lib")).unwrap();
        std::fs::write(temp.path().join("usr/lib/os-release"), os_release).unwrap();
        let root = Root::open(temp.path()).unwrap();
        (temp, root)
    }

    #[test]
    fn units_are_written_where_upstream_writes_them() {
        for (id, folder) in [
            ("debian", "/lib/systemd/system"),
            ("ubuntu", "/lib/systemd/system"),
            ("amzn", "/usr/lib/systemd/system"),
            ("rocky", "/usr/lib/systemd/system"),
            ("flatcar", OVERRIDES),
            ("", OVERRIDES),
        ] {
            let (_temp, root) = root_of(&format!("ID={id}\n"));
            assert_eq!(unit_path(&root, "kubelet.service"), format!("{folder}/kubelet.service"), "{id}");
            let own = "kops-agent-controller.service";
            assert_eq!(unit_path(&root, own), format!("{OVERRIDES}/{own}"), "{id}");
        }
    }

    #[test]
    fn what_an_operator_has_in_etc_is_no_place_for_ours() {
        let (temp, root) = root_of("ID=debian\n");
        let etc = temp.path().join("etc/systemd/system");
        std::fs::create_dir_all(&etc).unwrap();
        std::fs::write(etc.join("a.service"), "").unwrap();
        std::os::unix::fs::symlink("/dev/null", etc.join("masked.service")).unwrap();
        for unit in ["a.service", "masked.service", "b.service"] {
            assert_eq!(unit_path(&root, unit), format!("/lib/systemd/system/{unit}"));
        }
    }
}
