//! `kops-agent completions`: prints the script that makes a shell ask this program for completions.

use anyhow::{Context as _, Result};
use clap_complete::env::EnvCompleter;
use kops_agent_spec::failure::{Failure, Kind};

use crate::cli::Shell;
use crate::completion::{SHELLS, VARIABLE};
use crate::output;

/// The program whose commands the script completes. The script runs this program to get candidates.
const PROGRAM: &str = "kops-agent";

pub(super) fn run(shell: Shell) -> Result<u8> {
    let unsupported = || Failure::new(Kind::WrongUsage, "this shell is not supported");
    let completer: &dyn EnvCompleter = SHELLS.completer(shell.name()).ok_or_else(unsupported)?;
    let mut script = Vec::new();
    completer.write_registration(VARIABLE, PROGRAM, PROGRAM, PROGRAM, &mut script)?;
    if shell == Shell::Bash {
        // Without `2>/dev/null`, an error of the shell, such as a missing program, would appear in the line that the
        // user types.
        let loud = String::from_utf8(script).context("completions for bash")?;
        let words = "-- \"${words[@]}\" ";
        script = loud.replace(words, &format!("{words}2>/dev/null ")).into_bytes();
    }
    if shell == Shell::Zsh {
        // zsh loads the script at the first completion, and already expects candidates from this first call.
        let loaded = String::from_utf8(script).context("completions for zsh")?;
        let register = "\ncompdef _clap_dynamic_completer_kops_agent kops-agent";
        let complete = "\nif [ \"$funcstack[1]\" = \"_kops-agent\" ]; then\n    _clap_dynamic_completer_kops_agent \"$@\"\nelse";
        script =
            loaded.replace(register, &format!("{complete}\n    {}\nfi", register.trim_start())).into_bytes();
    }
    output::print_bytes(&script)
}
