//! Takes this machine to another version of kops-agent for an order of a rollout. The order has only the hash of the program file in
//! the state store; that file names the program.
//!
//! If the process is killed, the next one carries the order out again: a download resumes, and a program that is in place is not
//! downloaded again. After the switch, this process ends without an outcome. The new program then sees the order, writes its own units,
//! checks the node, and reports.

mod package;
mod trial;

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use kops_agent_cluster::rollout::{Download, Order, PROGRAM_FILE, ProgramFile};
use kops_agent_host::facts::parse_architecture;
use kops_agent_host::{Downloads, Host, NewProgram, OrderedProgram, Service, Silent};
use kops_agent_kube::own_node::Orders;
use kops_agent_net::{Buckets, LocationClient};
use kops_agent_plan::desired::{ADDONS_UNIT, BOOT_CONFIG, CONTROLLER_UNIT, FOLLOW_UNIT, PACKAGED_PROGRAM};
use kops_agent_process::{program, service_manager};
use kops_agent_spec::BootConfig;
use kops_agent_spec::digest::sha256_hex_of;
use kops_agent_spec::failure::{Failure, Kind};
use tokio::time::{sleep, timeout};

use super::orders::{Handled, controller, in_effect, is_in_force, store_options};
use super::{condition, machine};
use crate::redaction::error_text;
use trial::{Changes, Trial, Unwritten, first};

/// The services that run the program all the time. An order to upgrade restarts these services. The service that follows rollouts is not in
/// the list, because it exits by itself.
const RESTARTED: [&str; 2] = [CONTROLLER_UNIT, ADDONS_UNIT];
/// How long a server may serve an old program file. This must be longer than 5 s, because a server of kops-agent reads the program file
/// again after 5 s.
const SERVED_FOR: Duration = Duration::from_secs(6);
/// How long the download may take in all.
const DOWNLOADED_WITHIN: Duration = Duration::from_secs(1200);
/// How long this process retries its report to the cluster while the API server does not answer.
const TOLD_WITHIN: Duration = Duration::from_secs(600);

/// Carries an order out. `began` is the start of this process. The order is completed if this process runs the ordered version, and has
/// reported this version to the cluster.
///
/// After a failure, the present program stays in place or is restored, with two exceptions. If the ordered program is in place, for example
/// because its check or the report to the cluster failed, the error begins with the commands that restore the previous program. If the
/// package manager has installed a program that is neither the ordered nor the previous one, and cannot remove it, the error begins with
/// this problem.
pub async fn carry_out(
    conf: &Path,
    root: &Path,
    order: &Order,
    orders: &Orders,
    began: SystemTime,
) -> Result<Handled> {
    let host = machine::open(root)?;
    let path = program::path().context("finding the path of this program")?;
    let unnamed = || not_replaced("the path of this program is not UTF-8 text".to_owned());
    let path = path.to_str().ok_or_else(unnamed)?;
    let unknown = |error: kops_agent_host::Error| {
        not_replaced(format!("cannot find out whether a package owns {path}: {error}"))
    };
    let is_packaged = path == PACKAGED_PROGRAM || host.is_packaged(path).map_err(unknown)?;
    let place = Place { conf, root, host: &host, path, is_packaged };
    match Box::pin(place.carry_out(order, orders, began)).await {
        Err(error) if place.has_program_of(order) => Err(place.failed_in_place(&error).into()),
        handled => handled,
    }
}

/// If the last check of this process's program has not succeeded, reports to the cluster that the program is unchecked. After a
/// failed check, the outcome of the rollout's order also shows the failure, but a later order replaces this outcome. No later order
/// replaces the report. If the report fails, this failure is only logged.
pub async fn tell_if_unchecked(root: &Path) {
    let tell = async || {
        if machine::open(root)?.is_unchecked(program::sha256()?)? {
            condition::tell_within(root, TOLD_WITHIN).await?;
        }
        anyhow::Ok(())
    };
    if let Err(error) = tell().await {
        log::warn!(
            "cannot report to the cluster that this program is unchecked; the next run reports it: {}",
            error_text(&error)
        );
    }
}

/// Where the program that follows rollouts is installed on this machine.
struct Place<'a> {
    conf: &'a Path,
    root: &'a Path,
    host: &'a Host,
    path: &'a str,
    /// Whether only the package manager may replace the program.
    is_packaged: bool,
}

