//! `kops-agent verify`: what differs from what was last applied, which needs no state store, and from what is
//! wanted now, which does.

use anyhow::Result;
use kops_agent_host::Depth;

use crate::cli::VerifyArgs;
use crate::hashes::HashSource;
use crate::{bootstrap_client, convergence, exit, node, noted, open_host, output, until_stopped};

/// Tells the differences, and mends them if asked. A repair that fails is told of by `status`, as any run that is to
/// change the machine: a timer has nobody who reads what it says.
pub(crate) async fn run(args: &VerifyArgs) -> Result<u8> {
    if !args.repair {
        return verify(args).await;
    }
    let root = &args.root.root;
    until_stopped(root, async { noted(root, verify(args).await) }).await
}

async fn verify(args: &VerifyArgs) -> Result<u8> {
    let depth = if args.deep { Depth::Content } else { Depth::Touched };
    let host = args.change.applied_to(open_host(&args.root.root)?.with_depth(depth));
    let changed = host.drift()?;
    let decided = async {
        let decision =
            node::decide(&args.spec, &args.root.root, HashSource::publishers(host.record()?.known_hashes))
                .await?;
        let plan = node::plan(&host, &decision)?;
        Ok::<_, anyhow::Error>((decision, plan))
    };
    let (decision, plan) = match decided.await {
        Ok(decided) => decided,
        // It tells a node that works nothing; what it was last told is all there is to compare with.
        Err(error) if bootstrap_client::is_already_registered(&error) => {
            log::warn!("what is wanted of this node now is not known: {}", output::error_text(&error));
            output::print_verification(&changed, None, args.output, args.color)?;
            return Ok(if changed.is_empty() { exit::CONVERGED } else { exit::DIFFERENT });
        }
        Err(error) => {
            // What is known without the state store is worth telling.
            output::print_verification(&changed, None, args.output, args.color)?;
            return Err(error);
        }
    };
    output::print_verification(&changed, Some(&plan), args.output, args.color)?;
    // A repair that succeeds with nothing to do ends the tale of one that failed.
    let is_well_again = args.repair && host.record()?.failure.is_some();
    if plan.is_empty() && !is_well_again {
        return Ok(if changed.is_empty() { exit::CONVERGED } else { exit::DIFFERENT });
    }
    if !args.repair {
        return Ok(exit::DIFFERENT);
    }
    match convergence::converge(&args.root, &host, &decision).await {
        Ok(report) => output::print_report(&report, args.output),
        Err(error) if bootstrap_client::is_already_registered(&error) => {
            log::warn!("the differences stay: {}", output::error_text(&error));
            Ok(exit::DIFFERENT)
        }
        Err(error) => Err(error),
    }
}
