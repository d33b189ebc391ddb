//! Takes this machine to another version of kops-agent for an order of a rollout. The order has only the hash of the program file in
//! the state store; that file names the program.
//!
//! If the process is killed, the next one carries the order out again: a download resumes, and a program that is in place is not
//! downloaded again. After the switch, this process ends without an outcome. The new program then sees the order, and reports.

mod trial;

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use kops_agent_cluster::rollout::{Download, Order, PROGRAM_FILE, ProgramFile};
use kops_agent_host::facts::parse_architecture;
use kops_agent_host::{Downloads, Host, Silent};
use kops_agent_kube::own_node::Orders;
use kops_agent_net::{Buckets, LocationClient};
use kops_agent_plan::desired::{ADDONS_UNIT, CONTROLLER_UNIT, PACKAGED_PROGRAM};
use kops_agent_process::{program, service_manager};
use kops_agent_spec::BootConfig;
use kops_agent_spec::digest::sha256_hex_of;
use kops_agent_spec::failure::{Failure, Kind};

use super::reboot::{confirm, controller, in_effect, store_options};
use super::{condition, machine};
use crate::known::error_text;
use trial::Trial;

/// The services of this program that run all the time, besides the one that follows rollouts.
const SERVICES: [&str; 2] = [CONTROLLER_UNIT, ADDONS_UNIT];
/// How long the report is retried while the API server does not answer. An API server on this machine is not restarted.
const TOLD_WITHIN: Duration = Duration::from_secs(600);

/// How an order ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upgraded {
    /// This process runs the wanted version, and the cluster knows it.
    Reported,
    /// The wanted version is in place. This process must end, so that its successor reports.
    InPlace,
}

/// Carries an order out.
///
/// # Errors
/// The order was withdrawn ([`super::reboot::Withdrawn`]), the state store has another program file, or the program cannot be
/// downloaded, tried or replaced. Then the present program stays.
pub async fn carry_out(conf: &Path, root: &Path, order: &Order, orders: &Orders) -> Result<Upgraded> {
    let host = machine::open(root)?;
    // No run begins with one version and ends with another one.
    let _lock = machine::lock(true, &host).await?;
    confirm(orders, order, Kind::ProgramNotReplaced).await?;
    let (_, boot) = in_effect(conf, &host).await?;
    let file = program_file(conf, root, &host, &boot).await?;
    let wanted = wanted(&file, order)?;
    let path = program::path().context("finding the path of this program")?;
    let path = path.to_str().context("the path of this program is not UTF-8 text")?;
    let running = program::sha256().context("reading this program")?;
    let is_running = running == wanted.sha256;
    let mut is_switched = false;
    if !is_running && sha256_of(path)? != wanted.sha256 {
        let new = Change { conf, root, host: &host, path, file: &file, wanted };
        new.make(orders, order).await?;
        is_switched = true;
    }
    service_manager::doing("restarting the services of kops-agent");
    if let Err(error) = host.restart_on_program(path, &SERVICES).await {
        let problem = match is_switched {
            true => take_back(root, &host, path).await,
            false => format!(
                "the program is in place; `mv {path}.previous {path}` takes the previous version back"
            ),
        };
        return Err(not_replaced(format!("{error}; {problem}")).into());
    }
    if !is_running {
        return Ok(Upgraded::InPlace);
    }
    condition::tell_within(root, TOLD_WITHIN).await?;
    Ok(Upgraded::Reported)
}

/// Puts the previous program back, with the services that ran it. Returns what happened.
async fn take_back(root: &Path, host: &Host, path: &str) -> String {
    if let Err(error) = host.take_program_back(path) {
        return format!("the previous version is not back, because {error}");
    }
    let restarted = host.restart_on_program(path, &SERVICES).await;
    // A run may have reported the new version meanwhile. The run that reports next corrects a report that fails here.
    if let Err(error) = condition::tell_within(root, Duration::ZERO).await {
        log::debug!("{}", error_text(&error));
    }
    match restarted {
        Ok(()) => "the previous version is back".to_owned(),
        Err(error) => format!("the previous version is back, and {error}"),
    }
}

/// Reads the program file: from the state store, or from the server if this machine does not read the store.
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

/// The program for this machine.
///
/// # Errors
/// The file is not the order's, or has no program for this architecture.
fn wanted<'a>(file: &'a ProgramFile, order: &Order) -> Result<&'a Download> {
    if file.hash != order.hash {
        return Err(not_replaced(format!(
            "the state store has another {PROGRAM_FILE} by now, of version {}; start another rollout with it",
            file.version
        ))
        .into());
    }
    let architecture = parse_architecture(std::env::consts::ARCH)?;
    file.download(architecture)
        .ok_or_else(|| not_replaced(format!("{PROGRAM_FILE} has no program for {architecture}")).into())
}

/// A change of the program at `path`.
struct Change<'a> {
    conf: &'a Path,
    root: &'a Path,
    host: &'a Host,
    path: &'a str,
    file: &'a ProgramFile,
    wanted: &'a Download,
}

impl Change<'_> {
    /// Downloads, tries and switches.
    async fn make(&self, orders: &Orders, order: &Order) -> Result<()> {
        let Change { conf, root, host, path, file, wanted } = self;
        if *path == PACKAGED_PROGRAM || host.is_packaged(path)? {
            return Err(not_replaced(format!(
                "{path} belongs to a package, which a rollout does not replace; install version {0} by the package manager, such as \
                 `apt-get install kops-agent={0}-1`",
                file.version
            ))
            .into());
        }
        let store: Arc<dyn Buckets> = Arc::new(store_options().open()?);
        let downloads = Downloads::new(LocationClient::new()?).buckets(store);
        service_manager::doing(format_args!("downloading version {} of kops-agent", file.version));
        let from = (wanted.url.as_str(), wanted.sha256.as_str());
        let new = host.fetch_program(path, from, &downloads, &Silent).await?;
        service_manager::doing(format_args!("trying version {} of kops-agent", file.version));
        let tried = new.path();
        let trial = Trial { program: &tried, path_to_be: path, conf, root };
        trial.prints_version(&file.version).await.map_err(not_replaced)?;
        trial.plans_nothing().await.map_err(not_replaced)?;
        // The download may have taken minutes.
        confirm(orders, order, Kind::ProgramNotReplaced).await?;
        host.switch_program(path, new)?;
        log::info!("{path} is version {} of kops-agent; the previous one is {path}.previous", file.version);
        Ok(())
    }
}

fn sha256_of(path: &str) -> Result<String> {
    let read = File::open(path).and_then(sha256_hex_of);
    read.with_context(|| format!("reading the program {path}"))
}

fn not_replaced(problem: String) -> Failure {
    Failure::new(Kind::ProgramNotReplaced, problem)
}
