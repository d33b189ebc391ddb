//! Finds an operator's override of a unit: a mask (systemctl(1), `mask`), or another unit file (`edit --full`,
//! `link`). systemd uses the override instead of the file of the agent or of a package (systemd.unit(5), "Unit File
//! Load Path"). The agent does not overwrite or remove the override.

use kops_agent_plan::diff::Override;
use kops_agent_plan::unit_files::is_of_systemd;

use crate::error::Result;
use crate::places::{OVERRIDES, has_own_unit_in_etc, upstreams_unit_path};
use crate::root::{Entry, Root};

/// The folder of masks that last until the next boot (`systemctl mask --runtime`).
const UNTIL_BOOT: &str = "/run/systemd/system";
const NOTHING: &str = "/dev/null";

/// The operator's override of a unit, if there is one.
pub(crate) fn find(root: &Root, name: &str) -> Result<Option<Override>> {
    let path = format!("{OVERRIDES}/{name}");
    let has_other_place = upstreams_unit_path(root, name) != path;
    match entry(root, &path)? {
        Some(Entry::Symlink(target)) if target == NOTHING => Ok(Some(Override::Masked(path))),
        // A link into systemd's own folders is no override: it is an alias of the unit, or a second path to the
        // unit's own file.
        Some(Entry::Symlink(target)) if is_of_systemd(&target) => Ok(None),
        Some(Entry::Symlink(_)) => Ok(Some(Override::Unit(path))),
        // systemd treats an empty file as a mask. Here, the path where the agent writes the unit is an exception,
        // because an empty file at that path may be the result of a power cut.
        Some(Entry::File(metadata)) if metadata.size == 0 && has_other_place => {
            Ok(Some(Override::Masked(path)))
        }
        Some(Entry::File(_)) if has_other_place && !has_own_unit_in_etc(root, name) => {
            Ok(Some(Override::Unit(path)))
        }
        Some(_) => Ok(None),
        None => {
            let path = format!("{UNTIL_BOOT}/{name}");
            let is_masked = matches!(entry(root, &path)?, Some(Entry::Symlink(target)) if target == NOTHING);
            Ok(is_masked.then_some(Override::Masked(path)))
        }
    }
}

/// Whether an operator's mask keeps systemd from starting a unit.
pub(crate) fn is_masked(root: &Root, name: &str) -> Result<bool> {
    Ok(matches!(find(root, name)?, Some(Override::Masked(_))))
}

/// Whether an operator masked a unit that only the agent writes, or replaced the unit by a link to another unit.
pub(crate) fn is_linked(root: &Root, name: &str) -> Result<bool> {
    let link = entry(root, &format!("{OVERRIDES}/{name}"))?;
    Ok(matches!(link, Some(Entry::Symlink(_))) || is_masked(root, name)?)
}

fn entry(root: &Root, path: &str) -> Result<Option<Entry>> {
    match root.parent(path)? {
        Some((dir, name)) => dir.entry(&name),
        None => Ok(None),
    }
}
