//! The flags of upstream's nodeup.

use std::path::PathBuf;

use clap::Args;

/// nodeup's own flags (cmd/nodeup/main.go).
#[derive(Args, Clone, Debug)]
pub struct NodeupArgs {
    /// The path or the URL of the boot config.
    #[arg(long, default_value = "node.yaml")]
    pub conf: PathBuf,
    /// Where downloads are kept.
    #[arg(long, default_value = "/var/cache/nodeup")]
    pub cache: PathBuf,
    /// How often to try again after a failure; -1 for as long as it takes.
    #[arg(long, default_value_t = -1, allow_negative_numbers = true)]
    pub retries: i64,
    /// Show what would be done.
    #[arg(long, num_args = 0..=1, default_missing_value = "true", default_value_t = false, require_equals = true)]
    pub dryrun: bool,
    /// `direct`, or `dryrun`.
    #[arg(long, default_value = "direct", value_parser = ["direct", "dryrun"])]
    pub target: String,
    /// Install a unit that does this at boot, and start it, instead of doing it now. Does not wait until it is done.
    #[arg(long, num_args = 0..=1, default_missing_value = "true", default_value_t = false, require_equals = true)]
    pub install_systemd_unit: bool,
}
