//! `kops-agent converge`: makes this machine the node that it must be.

use anyhow::Result;
use kops_agent_node::machine::noted;
use kops_agent_node::progress::Watch;
use kops_agent_node::run::converge::Converge;
use kops_agent_node::run::until_stopped_or_told;
use kops_agent_node::{condition, upkeep};

use crate::cli::ConvergeArgs;
use crate::output::ResultPrinter;

/// Converges. Retries failed runs as often as `--retries` says, until a signal arrives.
pub(super) async fn run(args: &ConvergeArgs) -> Result<u8> {
    let (root, is_boot) = (&args.root.root, args.retries != 0);
    let options = args.follow.applied_to(args.spec.for_machine(root));
    let printer = ResultPrinter { output: args.output, color: args.color };
    let converge = async {
        upkeep::place_before_first_run(root, &options.source.conf, is_boot, &*Watch::start()).await;
        let pacing = noted(root, args.change.pacing().map_err(Into::into))?;
        let on =
            args.root.options(is_boot || args.wait, pacing).allowing_no_server(args.change.allow_no_server);
        let run = Converge {
            options,
            on,
            settings: args.change.host_settings(),
            retries: args.retries,
            adopt: args.adopt,
            printer: &printer,
        };
        run.until_done().await
    };
    let tell = async |_: &Result<u8>| condition::have_told(root).await;
    until_stopped_or_told(root, converge, tell).await
}
