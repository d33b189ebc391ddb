//! The handle of a machine.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use kops_agent_plan::resource::File;
use kops_agent_spec::fnv::fnv32;
use kops_agent_spec::timestamp;
use nix::ifaddrs::getifaddrs;

use crate::digests::{Depth, Digests};
use crate::error::Result;
use crate::lock::{Lock, Locks};
use crate::root::Root;
use crate::stamps::Stamp;
use crate::stopwatch::Stopwatch;
use crate::system::commands::Commands;
use crate::system::health::{self, Health, HealthTimings};
use crate::system::images::{Ctr, Images};
use crate::system::kernel::Kernel;
use crate::system::mounts::Mounts;
use crate::system::packages::PackageManager;
use crate::system::pod_network::{self, PodNetwork};
use crate::system::pods::{self, Pods};
use crate::system::recorded::Recorder;
use crate::system::remote::{NoRemote, Remote};
use crate::system::systemd::{self, Rest, Systemd, UnitState};
use crate::system::users::Users;
use crate::system::{commands, kernel, mounts, packages, users};
use crate::waits::Waits;

/// The expiry of certificates is spread over a month, so that nodes renew on different days (upup/pkg/fi/nodeup/nodetasks/issue_cert.go).
const HOURS_OF_A_MONTH: u32 = 30 * 24;

/// The handle of a machine. Every effect on the machine goes through this handle.
pub struct Host {
    pub(crate) root: Root,
    pub(crate) systemd: Arc<dyn Systemd>,
    pub(crate) packages: Arc<dyn PackageManager>,
    pub(crate) users: Arc<dyn Users>,
    pub(crate) mounts: Arc<dyn Mounts>,
    pub(crate) kernel: Arc<dyn Kernel>,
    pub(crate) images: Arc<dyn Images>,
    pub(crate) commands: Arc<dyn Commands>,
    pub(crate) health: Arc<dyn Health>,
    pub(crate) pods: Arc<dyn Pods>,
    pub(crate) pod_network: Arc<dyn PodNetwork>,
    pub(crate) health_timings: HealthTimings,
    pub(crate) waits: Waits,
    pub(crate) retries_failed: bool,
    pub(crate) adopts: bool,
    pub(crate) remote: Arc<dyn Remote>,
    pub(crate) extra_hours: u32,
    pub(crate) depth: Depth,
    pub(crate) stopwatch: Stopwatch,
    digests: Digests,
    clock: Box<dyn Fn() -> SystemTime + Send + Sync>,
    locks: Locks,
}

impl Host {
    /// The machine on which this process runs, with files below `/`, systemd, and the installed package manager.
    pub fn machine() -> Result<Host> {
        let root = Root::open(Path::new("/"))?;
        Ok(Host {
            systemd: Arc::new(systemd::Systemctl),
            packages: Arc::new(packages::Machine(root.clone())),
            users: Arc::new(users::Machine(root.clone())),
            mounts: Arc::new(mounts::Machine),
            kernel: Arc::new(kernel::Machine(root.clone())),
            images: Arc::new(Ctr),
            commands: Arc::new(commands::Machine(root.clone())),
            remote: Arc::new(NoRemote),
            health: Arc::new(health::machine::Machine),
            pods: Arc::new(pods::Ctr),
            pod_network: Arc::new(pod_network::Machine::default()),
            health_timings: HealthTimings::default(),
            waits: Waits::default(),
            retries_failed: false,
            adopts: false,
            extra_hours: extra_hours(),
            depth: Depth::default(),
            stopwatch: Stopwatch::default(),
            digests: Digests::default(),
            clock: Box::new(SystemTime::now),
            locks: Locks::default(),
            root,
        })
    }

    /// A directory that replaces a machine. Files are written below it. Requests to systemd, the package manager and the kernel, and the
    /// owners of files, are only recorded, in `var/lib/kops-agent/recorded/requests.txt`. Later calls treat recorded requests as done.
    pub fn scratch(root: &Path) -> Result<Host> {
        let root = Root::open(root)?;
        let recorder = Arc::new(Recorder::open(root.clone())?);
        Ok(Host {
            systemd: recorder.clone(),
            packages: recorder.clone(),
            users: recorder.clone(),
            mounts: recorder.clone(),
            kernel: recorder.clone(),
            images: recorder.clone(),
            commands: recorder.clone(),
            health: recorder.clone(),
            pods: recorder.clone(),
            pod_network: recorder.clone(),
            // A unit that is only recorded never ends by itself, so do not wait to see whether it keeps running.
            health_timings: HealthTimings { restarted: Duration::ZERO, ..HealthTimings::default() },
            waits: Waits::default(),
            retries_failed: false,
            adopts: false,
            remote: recorder,
            extra_hours: extra_hours(),
            depth: Depth::default(),
            stopwatch: Stopwatch::default(),
            digests: Digests::default(),
            clock: Box::new(SystemTime::now),
            locks: Locks::default(),
            root,
        })
    }

    pub fn with_clock(self, clock: impl Fn() -> SystemTime + Send + Sync + 'static) -> Host {
        Host { clock: Box::new(clock), ..self }
    }

    /// Sets how the host finds changes of large files. It either reads each file, or trusts the recorded hash of a file whose metadata is
    /// unchanged.
    pub fn with_depth(self, depth: Depth) -> Host {
        Host { depth, ..self }
    }

    pub fn timed_by(self, stopwatch: Stopwatch) -> Host {
        Host { stopwatch, ..self }
    }

    pub fn with_packages(self, packages: Arc<dyn PackageManager>) -> Host {
        Host { packages, ..self }
    }

