//! Gives a run from a shell the variables of the agent's units: how to reach the state store, and proxies. Without
//! them, a store that needs a key looks closed, and a healthy node looks broken.

use std::path::Path;

use kops_agent_node::environment;

use crate::cli::{AddonsCommand, Command, ConfigCommand, FleetCommand};

/// Executes this program again with the environment variables of the agent's units. Does nothing if the command is not
/// about this machine's node.
pub fn run_again(command: &Command) {
    if is_of_this_node(command) {
        environment::run_again_with_all();
    }
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
        // These commands read the channel from the state store of this machine's cluster, unless a flag says otherwise.
        Command::Addons { command: AddonsCommand::Status(_) | AddonsCommand::Diff(_) } => return true,
        Command::Addons { command: AddonsCommand::Apply(_) | AddonsCommand::Remove(_) } => return true,
        Command::Addons { command: AddonsCommand::Run(_) } => return true,
        // These commands do not read the store for this node, or they run in units that already have the environment
        // variables. The match has no default arm: a new command, or a new subcommand of config, addons or fleet, does
        // not compile until it has an arm.
        Command::Status(_) | Command::Reset(_) | Command::Controller(_) | Command::Nodeup(_) => return false,
        Command::Fleet { command: FleetCommand::Plan(_) | FleetCommand::Status(_) } => return false,
        Command::Fleet { command: FleetCommand::Tell(_) | FleetCommand::Follow(_) } => return false,
        Command::Fleet { command: FleetCommand::Rollout { .. } | FleetCommand::Reboot(_) } => return false,
        Command::Fleet { command: FleetCommand::Upgrade(_) } => return false,
        Command::Completions { .. } | Command::Man { .. } | Command::Version { .. } => return false,
    };
    root == Path::new("/")
}
