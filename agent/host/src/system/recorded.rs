//! A stand-in for a machine, in a directory. Requests to systemd, the package manager and the kernel are written to a
//! readable file. From then on they count as done.

mod packages;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write as _};
use std::time::SystemTime;

use kops_agent_cluster::lifecycle_action::{Completion, LifecycleAction};
use kops_agent_plan::diff::Enablement;
use kops_agent_plan::health::{Check, StaticPod};
use kops_agent_plan::resource::{BindMount, DiscoveryRegistration, Group, Mount, ResourceId, User};
use kops_agent_spec::failure::Failure;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::clock::of_micros;
use super::commands::Commands;
use super::health::Health;
use super::images::{Images, Tether};
use super::kernel::Kernel;
use super::mounts::Mounts;
use super::pod_network::{PodNetwork, PodNetworkLeft};
use super::pods::Pods;
use super::remote::Remote;
use super::systemd::{Systemd, UnitState};
use super::users::Users;
use crate::error::{Error, Result};
use crate::root::Root;
use crate::staged::write_file;
use kops_agent_pki::PemPair;
use packages::Packaged;

/// File of the recorded requests, one a line, in the order of the requests.
pub(crate) const REQUESTS: &str = "/var/lib/kops-agent/recorded/requests.txt";
/// File of the state that the machine would have after all recorded requests.
pub(crate) const STATE: &str = "/var/lib/kops-agent/recorded/state.json";

pub(crate) struct Recorder {
    root: Root,
    state: Mutex<State>,
}

#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct State {
    packages: BTreeSet<String>,
    /// The packages of the repositories, each as `NAME=VERSION`. A test writes them here.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    repository: BTreeMap<String, Packaged>,
    users: BTreeMap<String, User>,
    groups: BTreeMap<String, Group>,
    mounts: BTreeMap<String, Mount>,
    bind_mounts: BTreeMap<String, BindMount>,
    modules: BTreeSet<String>,
    images: BTreeSet<String>,
    units: BTreeMap<String, RecordedUnit>,
    /// The number of recorded reboots. The recorder treats a requested reboot as done immediately.
    #[serde(skip_serializing_if = "is_zero")]
    reboots: u32,
    /// When running static pods started, by `NAMESPACE/NAME`, in microseconds since 1970.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pods: BTreeMap<String, u64>,
    has_ipv6_prefix: bool,
    /// Owner and group of every path that does not belong to root.
    owners: BTreeMap<String, (String, String)>,
    /// Requests that fail. A test writes them here to check how a run handles failures.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    refusals: Vec<Refusal>,
}

/// A request that fails while the file at `path` contains `text`. `unit` names the object of the request: the unit to
/// start, the image to pull or load, the device to mount, the program to run, or the package version to install. The
/// name `package lists` stands for reading the package lists.
#[derive(Clone, Default, Serialize, Deserialize)]
struct Refusal {
    #[serde(alias = "of")]
    unit: String,
    path: String,
    text: String,
}

#[skip_serializing_none]
#[derive(Clone, Default, Serialize, Deserialize)]
struct RecordedUnit {
    enabled: bool,
    running: bool,
    /// When the unit's process started, in microseconds since 1970. `None` if the recorder started the unit. Then the
    /// process counts as newer than every file.
    started: Option<u64>,
    /// Whether a unit file changed since systemd last read all unit files.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    unread: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's `skip_serializing_if` passes a reference
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl RecordedUnit {
    fn start(&mut self) {
        self.running = true;
        self.started = None;
    }
}

impl Recorder {
    /// Opens the recorder of a root directory. The state of earlier runs is kept.
    pub(crate) fn open(root: Root) -> Result<Recorder> {
        let state = match root.read(STATE)? {
            Some(bytes) => serde_json::from_slice(&bytes).map_err(|error| Error::Path {
                doing: "read",
                path: root.shown(STATE),
                reason: format!("{error}; remove the file, and the next run repeats all requests"),
            })?,
            None => State::default(),
        };
        Ok(Recorder { root, state: Mutex::new(state) })
    }

