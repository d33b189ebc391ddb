//! What one argument of a command says for the others.

use super::{Command, ConvergeArgs, PlanArgs, VerifyArgs};

impl Command {
    /// The same, where what decides the node knows which machine it is decided for.
    pub fn settled(mut self) -> Command {
        if let Command::Converge(ConvergeArgs { spec, root, .. })
        | Command::Plan(PlanArgs { spec, root, .. })
        | Command::Verify(VerifyArgs { spec, root, .. }) = &mut self
        {
            spec.node_root.clone_from(&root.root);
        }
        self
    }
}
