//! Runs programs and reads what they print.

use std::io::{self, Read as _, Seek as _};
use std::path::Path;
use std::process::{Command, ExitStatus, Output, Stdio};

use kops_agent_process::service_manager;

pub use super::starting::NotStarting;
use super::{sandbox, starting, sysctls};
use crate::assets::Progress;
use crate::error::{Error, Result, explain};
use crate::root::Root;

/// Maximum number of output lines that an error quotes for a failed program.
const LINES_OF_OUTPUT: usize = 10;

/// Runs the commands that a changed file requires ([`kops_agent_plan::resource::File::on_change`]).
pub trait Commands: Send + Sync {
    /// Runs a command and waits for its end. An exit status other than 0 is an error.
    fn run(&self, command: &[String]) -> Result<()>;

    /// Runs a command for `files`, which all name this command in `on_change`. For `sysctl --system`, `set_parameters`
    /// sets the parameters of `files` instead.
    fn run_for(&self, command: &[String], files: &[&str], progress: &dyn Progress) -> Result<()> {
        match *command == sysctls::COMMAND {
            true => self.set_parameters(files, progress),
            false => self.run(command),
        }
    }

    /// Sets the kernel parameters in `files`. The default implementation runs upstream's command `sysctl --system`,
    /// which sets the parameters in all sysctl files.
    fn set_parameters(&self, files: &[&str], progress: &dyn Progress) -> Result<()> {
        let _ = (files, progress);
        self.run(&sysctls::COMMAND.map(str::to_owned))
    }

    /// Why `program` does not start when it is called with `flag`. `None` if the program starts, or if the reason is
    /// unknown.
    fn why_it_does_not_start(&self, program: &Path, flag: &str) -> Option<NotStarting> {
        let _ = (program, flag);
        None
    }

    /// Whether the effect of a file's `commands` was undone after they ran.
    fn is_undone(&self, commands: &[Vec<String>], file: &str) -> Result<bool> {
        Ok(commands.iter().any(|command| *command == sysctls::COMMAND) && self.has_other_parameters(file)?)
    }

    /// Whether a kernel parameter in `file` was changed since the agent set it.
    fn has_other_parameters(&self, file: &str) -> Result<bool> {
        let _ = file;
        Ok(false)
    }
}

pub(crate) struct Machine(pub(crate) Root);

impl Commands for Machine {
    fn run(&self, command: &[String]) -> Result<()> {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        run(&words).map(drop)
    }

    fn why_it_does_not_start(&self, program: &Path, flag: &str) -> Option<NotStarting> {
        starting::why_it_does_not_start(program, flag)
    }

    fn set_parameters(&self, files: &[&str], progress: &dyn Progress) -> Result<()> {
        sysctls::set(&self.0, files, Path::new("/proc/sys"), progress)
    }

    fn has_other_parameters(&self, file: &str) -> Result<bool> {
        sysctls::differ(&self.0, file, &sandbox::on_machine("/proc/sys"))
    }
}

/// Whether a command restarts the agent's own unit. Upstream restarts this unit if a file that the unit reads
/// changes. The agent skips the restart: the current run applies the changed file anyway, and a restart would
/// interrupt the run.
pub(crate) fn restarts_the_agent(command: &[String]) -> bool {
    let [program, verb, unit, ..] = command else { return false };
    program == "systemctl" && verb == "restart" && unit == "kops-configuration.service"
}

pub(crate) struct Outcome {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Outcome {
    /// Whether the program failed and its output contains `what`.
    pub(crate) fn says(&self, what: &str) -> bool {
        !self.status.success() && (self.stderr.contains(what) || self.stdout.contains(what))
    }

