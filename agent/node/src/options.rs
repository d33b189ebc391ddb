//! Options for deciding a node, and for a run that converges a machine to it.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kops_agent_cluster::pacing::message::MOST_SLOTS;
use kops_agent_cluster::rollout::DrainMode;
use kops_agent_host::health::HealthTimings;
use kops_agent_host::{Host, Progress, Stopwatch};
use kops_agent_plan::following::Follow;
use kops_agent_spec::failure::{Failure, Kind};

use kops_agent_source::{SourceOptions, StoreOptions};
use time::OffsetDateTime;

/// The environment variable with the default of `--max-unavailable`.
const MAX_UNAVAILABLE: &str = "KOPS_AGENT_MAX_UNAVAILABLE";

#[derive(Clone, Debug)]
pub struct NodeOptions {
    pub source: SourceOptions,
    pub store: StoreOptions,
    /// A file of facts, used instead of observing this machine and its cloud.
    pub facts: Option<PathBuf>,
    /// Whether `--controller` asks for the service of control-plane mode.
    pub controller: bool,
    /// Whether `--addons` asks for the service that applies add-ons.
    pub addons: bool,
    /// Whether `--rollouts` asks for the service that follows rollouts.
    pub rollouts: bool,
}

impl NodeOptions {
    /// Returns these options with `follow`, the choice among the configurations of the node's group.
    pub fn following(mut self, follow: Follow) -> NodeOptions {
        self.source.follow = follow;
        self
    }

    /// Changes the root to `/` if it is another path to `/`, such as `/..`.
    pub fn settled(mut self) -> NodeOptions {
        if self.is_this_machine() {
            self.source.node_root = PathBuf::from("/");
        }
        self
    }

    /// Whether the root is the folder `/`, even if its path is spelled differently, such as `/..`.
    pub fn is_this_machine(&self) -> bool {
        let number = |path: &Path| std::fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
        let root = &self.source.node_root;
        root == Path::new("/") || number(root).is_some_and(|of_root| Some(of_root) == number(Path::new("/")))
    }
}

/// Options of a run that changes a machine.
#[derive(Clone, Debug)]
pub struct RunOptions {
    pub root: PathBuf,
    /// The folder of downloads, below the root.
    pub cache: PathBuf,
    /// How long a download may go without data from any mirror before it fails.
    pub download_timeout: Duration,
    /// Whether the run waits for another run on this root instead of failing. Runs at boot wait.
    pub waits_for_lock: bool,
    /// The pacing of changes that restart components of a working node.
    pub pacing: Pacing,
    /// Whether the run may remove the last server at which machines bootstrap.
    pub allows_no_server: bool,
    pub stopwatch: Stopwatch,
    /// Creates the display of the run's progress.
    pub progress: fn() -> Box<dyn Progress>,
}

impl RunOptions {
    /// Returns these options without a drain, for a change that pods do not notice.
    pub fn without_drain(self) -> RunOptions {
        RunOptions { pacing: Pacing { drain: DrainMode::Never, ..self.pacing }, ..self }
    }

    /// Sets whether the run may remove the last server at which machines bootstrap.
    pub fn allowing_no_server(self, allows_no_server: bool) -> RunOptions {
        RunOptions { allows_no_server, ..self }
    }

    /// Returns these options for a run that asks for a slot only once.
    pub fn without_waiting_for_a_slot(self) -> RunOptions {
        RunOptions { pacing: Pacing { slot_timeout: Duration::ZERO, ..self.pacing }, ..self }
    }

    /// The folder of downloads, with the root in front.
    pub fn cache(&self) -> PathBuf {
        self.root.join(self.cache.strip_prefix("/").unwrap_or(&self.cache))
    }
}

/// The settings of a run for the machine that it changes.
#[derive(Clone, Copy, Debug)]
pub struct HostSettings {
    /// How long a changed component may take to become healthy before the run rolls back. Zero disables the wait and the
    /// rollback.
    pub health_timeout: Duration,
    /// Whether the run retries a change that an earlier run rolled back.
    pub retries_failed: bool,
}

impl HostSettings {
    pub fn applied_to(self, host: Host) -> Host {
        host.with_health_timings(HealthTimings { timeout: self.health_timeout, ..HealthTimings::default() })
            .retrying_failed(self.retries_failed)
    }
}

/// Limits how many nodes of a group change at the same time.
#[derive(Clone, Copy, Debug)]
pub struct Pacing {
    /// How many nodes of a group may be disrupted at a time. With 0, the run takes no slot.
    pub max_unavailable: u32,
    pub slot_timeout: Duration,
    pub drain: DrainMode,
    /// How long a drain waits for pods to leave.
    pub drain_timeout: Duration,
    /// Whether a flag or a variable asks for pacing. It decides what a run does if no server tells it whether a slot is free.
    /// If `true`, the run fails, unless this machine's own API server does not answer. If `false`, the run continues without a slot.
    pub is_asked_for: bool,
    /// Whether the run always fails if it gets no slot, even if no API server answers. True for a reboot.
    pub needs_slot: bool,
    /// The time at which the controller ordered the reboot, by the controller's clock. `None` if the run is not a reboot.
    pub ordered: Option<OffsetDateTime>,
}

/// The default of `--max-unavailable`, from `KOPS_AGENT_MAX_UNAVAILABLE`. `None` if the variable is not set. Fails if the
/// variable is not a number from 0 to [`MOST_SLOTS`].
pub fn default_of_max_unavailable() -> Result<Option<u32>, Failure> {
    by_variable(std::env::var(MAX_UNAVAILABLE).unwrap_or_default().trim())
}

fn by_variable(value: &str) -> Result<Option<u32>, Failure> {
    if value.is_empty() {
        return Ok(None);
    }
    let number = value.parse().ok().filter(|number| *number <= MOST_SLOTS);
    number.map(Some).ok_or_else(|| {
        Failure::new(
            Kind::WrongSetting,
            format!("{MAX_UNAVAILABLE} is {value:?}; set it to a number from 0 to {MOST_SLOTS}"),
        )
    })
}

#[cfg(test)]
mod tests {
    use kops_agent_source::{ConfigFrom, OnHashMismatch};

    use super::*;

    fn options(root: &str) -> NodeOptions {
        NodeOptions {
            source: SourceOptions {
                conf: PathBuf::new(),
                config_from: ConfigFrom::Auto,
                config_base: None,
                asset_hashes: None,
                on_hash_mismatch: OnHashMismatch::Warn,
                follow: Follow::Stay,
                node_root: PathBuf::from(root),
            },
            store: StoreOptions { mirrors: Vec::new(), timeout: Duration::ZERO },
            facts: None,
            controller: false,
            addons: false,
            rollouts: false,
        }
    }

    #[test]
    fn this_machine_is_known_however_its_root_is_written() {
        for root in ["/", "/..", "/usr/..", "/proc/self/root"] {
            assert!(options(root).is_this_machine(), "{root}");
            assert_eq!(options(root).settled().source.node_root, Path::new("/"), "{root}");
        }
        for root in ["/usr", "/no/such/folder"] {
            assert!(!options(root).is_this_machine(), "{root}");
        }
    }

    #[test]
    fn a_variable_says_how_many_nodes_may_be_unavailable() {
        for (value, expected) in
            [("", Some(None)), ("0", Some(Some(0))), ("7", Some(Some(7))), ("1001", None), ("one", None)]
        {
            assert_eq!(by_variable(value).ok(), expected, "{value}");
        }
        assert!(
            by_variable("one").unwrap_err().to_string().contains("KOPS_AGENT_MAX_UNAVAILABLE is \"one\"")
        );
    }
}
