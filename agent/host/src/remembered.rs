//! Facts that the binary needs at the next run, even if the cloud does not provide them then.

use kops_agent_cluster::lifecycle_action::{Completion, LifecycleAction};
use kops_agent_spec::failure::Failure;

use crate::error::Result;
use crate::host::Host;
use crate::staged::write_file;

impl Host {
    /// The path of the remembered facts, below the root.
    pub const REMEMBERED_FACTS: &'static str = "/var/lib/kops-agent/facts.json";

    /// Stores facts in JSON for later runs. Fails if another run holds the lock.
    pub fn remember_facts(&self, json: &[u8]) -> Result<()> {
        let _lock = self.lock()?;
        write_file(&self.root, Host::REMEMBERED_FACTS, 0o600, None, json)
    }

    /// If a lifecycle hook holds this machine, tells the cloud that the machine is ready.
    pub async fn complete_lifecycle_action(&self, action: &LifecycleAction) -> Result<Completion, Failure> {
        self.remote.complete_lifecycle_action(action).await
    }

    /// The kernel's ID of the current boot (`/proc/sys/kernel/random/boot_id`, random(4)).
    pub fn boot_id(&self) -> Result<String> {
        self.kernel.boot_id()
    }
}
