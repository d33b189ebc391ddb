//! Backs up what a change replaces: by a hard link where the file system allows it, else by a copy with its mode and
//! owner.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::sync::Arc;

use kops_agent_plan::diff::{Action, Change, Enablement, Plan, Stage, Step};
use kops_agent_plan::health;
use kops_agent_plan::resource::{DesiredState, File, Kind, Resource, ResourceId};
use kops_agent_spec::digest::sha256_hex;

use super::journal::{FOLDER, Journal, Kept, UnitWas, Was};
use crate::error::{Error, Result};
use crate::host::Host;
use crate::hosts_file;
use crate::places::present_texts;
use crate::places::{path_of, unit_path};
use crate::prepare::find;
use crate::record::Record;
use crate::root::{Dir, Entry, Metadata, Root};
use crate::staged::{Staged, place};
use crate::stamps::Stamp;
use crate::system::health::running_pod;
use crate::volumes::has_boot_unit;

impl Host {
    /// Adds to the journal the previous state of each resource that `plan` changes, unless the journal already has it. `written` contains
    /// the SHA-256 of the files that the run will write, by path.
    pub(crate) fn keep(
        &self,
        journal: &mut Journal,
        plan: &Plan,
        desired: &DesiredState,
        record: &Record,
        written: &BTreeMap<String, String>,
    ) -> Result<()> {
        let folder = self.root.make_dirs(FOLDER)?;
        folder.set_mode(0o700)?;
        for step in plan.steps.iter().filter(|step| step.stage != Stage::Removals) {
            if journal.kept.contains_key(&step.resource) {
                continue;
            }
            let removed = Resource::from(File::text(&step.resource.name, ""));
            let resource = match step.action {
                Action::Remove => &removed,
                _ => find(desired, &step.resource)?,
            };
            let was = match is_repair(step, resource, record, written) {
                true => Was::Right,
                false => match self.was(resource, record, &folder, &journal.kept.len().to_string())? {
                    Some(was) => was,
                    None => continue,
                },
            };
            let kept = Kept {
                was,
                commands: commands(step),
                stamps: stamps(&self.root, &step.resource)?,
                unit: self.unit_was(resource)?,
                pod: self.pod_was(&step.resource)?,
                restarts_pod: step.starts_pod() && step.restarts(),
            };
            journal.kept.insert(step.resource.clone(), kept);
        }
        if !journal.changes_anything() {
            return Ok(());
        }
        folder.sync()?;
        journal.write(&self.root)
    }

    /// The previous state of a resource; `None` if a rollback cannot restore it. A file is backed up under the name `name`.
    fn was(&self, resource: &Resource, record: &Record, folder: &Dir, name: &str) -> Result<Option<Was>> {
        let id = resource.id();
        match resource {
            // The agent does not manage the content of a `create_only` file.
            Resource::File(file) if file.create_only => return Ok(None),
            Resource::File(_)
            | Resource::Symlink(_)
            | Resource::Directory(_)
            | Resource::KernelModule(_)
            | Resource::Unit(_) => {}
            Resource::HostsEntry(entry) => {
                let hosts = self.root.read(hosts_file::PATH)?.unwrap_or_default();
                let found = hosts_file::find(&String::from_utf8_lossy(&hosts), &entry.hostname);
                return Ok(Some(Was::Host(found.map_or(vec![], |entry| entry.addresses))));
            }
            // A rollback removes the boot unit of a new volume. Otherwise the unit would mount the volume at every boot. No run would
            // remove the unit, because the record does not contain the volume after a rollback.
            Resource::Mount(mount) => {
                let is_new = !record.is_claimed(&id) && !has_boot_unit(&self.root, &mount.path)?;
                let mounted = self.mounts.mounted(mount)?.is_some();
                return Ok(is_new.then_some(Was::Volume { mounted }));
            }
            // Packages, accounts, bind mounts and images may stay after a rollback, because they do no harm.
            _ => return Ok(None),
        }
        let Some((dir, file)) = self.root.parent(&path_of(&self.root, &id))? else {
            return Ok(Some(Was::Absent));
        };
        Ok(match dir.entry(&file)? {
            None => Some(Was::Absent),
            Some(Entry::Directory(metadata)) => Some(Was::Directory(metadata)),
            Some(Entry::Symlink(target)) => Some(Was::Symlink(target)),
            Some(Entry::File(metadata)) => {
                keep_file(&self.root, &dir, &file, folder, name, metadata)?;
                Some(Was::File { kept: name.to_owned(), metadata })
            }
            Some(Entry::Special) => None,
        })
    }

