//! The verbs of the command line, one file per verb.

mod addons;
mod completions;
mod config;
mod controller;
mod converge;
mod doctor;
mod explain;
mod facts;
mod fleet;
mod follow;
mod man;
mod nodeup;
mod plan;
mod render;
mod reset;
mod status;
mod support_bundle;
mod verify;
mod version;

use anyhow::Result;

use crate::cli::Command;

/// Runs a command and returns the process's exit code.
// Long futures are boxed: without optimization, all of them together overflow the stack.
pub async fn run(command: Command) -> Result<u8> {
    match command {
        Command::Converge(args) => Box::pin(converge::run(&args)).await,
        Command::Plan(args) => Box::pin(plan::run(&args)).await,
        Command::Verify(args) => Box::pin(verify::run(&args)).await,
        Command::Status(args) => status::run(&args),
        Command::Doctor(args) => Box::pin(doctor::run(&args)).await,
        Command::SupportBundle(args) => Box::pin(support_bundle::run(&args)).await,
        Command::Reset(args) => Box::pin(reset::run(&args)).await,
        Command::Render(args) => Box::pin(render::run(&args)).await,
        Command::Facts(args) => facts::run(&args).await,
        Command::Config { command } => Box::pin(config::run(command)).await,
        Command::Controller(args) => controller::run(&args).await,
        Command::Addons { command } => addons::run(&command).await,
        Command::Fleet { command } => fleet::run(&command).await,
        Command::Explain(args) => Box::pin(explain::run(&args)).await,
        Command::Nodeup(args) => Box::pin(nodeup::run(args)).await,
        Command::Completions { shell } => completions::run(shell),
        Command::Man { all } => man::run(all.as_deref()),
        Command::Version { output } => version::run(output),
    }
}