    fn read<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.state.lock())
    }

    /// Records a request, and changes the state as the request would.
    fn note(&self, request: &str, change: impl FnOnce(&mut State)) -> Result<()> {
        let mut state = self.state.lock();
        let (dir, name) = self.root.make_parent(REQUESTS)?;
        let line = format!("{}\n", request.replace('\n', "\\n"));
        dir.open_for_appending(&name)?
            .write_all(line.as_bytes())
            .map_err(|error| Error::path("write", self.root.shown(REQUESTS), error))?;
        change(&mut state);
        let json = serde_json::to_vec_pretty(&*state)
            .map_err(|error| Error::path("write", self.root.shown(STATE), error))?;
        write_file(&self.root, STATE, 0o600, None, &json)
    }

    /// Fails if a `Refusal` applies to this unit, image, device or program.
    fn is_permitted(&self, verb: &str, of: &str) -> Result<()> {
        let refusals = self.read(|state| state.refusals.clone());
        for Refusal { path, text, .. } in refusals.iter().filter(|refusal| refusal.unit == of) {
            let file = self.root.read(path)?.unwrap_or_default();
            if String::from_utf8_lossy(&file).contains(text) {
                let outcome = format!("is refused while {path} has {text:?} in it, as {STATE} says");
                return Err(Error::Command { command: format!("{verb} {of}"), outcome });
            }
        }
        Ok(())
    }

    fn note_unit(&self, verb: &str, unit: &str, change: impl FnOnce(&mut RecordedUnit)) -> Result<()> {
        self.note(&format!("systemd: {verb} {unit}"), |state| {
            change(state.units.entry(unit.into()).or_default());
        })
    }
}

impl Systemd for Recorder {
    fn states(&self, units: &[&str]) -> Result<Vec<UnitState>> {
        Ok(self.read(|state| {
            let unit_state = |unit: &&str| match state.units.get(*unit) {
                Some(RecordedUnit { enabled, running, started, unread }) => {
                    let enablement = if *enabled { Enablement::Enabled } else { Enablement::Disabled };
                    let started = started.map(of_micros);
                    UnitState { started, unread: *unread, ..UnitState::existing(enablement, *running) }
                }
                None => UnitState::UNKNOWN,
            };
            units.iter().map(unit_state).collect()
        }))
    }

    fn reload(&self) -> Result<()> {
        self.note("systemd: daemon-reload", |state| {
            state.units.values_mut().for_each(|unit| unit.unread = false);
        })
    }

    fn enable(&self, unit: &str) -> Result<()> {
        self.note_unit("enable", unit, |unit| unit.enabled = true)
    }

    fn disable(&self, unit: &str) -> Result<()> {
        self.note_unit("disable", unit, |unit| unit.enabled = false)
    }

    fn start(&self, unit: &str) -> Result<()> {
        self.is_permitted("systemctl start", unit)?;
        self.note_unit("start", unit, RecordedUnit::start)
    }

    fn stop(&self, unit: &str) -> Result<()> {
        self.note_unit("stop", unit, |unit| unit.running = false)
    }

    fn reboot(&self) -> Result<()> {
        self.note("systemd: reboot", |state| state.reboots += 1)
    }

    fn kill(&self, unit: &str) -> Result<()> {
        self.note(&format!("systemd: kill {unit}"), |_| {})
    }

    fn restart(&self, unit: &str) -> Result<()> {
        self.is_permitted("systemctl restart", unit)?;
        self.note_unit("restart", unit, RecordedUnit::start)
    }
}

impl Users for Recorder {
    fn user(&self, name: &str) -> Result<Option<User>> {
        Ok(self.read(|state| state.users.get(name).cloned()))
    }

    fn group(&self, name: &str) -> Result<Option<Group>> {
        Ok(self.read(|state| state.groups.get(name).cloned()))
    }

    fn user_of_id(&self, uid: u32) -> Result<Option<String>> {
        Ok(self.read(|state| state.users.values().find(|user| user.uid == uid).map(|user| user.name.clone())))
    }

    fn group_of_id(&self, gid: u32) -> Result<Option<String>> {
        Ok(self.read(|state| {
            state.groups.values().find(|group| group.gid == gid).map(|group| group.name.clone())
        }))
    }

