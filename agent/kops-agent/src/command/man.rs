//! `kops-agent man`: prints the manual page in roff, or writes one page per verb for packages.

use std::path::Path;

use anyhow::{Context as _, Result};
use clap::CommandFactory as _;
use kops_agent_process::exit;

use crate::cli::Cli;
use crate::output;

/// Prints the manual page of the program. With a folder, writes the pages of the program and of each verb into this
/// folder.
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
    // clap adds the verb `help`, which prints the help of the other verbs. It gets no page.
    let command = Cli::command().disable_help_subcommand(true);
    clap_mangen::generate_to(command, folder)
        .with_context(|| format!("writing the manual pages into {}", folder.display()))?;
    Ok(exit::CONVERGED)
}
