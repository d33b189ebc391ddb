//! The node side of kOps in one static binary: it reads what kOps keeps of a cluster, decides what
//! this machine must be, and makes it so.

// `pub` says here that other modules may use it: a binary has no other public.
#![allow(unreachable_pub)]

mod certificates;
mod cli;
mod config;
mod controller_service;
mod convergence;
mod environment;
mod exit;
mod explain;
mod facts;
mod hashes;
mod install_unit;
mod last_applied;
mod logging;
mod materials;
mod node;
mod nodeup;
mod output;
mod panics;
mod progress;
mod remembered;
mod remote;
mod render;
mod renewal;
mod reset;
mod source;
mod status;
mod verify;

use std::collections::BTreeMap;
use std::future::Future;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{CommandFactory, Parser};
use kops_agent_bootstrap_client as bootstrap_client;
use kops_agent_cloud as cloud;
use kops_agent_controller as control_plane;
use kops_agent_host::{Host, Record, Report};
use kops_agent_net::{dns, http, retry, tls};
use kops_agent_process::{service_manager, stop};
use kops_agent_store as store;

use tokio::runtime::{Builder, Runtime};

use hashes::HashSource;
use last_applied::{Instead, StandIn};
use retry::Retries;
use source::Before;

use cli::{Cli, Command, ControllerCommand, ConvergeArgs, FactsArgs, PlanArgs, RenderArgs};

/// Between two tries. nodeup waits for half a minute, always (cmd/nodeup/main.go): longer than a role takes to be known
/// everywhere, and far too often for a store that has what it has for hours.
pub(crate) const RETRIES: Retries = Retries {
    deadline: Duration::MAX,
    attempt: Duration::MAX,
    first_pause: Duration::from_secs(5),
    // With its jitter, five minutes.
    longest_pause: Duration::from_secs(150),
};
/// Between two looks at whether the cluster wants something else than what was rolled back; with its jitter, up to twice
/// as long.
const PAUSE_AFTER_ROLLBACK: Duration = Duration::from_secs(15 * 60);

fn main() -> ExitCode {
    panics::start();
    let cli = Cli::parse_from(nodeup::with_nodeup_spelling(std::env::args().collect()));
    logging::start(cli.verbosity);
    service_manager::start();
    tls::install_provider();
    let runtime = match runtime(&cli.command) {
        Ok(runtime) => runtime,
        Err(error) => return failed(&anyhow::Error::new(error).context("starting the agent's runtime")),
    };
    match runtime.block_on(run(cli.command.settled())) {
        Ok(code) => exit::exit_code(code),
        Err(error) => failed(&error),
    }
}

/// A node converges on one thread; a control plane serves on all there are.
fn runtime(command: &Command) -> std::io::Result<Runtime> {
    match command {
        Command::Controller(_) => Builder::new_multi_thread().enable_all().build(),
        _ => Builder::new_current_thread().enable_all().build(),
    }
}

fn failed(error: &anyhow::Error) -> ExitCode {
    let why = output::error_text(error);
    logging::last_words(&why);
    service_manager::failed(format_args!("failed: {why}"));
    exit::exit_code(exit::code_of(error))
}

/// What runs long is on the heap: without optimization, all of it at once is more than a stack holds.
async fn run(command: Command) -> Result<u8> {
    match command {
        Command::Converge(args) => Box::pin(converge_with_retries(&args)).await,
        Command::Plan(args) => Box::pin(plan(&args)).await,
        Command::Verify(args) => Box::pin(verify::run(&args)).await,
        Command::Status(args) => status::run(&args),
        Command::Reset(args) => reset::run(&args),
        Command::Render(args) => Box::pin(render(&args)).await,
        Command::Facts(args) => show_facts(&args).await,
        Command::Config { command } => Box::pin(config::run(command)).await,
        Command::Controller(args) => match &args.command {
            Some(ControllerCommand::Takeover(takeover)) => {
                Box::pin(control_plane::takeover::check(takeover)).await
            }
            None => Box::pin(control_plane::run(&args)).await,
        },
        Command::Explain(args) => Box::pin(explain::run(&args)).await,
        Command::Nodeup(args) => Box::pin(nodeup::run(args)).await,
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "kops-agent", &mut script);
            output::print_bytes(&script)
        }
        Command::Man => {
            let mut page = Vec::new();
            clap_mangen::Man::new(Cli::command()).render(&mut page)?;
            output::print_bytes(&page)
        }
    }
}

/// Converges, again after a failure as often as asked, and no longer once it is asked to stop. At boot nothing is final
/// but what is wrong with this process's own flags: a role is given its permissions, a store its files, and a mistake in
/// the configuration is put right, all while machines wait.
pub(crate) async fn converge_with_retries(args: &ConvergeArgs) -> Result<u8> {
    let mut args = args.clone();
    args.root.waits_for_lock = args.retries != 0;
    until_stopped(&args.root.root, converge_until_done(&args)).await
}