    fn set_user(&self, user: &User) -> Result<()> {
        let home = if user.home.is_empty() { "none" } else { &user.home };
        let request =
            format!("users: user {} (uid {}, home {home}, shell {})", user.name, user.uid, user.shell);
        self.note(&request, |state| {
            state.users.insert(user.name.clone(), user.clone());
        })
    }

    fn set_group(&self, group: &Group) -> Result<()> {
        self.note(&format!("users: group {} (gid {})", group.name, group.gid), |state| {
            state.groups.insert(group.name.clone(), group.clone());
        })
    }

    fn owner_ids(&self, path: &str, owner: &str, group: &str) -> Result<Option<(u32, u32)>> {
        let recorded = self.read(|state| state.owners.get(path).cloned());
        let wanted = (owner.to_owned(), group.to_owned());
        if recorded.unwrap_or_else(root_and_root) != wanted {
            self.note(&format!("owner: {path} belongs to {owner}:{group}"), |state| {
                if wanted == root_and_root() {
                    state.owners.remove(path);
                } else {
                    state.owners.insert(path.into(), wanted);
                }
            })?;
        }
        Ok(None)
    }

    fn owner_names(&self, path: &str, _uid: u32, _gid: u32) -> Result<(String, String)> {
        Ok(self.read(|state| state.owners.get(path).cloned()).unwrap_or_else(root_and_root))
    }
}

fn root_and_root() -> (String, String) {
    ("root".into(), "root".into())
}

impl Mounts for Recorder {
    fn mounted(&self, mount: &Mount) -> Result<Option<Mount>> {
        Ok(self.read(|state| state.mounts.get(&mount.path).cloned()))
    }

    fn bound(&self, bind: &BindMount) -> Result<Option<BindMount>> {
        Ok(self.read(|state| state.bind_mounts.get(&bind.path).cloned()))
    }

    fn mount(&self, mount: &Mount) -> Result<()> {
        self.is_permitted("mount", &mount.device)?;
        let request = format!(
            "mounts: mount {} at {} ({}; formatted if it is blank)",
            mount.device, mount.path, mount.filesystem
        );
        self.note(&request, |state| {
            state.mounts.insert(mount.path.clone(), mount.clone());
        })
    }

    fn bind(&self, bind: &BindMount) -> Result<()> {
        let request = format!("mounts: show {} at {} ({})", bind.source, bind.path, bind.options.join(","));
        self.note(&request, |state| {
            state.bind_mounts.insert(bind.path.clone(), bind.clone());
        })
    }

    fn below(&self, folders: &[&str]) -> Result<Vec<String>> {
        let is_below = |path: &&String| folders.iter().any(|folder| path.starts_with(folder));
        Ok(self.read(|state| {
            state.bind_mounts.keys().chain(state.mounts.keys()).filter(is_below).cloned().collect()
        }))
    }

    fn unmount(&self, path: &str) -> Result<()> {
        self.note(&format!("mounts: unmount {path}"), |state| {
            state.mounts.remove(path);
            state.bind_mounts.remove(path);
        })
    }
}

impl Kernel for Recorder {
    fn is_loaded(&self, module: &str) -> Result<bool> {
        Ok(self.read(|state| state.modules.contains(module)))
    }

    fn has(&self, _module: &str) -> bool {
        true
    }

    fn boot_id(&self) -> Result<String> {
        Ok(match self.read(|state| state.reboots) {
            0 => "recorded".to_owned(),
            reboots => format!("recorded-{reboots}"),
        })
    }

    fn load(&self, module: &str) -> Result<()> {
        self.note(&format!("kernel: load {module}"), |state| {
            state.modules.insert(module.into());
        })
    }
}

impl Images for Recorder {
    fn references(&self) -> Result<BTreeSet<String>> {
        Ok(self.read(|state| state.images.clone()))
    }

    fn wait_until_ready(&self) -> Result<()> {
        Ok(())
    }

    fn pull(&self, reference: &str, _: &Tether) -> Result<()> {
        self.is_permitted("ctr images pull", reference)?;
        self.note(&format!("images: pull {reference}"), |state| {
            state.images.insert(reference.into());
        })
    }

