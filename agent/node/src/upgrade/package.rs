//! The program of a package. After the agent has tried the ordered version ([`super::trial`]), the package manager installs this version
//! from the repositories of this machine.
//!
//! The scripts of the packages leave running processes alone (`packaging/nfpm/after-install`), and needrestart does not run. So this
//! process sees the end of the installation, and restarts the services as after every other switch.

use anyhow::Result;
use kops_agent_cluster::rollout::PROGRAM_FILE;
use kops_agent_host::{PackageVersion, Service};
use kops_agent_process::service_manager;

use super::{Change, Place, RESTARTED, not_replaced, sha256_of};
use crate::machine;
use crate::redaction::error_text;

impl Change<'_> {
    /// Checks that the repositories have the ordered packages. The repositories must also have the packages that are installed now, because
    /// a rollback installs these packages.
    pub(super) fn find_packages(&self) -> Result<()> {
        let present = self.present_packages()?;
        service_manager::doing("looking for the packages of kops-agent");
        let ordered = self.ordered_packages(&present);
        let needed = [&ordered[..], &present].concat();
        let missing = self.place.host.packages_not_offered(&needed).map_err(|error| {
            not_replaced(format!(
                "the package lists of this machine cannot be read: {error}. Correct the repository, then run \
                 `kops-agent fleet rollout resume`"
            ))
        })?;
        if missing.is_empty() {
            return Ok(());
        }
        Err(not_replaced(format!(
            "no package repository of this machine has {}, or an exclude or versionlock hides it. The node \
             needs {} for the upgrade, and {} for a rollback. Add the packages to a repository, then run \
             `kops-agent fleet rollout resume`",
            listed(&missing),
            listed(&ordered),
            listed(&present)
        ))
        .into())
    }

    /// Installs the ordered version. If the installation fails, or if the package has a different program, the previous version is
    /// restored.
    pub(super) async fn install_packages(&self, services: &[Service], own: Vec<String>) -> Result<()> {
        let present = self.present_packages()?;
        let packages = self.ordered_packages(&present);
        let Place { host, path, .. } = self.place;
        host.note_switch(self.ordered(), services, own, present, &sha256_of(path)?)?;
        if let Err(error) = self.install(&packages) {
            // The outcome of the rollback comes first, because the error may be long, and the controller gets only the
            // beginning of this text.
            let outcome = self.take_packages_back(services).await;
            return Err(not_replaced(format!("{outcome}; {}", error_text(&error))).into());
        }
        Ok(())
    }

    /// Reinstalls the previous packages. Then restarts each service that does not run, or that started before the reinstallation. Returns a
    /// description of the result.
    pub(super) async fn take_packages_back(&self, services: &[Service]) -> String {
        let Place { host, path, .. } = self.place;
        service_manager::doing("installing the previous version of kops-agent");
        let other = match self.restore() {
            Ok(other) => other,
            Err(error) => return self.not_restored(&error),
        };
        let restored = other.unwrap_or_else(|| "the previous version is restored".to_owned());
        match host.restart_on_program(path, services).await {
            Ok(()) => restored,
            Err(error) => format!("{restored}, but {error}"),
        }
    }

    /// Installs the previous packages. Returns a problem if these packages have a different program than before the upgrade.
    fn restore(&self) -> Result<Option<String>> {
        let Place { host, path, .. } = self.place;
        host.restore_packages()?;
        host.sync_program(path)?;
        let (before, present) = (host.previous_sha256()?, sha256_of(path)?);
        if before.is_empty() || before == present {
            return Ok(None);
        }
        Ok(Some(format!(
            "the previous packages are installed, but have another program than before: the SHA-256 of \
             {path} was {before}, and is {present}"
        )))
    }

    /// Finishes an upgrade whose process was killed. Installs the ordered packages completely, or reinstalls the previous packages if the
    /// present program is not the ordered program. Returns whether this call replaced the program. After a replacement, this process must
    /// exit, because it may run the replaced program.
    pub(super) async fn finish_interrupted(&self) -> Result<bool> {
        let Change { place: Place { host, path, .. }, wanted, .. } = self;
        let packages = self.ordered_packages(&host.unfinished_packages()?);
        if packages.is_empty() {
            return Ok(false);
        }
        // The package manager may still be running, so this check comes before the program is read. Once the packages are complete, the
        // program no longer changes.
        let is_complete = host.has_packages(&packages)?;
        let is_ordered = sha256_of(path)? == wanted.sha256;
        if is_ordered && is_complete {
            host.sync_program(path)?;
        }
        match (is_ordered, is_complete) {
            (true, false) if host.is_noted_for_any_file(&wanted.sha256)? => {
                let _lock = machine::lock(true, host).await?;
                self.install(&packages)?;
            }
            (false, true) => {
                let _lock = machine::lock(true, host).await?;
                log::warn!("an interrupted upgrade has installed a different program than ordered");
                let other = self.restore().map_err(|error| not_replaced(self.not_restored(&error)))?;
                let services = host.services(&RESTARTED)?;
                if let Err(error) = host.restart_on_program(path, &services).await {
                    log::warn!("the previous packages are installed, but {error}");
                }
                // This process only logs the problem. The next process runs the present program, and reports to the cluster.
                if let Some(problem) = other {
                    log::error!("{problem}");
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The packages that a rollback reinstalls.
    fn present_packages(&self) -> Result<Vec<PackageVersion>> {
        let Change { place: Place { host, path, .. }, file, .. } = self;
        let present = host.own_packages()?;
        if present.is_empty() {
            return Err(not_replaced(format!(
                "a rollout can replace {path} only by installing the package kops-agent. This package is not \
                 completely installed, is installed in two versions, or does not own this file. Install \
                 version {} of the package by hand",
                file.version
            ))
            .into());
        }
        Ok(present)
    }

    /// Installs `packages`, and checks the program that they contain.
    fn install(&self, packages: &[PackageVersion]) -> Result<()> {
        let Change { place: Place { host, path, .. }, wanted, .. } = self;
        let packages_listed = listed(packages);
        service_manager::doing(format_args!("installing {packages_listed}"));
        if let Err(error) = host.replace_packages(packages) {
            let problem = format!("the package manager has not installed {packages_listed}: {error}");
            return Err(not_replaced(problem).into());
        }
        if let Err(error) = host.sync_program(path) {
            return Err(not_replaced(format!("{packages_listed} is installed, but {error}")).into());
        }
        let installed = sha256_of(path)?;
        if installed != wanted.sha256 {
            return Err(not_replaced(format!(
                "{packages_listed} has another program than {PROGRAM_FILE}: the SHA-256 of {path} is \
                 {installed}, but {PROGRAM_FILE} has {}. Use the same release in the package repository and in \
                 {PROGRAM_FILE}",
                wanted.sha256
            ))
            .into());
        }
        log::info!("{packages_listed} is installed");
        Ok(())
    }

    /// The packages in `present`, each with the version that the program file names.
    fn ordered_packages(&self, present: &[PackageVersion]) -> Vec<PackageVersion> {
        let version = &self.file.version;
        present.iter().map(|package| PackageVersion::of_release(&package.name, version)).collect()
    }

    fn not_restored(&self, error: &anyhow::Error) -> String {
        let by_hand = match self.place.host.command_of_previous_packages() {
            Ok(Some(command)) => format!(" (`{command}` on the node restores it)"),
            _ => String::new(),
        };
        format!("the previous version is not restored{by_hand}: {}", error_text(error))
    }
}

fn listed(packages: &[PackageVersion]) -> String {
    let packages: Vec<String> = packages.iter().map(ToString::to_string).collect();
    packages.join(", ")
}