/// Runs what changes a machine until it is done or is asked to stop; `status` tells of that.
pub(crate) async fn until_stopped(root: &Path, run: impl Future<Output = Result<u8>>) -> Result<u8> {
    let stopped = stop::asked()?;
    tokio::select! {
        // Where a run could go on and is asked to stop, it stops.
        biased;
        signal = stopped => {
            let error = stop::stopped_by(signal);
            note_failure(root, &error);
            Err(error)
        }
        result = run => result,
    }
}

async fn converge_until_done(args: &ConvergeArgs) -> Result<u8> {
    let mut retries = args.retries;
    let mut pauses = RETRIES.pauses();
    let mut pauses_after_rollback =
        Retries { first_pause: PAUSE_AFTER_ROLLBACK, longest_pause: PAUSE_AFTER_ROLLBACK, ..RETRIES }
            .pauses();
    loop {
        let error = match converge(args).await {
            // As upstream's nodeup ends; what is to be done then is another one's to decide.
            Err(error) if bootstrap_client::is_already_registered(&error) => {
                log::warn!("{}", output::error_text(&error));
                service_manager::ready("left as it is: this machine is a node already");
                return Ok(exit::CONVERGED);
            }
            Err(error)
                if retries != 0
                    && !exit::is_final(&error)
                    && (!exit::leaves_a_working_node(&error) || exit::misses_images(&error)) =>
            {
                error
            }
            result => return result,
        };
        let pause = match is_rolled_back(&error) {
            true => pauses_after_rollback.next(),
            false => pauses.next(),
        };
        let pause = pause.unwrap_or(RETRIES.longest_pause);
        let why = output::error_text(&error);
        log::error!("{why}");
        log::info!("trying again in {} seconds", pause.as_secs());
        service_manager::waiting(
            format_args!("trying again in {} seconds, because the last try failed: {why}", pause.as_secs()),
            pause + service_manager::PATIENCE,
        );
        tokio::time::sleep(pause).await;
        retries -= i64::from(retries > 0);
    }
}

/// Whether a change was taken back, or refused because it was: only another change helps.
fn is_rolled_back(error: &anyhow::Error) -> bool {
    use kops_agent_host::Error::{FailedBefore, RolledBack};
    error.chain().any(|cause| matches!(cause.downcast_ref(), Some(RolledBack(_) | FailedBefore(_))))
}

/// Makes this machine what it must be, and tells its cloud so.
async fn converge(args: &ConvergeArgs) -> Result<u8> {
    let root = &args.root.root;
    let outcome = Box::pin(converge_machine(args)).await;
    let what = convergence::tell(root, args.retries != 0, outcome).await?;
    service_manager::ready(what);
    Ok(exit::CONVERGED)
}

/// Makes this machine what is wanted of it now; where that is not known, or may not be applied, what was last applied. Says
/// what it is then.
async fn converge_machine(args: &ConvergeArgs) -> Result<&'static str> {
    let root = &args.root.root;
    let error = match Box::pin(converge_to_wanted(args)).await {
        Ok(report) => return converged(args, &report, "converged"),
        Err(error) => error,
    };
    if !has_record(root) {
        return noted(root, Err(error));
    }
    let host = args.change.applied_to(open_host(root)?);
    match last_applied::stands_in_for(&error, &host) {
        Ok(true) => {}
        Ok(false) => return noted(root, Err(error)),
        Err(other) => return noted(root, Err(last_applied::both(error, &other))),
    }
    let stand_in = Box::pin(last_applied::stand_in(&args.spec, &host, error)).await;
    let StandIn { instead, decision, error } = noted(root, stand_in)?;
    let report = Box::pin(last_applied::converge(&args.root, &host, &decision)).await;
    match instead {
        Instead::Superseded(by) => {
            let report = noted(root, report)?;
            noted(root, convergence::remember_ready(&args.root).await)?;
            let noting = host.note_superseded(&by, last_applied::unmended(&report).is_none());
            noting.unwrap_or_else(|error| log::warn!("that is not noted for `status`: {error}"));
            log::info!("{}", last_applied::superseded(&by));
            converged(args, &report, "superseded, and as last applied")
        }
        Instead::Registered => {
            log::warn!("{}", output::error_text(&error));
            converged(args, &noted(root, report)?, "a node already, and as last applied")
        }
        Instead::Refused | Instead::Failed => {
            let why = output::error_text(&error);
            match report.and_then(|report| last_applied::unmended(&report).map_or(Ok(report), Err)) {
                Ok(report) => {
                    output::print_report(&report, args.output)?;
                    // It works as it did before.
                    service_manager::serving(format_args!(
                        "as last applied; what is wanted now is not: {why}"
                    ));
                }
                Err(error) => log::error!("{}", output::error_text(&error)),
            }
            noted(root, Err(error.context("this machine is left as it was last applied")))
        }
    }
}