    pub fn with_systemd(self, systemd: Arc<dyn Systemd>) -> Host {
        Host { systemd, ..self }
    }

    pub fn with_commands(self, commands: Arc<dyn Commands>) -> Host {
        Host { commands, ..self }
    }

    pub fn with_health(self, health: Arc<dyn Health>) -> Host {
        Host { health, ..self }
    }

    pub fn with_pods(self, pods: Arc<dyn Pods>) -> Host {
        Host { pods, ..self }
    }

    pub fn with_mounts(self, mounts: Arc<dyn Mounts>) -> Host {
        Host { mounts, ..self }
    }

    pub fn with_images(self, images: Arc<dyn Images>) -> Host {
        Host { images, ..self }
    }

    pub fn with_pod_network(self, pod_network: Arc<dyn PodNetwork>) -> Host {
        Host { pod_network, ..self }
    }

    pub fn with_health_timings(self, timings: HealthTimings) -> Host {
        Host { health_timings: timings, ..self }
    }

    pub fn with_waits(self, waits: Waits) -> Host {
        Host { waits, ..self }
    }

    /// Sets whether a run retries a change that an earlier run rolled back.
    pub fn retrying_failed(self, retries_failed: bool) -> Host {
        Host { retries_failed, ..self }
    }

    /// Sets whether the agent takes over existing correct resources of other programs as its own.
    pub fn adopting(self, adopts: bool) -> Host {
        Host { adopts, ..self }
    }

    pub fn with_remote(self, remote: Arc<dyn Remote>) -> Host {
        Host { remote, ..self }
    }

    pub fn with_kernel(self, kernel: Arc<dyn Kernel>) -> Host {
        Host { kernel, ..self }
    }

    /// Takes the lock of this root. Other runs fail until the lock is dropped. [`Host::apply`] takes the lock itself. A caller that first
    /// observes and then applies takes the lock before it observes. Fails immediately if another run holds the lock.
    pub fn lock(&self) -> Result<Lock> {
        self.locks.take(&self.root)
    }

    /// The hash cache, if the host reads the content of large files.
    pub(crate) fn deep(&self) -> Option<&Digests> {
        (self.depth == Depth::Content).then_some(&self.digests)
    }

    /// The current time in RFC 3339, in whole seconds.
    pub fn timestamp(&self) -> String {
        timestamp(self.now())
    }

    /// The states of `units`, in the order of `units`. A run-once unit that has run since boot counts as running, even if systemd no longer
    /// has its state.
    pub(crate) fn unit_states(&self, units: &[&str]) -> Result<Vec<UnitState>> {
        let mut states = self.systemd.states(units)?;
        for (state, unit) in states.iter_mut().zip(units) {
            if !state.running && state.rests == Rest::RunsOnce {
                let ran_in = Stamp::Run.read(&self.root, unit)?;
                state.running = ran_in.is_some() && ran_in == Some(self.kernel.boot_id()?);
            }
        }
        Ok(states)
    }

    /// Records that a run-once unit ran in this boot. Does nothing if the unit is not a run-once unit.
    pub(crate) fn note_run(&self, unit: &str) -> Result<()> {
        let rests = self.systemd.states(&[unit])?.first().map(|state| state.rests);
        match rests {
            Some(Rest::RunsOnce) => Stamp::Run.write(&self.root, unit, &self.kernel.boot_id()?),
            _ => Ok(()),
        }
    }

    /// Enables a unit and queues its start, without waiting for the start. Asks systemd in every call, because an interrupted call leaves
    /// no record.
    pub fn start_now_and_at_boot(&self, unit: &str) -> Result<()> {
        self.systemd.enable(unit)?;
        self.systemd.reload()?;
        self.systemd.enqueue_start(unit)
    }

    /// Runs a program in a transient unit, so that the program outlives this process. If the unit already runs, the call changes nothing.
    pub fn run_apart(&self, unit: &str, command: &[&str]) -> Result<()> {
        self.systemd.run_apart(unit, command)
    }

    /// Ends a program that [`Host::run_apart`] has started. Fails if the program has already ended.
    pub fn end_apart(&self, unit: &str) -> Result<()> {
        self.systemd.stop(unit)
    }

    /// Requests a reboot of this machine, without waiting for the reboot.
    pub fn reboot(&self) -> Result<()> {
        self.systemd.reboot()
    }

    /// The UID and GID of a file. A file without a desired group keeps its current group.
    pub(crate) fn owner_ids(&self, file: &File) -> Result<Option<(u32, u32)>> {
        let group = match &file.group {
            Some(group) => group.clone(),
            None => match self.root.metadata(&file.path)? {
                Some(present) => self.users.owner_names(&file.path, present.uid, present.gid)?.1,
                None => "root".to_owned(),
            },
        };
        self.users.owner_ids(&file.path, &file.owner, &group)
    }

    pub(crate) fn now(&self) -> time::OffsetDateTime {
        (self.clock)().into()
    }
}

/// The extra lifetime of this node's certificates, in hours. It differs from node to node, and changes only with the node's addresses.
fn extra_hours() -> u32 {
    let mut addresses: Vec<String> = getifaddrs()
        .map(|interfaces| {
            interfaces
                .filter_map(|interface| {
                    let address = interface.address?;
                    let v4 = address.as_sockaddr_in().map(|address| address.ip().to_string());
                    v4.or_else(|| address.as_sockaddr_in6().map(|address| address.ip().to_string()))
                })
                .collect()
        })
        // Without addresses, several nodes may renew at the same time. The certificates still work.
        .unwrap_or_default();
    addresses.sort();
    fnv32(addresses.concat().as_bytes()) % HOURS_OF_A_MONTH
}
