//! `kops-agent version`.

use anyhow::Result;

use kops_agent_process::version::{VERSION, of_this_program};

use crate::cli::Output;
use crate::output;

pub(super) fn run(output: Output) -> Result<u8> {
    match output {
        Output::Text => output::print_text(&format!("kops-agent {VERSION}\n")),
        Output::Json => output::print_json(&of_this_program()),
    }
}
