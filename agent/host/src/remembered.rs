//! What the binary wants to know again at the next run, though the cloud may not tell it then.

use kops_agent_plan::lifecycle_action::LifecycleAction;

use crate::error::Result;
use crate::host::Host;
use crate::staged::write_file;
use kops_agent_plan::lifecycle_action::Completion;

impl Host {
    /// Where remembered facts are, below the root: beside the record.
    pub const REMEMBERED_FACTS: &'static str = "/var/lib/kops-agent/facts.json";

    /// Keeps facts for later runs, in the form that these read.
    ///
    /// # Errors
    /// They cannot be written, or another run is at work.
    pub fn remember_facts(&self, json: &[u8]) -> Result<()> {
        let _lock = self.lock()?;
        write_file(&self.root, Host::REMEMBERED_FACTS, 0o600, None, json)
    }

    /// Tells the cloud that this machine is ready, where a lifecycle hook holds it until then.
    ///
    /// # Errors
    /// Why the cloud could not be told.
    pub async fn complete_lifecycle_action(&self, action: &LifecycleAction) -> Result<Completion, String> {
        self.remote.complete_lifecycle_action(action).await
    }

    /// What the kernel calls the time since this machine was last started (`/proc/sys/kernel/random/boot_id`, random(4)).
    ///
    /// # Errors
    /// It cannot be read.
    pub fn boot_id(&self) -> Result<String> {
        self.kernel.boot_id()
    }
}