/// What this machine must be now.
async fn converge_to_wanted(args: &ConvergeArgs) -> Result<Report> {
    let root = &args.root.root;
    let hashes = HashSource::publishers(remembered_hashes(root)?);
    let decision = Box::pin(convergence::decide(&args.spec, &args.root, hashes, &before(root)?)).await?;
    let host = args.change.applied_to(open_host(root)?).adopting(args.adopt);
    Box::pin(convergence::converge(&args.root, &host, &decision)).await
}

/// Tells what a run came to that had no failure; what it could not put right is one.
fn converged(args: &ConvergeArgs, report: &Report, what: &'static str) -> Result<&'static str> {
    output::print_report(report, args.output)?;
    if let Some(unmended) = last_applied::unmended(report) {
        return noted(&args.root.root, Err(unmended));
    }
    Ok(what)
}

/// What a run came to that was to change a machine; where it failed, `status` tells of that.
pub(crate) fn noted<T>(root: &Path, outcome: Result<T>) -> Result<T> {
    if let Err(error) = &outcome
        && !bootstrap_client::is_already_registered(error)
    {
        note_failure(root, error);
    }
    outcome
}

/// Has `status` tell of a failure. Nothing is noted on a machine where no run has left anything yet: a
/// configuration that is wrong leaves it untouched.
fn note_failure(root: &Path, error: &anyhow::Error) {
    let note = || -> Result<()> {
        if has_record(root) {
            open_host(root)?.note_failure(&output::error_text(error))?;
        }
        Ok(())
    };
    let Err(error) = note() else { return };
    let text =
        format!("the failure could not be noted for `kops-agent status`: {}", output::error_text(&error));
    match error.downcast_ref() {
        // The run that is at work notes its own end.
        Some(kops_agent_host::Error::Locked { .. }) => log::debug!("{text}"),
        _ => log::warn!("{text}"),
    }
}

fn has_record(root: &Path) -> bool {
    root.join(Record::PATH.trim_start_matches('/')).exists()
}

/// The hashes of downloads that an earlier run was told, so that nobody has to be asked again.
pub(crate) fn remembered_hashes(root: &Path) -> Result<BTreeMap<String, String>> {
    if has_record(root) { Ok(open_host(root)?.record()?.known_hashes) } else { Ok(BTreeMap::new()) }
}

/// What an earlier run has made of the store's secrets.
fn before(root: &Path) -> Result<Before> {
    // A root that is not there yet is not made by a look at it.
    if root.exists() { Before::on(&open_host(root)?) } else { Ok(Before::Nothing) }
}

async fn plan(args: &PlanArgs) -> Result<u8> {
    let hashes = HashSource::publishers(remembered_hashes(&args.root.root)?);
    let root = &args.root.root;
    let decision = node::decide(&args.spec, root, hashes, &before(root)?).await?;
    // A root that is not there yet is an empty one, and stays away: a plan touches nothing.
    let empty = tempfile::tempdir().context("making an empty root to compare with")?;
    let root = if args.root.root.exists() { args.root.root.as_path() } else { empty.path() };
    let plan = node::plan(&open_host(root)?.adopting(args.adopt), &decision)?;
    output::print_plan(&plan, args.output, args.color)?;
    Ok(if args.exit_code && !plan.is_as_wanted() { exit::DIFFERENT } else { exit::CONVERGED })
}

async fn render(args: &RenderArgs) -> Result<u8> {
    let decision = node::decide(&args.spec, Path::new("/"), HashSource::known(), &Before::Nothing).await?;
    let state = if args.show_secrets {
        render::with_secrets(&decision.desired, &decision.materials)?
    } else {
        decision.desired
    };
    output::print_state(&state, args.output)
}

async fn show_facts(args: &FactsArgs) -> Result<u8> {
    let provider = args.conf.as_deref().map(node::boot_config).transpose()?.map(|boot| boot.cloud_provider);
    let mut facts = facts::observe(&args.root, provider).await?;
    if let Some(provider) = provider {
        cloud::complete_for_show(&mut facts, provider, &remembered::read(&args.root)).await;
    }
    output::print_facts(&facts, args.output)
}

/// This machine, or the scratch root in its place.
pub(crate) fn open_host(root: &Path) -> Result<Host> {
    Ok(if root == Path::new("/") {
        Host::machine()?.with_remote(Arc::new(remote::World))
    } else {
        Host::scratch(root)?
    })
}
