//! `kops-agent config`: `derive` prints the configuration that kOps would have written for a group. `dump` prints the
//! resolved configuration of a node. `check` lists all errors. `assets` lists everything that nodes download or install.

mod assets;

use std::path::Path;

use anyhow::Result;
use kops_agent_plan::shown;
use kops_agent_process::exit;
use kops_agent_spec::failure::{Failure, Kind};

use crate::cli::{CheckArgs, ConfigCommand, DeriveArgs, DumpArgs};
use crate::output;
use kops_agent_node::findings::Findings;
use kops_agent_node::{config_check, config_derive, decide, manifests, spec};

pub(super) async fn run(command: ConfigCommand) -> Result<u8> {
    match command {
        ConfigCommand::Derive(args) => derive(&args).await,
        ConfigCommand::Dump(args) => dump(&args).await,
        ConfigCommand::Check(args) => check(&args).await,
        ConfigCommand::Assets(args) => Box::pin(assets::run(&args)).await,
    }
}

async fn derive(args: &DeriveArgs) -> Result<u8> {
    let store = args.store.options().open()?;
    let base = args.config_base.trim_end_matches('/');
    let given = args.asset_hashes.as_deref();
    let text = config_derive::of_group(&store, base, &args.instance_group, given).await?;
    output::print_document(&text)
}

async fn dump(args: &DumpArgs) -> Result<u8> {
    let options = args.spec.for_machine(Path::new("/"));
    let spec = spec::read_to_show(&options.store.open()?, &options).await?;
    let node = decide::resolve(spec)?;
    let document = if args.show_secrets { serde_json::to_value(&node)? } else { shown::node(&node) };
    output::print_node_config(&document, args.output)
}

async fn check(args: &CheckArgs) -> Result<u8> {
    let findings = match (&args.kops, args.spec()) {
        (Some(kops), _) => manifests::check(&args.manifests, kops)?,
        (None, Some(args)) => config_check::of_machine(&args.for_machine(Path::new("/"))).await?,
        (None, None) => check_group(args).await?,
    };
    output::print_findings(&findings, args.output)?;
    Ok(if findings.errors.is_empty() { exit::CONVERGED } else { exit::CONFIGURATION })
}

/// Checks a group for all its possible machines, because no single machine is given.
async fn check_group(args: &CheckArgs) -> Result<Findings> {
    let (Some(base), Some(group)) = (&args.config_base, &args.instance_group) else {
        return Err(Failure::new(Kind::WrongUsage, "give --config-base with --instance-group").into());
    };
    config_check::of_group(&args.store.options().open()?, base.trim_end_matches('/'), group).await
}
