//! `kops-agent render`: prints everything that a node must have.

use std::path::Path;

use anyhow::Result;
use kops_agent_plan::resource::Resource;
use kops_agent_plan::shown;
use kops_agent_source::asset_hashes::HashSource;

use crate::cli::RenderArgs;
use crate::output;
use kops_agent_node::decide;

/// Prints the state without secrets. With `--show-secrets`, the output has the secrets, for support cases and the
/// conformance check.
pub(super) async fn run(args: &RenderArgs) -> Result<u8> {
    let options = args.spec.for_machine(Path::new("/"));
    let decision = decide::describe(&options, HashSource::offline()).await?;
    let desired = &decision.desired;
    if args.show_secrets {
        let whole = decision.materials.filled_in(desired)?;
        let resources: Vec<&Resource> = whole.iter().map(|(_, resource)| resource).collect();
        return output::print_state(&whole, &resources, args.output);
    }
    output::print_state(desired, &shown::state(desired), args.output)
}
