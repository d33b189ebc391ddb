//! Programs.

use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;

use super::{starting, sysctls};
use crate::assets::Progress;
use crate::error::{Error, Result, explain};
use crate::root::Root;

/// How much of what a failed program said is repeated.
const LINES_OF_OUTPUT: usize = 10;

/// Runs the commands that files name ([`kops_agent_plan::resource::File::on_change`]).
pub trait Commands: Send + Sync {
    /// Runs a command to its end.
    ///
    /// # Errors
    /// It cannot be started, or it fails.
    fn run(&self, command: &[String]) -> Result<()>;

    /// Runs a command that these files name.
    ///
    /// # Errors
    /// It cannot be started, or it fails; or a kernel parameter cannot be set.
    fn run_for(&self, command: &[String], files: &[&str], progress: &dyn Progress) -> Result<()> {
        match *command == sysctls::COMMAND {
            true => self.set_parameters(files, progress),
            false => self.run(command),
        }
    }

    /// Sets the kernel parameters that these files set, where the command of upstream's is `sysctl --system`.
    ///
    /// # Errors
    /// One of them cannot be set.
    fn set_parameters(&self, files: &[&str], progress: &dyn Progress) -> Result<()> {
        let _ = (files, progress);
        self.run(&sysctls::COMMAND.map(str::to_owned))
    }

    /// Why this program, which is given this flag, does not start on this machine; `None` where it starts, or that is not known.
    fn why_it_does_not_start(&self, program: &Path, flag: &str) -> Option<String> {
        let _ = (program, flag);
        None
    }

    /// Whether what these commands of a file did was undone.
    ///
    /// # Errors
    /// The machine cannot be looked at.
    fn is_undone(&self, commands: &[Vec<String>], file: &str) -> Result<bool> {
        Ok(commands.iter().any(|command| *command == sysctls::COMMAND) && self.has_other_parameters(file)?)
    }

    /// Whether a parameter was set otherwise since what this file says was set.
    ///
    /// # Errors
    /// The files that set parameters cannot be read.
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

    fn why_it_does_not_start(&self, program: &Path, flag: &str) -> Option<String> {
        starting::why_it_does_not_start(program, flag)
    }

    fn set_parameters(&self, files: &[&str], progress: &dyn Progress) -> Result<()> {
        sysctls::set(&self.0, files, Path::new("/proc/sys"), progress)
    }

    fn has_other_parameters(&self, file: &str) -> Result<bool> {
        sysctls::differ(&self.0, file, Path::new("/proc/sys"))
    }
}

/// Upstream has its own unit restarted where a file changes what it sees; a run of ours that has changed the
/// file goes on to converge by itself, and must not end itself half-way.
pub(crate) fn restarts_the_agent(command: &[String]) -> bool {
    let [program, verb, unit, ..] = command else { return false };
    program == "systemctl" && verb == "restart" && unit == "kops-configuration.service"
}

/// What a program printed and how it ended.
pub(crate) struct Outcome {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Outcome {
    /// Whether it has failed and said this.
    pub(crate) fn says(&self, what: &str) -> bool {
        !self.status.success() && (self.stderr.contains(what) || self.stdout.contains(what))
    }
}

/// Runs a program to its end, and takes any end for an answer.
pub(crate) fn ask(command: &[&str]) -> Result<Outcome> {
    let output = prepare(command)?.stdin(Stdio::null()).output().map_err(|error| not_run(command, &error))?;
    Ok(Outcome {
        status: output.status,
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

/// As [`ask`], and passes each line that the program prints to `status` as it comes; those that this takes are not kept.
pub(crate) fn ask_with_status(command: &[&str], mut status: impl FnMut(&str) -> bool) -> Result<Outcome> {
    let not_run = |error: io::Error| not_run(command, &error);
    let mut child = prepare(command)?
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(not_run)?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let read = thread::scope(|scope| {
        let stderr = scope.spawn(|| {
            let mut bytes = Vec::new();
            stderr.map_or(Ok(0), |mut stderr| stderr.read_to_end(&mut bytes)).map(|_| bytes)
        });
        let mut kept = String::new();
        for line in stdout.into_iter().flat_map(|stdout| BufReader::new(stdout).split(b'\n')) {
            let line = line?;
            let line = String::from_utf8_lossy(&line);
            if !status(&line) {
                kept.extend([&line, "\n"]);
            }
        }
        // A panic there is one here.
        let stderr = stderr.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok((kept, String::from_utf8_lossy(&stderr).into_owned()))
    });
    let status = child.wait().map_err(not_run)?;
    let (stdout, stderr) = read.map_err(not_run)?;
    Ok(Outcome { status, stdout, stderr })
}

/// Runs a program that must succeed, and returns what it printed.
pub(crate) fn run(command: &[&str]) -> Result<String> {
    let outcome = ask(command)?;
    if outcome.status.success() { Ok(outcome.stdout) } else { Err(refused(command, &outcome)) }
}

pub(super) fn prepare(command: &[&str]) -> Result<Command> {
    let (program, arguments) = command.split_first().ok_or_else(|| Error::Command {
        command: String::new(),
        outcome: "is empty: a command needs at least a program".into(),
    })?;
    let mut prepared = Command::new(program);
    // What programs say is read here, so it must not depend on the caller's language.
    prepared.args(arguments).env("LC_ALL", "C").env("DEBIAN_FRONTEND", "noninteractive");
    // They are between systemd and this process (sd_notify(3), sd_watchdog_enabled(3)).
    for name in ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"] {
        prepared.env_remove(name);
    }
    // Ubuntu restarts whatever uses a library that is upgraded, with containers and all; restarting is ours.
    prepared.env("NEEDRESTART_SUSPEND", "1");
    Ok(prepared)
}

/// The error for a program that ran and did not do what it should.
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

/// The error for a program that the kernel does not start, or of which nothing can be read.
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
        // As upstream has it, with what a shell would take.
        assert!(restarts("systemctl restart kops-configuration.service &"));
        // Without this, no later boot runs the agent.
        assert!(!restarts("systemctl enable kops-configuration.service"));
        assert!(!restarts("systemctl restart containerd.service"));
        assert!(!restarts("systemctl daemon-reload"));
    }

    #[test]
    fn lines_of_status_are_passed_on_as_they_come_and_not_kept() {
        // The program goes on only once its first line was taken.
        let folder = tempfile::tempdir().unwrap();
        let taken = folder.path().join("taken");
        let script =
            "echo status:1; until test -e \"$0\"; do sleep 0.01; done; echo out; echo err >&2; exit 3";
        let command = ["sh", "-c", script, taken.to_str().unwrap()];
        let outcome = ask_with_status(&command, |line| {
            let is_status = line.starts_with("status:");
            if is_status {
                std::fs::write(&taken, "").unwrap();
            }
            is_status
        });
        let Outcome { status, stdout, stderr } = outcome.unwrap();
        assert_eq!((status.code(), stdout.as_str(), stderr.as_str()), (Some(3), "out\n", "err\n"));
        assert!(ask_with_status(&["/no/such/program"], |_| false).is_err());
    }

    #[test]
    fn a_failed_command_says_what_it_said() {
        let error = run(&["sh", "-c", "echo out; echo no such thing >&2; exit 3"]).unwrap_err().to_string();
        assert!(error.contains("exit status: 3") && error.ends_with("no such thing"), "{error}");
        let error = run(&["/no/such/program"]).unwrap_err().to_string();
        assert!(error.contains("cannot be run: No such file"), "{error}");
        assert!(run(&[]).is_err());
    }
}
