//! The variables that the agent's units are given, for a run from a shell that has none of them: how to reach the state store,
//! and proxies. Without them a store that needs a key looks closed, and a node that is well looks broken.
//!
//! Libraries read them from the process's environment, which can only be set as a process starts; so this one starts again,
//! as the same process.

use std::os::unix::process::CommandExt as _;
use std::path::Path;

use nix::unistd::geteuid;

use crate::cli::Command;
use crate::node::environment::Environment;

/// Becomes this program with those variables besides its own, where there are any and the command looks at this machine as its
/// node. What is set here stays.
pub fn run_again(command: &Command) {
    // The files are root's, and there may be keys in them.
    if !is_of_this_node(command) || !geteuid().is_root() {
        return;
    }
    let missing = Environment::of_machine(Path::new("/")).beyond_process();
    if missing.is_empty() {
        return;
    }
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    log::debug!("these variables are those of the units: {:?}", missing.keys());
    // By this name also where the file was replaced since.
    let failed = std::process::Command::new("/proc/self/exe").arg0(name).args(arguments).envs(missing).exec();
    log::warn!("the variables of this machine's units are left out: {failed}");
}

fn is_of_this_node(command: &Command) -> bool {
    let root = match command {
        Command::Converge(args) => &args.root.root,
        Command::Plan(args) => &args.root.root,
        Command::Verify(args) => &args.root.root,
        Command::Doctor(args) => &args.look.root,
        Command::SupportBundle(args) => &args.look.root,
        // What these tell is of the node that this machine's boot config describes.
        Command::Render(_) | Command::Explain(_) | Command::Facts(_) | Command::Config { .. } => return true,
        // The channel is in the state store of this machine's cluster, unless a flag says otherwise.
        Command::Addons { .. } => return true,
        _ => return false,
    };
    root == Path::new("/")
}
