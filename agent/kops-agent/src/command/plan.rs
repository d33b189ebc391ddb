//! `kops-agent plan`: shows what `converge` would change.

use anyhow::{Context, Result};
use kops_agent_process::exit;
use kops_agent_source::asset_hashes::HashSource;

use crate::cli::{Output, PlanArgs};
use crate::output;
use kops_agent_node::{decide, machine, pacing, plan};

/// Prints the plan. Changes nothing.
pub(super) async fn run(args: &PlanArgs) -> Result<u8> {
    let root = &args.root.root;
    let hashes = HashSource::publishers(machine::remembered_hashes(root)?);
    let options = args.follow.applied_to(args.spec.for_machine(root));
    let decision = decide::decide(&options, hashes, &machine::before(root)?).await?;
    // A missing root is compared as an empty folder. The root itself is not created, because a plan changes nothing.
    let empty = tempfile::tempdir().context("making an empty root to compare with")?;
    let root = if root.exists() { root.as_path() } else { empty.path() };
    let host = machine::open(root)?.adopting(args.adopt);
    let plan = match args.show_secrets {
        true => plan::plan_with_free_text(&host, &decision)?,
        false => plan::plan(&host, &decision)?,
    };
    output::print_plan(&plan, args.summary, args.output, args.color)?;
    if args.output == Output::Text
        && let Some(foretold) = pacing::foretold(root, &host, &decision, &plan)?
    {
        output::print_text(&(foretold + "\n"))?;
    }
    Ok(if args.exit_code && !plan.is_as_wanted() { exit::DIFFERENT } else { exit::CONVERGED })
}