    fn unit_was(&self, resource: &Resource) -> Result<Option<UnitWas>> {
        let Resource::Unit(unit) = resource else { return Ok(None) };
        let states = self.unit_states(&[&unit.name])?;
        let has_file = self.root.read(&unit_path(&self.root, &unit.name))?.is_some();
        Ok(states.first().map(|state| UnitWas {
            known: state.is_known || has_file,
            enabled: state.enablement == Enablement::Enabled,
            running: state.running,
        }))
    }

    /// The UID of the running static pod of a manifest.
    fn pod_was(&self, id: &ResourceId) -> Result<Option<String>> {
        if id.kind != Kind::File || !health::is_manifest(&id.name) {
            return Ok(None);
        }
        Ok(health::of_manifest(&id.name, &present_texts(&self.root))
            .and_then(|component| running_pod(&*self.health, &component)))
    }
}

fn stamps(root: &Root, id: &ResourceId) -> Result<Vec<(Stamp, Option<String>)>> {
    let kinds: &[Stamp] = match id.kind {
        Kind::File => &[Stamp::Commands, Stamp::Member, Stamp::Pod],
        Kind::Unit => &[Stamp::Unit],
        _ => &[],
    };
    kinds.iter().map(|stamp| Ok((*stamp, stamp.read(root, &id.name)?))).collect()
}

/// Whether a step only restores the state that the agent itself had written.
fn is_repair(step: &Step, resource: &Resource, record: &Record, written: &BTreeMap<String, String>) -> bool {
    match resource {
        Resource::File(file) if step.changes_content() => {
            written.get(&file.path).is_some_and(|sha256| record.has_left(&step.resource, sha256))
        }
        Resource::File(_) => step.action == Action::Restart,
        Resource::Symlink(link) => record.has_left(&step.resource, &link.target),
        Resource::Unit(unit) if step.writes() => {
            let text = unit.text.as_deref().unwrap_or_default();
            record.has_left(&step.resource, &sha256_hex(text.as_bytes()))
        }
        Resource::Unit(_) => step.action != Action::Create,
        _ => false,
    }
}

fn commands(step: &Step) -> Vec<Vec<String>> {
    let command = |change: &Change| match change {
        Change::Run { command } => Some(command.clone()),
        _ => None,
    };
    step.changes.iter().filter_map(command).collect()
}

/// Hard-links a file into `folder`, or copies it.
fn keep_file(root: &Root, dir: &Dir, file: &str, folder: &Dir, name: &str, metadata: Metadata) -> Result<()> {
    folder.remove(name)?;
    match dir.link_to(file, folder, name)? {
        true => Ok(()),
        false => copy(root, dir, file, folder, name, metadata),
    }
}

/// Copies a file with its mode and owner.
pub(super) fn copy(
    root: &Root,
    from: &Dir,
    file: &str,
    to: &Dir,
    name: &str,
    metadata: Metadata,
) -> Result<()> {
    let owner = Some((metadata.uid, metadata.gid));
    let mut staged = Staged::in_dir(root, Arc::new(to.duplicate()?), name, metadata.mode, owner)?;
    let mut reader = from.open(file)?;
    let mut piece = vec![0; 1 << 16];
    loop {
        let length = reader.read(&mut piece).map_err(|error| Error::path("read", from.shown(file), error))?;
        if length == 0 {
            return place(vec![staged.seal()?]);
        }
        staged.write(&piece[..length])?;
    }
}
