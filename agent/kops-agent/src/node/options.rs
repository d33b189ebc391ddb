//! What can be said of a node that is decided, and of a run that makes a machine that node.

use std::path::PathBuf;
use std::time::Duration;

use kops_agent_host::Stopwatch;

use crate::source::{SourceOptions, StoreOptions};

#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// Where its specification comes from.
    pub source: SourceOptions,
    /// How the state store is reached.
    pub store: StoreOptions,
    /// A file of facts, in the place of observing this machine and its cloud.
    pub facts: Option<PathBuf>,
    /// Whether control-plane mode is asked for as a service of the machine.
    pub controller: bool,
    /// Whether what applies add-ons is.
    pub addons: bool,
}

/// The machine that is changed, and how.
#[derive(Clone, Debug)]
pub struct RunOptions {
    pub root: PathBuf,
    /// Where downloads are kept, below the root.
    pub cache: PathBuf,
    /// After how long without anything coming from any of its mirrors a download is given up.
    pub download_timeout: Duration,
    /// Whether a run waits for another that is at work on the root, instead of failing: what runs at boot does.
    pub waits_for_lock: bool,
    /// How changes are paced that restart what a working node is made of.
    pub pacing: Pacing,
    pub stopwatch: Stopwatch,
}

impl RunOptions {
    /// The same for a change that pods do not notice.
    pub fn without_drain(self) -> RunOptions {
        RunOptions { pacing: Pacing { drain: None, ..self.pacing }, ..self }
    }

    /// The same, which asks for a slot once.
    pub fn without_waiting_for_a_slot(self) -> RunOptions {
        RunOptions { pacing: Pacing { slot_timeout: Duration::ZERO, ..self.pacing }, ..self }
    }

    /// The folder of downloads, as this process sees it.
    pub fn cache(&self) -> PathBuf {
        self.root.join(self.cache.strip_prefix("/").unwrap_or(&self.cache))
    }
}

/// How a run takes its turn among the nodes of its group.
#[derive(Clone, Copy, Debug)]
pub struct Pacing {
    /// How many nodes of a group may be disrupted at a time; with 0 no slot is taken.
    pub max_unavailable: u32,
    /// For how long a run waits for a slot.
    pub slot_timeout: Duration,
    /// For how long pods may take to leave, where the node is to be drained.
    pub drain: Option<Duration>,
    /// Whether it was asked for by a flag or a variable. Then a run that cannot know whether other nodes are restarted is refused;
    /// else it goes on as it did before there were slots.
    pub is_asked_for: bool,
}
