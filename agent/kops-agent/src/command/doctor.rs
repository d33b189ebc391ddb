//! `kops-agent doctor`: shows what stops this machine from becoming a node, and what to do about it.

use anyhow::Result;
use kops_agent_plan::doctor::{self, Finding};
use kops_agent_process::exit;
use kops_agent_spec::kops_release::WrittenBy;
use serde::Serialize;

use crate::cli::{DoctorArgs, Output};
use crate::output;

/// Prints the findings. The exit code says whether a finding prevents this machine from becoming a node.
pub(super) async fn run(args: &DoctorArgs) -> Result<u8> {
    let observed = kops_agent_node::doctor::examine(&args.machine.options().settled()).await?;
    let findings = doctor::findings(&observed);
    let stops = doctor::stops(&findings);
    match args.output {
        Output::Json => {
            let written_by = observed.written_by.as_ref();
            output::print_json(&Diagnosis { stops, written_by, findings: &findings })?
        }
        Output::Text => output::print_text(&doctor::text(&findings))?,
    };
    Ok(if stops { exit::DIFFERENT } else { exit::CONVERGED })
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Diagnosis<'a> {
    /// Whether a finding prevents this machine from becoming a node.
    stops: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    written_by: Option<&'a WrittenBy>,
    findings: &'a [Finding],
}
