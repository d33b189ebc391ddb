//! Checks the configuration of a machine or of a group, and lists all errors.

use anyhow::Result;
use kops_agent_plan::resolve::{Problem, Problems};
use kops_agent_process::exit;
use kops_agent_source::{Origin, StoreFile, boot_config, cluster_files, read_of_group};
use kops_agent_spec::{Cluster, FieldWarning, InstanceGroup, NodeupConfig, SpecError};
use kops_agent_store::Store;

use super::failure::exit_code_of;
use super::findings::{Finding, Findings};
use super::options::NodeOptions;
use super::redaction::error_text;
use super::{decide, spec};

/// Checks a machine: the files of its cluster and its group, and the resulting node. An error in the configuration is
/// a finding. The check fails if a source cannot be read.
pub async fn of_machine(options: &NodeOptions) -> Result<Findings> {
    let boot = boot_config(&options.source.conf, &options.store).await?;
    let base = options.source.config_base(&boot)?;
    let store = options.store.open()?;
    let mut findings = files(&store, &base, &boot.instance_group_name).await?;
    // These errors are already in the findings, and the next checks need correct files.
    if !findings.errors.is_empty() {
        return Ok(findings);
    }
    let spec = match spec::read_to_show(&store, options).await {
        Ok(spec) => spec,
        Err(error) => {
            add_error(error, &mut findings)?;
            return Ok(findings);
        }
    };
    findings.written_by = spec.inputs.written_by().ok();
    if let Origin::NodeupConfig(file) = &spec.origin {
        add_warnings(file, NodeupConfig::warnings(&file.text, &file.url), &mut findings);
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

/// Checks a group for all its possible machines.
pub async fn of_group(store: &Store, base: &str, group: &str) -> Result<Findings> {
    let mut findings = files(store, base, group).await?;
    if findings.errors.is_empty() {
        let spec = read_of_group(store, base, group).await;
        findings.written_by = spec.as_ref().ok().and_then(|spec| spec.inputs.written_by().ok());
        match spec.and_then(decide::check_on_any_machine) {
            Ok(problems) => add_problems(&problems, &mut findings),
            Err(error) => add_error(error, &mut findings)?,
        }
    }
    Ok(findings)
}

/// Checks the file of the cluster and the file of the group, each by itself.
async fn files(store: &Store, base: &str, group: &str) -> Result<Findings> {
    let mut findings = Findings::default();
    let cluster = cluster_files::cluster_file(store, base).await;
    let group = cluster_files::group_file(store, base, group).await;
    if let Some(file) = readable(cluster, &mut findings)? {
        findings.errors.extend(Cluster::parse(&file.text, &file.url).err().map(of_spec_error));
        // Warnings are about the cluster spec that the user wrote. Without that spec, the warnings are about the
        // completed spec that kOps wrote.
        let edited = cluster_files::user_file(store, base).await?.unwrap_or(file);
        let release = cluster_files::release(store, base).await?;
        add_warnings(&edited, Cluster::warnings(&edited.text, &edited.url, release), &mut findings);
    }
    if let Some(file) = readable(group, &mut findings)? {
        findings.errors.extend(InstanceGroup::parse(&file.text, &file.url).err().map(of_spec_error));
        add_warnings(&file, InstanceGroup::warnings(&file.text, &file.url), &mut findings);
    }
    Ok(findings)
}

/// Reads a file. A configuration error becomes a finding, and the result is `None`. Fails on any other error.
fn readable(file: Result<StoreFile>, findings: &mut Findings) -> Result<Option<StoreFile>> {
    match file {
        Ok(file) => Ok(Some(file)),
        Err(error) => {
            findings.errors.push(of_error(error)?);
            Ok(None)
        }
    }
}

fn add_warnings(file: &StoreFile, warnings: Result<Vec<FieldWarning>, SpecError>, findings: &mut Findings) {
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
            let finding = of_spec_error(error);
            if !findings.errors.contains(&finding) {
                findings.errors.push(finding);
            }
        }
    }
}

/// Adds a configuration error and its warnings to the findings. Fails on any other error.
fn add_error(error: anyhow::Error, findings: &mut Findings) -> Result<()> {
    let problems = error.chain().find_map(|cause| cause.downcast_ref::<Problems>()).cloned();
    match problems.filter(|_| exit_code_of(&error) == exit::CONFIGURATION) {
        Some(problems) => add_problems(&problems, findings),
        None => findings.errors.push(of_error(error)?),
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

fn of_spec_error(SpecError { source_file, field, problem }: SpecError) -> Finding {
    Finding { file: source_file, field, problem, ..Finding::default() }
}

/// Converts a configuration error into a finding. Fails on any other error.
fn of_error(error: anyhow::Error) -> Result<Finding> {
    if exit_code_of(&error) != exit::CONFIGURATION {
        return Err(error);
    }
    Ok(match error.chain().find_map(|cause| cause.downcast_ref::<SpecError>()) {
        Some(error) => of_spec_error(error.clone()),
        None => Finding { problem: error_text(&error), ..Finding::default() },
    })
}
