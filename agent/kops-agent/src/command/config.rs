//! `kops-agent config`: `derive` prints the configuration that kOps would have written for a group. `dump` prints the
//! resolved configuration of a node. `check` lists all errors. `assets` lists everything that nodes download or install.

mod assets;
mod manifests;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use kops_agent_plan::resolve::{Problem, Problems};
use kops_agent_plan::shown;
use kops_agent_source::asset_hashes::HashSource;
use kops_agent_source::{Derivation, Incomplete, StoreFile, cluster_files, nodeup_config};
use kops_agent_spec::failure::{Failing, Failure, Kind};
use kops_agent_spec::{Cluster, FieldWarning, InstanceGroup, NodeupConfig, SpecError};
use kops_agent_store::Store;

use crate::cli::{CheckArgs, ConfigCommand, DeriveArgs, DumpArgs, SpecArgs};
use crate::output::{self, Finding, Findings};
use kops_agent_node::exit;
use kops_agent_node::redaction::error_text;
use kops_agent_node::{decide, spec};
use kops_agent_source::{self, Origin, asset_hashes_file, boot_config};

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
    let files = cluster_files::read(&store, base, &args.instance_group).await?;
    let role = files.group.spec.role;
    let mut derivation = Derivation::of_group(files);
    match nodeup_config::last_written(&store, base, role, &args.instance_group).await {
        Ok(Some(written)) => derivation = derivation.with_addresses_of(&written),
        Ok(None) => {}
        // `config derive` prints a replacement for the file that kOps last wrote. So an unreadable file is only a
        // warning.
        Err(error) => log::warn!(
            "the addresses of the API's load balancer are left out, because kops-agent cannot read the \
             nodeupconfig.yaml that has them: {}",
            error_text(&error)
        ),
    }
    let given = asset_hashes_file::read(args.asset_hashes.as_deref())?;
    derivation.learn_hashes(given, &HashSource::publishers(BTreeMap::new()), None, &store).await?;
    match derivation.derive().whole() {
        Ok(text) => output::print_document(&text),
        Err(unhashed @ Incomplete::Unhashed(_)) => Err(Failure::new(
            unhashed.kind(),
            format!("{unhashed}\ngive the hashes with --asset-hashes FILE"),
        )
        .into()),
        Err(wrong @ Incomplete::Wrong(_)) => Err(wrong.into()),
    }
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
        (None, Some(args)) => of_machine(&args).await?,
        (None, None) => of_group(args).await?,
    };
    output::print_findings(&findings, args.output)?;
    Ok(if findings.errors.is_empty() { exit::CONVERGED } else { exit::CONFIGURATION })
}

/// Checks a machine: the files of its cluster and its group, and the node that results from them.
async fn of_machine(args: &SpecArgs) -> Result<Findings> {
    let options = args.for_machine(Path::new("/"));
    let boot = boot_config(&options.source.conf, &options.store).await?;
    let base = options.source.config_base(&boot)?;
    let store = options.store.open()?;
    let mut findings = files(&store, &base, &boot.instance_group_name).await?;
    // The findings already contain these errors. The checks below need correct files.
    if !findings.errors.is_empty() {
        return Ok(findings);
    }
    let spec = match spec::read_to_show(&store, &options).await {
        Ok(spec) => spec,
        Err(error) => {
            add_error(error, &mut findings)?;
            return Ok(findings);
        }
    };
    findings.written_by = spec.inputs.written_by().ok();
    if let Origin::NodeupConfig(file) = &spec.origin {
        add_warnings(file, NodeupConfig::warnings(&file.text, &file.url), &mut findings)?;
    }
    match decide::resolve(spec) {
        Ok(node) => {
            findings.warnings.extend(node.warnings.iter().map(of_problem));
            if let Err(problems) = decide::desired(&node) {
                add_problems(&problems, &mut findings);
            }
        }
        Err(error) => add_error(error, &mut findings)?,
    }
    Ok(findings)
}

