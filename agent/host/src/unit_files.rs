//! Overwrites, moves and removes the files of units.

use kops_agent_plan::resource::ResourceId;

use crate::error::Result;
use crate::host::Host;
use crate::places::{OVERRIDES, is_kept, unit_path, upstreams_unit_path};
use crate::root::{Dir, Root};
use crate::staged::write_file;
use crate::stamps::Stamp;
use crate::unit_overrides;

impl Host {
    /// The path where upstream's nodeup writes a unit of this name.
    pub fn upstreams_unit_path(&self, name: &str) -> String {
        upstreams_unit_path(&self.root, name)
    }

    /// Removes a unit's file from the folder of administrators' units if the unit also has a file at upstream's path.
    /// Callers pass only units whose file in that folder comes from an earlier version of the agent.
    pub fn remove_superseded_unit(&self, name: &str) -> Result<()> {
        let _lock = self.lock()?;
        let right = upstreams_unit_path(&self.root, name);
        let in_etc = format!("{OVERRIDES}/{name}");
        if in_etc == right || !is_there(&self.root, &right)? || !is_there(&self.root, &in_etc)? {
            return Ok(());
        }
        self.remove_from_overrides(name, true)
    }

    /// Removes a unit's file from the folder of administrators' units, so that systemd reads the unit's file in another
    /// folder.
    pub(crate) fn remove_from_overrides(&self, name: &str, enabled: bool) -> Result<()> {
        let path = format!("{OVERRIDES}/{name}");
        let Some((dir, file)) = self.root.parent(&path)? else { return Ok(()) };
        // `systemctl enable` made links to the file. They must not outlive the file, so the unit is disabled first
        // and enabled again later.
        if enabled {
            self.systemd.disable(name)?;
        }
        dir.remove(&file)?;
        dir.sync()?;
        if enabled {
            self.systemd.enable(name)?;
        }
        self.systemd.reload()
    }
}

/// Removes the unit file that the agent wrote. If the agent had overwritten a unit file of another program, restores
/// that file instead. A mask at the path of the unit file stays.
pub(crate) fn remove_unit(root: &Root, id: &ResourceId, dir: &Dir, name: &str) -> Result<()> {
    let path = unit_path(root, &id.name);
    if unit_overrides::find(root, &id.name)?.is_some_and(|theirs| theirs.path() == path) {
        return Ok(());
    }
    match Stamp::Replaced.read(root, &id.name)? {
        Some(text) => {
            write_file(root, &path, 0o644, None, text.as_bytes())?;
            Stamp::Replaced.put_back(root, &id.name, None)
        }
        None => dir.remove(name),
    }
}

/// Backs up another program's unit file before the agent overwrites it. When the agent's unit is removed, the backup
/// is restored.
pub(crate) fn keep_replaced(root: &Root, path: &str, id: &ResourceId, text: &[u8]) -> Result<()> {
    let is_new = Stamp::Replaced.read(root, &id.name)?.is_none();
    let found = match is_new && is_kept(root, &id.name, path) {
        true => root.read(path)?.and_then(|bytes| String::from_utf8(bytes).ok()),
        false => None,
    };
    match found {
        Some(found) if found.as_bytes() != text => Stamp::Replaced.write(root, &id.name, &found),
        _ => Ok(()),
    }
}

fn is_there(root: &Root, path: &str) -> Result<bool> {
    match root.parent(path)? {
        Some((dir, name)) => Ok(dir.entry(&name)?.is_some()),
        None => Ok(false),
    }
}
