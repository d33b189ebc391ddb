//! Gives a run from a shell the variables of the agent's units: how to reach the state store, and proxies. Without
//! them, a store that needs a key looks closed, and a healthy node looks broken.
//!
//! Libraries read these variables from the process's environment, which is set when a process starts. So this process
//! executes itself again, with the same process ID.

use std::os::unix::process::CommandExt as _;
use std::path::Path;

use nix::unistd::geteuid;

use crate::cli::{AddonsCommand, Command, ConfigCommand, FleetCommand};
use kops_agent_node::environment::Environment;

/// Executes this program again with the environment variables of the agent's units. Does nothing if this process has
/// all of the variables, or if the command is not about this machine's node. Variables that are already set do not
/// change.
pub fn run_again(command: &Command) {
    // The files with the variables may contain keys, so only root can read them.
    if !is_of_this_node(command) || !geteuid().is_root() {
        return;
    }
    let missing = Environment::of_machine(Path::new("/")).beyond_process();
    if missing.is_empty() {
        return;
    }
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    log::debug!("starting again with these variables of the agent's units: {:?}", missing.keys());
    // `/proc/self/exe` is the running program, even if its file was replaced after the start.
    let failed = std::process::Command::new("/proc/self/exe").arg0(name).args(arguments).envs(missing).exec();
    log::warn!(
        "cannot restart kops-agent with the environment variables of its units, so this run ignores these \
         variables: {failed}"
    );
}

fn is_of_this_node(command: &Command) -> bool {
    let root = match command {
        Command::Converge(args) => &args.root.root,
        Command::Plan(args) => &args.root.root,
        Command::Verify(args) => &args.root.root,
        Command::Doctor(args) => &args.machine.root,
        Command::SupportBundle(args) => &args.machine.root,
        // These commands describe the node of this machine's boot config.
        Command::Render(_) | Command::Explain(_) | Command::Facts(_) => return true,
        Command::Config { command: ConfigCommand::Dump(_) | ConfigCommand::Check(_) } => return true,
        // These commands read the cluster's folder in the state store.
        Command::Config { command: ConfigCommand::Derive(_) | ConfigCommand::Assets(_) } => return true,
        // The channel is in the state store of this machine's cluster, unless a flag says otherwise.
        Command::Addons { command: AddonsCommand::Status(_) | AddonsCommand::Diff(_) } => return true,
        Command::Addons { command: AddonsCommand::Apply(_) | AddonsCommand::Remove(_) } => return true,
        Command::Addons { command: AddonsCommand::Run(_) } => return true,
        // These commands do not read the store for this node, or units start them. The match has no default arm: a
        // new command, or a new subcommand of config, addons or fleet, does not compile until it has an arm.
        Command::Status(_) | Command::Reset(_) | Command::Controller(_) | Command::Nodeup(_) => return false,
        Command::Fleet { command: FleetCommand::Plan(_) | FleetCommand::Status(_) } => return false,
        Command::Fleet { command: FleetCommand::Tell(_) | FleetCommand::Follow(_) } => return false,
        Command::Fleet { command: FleetCommand::Rollout { .. } | FleetCommand::Reboot(_) } => return false,
        Command::Fleet { command: FleetCommand::Upgrade(_) } => return false,
        Command::Completions { .. } | Command::Man { .. } | Command::Version { .. } => return false,
    };
    root == Path::new("/")
}