impl Place<'_> {
    /// Carries the order out. Fails like [`carry_out`], but the errors do not say which program is in place.
    async fn carry_out(&self, order: &Order, orders: &Orders, began: SystemTime) -> Result<Handled> {
        let Place { conf, root, host, path, .. } = *self;
        host.remove_tried_program(path)?;
        let (_, boot) = in_effect(conf, host).await?;
        let mut file = program_file(conf, root, host, &boot).await;
        if !file.as_ref().is_ok_and(|file| file.hash == order.hash) {
            // The operator may have changed the program file just before the order, and a server may still have the old file.
            sleep(SERVED_FOR).await;
            file = program_file(conf, root, host, &boot).await;
        }
        let file = file?;
        let wanted = wanted(&file, order)?;
        let change = Change { place: self, file: &file, wanted };
        if self.is_packaged && change.finish_interrupted().await? {
            return Ok(Handled::ProgramInPlace);
        }
        let running = program::sha256().context("reading this program")?;
        if running == wanted.sha256 {
            // The ordered program already runs. So it no longer matters whether the order is still valid.
            change.settle().await?;
            // `settle` has released the lock, so other runs do not wait for this report if the API server does not answer.
            condition::tell_within(root, TOLD_WITHIN).await?;
            return Ok(Handled::Completed);
        }
        if !is_in_force(orders, order, Kind::ProgramNotReplaced).await? {
            return Ok(Handled::Withdrawn);
        }
        let new = match sha256_of(path)? == wanted.sha256 {
            true => None,
            // The download runs without the lock, because it may take long.
            false => {
                let new = change.fetch().await?;
                change.start(&new).await?;
                Some(new)
            }
        };
        // With the lock, no other run can start with the old version and end with the new one.
        let _lock = machine::lock(true, host).await?;
        if !is_in_force(orders, order, Kind::ProgramNotReplaced).await? {
            return Ok(Handled::Withdrawn);
        }
        match new {
            Some(new) => change.make(new).await?,
            None if host.program_placed(path)?.is_some_and(|placed| placed < began) => {
                return Err(not_replaced(format!(
                    "{FOLLOW_UNIT} has restarted, but does not run the program that is in place at {path}; \
                     `systemctl cat {FOLLOW_UNIT}` shows which program the unit's ExecStart names"
                ))
                .into());
            }
            None => change.restart_services().await?,
        }
        Ok(Handled::ProgramInPlace)
    }

    /// Whether `order`, or an earlier order with the same program file, has already installed or checked the present program.
    fn has_program_of(&self, order: &Order) -> bool {
        let is_noted = || {
            let present = sha256_of(self.path)?;
            Ok(self.host.is_noted(OrderedProgram { sha256: &present, file: &order.hash })?)
        };
        is_noted().unwrap_or_else(|error: anyhow::Error| {
            log::debug!("cannot tell whether the ordered program is in place: {}", error_text(&error));
            false
        })
    }

    /// The failure of an order whose program is in place. The commands that restore the previous program come first, because the text may
    /// be cut.
    fn failed_in_place(&self, error: &anyhow::Error) -> Failure {
        not_replaced(format!("the new program is in place ({}); {}", self.way_back(), error_text(error)))
    }

    /// The commands with which an operator restores the previous version on this node. The new version may have written units that the
    /// previous version cannot start. So the previous version writes its own units before its services start.
    fn way_back(&self) -> String {
        let Place { conf, host, path, is_packaged, .. } = self;
        let previous = format!("{path}.previous");
        let back = match *is_packaged {
            true => host.command_of_previous_packages().unwrap_or_default(),
            false if host.has_previous_program(path).unwrap_or_default() => {
                Some(format!("mv {previous} {path}"))
            }
            false => None,
        };
        let Some(back) = back else {
            return match *is_packaged {
                true => "install the previous version of the package kops-agent by hand".to_owned(),
                false => format!("there is no {previous}; copy the previous version to {path} by hand"),
            };
        };
        let services = host.services(&RESTARTED).unwrap_or_default();
        let units: Vec<&str> =
            services.iter().map(|service| service.unit.as_str()).chain([FOLLOW_UNIT]).collect();
        let conf = match *conf == Path::new(BOOT_CONFIG) {
            true => String::new(),
            false => format!(" --conf {}", conf.display()),
        };
        format!(
            "`{back} && {path} converge{conf} && systemctl restart {}` restores the previous version",
            units.join(" ")
        )
    }
}