    fn load(&self, name: &str, _archive: &mut dyn Read, _: &Tether) -> Result<()> {
        self.is_permitted("ctr images import", name)?;
        self.note(&format!("images: load {name}"), |state| {
            state.images.insert(name.into());
        })
    }
}

/// The recorder runs no components, so every check succeeds immediately.
#[async_trait::async_trait]
impl Health for Recorder {
    async fn ask(&self, _check: &Check) -> Result<(), Failure> {
        Ok(())
    }

    fn pod_uid(&self, _pod: &StaticPod, _socket: &str) -> Result<Option<String>, Failure> {
        Ok(None)
    }

    fn last_words(&self, _resource: &ResourceId) -> Vec<String> {
        Vec::new()
    }
}

impl Pods for Recorder {
    fn end_containers(&self, pod: &StaticPod, _socket: &str) -> Result<()> {
        let name = format!("{}/{}", pod.namespace, pod.name);
        self.note(&format!("containerd: end the containers of {name}"), |state| {
            state.pods.remove(&name);
        })
    }

    fn started(&self, pod: &StaticPod, _socket: &str) -> Result<Option<SystemTime>> {
        let name = format!("{}/{}", pod.namespace, pod.name);
        Ok(self.read(|state| state.pods.get(&name).copied()).map(of_micros))
    }
}

impl PodNetwork for Recorder {
    fn left(&self) -> Result<PodNetworkLeft> {
        Ok(PodNetworkLeft::default())
    }

    fn remove(&self) -> Vec<String> {
        Vec::new()
    }
}

#[async_trait::async_trait]
impl Remote for Recorder {
    async fn assign_ipv6_prefix(&self) -> Result<(), Failure> {
        Ok(self.note("cloud: assign an IPv6 prefix", |state| state.has_ipv6_prefix = true)?)
    }

    fn has_assigned_ipv6_prefix(&self) -> bool {
        self.read(|state| state.has_ipv6_prefix)
    }

    async fn register(&self, registration: &DiscoveryRegistration, _: &PemPair) -> Result<(), Failure> {
        Ok(self.note(&format!("discovery: register with {}", registration.url), |_| {})?)
    }

    async fn complete_lifecycle_action(&self, action: &LifecycleAction) -> Result<Completion, Failure> {
        let LifecycleAction { group, instance_id, .. } = action;
        self.note(&format!("cloud: {instance_id} of {group} is ready"), |_| {})?;
        Ok(Completion::Completed)
    }
}

impl Commands for Recorder {
    fn run(&self, command: &[String]) -> Result<()> {
        self.is_permitted("run", command.first().map_or("", String::as_str))?;
        self.note(&format!("run: {}", command.join(" ")), |_| {})
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::packages::PackageManager as _;

    #[test]
    fn requests_are_recorded_and_count_as_done_in_the_next_run() {
        let temp = tempfile::tempdir().unwrap();
        let open = || Recorder::open(Root::open(temp.path()).unwrap()).unwrap();
        let recorder = open();
        recorder.install(&["chrony", "socat"], &crate::assets::Silent).unwrap();
        recorder.reload().unwrap();
        recorder.enable("a.service").unwrap();
        recorder.start("a.service").unwrap();
        recorder.owner_ids("/a", "etcd", "etcd").unwrap();
        recorder.owner_ids("/a", "etcd", "etcd").unwrap();
        recorder.owner_ids("/b", "root", "root").unwrap();

        let next = open();
        assert_eq!(next.installed(&["chrony", "tar"]).unwrap(), BTreeSet::from(["chrony".to_owned()]));
        assert_eq!(
            next.states(&["a.service", "b.service"]).unwrap(),
            [UnitState::existing(Enablement::Enabled, true), UnitState::UNKNOWN]
        );
        assert_eq!(next.owner_names("/a", 0, 0).unwrap(), ("etcd".into(), "etcd".into()));
        assert_eq!(
            std::fs::read_to_string(temp.path().join(&REQUESTS[1..])).unwrap(),
            "packages: install chrony socat\nsystemd: daemon-reload\nsystemd: enable a.service\n\
             systemd: start a.service\nowner: /a belongs to etcd:etcd\n"
        );
    }
}
