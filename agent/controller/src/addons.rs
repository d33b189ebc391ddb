//! Applies add-ons in place of kOps' channels pod. `reading` reads channels and manifests from the state store;
//! `kops_agent_cluster::addons` decides which add-ons are due; `updating` changes the cluster.
//!
//! [`run`] is `kops-agent addons`. `status`, `diff` and `apply` are its verbs, and `standing` collects their input. `running` is the
//! loop that replaces the pod.

mod apply;
mod applying;
mod args;
mod authority;
mod channels;
mod diff;
mod installed;
mod marking;
mod objects;
mod pruning;
mod reading;
mod recreate;
mod remove;
mod resources;
mod running;
mod standing;
mod status;
mod updating;

use anyhow::Result;

pub use args::{
    AddonsApplyArgs, AddonsArgs, AddonsCommand, AddonsDiffArgs, AddonsRemoveArgs, AddonsRunArgs, ChannelArgs,
};

#[cfg(test)]
pub use running::metrics::tests::every_metric;
use standing::Scene;

/// Runs a `kops-agent addons` command.
///
/// # Errors
/// A channel cannot be read or is wrong, the API server does not answer, or no add-on has the given name.
pub async fn run(command: &AddonsCommand) -> Result<u8> {
    match command {
        AddonsCommand::Status(args) => status::run(&Scene::open(args).await?, args.output).await,
        AddonsCommand::Diff(args) => {
            diff::run(&Scene::open(&args.addons).await?, args.addons.output, args.exit_code).await
        }
        AddonsCommand::Apply(args) => apply::run(&Scene::open(&args.addons).await?, args).await,
        AddonsCommand::Remove(args) => remove::run(args).await,
        AddonsCommand::Run(args) => running::run(args).await,
    }
}
