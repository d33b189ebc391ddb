//! `kops-agent completions`: completions for a shell.

use anyhow::Result;
use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::output;

/// Prints them.
pub(super) fn run(shell: Shell) -> Result<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "kops-agent", &mut script);
    output::print_bytes(&script)
}
