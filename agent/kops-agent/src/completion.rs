//! Completes command lines for shells, and for kubectl.
//!
//! The script of `kops-agent completions` makes a shell run this program with each press of the key Tab. Nothing but candidates may be
//! printed then: an error would appear in the line that a user types.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory as _;
use clap_complete::CompleteEnv;
use clap_complete::engine::complete;
use kops_agent_process::exit;

use crate::cli::Cli;

/// The variable in which a shell's script asks for candidates, with the shell's name.
pub const VARIABLE: &str = "KOPS_AGENT_COMPLETE";
/// The name by which kubectl runs the completion of its plugin `kubectl-kops_agent` (upstream: `pluginCompletion` in
/// k8s.io/kubectl/pkg/cmd/plugin).
const OF_KUBECTL: &str = "kubectl_complete-kops_agent";

/// Directives for kubectl's shell: no names of files of its own, and no space after a directory (upstream: `ShellCompDirective` in
/// github.com/spf13/cobra).
const NO_FILES: u8 = 4;
const NO_SPACE: u8 = 2;

/// Prints the candidates, if a shell or kubectl asks for them. `None` for every other call of the program.
pub fn answered() -> Option<ExitCode> {
    let mut arguments = std::env::args_os();
    let is_of_kubectl = arguments
        .next()
        .is_some_and(|name| Path::new(&name).file_name().is_some_and(|name| name == OF_KUBECTL));
    if !is_of_kubectl && std::env::var_os(VARIABLE).is_none_or(|shell| shell.is_empty()) {
        return None;
    }
    std::panic::set_hook(Box::new(|_| {}));
    let is_answered = match is_of_kubectl {
        true => print_for_kubectl(arguments.collect()).is_ok(),
        false => {
            let folder = std::env::current_dir().ok();
            let asked = CompleteEnv::with_factory(Cli::command).var(VARIABLE);
            match asked.try_complete(std::env::args_os(), folder.as_deref()) {
                // The variable asks for nothing.
                Ok(false) => return None,
                answered => answered.is_ok(),
            }
        }
    };
    // Of a failure, a shell learns only that it is one.
    Some(ExitCode::from(if is_answered { exit::CONVERGED } else { exit::FAILED }))
}

/// Prints a line for each candidate, with its help after a tab, and the directives in the last line. `words` are the plugin's arguments;
/// the last one is being typed.
fn print_for_kubectl(words: Vec<OsString>) -> std::io::Result<()> {
    let folder = std::env::current_dir().ok();
    let line: Vec<OsString> = std::iter::once("kops-agent".into()).chain(words).collect();
    let at = line.len() - 1;
    let mut text = String::new();
    let mut directives = NO_FILES;
    for candidate in complete(&mut Cli::command(), line, at, folder.as_deref())? {
        let value = candidate.get_value().to_string_lossy();
        if value.ends_with('/') {
            directives |= NO_SPACE;
        }
        text.push_str(&value);
        if let Some(help) = candidate.get_help() {
            let help = help.to_string();
            text.push('\t');
            text.push_str(help.lines().next().unwrap_or_default());
        }
        text.push('\n');
    }
    writeln!(std::io::stdout(), "{text}:{directives}")
}
