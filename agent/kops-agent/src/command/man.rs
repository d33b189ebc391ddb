//! `kops-agent man`: the manual page, in roff; for packages, one page a verb as well.

use std::path::Path;

use anyhow::{Context as _, Result};
use clap::CommandFactory as _;
use kops_agent_process::exit;

use crate::cli::Cli;
use crate::output;

/// Prints the page of the program, or writes that of each verb, too, into this folder.
pub(super) fn run(all: Option<&Path>) -> Result<u8> {
    match all {
        Some(folder) => write_all(folder),
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(Cli::command()).render(&mut page)?;
            output::print_bytes(&page)
        }
    }
}

fn write_all(folder: &Path) -> Result<u8> {
    // The verb that clap adds has no page of its own: it prints the others.
    let command = Cli::command().disable_help_subcommand(true);
    clap_mangen::generate_to(command, folder)
        .with_context(|| format!("writing the manual pages into {}", folder.display()))?;
    Ok(exit::CONVERGED)
}
