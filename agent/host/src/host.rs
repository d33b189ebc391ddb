//! The machine, as a handle.

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use kops_agent_plan::resource::File;
use kops_agent_plan::timestamp;
use kops_agent_spec::fnv::fnv32;
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

/// Certificates of different nodes expire on different days of a month
/// (upup/pkg/fi/nodeup/nodetasks/issue_cert.go).
const HOURS_OF_A_MONTH: u32 = 30 * 24;

/// A machine: the only handle with effects.
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
    /// This machine: files below `/`, systemd, and whichever package manager there is.
    ///
    /// # Errors
    /// `/` cannot be opened.
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

    /// A directory that stands for a machine. Files are really written below it. What there is to ask
    /// of systemd, of the package manager and of the kernel, and the owners that files should have, is noted
    /// in `var/lib/kops-agent/recorded/requests.txt` there, and taken for done from then on.
    ///
    /// # Errors
    /// The directory cannot be made or opened, or what earlier runs noted there cannot be read.
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
            health_timings: HealthTimings::default(),
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

    /// The same host, with another clock.
    pub fn with_clock(self, clock: impl Fn() -> SystemTime + Send + Sync + 'static) -> Host {
        Host { clock: Box::new(clock), ..self }
    }

    /// The same host, which reads big files or takes them for unchanged as long as nothing has touched them.
    pub fn with_depth(self, depth: Depth) -> Host {
        Host { depth, ..self }
    }

    /// The same host, whose runs are measured by this.
    pub fn timed_by(self, stopwatch: Stopwatch) -> Host {
        Host { stopwatch, ..self }
    }

    /// The same host, with another package manager.
    pub fn with_packages(self, packages: Arc<dyn PackageManager>) -> Host {
        Host { packages, ..self }
    }

    /// The same host, with another systemd.
    pub fn with_systemd(self, systemd: Arc<dyn Systemd>) -> Host {
        Host { systemd, ..self }
    }

    /// The same host, with another way to run commands.
    pub fn with_commands(self, commands: Arc<dyn Commands>) -> Host {
        Host { commands, ..self }
    }

    /// The same host, with other components to ask how they are.
    pub fn with_health(self, health: Arc<dyn Health>) -> Host {
        Host { health, ..self }
    }

    /// The same host, with another runtime of static pods.
    pub fn with_pods(self, pods: Arc<dyn Pods>) -> Host {
        Host { pods, ..self }
    }

    /// The same host, with other mounts.
    pub fn with_mounts(self, mounts: Arc<dyn Mounts>) -> Host {
        Host { mounts, ..self }
    }

    /// The same host, with another store of images.
    pub fn with_images(self, images: Arc<dyn Images>) -> Host {
        Host { images, ..self }
    }

    /// The same host, with another network of pods.
    pub fn with_pod_network(self, pod_network: Arc<dyn PodNetwork>) -> Host {
        Host { pod_network, ..self }
    }

    /// The same host, which waits for components in another way.
    pub fn with_health_timings(self, timings: HealthTimings) -> Host {
        Host { health_timings: timings, ..self }
    }

    /// The same host, which waits for systemd's jobs for other times.
    pub fn with_waits(self, waits: Waits) -> Host {
        Host { waits, ..self }
    }

    /// The same host, which tries a change again that was rolled back, or does not.
    pub fn retrying_failed(self, retries_failed: bool) -> Host {
        Host { retries_failed, ..self }
    }

    /// The same host, where what is as it should be becomes the agent's own, also if another program made it; or does not.
    pub fn adopting(self, adopts: bool) -> Host {
        Host { adopts, ..self }
    }

    /// The same host, with these to ask over the network.
    pub fn with_remote(self, remote: Arc<dyn Remote>) -> Host {
        Host { remote, ..self }
    }

    /// The same host, with another kernel.
    pub fn with_kernel(self, kernel: Arc<dyn Kernel>) -> Host {
        Host { kernel, ..self }
    }

    /// Keeps other runs away from this root until the lock is dropped. [`Host::apply`] takes it by
    /// itself; a caller that observes first and applies later takes it before.
    ///
    /// # Errors
    /// Another run holds it, or the root cannot be written to.
    pub fn lock(&self) -> Result<Lock> {
        self.locks.take(&self.root)
    }

    /// How big files are read, where they are.
    pub(crate) fn deep(&self) -> Option<&Digests> {
        (self.depth == Depth::Content).then_some(&self.digests)
    }

    /// Now, in RFC 3339 and whole seconds.
    pub(crate) fn timestamp(&self) -> String {
        timestamp(self.now())
    }

    /// The states of these units, in their order. A unit that was to run once, and has since the machine started, has
    /// done what it is for, also where systemd has forgotten that.
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

    /// Notes that a unit has run to its end, if it is one that runs once.
    pub(crate) fn note_run(&self, unit: &str) -> Result<()> {
        let rests = self.systemd.states(&[unit])?.first().map(|state| state.rests);
        match rests {
            Some(Rest::RunsOnce) => Stamp::Run.write(&self.root, unit, &self.kernel.boot_id()?),
            _ => Ok(()),
        }
    }

    /// Has a unit start now, without waiting for it, and at every boot. That is asked for each time: a try that was interrupted
    /// leaves nothing to see.
    ///
    /// # Errors
    /// systemd refuses.
    pub fn start_now_and_at_boot(&self, unit: &str) -> Result<()> {
        self.systemd.enable(unit)?;
        self.systemd.reload()?;
        self.systemd.enqueue_start(unit)
    }

    /// Has a program run apart from this process, as a unit that is gone once it has ended. Where that unit runs already, it
    /// goes on.
    ///
    /// # Errors
    /// systemd refuses.
    pub fn run_apart(&self, unit: &str, command: &[&str]) -> Result<()> {
        self.systemd.run_apart(unit, command)
    }

    /// The numbers of the user and the group that are to own a file. Where the file has no group of its own, it keeps the
    /// present one.
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

/// By how many hours certificates of this node live longer than the shortest-lived ones: another
/// number on every node, and the same one on a node as long as its addresses stay.
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
        // Without addresses certificates are as good; they only expire together.
        .unwrap_or_default();
    addresses.sort();
    fnv32(addresses.concat().as_bytes()) % HOURS_OF_A_MONTH
}
