//! `kops-agent support-bundle`: writes a support bundle about this machine into one file.

use anyhow::Result;

use crate::cli::SupportBundleArgs;
use crate::output;

/// Writes the bundle, prints its path, and names the missing parts.
pub(super) async fn run(args: &SupportBundleArgs) -> Result<u8> {
    let written =
        Box::pin(kops_agent_node::support::write(&args.machine.options(), args.out.as_deref())).await?;
    for (name, why) in &written.missing {
        log::warn!("{name} is not in the bundle: {why}");
    }
    let text = format!(
        "{} ({} bytes) is the support bundle of this machine, without values that are secret or look secret. \
         Read the bundle before you give it to others\n",
        written.path.display(),
        written.size
    );
    output::print_text(&text)
}
