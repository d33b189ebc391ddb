//! What an operator has put in the place of a unit, by which systemd goes instead of what the agent or a package writes
//! (systemd.unit(5), "Unit File Load Path"): a mask (systemctl(1), `mask`), or another unit (`edit --full`, `link`). The
//! agent writes neither over it nor takes it away.

use kops_agent_plan::diff::Override;
use kops_agent_plan::unit_files::is_of_systemd;

use crate::error::Result;
use crate::places::{OVERRIDES, has_own_unit_in_etc, upstreams_unit_path};
use crate::root::{Entry, Root};

/// Where masks are that last until the next boot (`systemctl mask --runtime`).
const UNTIL_BOOT: &str = "/run/systemd/system";
const NOTHING: &str = "/dev/null";

/// What an operator has put in the place of a unit.
pub(crate) fn find(root: &Root, name: &str) -> Result<Option<Override>> {
    let path = format!("{OVERRIDES}/{name}");
    let has_other_place = upstreams_unit_path(root, name) != path;
    match entry(root, &path)? {
        Some(Entry::Symlink(target)) if target == NOTHING => Ok(Some(Override::Masked(path))),
        // By which an alias is made, or a unit that is in its own place by another name of that.
        Some(Entry::Symlink(target)) if is_of_systemd(&target) => Ok(None),
        Some(Entry::Symlink(_)) => Ok(Some(Override::Unit(path))),
        // To systemd an empty file is a mask too; where the agent's own is, one may be all that a power cut left.
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

/// Whether systemd starts a unit by no means, because an operator wants so.
pub(crate) fn is_masked(root: &Root, name: &str) -> Result<bool> {
    Ok(matches!(find(root, name)?, Some(Override::Masked(_))))
}

/// Whether an operator has masked a unit that only the agent writes, or has linked another in its place.
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
