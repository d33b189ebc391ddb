//! Flags for the machine that a run examines and changes.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use kops_agent_host::Stopwatch;

use kops_agent_node::options::{Pacing, RunOptions};
use kops_agent_node::progress::{Watch, started};

/// The default of `--download-timeout`, in seconds.
pub const DOWNLOAD_TIMEOUT: u64 = 300;

#[derive(Args, Clone, Debug)]
pub struct RootArgs {
    /// A scratch root instead of this machine: files are written below it, everything else is recorded there.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,

    /// Folder of downloads, below the root.
    #[arg(long, value_name = "DIR", default_value = "/var/cache/nodeup")]
    pub cache: PathBuf,

    /// Seconds without data from any mirror before a download fails.
    #[arg(long = "download-timeout", alias = "download-patience", value_name = "SECONDS", default_value_t = DOWNLOAD_TIMEOUT)]
    pub download_timeout: u64,
}

impl RootArgs {
    /// The options of a run on this machine. With `waits_for_lock`, the run waits for another run that has the lock.
    pub fn options(&self, waits_for_lock: bool, pacing: Pacing) -> RunOptions {
        RunOptions {
            root: self.root.clone(),
            cache: self.cache.clone(),
            download_timeout: Duration::from_secs(self.download_timeout),
            waits_for_lock,
            pacing,
            allows_no_server: false,
            stopwatch: Stopwatch::since(started()),
            progress: Watch::start,
        }
    }
}
