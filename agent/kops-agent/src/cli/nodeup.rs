//! The flags of upstream's nodeup.

use std::path::PathBuf;

use clap::Args;

/// nodeup's own flags (cmd/nodeup/main.go).
#[derive(Args, Clone, Debug)]
pub struct NodeupArgs {
    /// The path or the URL of the boot config.
    #[arg(long, default_value = "node.yaml")]
    pub conf: PathBuf,
    /// Folder of downloads.
    #[arg(long, default_value = "/var/cache/nodeup")]
    pub cache: PathBuf,
    /// Number of retries after a failure; -1 retries forever.
    #[arg(long, default_value_t = -1, allow_negative_numbers = true)]
    pub retries: i64,
    /// Show what would be done.
    #[arg(long, num_args = 0..=1, default_missing_value = "true", default_value_t = false, require_equals = true)]
    pub dryrun: bool,
    /// `direct`, or `dryrun`.
    #[arg(long, default_value = "direct", value_parser = ["direct", "dryrun"])]
    pub target: String,
    /// Install and start a unit that does this at boot, instead of doing it now. Does not wait for the unit to finish.
    #[arg(long, num_args = 0..=1, default_missing_value = "true", default_value_t = false, require_equals = true)]
    pub install_systemd_unit: bool,
}
