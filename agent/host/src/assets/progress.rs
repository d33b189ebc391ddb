//! The progress of a run, for a terminal, a log or the service manager.

use kops_agent_plan::diff::Step;
use kops_agent_plan::resource::ResourceId;

pub trait Progress: Send + Sync {
    /// A download begins. `total` is its size in bytes, if known. `present` bytes are already in the cache.
    fn download_started(&self, name: &str, total: Option<u64>, present: u64) {
        let _ = (name, total, present);
    }

    fn download_advanced(&self, name: &str, bytes: u64) {
        let _ = (name, bytes);
    }

    /// A download is complete and verified.
    fn download_finished(&self, name: &str) {
        let _ = name;
    }

    /// A download has failed and is retried after a pause.
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

    /// The node works, so tasks that need a working node may start. Meanwhile, the run continues with `what`.
    fn serving(&self, what: &str) {
        let _ = what;
    }

    /// The run waits for another process.
    fn waiting_for(&self, what: &str) {
        let _ = what;
    }

    /// An action has failed, but the node works without it.
    fn warned(&self, what: &str) {
        let _ = what;
    }
}

pub struct Silent;

impl Progress for Silent {}
