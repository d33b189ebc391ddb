//! `kops-agent config assets`: lists everything that the nodes of a cluster download or install, and checks that the servers have the
//! files and images.

use anyhow::Result;
use kops_agent_controller::addons;
use kops_agent_node::assets::{Assets, Listed, Status};
use kops_agent_process::exit;
use kops_agent_spec::terminal::one_line;

use crate::cli::{AssetsArgs, Output};
use crate::output;

pub(super) async fn run(args: &AssetsArgs) -> Result<u8> {
    let store = args.store.options().open()?;
    let base = args.config_base.trim_end_matches('/');
    let mut assets =
        Assets::of_groups(&store, base, &args.instance_group, args.asset_hashes.as_deref()).await?;
    assets.add_images(addons::images(&store, assets.channels(), assets.kubernetes()).await?);
    if let count @ 1.. = assets.unhashed() {
        log::warn!(
            "the SHA-256 of {count} files is unknown (shown as - in the list); give the hashes with \
             --asset-hashes FILE"
        );
    }
    let mut all = Vec::new();
    assets
        .each(&store, args.check, |asset| {
            let listed = Listed::new(asset, args.check);
            if args.output == Output::Text {
                // The names come from files in the store. A line break in a name would look like two entries.
                output::print_text(&(one_line(&listed.to_string(), usize::MAX) + "\n"))?;
            }
            all.push(listed);
            Ok(())
        })
        .await?;
    if args.output == Output::Json {
        output::print_json(&all)?;
    }
    let count = |status| all.iter().filter(|listed| listed.status() == Some(status)).count();
    match (count(Status::Missing), count(Status::Unknown)) {
        (0, 0) => Ok(exit::CONVERGED),
        (missing, unknown) => {
            log::warn!(
                "files and images that no server has: {missing}; files and images that could not be checked: \
                 {unknown}. See the lines MISSING and UNKNOWN"
            );
            Ok(exit::DIFFERENT)
        }
    }
}
