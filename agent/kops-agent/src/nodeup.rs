//! nodeup's own way of being called, so that a machine's user-data works unchanged.

use std::path::PathBuf;

use anyhow::Result;

use crate::cli::{
    ChangeArgs, Color, ConfigFrom, ConvergeArgs, DOWNLOAD_PATIENCE, NodeupArgs, OnHashMismatch, Output,
    PlanArgs, RootArgs, STORE_PATIENCE, SpecArgs, StoreArgs,
};
use crate::{converge_with_retries, install_unit, plan};

/// Installs the unit, shows the plan, or converges, as the flags ask.
pub(crate) async fn run(args: NodeupArgs) -> Result<u8> {
    if args.install_systemd_unit {
        return install_unit::install().await;
    }
    let spec = SpecArgs {
        conf: args.conf,
        config_from: ConfigFrom::default(),
        config_base: None,
        store: StoreArgs { store_mirror: Vec::new(), store_patience: STORE_PATIENCE },
        facts: None,
        asset_hashes: None,
        on_hash_mismatch: OnHashMismatch::default(),
    };
    let root = RootArgs { root: PathBuf::from("/"), cache: args.cache, download_patience: DOWNLOAD_PATIENCE };
    let (output, color) = (Output::default(), Color::default());
    if args.dryrun || args.target == "dryrun" {
        return plan(&PlanArgs { spec, root, exit_code: false, output, color }).await;
    }
    converge_with_retries(&ConvergeArgs {
        spec,
        root,
        change: ChangeArgs::default(),
        retries: args.retries,
        output,
        color,
    })
    .await
}