/// Reads the program file: from the state store, or from kops-controller if this machine does not read the store.
async fn program_file(conf: &Path, root: &Path, host: &Host, boot: &BootConfig) -> Result<ProgramFile> {
    let Some(base) = boot.store_base() else {
        let (server, text) = controller(conf, root, host).await?.program_file().await?;
        return Ok(ProgramFile::parse(text.as_bytes(), &format!("from {server}"))?);
    };
    let url = format!("{}/{PROGRAM_FILE}", base.trim_end_matches('/'));
    let text = store_options().open()?.read(&url).await;
    let text = text.with_context(|| format!("reading the program file {url}"))?;
    Ok(ProgramFile::parse(&text, &url)?)
}

/// The download of the order's program for this machine's architecture.
fn wanted<'a>(file: &'a ProgramFile, order: &Order) -> Result<&'a Download> {
    if file.hash != order.hash {
        return Err(not_replaced(format!(
            "the state store now has another {PROGRAM_FILE}, for version {}; run `kops-agent fleet rollout \
             abort`, and start `kops-agent fleet upgrade` with that file",
            file.version
        ))
        .into());
    }
    let architecture = parse_architecture(std::env::consts::ARCH)?;
    file.download(architecture)
        .ok_or_else(|| not_replaced(format!("{PROGRAM_FILE} has no program for {architecture}")).into())
}

struct Change<'a> {
    place: &'a Place<'a>,
    file: &'a ProgramFile,
    wanted: &'a Download,
}

