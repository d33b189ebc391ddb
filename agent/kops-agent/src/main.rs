//! The node side of kOps in one static binary. It reads a cluster's state store, decides the node that this machine
//! must be, and converges the machine to it.
//!
//! [`cli`] defines the command line, and [`command`] has one file per verb. `kops_agent_node` has node mode, and
//! `kops_agent_controller` has control-plane mode.

// In a binary, `pub` only means that other modules use an item.
#![allow(unreachable_pub)]

mod cli;
mod command;
mod completion;
mod given_to_units;
mod output;

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use kops_agent_net::tls;
use kops_agent_process::output::takes_colour;
use kops_agent_process::{exit, logging, panics, service_manager};
use kops_agent_spec::failure::Kind;
use nix::sys::stat::{Mode, umask};
use tokio::runtime::{Builder, Runtime};

use cli::spelling::with_nodeup_spelling;
use cli::{Cli, Command};

use kops_agent_node::failure::{exit_code_of, kind_of};
use kops_agent_node::progress;
use kops_agent_node::redaction::{error_text, masked};

fn main() -> ExitCode {
    progress::note_start();
    keep_others_from_writing();
    if let Some(code) = completion::print_candidates() {
        return code;
    }
    panics::start();
    let cli = match Cli::try_parse_from(with_nodeup_spelling(std::env::args().collect())) {
        Ok(cli) => cli,
        Err(answer) => return print_help_or_error(&answer),
    };
    logging::start(cli.verbosity, masked);
    given_to_units::run_again(&cli.command);
    service_manager::start();
    tls::install_provider();
    let runtime = match runtime(&cli.command) {
        Ok(runtime) => runtime,
        Err(error) => return failed(&anyhow::Error::new(error).context("starting the agent's runtime")),
    };
    match runtime.block_on(command::run(cli.command)) {
        Ok(code) => ExitCode::from(code),
        Err(error) => failed(&error),
    }
}

/// Changes the umask so that no other user can write a file that this process or a child creates. A unit, a container
/// or a shell may start this process with umask 000.
fn keep_others_from_writing() {
    let by_others = Mode::S_IWGRP | Mode::S_IWOTH;
    let given = umask(by_others);
    umask(given | by_others);
}

/// Control-plane mode uses one thread per core, every other command uses one thread.
fn runtime(command: &Command) -> std::io::Result<Runtime> {
    match command {
        Command::Controller(_) => Builder::new_multi_thread().enable_all().build(),
        _ => Builder::new_current_thread().enable_all().build(),
    }
}

/// Prints the requested help or version, or the error in the flags. The message of such an error ends with its error
/// code, as every error message does.
fn print_help_or_error(answer: &clap::Error) -> ExitCode {
    if !answer.use_stderr() {
        answer.exit();
    }
    let shown = answer.render();
    let mut stderr = std::io::stderr().lock();
    let in_color = stderr.is_terminal() && takes_colour(|name| std::env::var_os(name));
    let shown = if in_color { shown.ansi().to_string() } else { shown.to_string() };
    let missing = match answer.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => "\n\nerror: a command is missing",
        _ => "",
    };
    // If standard error is closed, there is no other place for the message.
    let _ = writeln!(stderr, "{}{missing} [{}]", shown.trim_end(), Kind::WrongUsage);
    ExitCode::from(exit::USAGE)
}

fn failed(error: &anyhow::Error) -> ExitCode {
    let why = format!("{} [{}]", error_text(error).trim_end(), kind_of(error));
    logging::last_words(&why);
    service_manager::failed(format_args!("failed: {why}"));
    ExitCode::from(exit_code_of(error))
}
