//! Restores what a change replaced. Every function can be repeated after an interruption.

use std::collections::BTreeMap;

use kops_agent_plan::diff::Enablement;
use kops_agent_plan::resource::{HostsEntry, Kind, ResourceId};

use super::journal::{FOLDER, Journal, Was};
use super::keeping::copy;
use super::note;
use crate::assets::Progress;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::hosts_file::write_entries;
use crate::places::path_of;
use crate::root::{Dir, Metadata, Root, set_mode, set_owner, temporary_name};
use crate::system::commands::{Commands, restarts_the_agent};

impl Host {
    /// Stops the units that did not run before the change. Enables or disables each unit as it was before the change.
    pub(super) async fn restore_units(&self, journal: &Journal, still_wrong: &mut Vec<String>) -> Result<()> {
        for (id, kept) in &journal.kept {
            let Some(before) = kept.unit else { continue };
            let states = self.systemd.states(&[&id.name])?;
            let Some(now) = states.first().filter(|now| now.is_known) else { continue };
            if !before.running && now.running {
                note(self.stop_in_time(&id.name).await, still_wrong)?;
            }
            match now.enablement {
                Enablement::Enabled if !before.enabled => note(self.systemd.disable(&id.name), still_wrong)?,
                Enablement::Disabled if before.enabled => note(self.systemd.enable(&id.name), still_wrong)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Unmounts the volumes that the change has mounted. A volume in use stays mounted until the next boot.
    pub(super) fn restore_volumes(&self, journal: &Journal, still_wrong: &mut Vec<String>) -> Result<()> {
        // Unmount a nested mount before the mount that contains it.
        for (id, kept) in journal.kept.iter().rev() {
            let Was::Volume { mounted } = kept.was else { continue };
            note(self.no_longer_mount_at_boot(&id.name), still_wrong)?;
            if !mounted && !self.mounted_among(&[&id.name])?.is_empty() {
                note(self.mounts.unmount(&id.name), still_wrong)?;
            }
        }
        Ok(())
    }
}

/// Runs each command of the restored files once.
pub(super) fn repeat_commands(
    commands: &dyn Commands,
    journal: &Journal,
    progress: &dyn Progress,
    still_wrong: &mut Vec<String>,
) -> Result<()> {
    let mut files_of: BTreeMap<&[String], Vec<&str>> = BTreeMap::new();
    for (id, kept) in &journal.kept {
        for command in kept.commands.iter().filter(|command| !restarts_the_agent(command)) {
            files_of.entry(command).or_default().push(&id.name);
        }
    }
    for (command, files) in files_of {
        note(commands.run_for(command, &files, progress), still_wrong)?;
    }
    Ok(())
}

pub(super) fn restore_stamps(root: &Root, journal: &Journal) -> Result<()> {
    for (id, kept) in &journal.kept {
        for (stamp, value) in &kept.stamps {
            if stamp.read(root, &id.name)? != *value {
                stamp.put_back(root, &id.name, value.as_deref())?;
            }
        }
    }
    Ok(())
}

/// Overwrites and removes the backups of an unfinished change.
pub(crate) fn shred_kept_files(root: &Root) -> Result<()> {
    let Some(folder) = root.dir(FOLDER)? else { return Ok(()) };
    folder.names()?.iter().try_for_each(|name| folder.shred(name))
}

fn remove_new(root: &Root, id: &ResourceId) -> Result<()> {
    let Some((dir, name)) = root.parent(&path_of(root, id))? else { return Ok(()) };
    match id.kind {
        Kind::Directory => dir.remove_dir_if_empty(&name)?,
        // The file may be a key, so overwrite it. Rename it first, so that no partly overwritten file has the real name.
        _ => {
            let temporary = temporary_name(&name);
            if dir.entry(&name)?.is_some() {
                dir.rename(&name, &temporary)?;
                dir.sync()?;
            }
            dir.shred(&temporary)?;
        }
    }
    dir.sync()
}

fn restore_path(root: &Root, path: &str, was: &Was, folder: &Dir) -> Result<()> {
    let (dir, name) = root.make_parent(path)?;
    match was {
        Was::File { kept, metadata } => restore_file(root, folder, kept, &dir, &name, *metadata)?,
        Was::Symlink(target) => {
            let temporary = temporary_name(&name);
            dir.remove(&temporary)?;
            dir.link(target, &temporary)?;
            dir.rename(&temporary, &name)?;
        }
        Was::Directory(metadata) => {
            if let Some(directory) = root.dir(path)? {
                directory.set_owner(metadata.uid, metadata.gid)?;
                directory.set_mode(metadata.mode)?;
            }
        }
        Was::Right | Was::Absent | Was::Host(_) | Was::Volume { .. } => return Ok(()),
    }
    dir.sync()
}

pub(super) fn restore_resources(
    root: &Root,
    journal: &Journal,
    which: impl Fn(&ResourceId) -> bool,
    still_wrong: &mut Vec<String>,
) -> Result<()> {
    let folder = root.make_dirs(FOLDER)?;
    // Restore a directory before its content. Remove a directory after its content.
    let (gone, there): (Vec<_>, Vec<_>) =
        journal.kept.iter().filter(|(id, _)| which(id)).partition(|(_, kept)| kept.was == Was::Absent);
    for (id, kept) in there {
        match &kept.was {
            Was::Host(addresses) => {
                let entry = HostsEntry {
                    hostname: id.name.clone(),
                    addresses: addresses.clone(),
                    ..HostsEntry::default()
                };
                write_entries(root, &[&entry])?;
            }
            Was::Volume { .. } => {}
            was => note(restore_path(root, &path_of(root, id), was, &folder), still_wrong)?,
        }
    }
    for (id, _) in gone.iter().rev().filter(|(id, _)| id.kind != Kind::Directory) {
        remove_new(root, id)?;
    }
    for (id, _) in gone.iter().rev().filter(|(id, _)| id.kind == Kind::Directory) {
        remove_new(root, id)?;
    }
    Ok(())
}

/// Restores a backed-up file. The backup stays.
fn restore_file(
    root: &Root,
    folder: &Dir,
    kept: &str,
    dir: &Dir,
    name: &str,
    metadata: Metadata,
) -> Result<()> {
    // If both names are hard links of one file, a rename would do nothing and both names would remain.
    if !folder.has_same(kept, dir, name)? {
        let temporary = temporary_name(name);
        dir.remove(&temporary)?;
        match folder.link_to(kept, dir, &temporary)? {
            true => dir.rename(&temporary, name)?,
            false => return copy(root, folder, kept, dir, name, metadata),
        }
    }
    // Open the file by the backup's name, which only root can change. Another user may have replaced the file at `name`.
    let file = folder.open(kept)?;
    let failed = |doing| move |error| Error::path(doing, dir.shown(name), error);
    set_owner(&file, metadata.uid, metadata.gid).map_err(failed("set the owner of"))?;
    set_mode(&file, metadata.mode).map_err(failed("set the mode of"))
}
