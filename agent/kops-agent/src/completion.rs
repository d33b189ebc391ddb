//! Completes command lines for shells, and for kubectl.
//!
//! The script of `kops-agent completions` makes a shell run this program with each press of the key Tab. Nothing but candidates may be
//! printed then: an error would appear in the line that a user types.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory as _;
use clap_complete::engine::{CompletionCandidate, complete};
use clap_complete::env::{Bash, Elvish, Fish, Shells, Zsh};
use kops_agent_process::exit;

use crate::cli::{Cli, Shell};

/// To get candidates, a shell runs this program with this variable set to the name of the shell. The first argument is
/// then `--`, and the other arguments are the typed words.
pub const VARIABLE: &str = "KOPS_AGENT_COMPLETE";
pub const SHELLS: Shells<'static> = Shells(&[&Bash, &Elvish, &Fish, &Zsh]);
/// The program name by which kubectl asks the plugin `kubectl-kops_agent` for candidates (upstream:
/// `pluginCompletion` in k8s.io/kubectl/pkg/cmd/plugin).
const OF_KUBECTL: &str = "kubectl_complete-kops_agent";

/// Directives for kubectl: the shell offers no file names of its own, and adds no space after a directory (upstream:
/// `ShellCompDirective` in github.com/spf13/cobra).
const NO_FILES: u8 = 4;
const NO_SPACE: u8 = 2;

/// Prints the candidates if a shell or kubectl asks for them. `None` if the program is called to run a command.
pub fn print_candidates() -> Option<ExitCode> {
    let mut arguments = std::env::args_os();
    let program = arguments.next().unwrap_or_default();
    let is_of_kubectl = Path::new(&program).file_name().is_some_and(|name| name == OF_KUBECTL);
    let shell = std::env::var(VARIABLE).unwrap_or_default();
    // An ordinary command may also have this variable in its environment. So a completion also needs `--` as the first
    // argument.
    if !is_of_kubectl && (shell.is_empty() || arguments.next().is_none_or(|first| first != "--")) {
        return None;
    }
    std::panic::set_hook(Box::new(|_| {}));
    let words: Vec<OsString> = arguments.collect();
    let printed = match is_of_kubectl {
        true => print_for_kubectl(words),
        false => print_for_shell(&shell, words),
    };
    // The shell needs only the exit code of a failure, because a message would disturb the typed line.
    Some(ExitCode::from(if printed.is_ok() { exit::CONVERGED } else { exit::FAILED }))
}

/// Prints the candidates in the format that the shell's script expects.
fn print_for_shell(shell: &str, words: Vec<OsString>) -> io::Result<()> {
    let completer =
        SHELLS.completer(shell).filter(|_| !words.is_empty()).ok_or(io::ErrorKind::InvalidInput)?;
    if shell == Shell::Bash.name() {
        return print_for_bash(words);
    }
    let (folder, mut text) = (std::env::current_dir().ok(), Vec::new());
    completer.write_complete(&mut Cli::command(), words, folder.as_deref(), &mut text)?;
    io::stdout().write_all(&text)
}

/// Prints the candidates like `clap_complete` for bash. Unlike `clap_complete`, also completes values after `--flag=`.
fn print_for_bash(words: Vec<OsString>) -> io::Result<()> {
    let variable = |name: &str| std::env::var(name).ok();
    let at = variable("_CLAP_COMPLETE_INDEX").and_then(|at| at.parse().ok()).unwrap_or_default();
    let (words, at) = without_equals_signs(words, at);
    let candidates = candidates(words, at)?;
    let values: Vec<_> = candidates.iter().map(|candidate| candidate.get_value().to_string_lossy()).collect();
    let separator = variable("_CLAP_IFS").unwrap_or_else(|| "\n".to_owned());
    io::stdout().write_all(values.join(separator.as_str()).as_bytes())
}

/// Removes each `=` between a flag and its value from the words of a line. bash makes `=` a separate word, and
/// expects a candidate for the value only. Also returns the new number of the word that is being typed.
fn without_equals_signs(words: Vec<OsString>, at: usize) -> (Vec<OsString>, usize) {
    let (mut kept, mut kept_at) = (Vec::new(), at);
    for (number, word) in words.into_iter().enumerate() {
        let is_after_flag = || {
            kept.last().and_then(|last: &OsString| last.to_str()).is_some_and(|last| last.starts_with("--"))
        };
        if number != at && word == "=" && is_after_flag() {
            kept_at -= usize::from(number < at);
        } else {
            kept.push(word);
        }
    }
    (kept, kept_at)
}

/// Prints one line per candidate, with its help after a tab. The last line has the directives. `words` are the
/// arguments of the plugin, and the last of them is being typed.
fn print_for_kubectl(words: Vec<OsString>) -> io::Result<()> {
    let line: Vec<OsString> = std::iter::once("kops-agent".into()).chain(words).collect();
    let at = line.len() - 1;
    let mut text = String::new();
    let mut directives = NO_FILES;
    for candidate in candidates(line, at)? {
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
    writeln!(io::stdout(), "{text}:{directives}")
}

/// The candidates for word number `at` of a line.
fn candidates(line: Vec<OsString>, at: usize) -> io::Result<Vec<CompletionCandidate>> {
    complete(&mut Cli::command(), line, at, std::env::current_dir().ok().as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_equals_sign_between_a_flag_and_its_value_is_no_word() {
        for (words, at, expected, expected_at) in [
            (&["a", "--b", "=", "c"][..], 3, &["a", "--b", "c"][..], 2),
            (&["a", "--b", "=", "c", "--d", "=", "e"], 6, &["a", "--b", "c", "--d", "e"], 4),
            (&["a", "--b", "=", "c", "--d", "=", "e"], 3, &["a", "--b", "c", "--d", "e"], 2),
            (&["a", "--b", "c"], 2, &["a", "--b", "c"], 2),
            // The `=` stays if it is being typed, or if no flag precedes it.
            (&["a", "--b", "="], 2, &["a", "--b", "="], 2),
            (&["a", "b", "=", "c"], 3, &["a", "b", "=", "c"], 3),
        ] {
            let words = words.iter().map(OsString::from).collect();
            let expected = expected.iter().map(OsString::from).collect::<Vec<_>>();
            assert_eq!(without_equals_signs(words, at), (expected, expected_at));
        }
    }
}
