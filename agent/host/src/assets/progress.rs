//! How far a run has come, for a terminal, a log or the service manager.

use kops_agent_plan::diff::Step;
use kops_agent_plan::resource::ResourceId;

/// Told of what happens, while it happens.
pub trait Progress: Send + Sync {
    /// A download begins: its size in bytes where it is known, and how much of it is there already.
    fn download_started(&self, name: &str, total: Option<u64>, present: u64) {
        let _ = (name, total, present);
    }

    /// More bytes of a download have arrived.
    fn download_advanced(&self, name: &str, bytes: u64) {
        let _ = (name, bytes);
    }

    /// A download is complete and verified.
    fn download_finished(&self, name: &str) {
        let _ = name;
    }

    /// A download has failed, and is tried again after a pause.
    fn download_retried(&self, name: &str, why: &str) {
        let _ = (name, why);
    }

    /// A step of the plan is about to be applied.
    fn applying(&self, step: &Step) {
        let _ = step;
    }

    /// A component was restarted; the run waits until it is healthy.
    fn waiting(&self, component: &ResourceId) {
        let _ = component;
    }

    /// The package manager has fetched what it installs, and begins to install it. One that does not tell says nothing.
    fn packages_fetched(&self) {}

    /// The node runs, and what may wait for that may go on; the run goes on with this.
    fn serving(&self, what: &str) {
        let _ = what;
    }

    /// The run waits for another process.
    fn waiting_for(&self, what: &str) {
        let _ = what;
    }

    /// Something could not be done that the node can do without.
    fn warned(&self, what: &str) {
        let _ = what;
    }
}

/// Progress that is not shown.
pub struct Silent;

impl Progress for Silent {}
