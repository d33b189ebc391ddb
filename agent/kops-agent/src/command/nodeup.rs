//! nodeup's own command line, so that a machine's user-data works unchanged.

use std::path::PathBuf;

use anyhow::Result;
use kops_agent_node::install_unit;

use super::{converge, plan};
use crate::cli::{
    ChangeArgs, Color, ConfigArgs, ConvergeArgs, DOWNLOAD_TIMEOUT, FollowArgs, NodeupArgs, Output, PlanArgs,
    RootArgs, STORE_TIMEOUT, SpecArgs, StoreArgs,
};
use crate::output::ResultPrinter;

/// Does what the flags ask: installs the unit, prints the plan, or converges.
pub(super) async fn run(args: NodeupArgs) -> Result<u8> {
    if args.install_systemd_unit {
        let printer = ResultPrinter { output: Output::Text, color: Color::default() };
        return install_unit::until_installed(&args.conf, args.retries, &printer).await;
    }
    let spec = SpecArgs {
        config: ConfigArgs { conf: args.conf, config_from: Default::default(), config_base: None },
        store: StoreArgs { store_mirror: Vec::new(), store_timeout: STORE_TIMEOUT },
        facts: None,
        asset_hashes: None,
        on_hash_mismatch: Default::default(),
        controller: false,
        addons: false,
        rollouts: false,
    };
    let root = RootArgs { root: PathBuf::from("/"), cache: args.cache, download_timeout: DOWNLOAD_TIMEOUT };
    let follow = FollowArgs::default();
    let (output, color) = (Output::default(), Color::default());
    if args.dryrun || args.target == "dryrun" {
        return plan::run(&PlanArgs {
            spec,
            follow,
            root,
            adopt: false,
            exit_code: false,
            show_secrets: false,
            summary: false,
            output,
            color,
        })
        .await;
    }
    converge::run(&ConvergeArgs {
        spec,
        follow,
        root,
        change: ChangeArgs::default(),
        adopt: false,
        retries: args.retries,
        wait: false,
        output,
        color,
    })
    .await
}