    pub(super) fn succeeded(self, command: &[&str]) -> Result<String> {
        if self.status.success() { Ok(self.stdout) } else { Err(refused(command, &self)) }
    }
}

impl From<Output> for Outcome {
    fn from(output: Output) -> Outcome {
        Outcome {
            status: output.status,
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Runs a program to its end. A failed program is not an error: the caller checks the exit status.
pub(crate) fn ask(command: &[&str]) -> Result<Outcome> {
    ask_prepared(command, &mut prepare(command)?)
}

/// Like [`ask`], for a program that the caller has prepared ([`prepare`]).
pub(super) fn ask_prepared(command: &[&str], prepared: &mut Command) -> Result<Outcome> {
    let output = prepared.stdin(Stdio::null()).output();
    output.map(Outcome::from).map_err(|error| not_run(command, &error))
}

/// Like [`ask`], for a program that must not stop halfway if this process is killed. The output goes to files: a write to a pipe without
/// a reader would end the program.
pub(crate) fn ask_outliving(command: &[&str]) -> Result<Outcome> {
    let output = output_by_files(&mut prepare(command)?);
    output.map(Outcome::from).map_err(|error| not_run(command, &error))
}

fn output_by_files(prepared: &mut Command) -> io::Result<Output> {
    let mut stdout = tempfile::tempfile()?;
    let mut stderr = tempfile::tempfile()?;
    prepared.stdin(Stdio::null()).stdout(stdout.try_clone()?).stderr(stderr.try_clone()?);
    let mut output = Output { status: prepared.status()?, stdout: Vec::new(), stderr: Vec::new() };
    for (file, bytes) in [(&mut stdout, &mut output.stdout), (&mut stderr, &mut output.stderr)] {
        file.rewind()?;
        file.read_to_end(bytes)?;
    }
    Ok(output)
}

/// Runs a program and returns its standard output. An exit status other than 0 is an error.
pub(crate) fn run(command: &[&str]) -> Result<String> {
    ask(command)?.succeeded(command)
}

pub(super) fn prepare(command: &[&str]) -> Result<Command> {
    let (program, arguments) = command.split_first().ok_or_else(|| Error::Command {
        command: String::new(),
        outcome: "is empty: a command needs at least a program".into(),
    })?;
    let mut prepared = Command::new(program);
    // The agent parses the output of programs, so the output must not depend on the caller's language.
    prepared.args(arguments).env("LC_ALL", "C").env("DEBIAN_FRONTEND", "noninteractive");
    service_manager::keep_from_reporting(&mut prepared);
    // After a library upgrade, Ubuntu's needrestart restarts every unit that uses the library, containers included.
    // Restarts are up to the agent.
    prepared.env("NEEDRESTART_SUSPEND", "1");
    Ok(prepared)
}

pub(crate) fn refused(command: &[&str], outcome: &Outcome) -> Error {
    let said = if outcome.stderr.trim().is_empty() { &outcome.stdout } else { &outcome.stderr };
    let lines: Vec<&str> = said.trim().lines().collect();
    let last = lines[lines.len().saturating_sub(LINES_OF_OUTPUT)..].join("\n");
    let how = outcome.status.to_string();
    failed(
        command,
        if last.is_empty() { format!("failed ({how})") } else { format!("failed ({how}): {last}") },
    )
}

/// The error for a program that cannot be started, or whose output cannot be read.
pub(super) fn not_run(command: &[&str], error: &io::Error) -> Error {
    failed(command, format!("cannot be run: {}", explain(error)))
}

pub(super) fn failed(command: &[&str], outcome: String) -> Error {
    Error::Command { command: command.join(" "), outcome }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_restart_of_the_agent_is_left_out() {
        let restarts =
            |command: &str| restarts_the_agent(&command.split(' ').map(str::to_owned).collect::<Vec<_>>());
        // Upstream's command ends with `&`. No shell interprets it here, so `&` is an additional argument.
        assert!(restarts("systemctl restart kops-configuration.service &"));
        // The agent does not skip this command: without it, no later boot runs the agent.
        assert!(!restarts("systemctl enable kops-configuration.service"));
        assert!(!restarts("systemctl restart containerd.service"));
        assert!(!restarts("systemctl daemon-reload"));
    }

    #[test]
    fn a_program_that_outlives_this_process_has_the_same_outcome() {
        let outcome = ask_outliving(&["sh", "-c", "echo out; echo no such thing >&2; exit 3"]).unwrap();
        assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), ("out\n", "no such thing\n"));
        assert_eq!(outcome.status.code(), Some(3));
        assert!(ask_outliving(&["/no/such/program"]).is_err());
    }

    #[test]
    fn the_error_of_a_failed_command_has_its_output() {
        let error = run(&["sh", "-c", "echo out; echo no such thing >&2; exit 3"]).unwrap_err().to_string();
        assert!(error.contains("exit status: 3") && error.ends_with("no such thing"), "{error}");
        let error = run(&["/no/such/program"]).unwrap_err().to_string();
        assert!(error.contains("cannot be run: No such file"), "{error}");
        assert!(run(&[]).is_err());
    }
}
