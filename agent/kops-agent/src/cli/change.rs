//! How a node is changed that works.

use std::time::Duration;

use clap::Args;
use kops_agent_host::Host;
use kops_agent_host::health::Pace;

/// The default of `--health-patience`, in seconds: as long as kubelet gives the API server to start.
const HEALTH_TIMEOUT: u64 = 300;

/// What is done about components that do not come back.
#[derive(Args, Clone, Copy, Debug)]
pub struct ChangeArgs {
    /// For how many seconds each component may take to be well again after it was changed; then everything is put back
    /// as it was. 0 waits for none and puts nothing back.
    #[arg(long = "health-patience", value_name = "SECONDS", default_value_t = HEALTH_TIMEOUT)]
    pub health_timeout: u64,

    /// Try a configuration again that was rolled back.
    #[arg(long)]
    pub retry_failed: bool,
}

impl Default for ChangeArgs {
    fn default() -> ChangeArgs {
        ChangeArgs { health_timeout: HEALTH_TIMEOUT, retry_failed: false }
    }
}

impl ChangeArgs {
    /// The same host, which is changed in this way.
    pub fn applied_to(self, host: Host) -> Host {
        let timeout = Duration::from_secs(self.health_timeout);
        host.with_pace(Pace { timeout, ..Pace::default() }).retrying_failed(self.retry_failed)
    }
}
