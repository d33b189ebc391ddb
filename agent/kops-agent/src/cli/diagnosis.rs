//! Flags of `kops-agent doctor` and `kops-agent support-bundle`. The machine may lack anything that these commands look
//! for.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use kops_agent_node::options::NodeOptions;
use kops_agent_source::StoreOptions;

use super::Output;
use super::spec::ConfigArgs;

/// The default of `--store-timeout`, in seconds. It is short because operators run these commands at a terminal.
const STORE_TIMEOUT: u64 = 10;

/// The machine to examine, and the node that it should be.
#[derive(Args, Clone, Debug)]
pub struct ExamineArgs {
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Read what is below URL from the folder DIR; may be given more than once.
    #[arg(long, value_name = "URL=DIR")]
    pub store_mirror: Vec<String>,
    /// Seconds to retry a store that does not answer.
    #[arg(long = "store-timeout", alias = "store-patience", value_name = "SECONDS", default_value_t = STORE_TIMEOUT)]
    pub store_timeout: u64,
    /// Use these facts (YAML or JSON) instead of observing this machine and its cloud.
    #[arg(long, value_name = "FILE")]
    pub facts: Option<PathBuf>,
    /// The machine's root.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
}

#[derive(Args, Clone, Debug)]
pub struct DoctorArgs {
    #[command(flatten)]
    pub machine: ExamineArgs,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

#[derive(Args, Clone, Debug)]
pub struct SupportBundleArgs {
    #[command(flatten)]
    pub machine: ExamineArgs,
    /// File to write; it must not exist yet. Default: a file in /var/tmp with the host's name and the time.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

impl ExamineArgs {
    /// The options that decide the node of this machine.
    pub fn options(&self) -> NodeOptions {
        NodeOptions {
            source: self.config.source(&self.root),
            store: StoreOptions {
                mirrors: self.store_mirror.clone(),
                timeout: Duration::from_secs(self.store_timeout),
            },
            facts: self.facts.clone(),
            controller: false,
            addons: false,
            rollouts: false,
        }
    }
}