/// Checks a group without a machine.
async fn of_group(args: &CheckArgs) -> Result<Findings> {
    let (Some(base), Some(group)) = (&args.config_base, &args.instance_group) else {
        return Err(Failure::new(Kind::WrongUsage, "give --config-base with --instance-group").into());
    };
    let base = base.trim_end_matches('/');
    let store = args.store.options().open()?;
    let mut findings = files(&store, base, group).await?;
    if findings.errors.is_empty() {
        let spec = kops_agent_source::read_of_group(&store, base, group).await;
        findings.written_by = spec.as_ref().ok().and_then(|spec| spec.inputs.written_by().ok());
        match spec.and_then(decide::check_on_any_machine) {
            Ok(problems) => add_problems(&problems, &mut findings),
            Err(error) => add_error(error, &mut findings)?,
        }
    }
    Ok(findings)
}

/// Checks the cluster's file and the group's file, each by itself.
async fn files(store: &Store, base: &str, group: &str) -> Result<Findings> {
    let mut findings = Findings::default();
    let cluster = cluster_files::cluster_file(store, base).await;
    let group = cluster_files::group_file(store, base, group).await;
    if let Some(file) = readable(cluster, &mut findings)? {
        findings.errors.extend(errors_of(Cluster::parse(&file.text, &file.url).err().map(Into::into))?);
        // Warnings are about the cluster spec that the user wrote. If it is missing, they are about the completed spec
        // from kOps.
        let edited = cluster_files::user_file(store, base).await?.unwrap_or(file);
        let release = cluster_files::release(store, base).await?;
        add_warnings(&edited, Cluster::warnings(&edited.text, &edited.url, release), &mut findings)?;
    }
    if let Some(file) = readable(group, &mut findings)? {
        findings.errors.extend(errors_of(InstanceGroup::parse(&file.text, &file.url).err().map(Into::into))?);
        add_warnings(&file, InstanceGroup::warnings(&file.text, &file.url), &mut findings)?;
    }
    Ok(findings)
}

/// Returns the file. A configuration error becomes a finding; any other error is returned.
fn readable(file: Result<StoreFile>, findings: &mut Findings) -> Result<Option<StoreFile>> {
    match file {
        Ok(file) => Ok(Some(file)),
        Err(error) => {
            findings.errors.extend(errors_of(Some(error))?);
            Ok(None)
        }
    }
}

fn add_warnings(
    file: &StoreFile,
    warnings: Result<Vec<FieldWarning>, SpecError>,
    findings: &mut Findings,
) -> Result<()> {
    match warnings {
        Ok(warnings) => {
            findings.warnings.extend(warnings.into_iter().map(|FieldWarning { field, problem }| Finding {
                file: file.url.clone(),
                field,
                problem: problem.to_owned(),
                ..Finding::default()
            }))
        }
        Err(error) => {
            let told = errors_of(Some(error.into()))?;
            findings.errors.extend(
                told.into_iter().filter(|finding| !findings.errors.contains(finding)).collect::<Vec<_>>(),
            );
        }
    }
    Ok(())
}

/// Adds a configuration error and its warnings to the findings. Returns any other error.
fn add_error(error: anyhow::Error, findings: &mut Findings) -> Result<()> {
    let problems = error.chain().find_map(|cause| cause.downcast_ref::<Problems>()).cloned();
    match problems.filter(|_| exit::code_of(&error) == exit::CONFIGURATION) {
        Some(problems) => add_problems(&problems, findings),
        None => findings.errors.extend(errors_of(Some(error))?),
    }
    Ok(())
}

fn add_problems(problems: &Problems, findings: &mut Findings) {
    findings.errors.extend(problems.iter().map(of_problem));
    findings.warnings.extend(problems.warnings().iter().map(of_problem));
}

fn of_problem(problem: &Problem) -> Finding {
    Finding { field: problem.field.clone(), problem: problem.problem.clone(), ..Finding::default() }
}

/// Converts a configuration error into findings. Returns any other error.
fn errors_of(error: Option<anyhow::Error>) -> Result<Vec<Finding>> {
    let Some(error) = error else { return Ok(Vec::new()) };
    if exit::code_of(&error) != exit::CONFIGURATION {
        return Err(error);
    }
    if let Some(spec) = error.chain().find_map(|cause| cause.downcast_ref::<SpecError>()) {
        let SpecError { source_file, field, problem } = spec.clone();
        return Ok(vec![Finding { file: source_file, field, problem, ..Finding::default() }]);
    }
    Ok(vec![Finding { problem: error_text(&error), ..Finding::default() }])
}
