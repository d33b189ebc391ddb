//! `kops-agent completions`: completions for a shell.

use anyhow::{Context as _, Result};
use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::output;

pub(super) fn run(shell: Shell) -> Result<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "kops-agent", &mut script);
    if shell == Shell::Bash {
        let text = String::from_utf8(script).context("completions for bash")?;
        // clap_complete (4.6.11) encodes the hyphen of the program's name differently where it looks up a verb and
        // where it lists the verb's flags. Without this replacement bash finds no flags.
        script = text.replace("kops__subcmd__agent", "kops__agent").into_bytes();
    }
    output::print_bytes(&script)
}
