//! The stage of files.
//!
//! Directories come first. Then every file, downloads included, is completely written beside its final place. The
//! files are renamed only when all of them are on the disk, the files of one certificate directly after each other.
//! Commands run last.

use kops_agent_plan::diff::{Change, Step};
use kops_agent_plan::resource::{Content, Directory, File, HostsEntry, Kind, Resource, ResourceId, Symlink};

use super::run::{Run, Steps};
use crate::digests::digest;
use crate::error::{Error, Result};
use crate::hosts_file::write_entries;
use crate::prepare::known_hash;
use crate::recognition::origin;
use crate::root::{set_mode, set_owner, temporary_name};
use crate::selinux::FileKind;
use crate::staged::{Sealed, Staged, place, seal_all};
use crate::stamps::Stamp;
use crate::system::commands::restarts_the_agent;

impl Run<'_> {
    pub(super) fn files(&self, steps: &Steps<'_>) -> Result<()> {
        let mut written: Vec<(&Step, &File)> = Vec::new();
        let mut kept: Vec<(&Step, &File)> = Vec::new();
        let mut links: Vec<(&Step, &Symlink)> = Vec::new();
        let mut hosts: Vec<&Step> = Vec::new();
        for (step, resource) in steps {
            match resource {
                Resource::Directory(directory) => {
                    self.progress.applying(step);
                    self.unless_refused(step, self.directory(directory))?;
                }
                Resource::File(file) if step.changes_content() => written.push((step, file)),
                Resource::File(file) => kept.push((step, file)),
                Resource::Symlink(link) => links.push((step, link)),
                Resource::HostsEntry(_) => hosts.push(step),
                // Certificates are issued before this stage. The files that contain them are other resources.
                _ => {}
            }
        }
        self.downloaded_files(&written)?;
        self.written_files(&written)?;
        for (step, file) in &kept {
            self.progress.applying(step);
            self.unless_refused(step, self.owner_and_mode(file))?;
        }
        for (step, link) in links {
            self.progress.applying(step);
            self.unless_refused(step, self.symlink(link))?;
        }
        if !hosts.is_empty() {
            hosts.iter().for_each(|step| self.progress.applying(step));
            self.hosts()?;
        }
        written.extend(kept);
        self.commands(&written)
    }

    /// Returns `None` if a step is rejected because another user's link is in the way. The run continues, and fails at its end. So no user
    /// can block the node's other changes by a link in a folder of that user.
    fn unless_refused<T>(&self, step: &Step, outcome: Result<T>) -> Result<Option<T>> {
        match outcome {
            Err(error @ Error::ForeignLink { .. }) => {
                self.starts.note(&step.resource, &error);
                Ok(None)
            }
            other => other.map(Some),
        }
    }

    fn directory(&self, directory: &Directory) -> Result<()> {
        let dir = self.host.root.make_dirs(&directory.path)?;
        let Directory { path, owner, group, mode } = directory;
        self.host.root.mend_label(path, FileKind::Directory)?;
        if let Some((uid, gid)) = self.host.users.owner_ids(path, owner, group)? {
            dir.set_owner(uid, gid)?;
        }
        dir.set_mode(mode.0)
    }

    fn begin(&self, file: &File) -> Result<Staged> {
        let owner = self.host.owner_ids(file)?;
        Staged::new(&self.host.root, &file.path, file.mode.0, owner)
    }

    /// Writes the files that are not downloaded. All files are completely written before the first file is moved to its path.
    fn written_files(&self, files: &[(&Step, &File)]) -> Result<()> {
        let (mut certificates, mut staged) = (Vec::new(), Vec::new());
        for (step, file) in files {
            let Some(bytes) = self.inputs.contents.get(file.path.as_str()) else { continue };
            self.progress.applying(step);
            let Some(mut begun) = self.unless_refused(step, self.begin(file))? else { continue };
            begun.write(bytes)?;
            staged.push(begun);
            certificates.push(follows_certificate(file));
        }
        let mut sealed: Vec<(&str, Sealed)> = certificates.into_iter().zip(seal_all(staged)?).collect();
        // The files of one certificate are renamed directly after each other, so that they mismatch only for a moment.
        sealed.sort_by_key(|(certificate, _)| *certificate);
        place(sealed.into_iter().map(|(_, sealed)| sealed).collect())
    }

    /// Moves all downloaded files to their paths. All of them are already complete and verified.
    fn downloaded_files(&self, files: &[(&Step, &File)]) -> Result<()> {
        let mut sealed = Vec::new();
        let mut origins = Vec::new();
        for (step, file) in files {
            let Content::Asset(asset) = &file.content else { continue };
            self.progress.applying(step);
            let ready = self.inputs.ready(&file.path)?;
            let owner = self.host.owner_ids(file)?;
            sealed.push(Sealed::adopt(
                &self.host.root,
                &file.path,
                &ready.dir,
                &ready.name,
                file.mode.0,
                owner,
            )?);
            if let Some(member) = &asset.member {
                origins.push((&file.path, origin(&ready.content, known_hash(step, asset)?, member)));
            }
        }
        place(sealed)?;
        let origins = origins.iter().map(|(path, origin)| (path.as_str(), origin.as_str()));
        Stamp::Member.write_all(&self.host.root, origins)
    }

    /// Sets the mode and owner of a file that already has the right content.
    fn owner_and_mode(&self, file: &File) -> Result<()> {
        let (dir, name) = self.host.root.make_parent(&file.path)?;
        let open = dir.open(&name)?;
        let failed = |doing| move |error| Error::path(doing, self.host.root.shown(&file.path), error);
        self.host.root.mend_label(&file.path, FileKind::File)?;
        if let Some((uid, gid)) = self.host.owner_ids(file)? {
            set_owner(&open, uid, gid).map_err(failed("set the owner of"))?;
        }
        set_mode(&open, file.mode.0).map_err(failed("set the mode of"))
    }

    fn symlink(&self, link: &Symlink) -> Result<()> {
        let (dir, name) = self.host.root.make_parent(&link.path)?;
        let temporary = temporary_name(&name);
        dir.remove(&temporary)?;
        dir.link(&link.target, &temporary)?;
        self.host.root.label_link(&dir, &temporary, &name)?;
        dir.rename(&temporary, &name)?;
        dir.sync()
    }

    /// Writes all entries of `/etc/hosts` in one step, because they share the file.
    fn hosts(&self) -> Result<()> {
        let entries: Vec<&HostsEntry> = self
            .desired
            .iter()
            .filter_map(|(_, resource)| match resource {
                Resource::HostsEntry(entry) => Some(entry),
                _ => None,
            })
            .collect();
        write_entries(&self.host.root, &entries)
    }

    /// Whether the plan starts or restarts the command's unit later anyway, after all files of the unit are written.
    fn is_restarted_later(&self, command: &[String]) -> bool {
        let [program, verb, unit] = command else { return false };
        let starts = |change: &Change| matches!(change, Change::Start | Change::Restart { .. });
        let step = self.plan.step(&ResourceId::new(Kind::Unit, unit));
        program == "systemctl"
            && verb == "restart"
            && step.is_some_and(|step| step.changes.iter().any(starts))
    }

    /// Runs each command of the changed files once, and records for which file content it ran. A failed command stays due, but the run
    /// continues. Upstream also continues: its second try, ten seconds later, finds the file unchanged and skips the command
    /// (upup/pkg/fi/nodeup/nodetasks/file.go).
    fn commands(&self, files: &[(&Step, &File)]) -> Result<()> {
        let mut done: Vec<&[String]> = Vec::new();
        let mut failed: Vec<&[String]> = Vec::new();
        let mut changed: Vec<&File> = Vec::new();
        for (step, file) in files {
            for change in &step.changes {
                let Change::Run { command } = change else { continue };
                if !restarts_the_agent(command)
                    && !self.is_restarted_later(command)
                    && !done.contains(&command.as_slice())
                {
                    let its = files.iter().filter(|(_, file)| file.on_change.contains(command));
                    let its: Vec<&str> = its.map(|(_, file)| file.path.as_str()).collect();
                    if let Err(error) = self.host.commands.run_for(command, &its, self.progress) {
                        self.starts.note(&step.resource, &error);
                        failed.push(command);
                    }
                    done.push(command);
                }
                if !changed.iter().any(|known| known.path == file.path) {
                    changed.push(file);
                }
            }
        }
        let is_done =
            |file: &&&File| !file.on_change.iter().any(|command| failed.contains(&command.as_slice()));
        changed.iter().filter(is_done).try_for_each(|file| {
            let (dir, name) = self.host.root.make_parent(&file.path)?;
            Stamp::Commands.write(&self.host.root, &file.path, &digest(&dir, &name)?)
        })
    }
}

/// The name of the certificate that determines the file's content. Empty if the content does not depend on a certificate.
fn follows_certificate(file: &File) -> &str {
    match &file.content {
        Content::Certificate(name) | Content::PrivateKey(name) | Content::Ca(name) => name,
        Content::Kubeconfig(kubeconfig) => &kubeconfig.certificate,
        Content::Text(_) | Content::Base64(_) | Content::Asset(_) | Content::SecretText(_) => "",
    }
}