impl Change<'_> {
    async fn fetch(&self) -> Result<NewProgram> {
        let Change { place: Place { host, path, is_packaged, .. }, file, wanted } = self;
        if *is_packaged {
            self.find_packages()?;
        }
        let store: Arc<dyn Buckets> = Arc::new(store_options().open()?);
        let downloads = Downloads::new(LocationClient::new()?).buckets(store);
        service_manager::doing(format_args!("downloading version {} of kops-agent", file.version));
        let from = (wanted.url.as_str(), wanted.sha256.as_str());
        let fetching = host.fetch_program(path, from, &downloads, &Silent);
        match timeout(DOWNLOADED_WITHIN, fetching).await {
            Ok(fetched) => {
                fetched.with_context(|| format!("downloading the program that {PROGRAM_FILE} names"))
            }
            Err(_) => Err(not_replaced(format!(
                "the program was not downloaded within {} s; the downloaded part is kept, and `kops-agent \
                 fleet rollout resume` continues the download",
                DOWNLOADED_WITHIN.as_secs()
            ))
            .into()),
        }
    }

    /// Checks the new program's version and its command that follows rollouts. The checks run the program, but do not change this node.
    async fn start(&self, new: &NewProgram) -> Result<()> {
        service_manager::doing(format_args!("trying version {} of kops-agent", self.file.version));
        let tried = new.path();
        let trial = self.trial(&tried);
        trial.prints_version(&self.file.version).await?;
        Ok(trial.follows().await?)
    }

    /// Puts the new program in place, if its plan would change only kops-agent's own resources on this node. If a service fails with the
    /// new program, the previous program is restored.
    async fn make(&self, new: NewProgram) -> Result<()> {
        let Change { place: Place { host, path, is_packaged, .. }, file, .. } = self;
        service_manager::doing(format_args!("trying version {} of kops-agent", file.version));
        let tried = new.path();
        let Changes { own, others } = self.trial(&tried).changes(&[]).await?;
        if !others.is_empty() {
            return Err(not_replaced(format!(
                "the new program would change this node ({}). Run `kops-agent verify` on the node. If the \
                 installed program shows the same changes, `kops-agent converge` repairs the node",
                first(&others)
            ))
            .into());
        }
        let services = host.services(&RESTARTED)?;
        if *is_packaged {
            drop(new);
            self.install_packages(&services, own).await?;
        } else {
            host.note_switch(self.ordered(), &services, own, Vec::new(), &sha256_of(path)?)?;
            host.switch_program(path, new)?;
            log::info!(
                "{path} is version {} of kops-agent; the previous version is {path}.previous",
                file.version
            );
        }
        service_manager::doing("restarting the services of kops-agent");
        if let Err(error) = host.restart_on_program(path, &services).await {
            // The outcome of the rollback comes first, because the error may be long, and the controller gets only the
            // beginning of this text.
            let outcome = self.take_back(&services).await;
            return Err(not_replaced(format!("{outcome}; {error}")).into());
        }
        Ok(())
    }

    /// Restores the previous program, and restarts the services that ran before the upgrade. Returns a description of the result.
    async fn take_back(&self, services: &[Service]) -> String {
        let Place { host, path, is_packaged, .. } = self.place;
        if *is_packaged {
            return self.take_packages_back(services).await;
        }
        if let Err(error) = host.take_program_back(path) {
            return format!("the previous version is not restored: {error}");
        }
        match host.restart_all(services).await {
            Ok(()) => "the previous version is restored".to_owned(),
            Err(error) => format!("the previous version is restored, but {error}"),
        }
    }

    /// Restarts the services that do not yet run the program in place. This process already runs this program. Then checks the node with
    /// the program. Before the check, the program writes the agent's own resources, so that no later verification finds a difference.
    async fn settle(&self) -> Result<()> {
        let host = self.place.host;
        let lock = machine::lock(true, host).await?;
        host.note_check(self.ordered())?;
        self.restart_services().await?;
        let own = self.own_changes().await?;
        // The process that writes the agent's own resources needs the lock, so this process releases it.
        drop(lock);
        if !own.is_empty() {
            service_manager::doing("writing the units of kops-agent");
            let why = match self.trial(self.place.path).write(&own).await {
                Ok(()) => "they differ again".to_owned(),
                Err(Unwritten::Failed(why)) => why,
                Err(Unwritten::AtWork(why)) => return Err(not_written(&own, &why).into()),
            };
            let _lock = machine::lock(true, host).await?;
            let left = self.own_changes().await?;
            if !left.is_empty() {
                return Err(not_written(&left, &why).into());
            }
            self.restart_services().await?;
        }
        host.note_checked(&self.wanted.sha256)?;
        log::info!("version {} of kops-agent would change nothing on this node", self.file.version);
        Ok(())
    }

    /// The agent's own resources that the program in place would change. Fails if the program would change other resources, too.
    async fn own_changes(&self) -> Result<Vec<String>> {
        service_manager::doing("verifying this node");
        let noted = self.place.host.noted_own(&self.wanted.sha256)?;
        let Changes { own, others } = self.trial(self.place.path).changes(&noted).await?;
        match others.is_empty() {
            true => Ok(own),
            false => Err(not_replaced(format!(
                "kops-agent would change this node ({}); `kops-agent verify` on the node shows the changes, and \
                 `kops-agent converge` makes them",
                first(&others)
            ))
            .into()),
        }
    }

    /// Restarts the services that do not run the program that is in place.
    async fn restart_services(&self) -> Result<()> {
        let Place { host, path, .. } = self.place;
        let services = host.services_after(&self.wanted.sha256, &RESTARTED)?;
        service_manager::doing("restarting the services of kops-agent");
        let restarted = host.restart_on_program(path, &services).await;
        Ok(restarted.map_err(|error| not_replaced(error.to_string()))?)
    }

    fn ordered(&self) -> OrderedProgram<'_> {
        OrderedProgram { sha256: &self.wanted.sha256, file: &self.file.hash }
    }

    fn trial<'a>(&'a self, program: &'a str) -> Trial<'a> {
        let Place { conf, root, path, .. } = *self.place;
        Trial { program, path_to_be: path, conf, root }
    }
}

fn sha256_of(path: &str) -> Result<String> {
    let read = File::open(path).and_then(sha256_hex_of);
    read.with_context(|| format!("reading the program {path}"))
}

fn not_written(resources: &[String], why: &str) -> Failure {
    not_replaced(format!("the units and files of kops-agent are not written ({}): {why}", first(resources)))
}

fn not_replaced(problem: String) -> Failure {
    Failure::new(Kind::ProgramNotReplaced, problem)
}
