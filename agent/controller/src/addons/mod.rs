//! Add-ons, as kOps' channels pod applies them: channels and manifests are read from the state store, what is due is decided in
//! `kops_agent_plan::addons`, and done here, on the API server.
//!
//! [`run`] is `kops-agent addons`: `status`, `diff` and `apply` are its verbs, `standing` what these look at first, and `running` is
//! the loop that does all of it in the pod's place.

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

/// Does what `kops-agent addons` is asked to.
///
/// # Errors
/// A channel cannot be read or is wrong, the API server does not answer, or there is no add-on of the name.
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
