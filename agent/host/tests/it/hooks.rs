//! Hooks on a systemd that forgets units that no other unit names, as the real systemd does.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::support::{Machine, state};
use kops_agent_host::health::HealthTimings;
use kops_agent_host::system::kernel::Kernel;
use kops_agent_host::system::systemd::{Rest, Systemd, UnitState};
use kops_agent_host::{Error, Host};
use kops_agent_plan::diff::{Change, Enablement};
use kops_agent_plan::resource::*;

/// A systemd that forgets that a hook has run. systemd forgets this for a oneshot unit to which no other unit refers.
#[derive(Default)]
struct Forgetful {
    units: Mutex<BTreeMap<String, (bool, bool)>>,
    asked: Mutex<Vec<String>>,
    /// File without which kubelet does not start.
    needs: Mutex<Option<PathBuf>>,
}

impl Forgetful {
    fn ask(&self, verb: &str, unit: &str, change: impl FnOnce(&mut (bool, bool))) -> Result<(), Error> {
        self.asked.lock().push(format!("{verb} {unit}").trim_end().to_owned());
        let needs = self.needs.lock();
        if unit == "kubelet.service" && needs.as_ref().is_some_and(|path| !path.exists()) {
            let command = format!("systemctl {verb} {unit}");
            return Err(Error::Command { command, outcome: "failed".into() });
        }
        change(self.units.lock().entry(unit.into()).or_default());
        Ok(())
    }

    /// The requests since the last call of `news`.
    fn news(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock())
    }
}

fn is_hook(unit: &str) -> bool {
    unit.ends_with("-hook.service")
}

impl Systemd for Forgetful {
    fn states(&self, units: &[&str]) -> Result<Vec<UnitState>, Error> {
        let known = self.units.lock();
        let state = |unit: &&str| {
            let Some((enabled, running)) = known.get(*unit).copied() else { return UnitState::UNKNOWN };
            match (is_hook(unit), enabled) {
                (true, _) => {
                    UnitState { rests: Rest::RunsOnce, ..UnitState::existing(Enablement::Static, false) }
                }
                (false, true) => UnitState::existing(Enablement::Enabled, running),
                (false, false) => UnitState::existing(Enablement::Disabled, running),
            }
        };
        Ok(units.iter().map(state).collect())
    }
    fn reload(&self) -> Result<(), Error> {
        self.asked.lock().push("daemon-reload".into());
        Ok(())
    }
    fn enable(&self, unit: &str) -> Result<(), Error> {
        self.ask("enable", unit, |state| state.0 = true)
    }
    fn disable(&self, unit: &str) -> Result<(), Error> {
        self.ask("disable", unit, |state| state.0 = false)
    }
    fn start(&self, unit: &str) -> Result<(), Error> {
        self.ask("start", unit, |state| state.1 = true)
    }
    fn stop(&self, unit: &str) -> Result<(), Error> {
        self.ask("stop", unit, |state| state.1 = false)
    }
    fn kill(&self, unit: &str) -> Result<(), Error> {
        self.ask("kill", unit, |_| {})
    }
    fn restart(&self, unit: &str) -> Result<(), Error> {
        self.ask("restart", unit, |state| state.1 = true)
    }
}

/// A kernel in its n-th boot.
struct Boot(u8);

impl Kernel for Boot {
    fn is_loaded(&self, _: &str) -> Result<bool, Error> {
        Ok(true)
    }
    fn has(&self, _: &str) -> bool {
        true
    }
    fn load(&self, _: &str) -> Result<(), Error> {
        Ok(())
    }
    fn boot_id(&self) -> Result<String, Error> {
        Ok(format!("boot {}", self.0))
    }
}

struct Node {
    machine: Machine,
    systemd: Arc<Forgetful>,
    boot: u8,
}

impl Node {
    fn new() -> Node {
        Node { machine: Machine::new(), systemd: Arc::default(), boot: 1 }
    }

    fn host(&self) -> Host {
        let pause = Duration::from_millis(1);
        let timings = HealthTimings {
            timeout: Duration::from_millis(50),
            pause,
            steady: Duration::ZERO,
            unnoticed: pause,
            restarted: Duration::ZERO,
        };
        let host = self.machine.host().with_systemd(self.systemd.clone()).with_health_timings(timings);
        host.with_kernel(Arc::new(Boot(self.boot)))
    }

    async fn converge(&self, desired: &DesiredState) -> Vec<String> {
        self.machine.converge_with(&self.host(), desired).await.unwrap();
        assert!(self.machine.plan(&self.host(), desired).is_empty());
        self.systemd.news()
    }
}

fn hook(text: &str) -> Unit {
    Unit::new(
        "disk-hook.service",
        format!("[Unit]\nBefore=containerd.service\n[Service]\nType=oneshot\n{text}"),
    )
}

fn node(hook: Unit) -> DesiredState {
    let units = ["containerd.service", "kubelet.service"];
    state(
        units
            .map(|unit| Unit::new(unit, "[Service]\n[Install]\nWantedBy=multi-user.target\n"))
            .into_iter()
            .chain([hook]),
    )
}

#[tokio::test]
async fn a_hook_runs_once_in_a_boot_and_before_its_units() {
    let mut machine = Node::new();
    let desired = node(hook("ExecStart=/a\n"));
    assert_eq!(
        machine.converge(&desired).await,
        [
            "enable disk-hook.service",
            "enable containerd.service",
            "enable kubelet.service",
            "daemon-reload",
            "start disk-hook.service",
            "start containerd.service",
            "start kubelet.service",
        ]
    );
    assert!(machine.host().status().unwrap().converged);
    assert_eq!(machine.converge(&desired).await, [""; 0]);

    machine.boot = 2;
    assert!(!machine.host().status().unwrap().converged);
    assert_eq!(machine.converge(&desired).await, ["daemon-reload", "start disk-hook.service"]);
    assert_eq!(machine.converge(&desired).await, [""; 0]);

    // The node already works. So the run waits for the hook, as for every change.
    let desired = node(hook("ExecStart=/b\n"));
    assert_eq!(machine.converge(&desired).await, ["daemon-reload", "restart disk-hook.service"]);
    assert_eq!(machine.converge(&desired).await, [""; 0]);
}

#[tokio::test]
async fn a_disabled_hook_is_stopped_once() {
    let machine = Node::new();
    machine.converge(&node(hook(""))).await;
    let off = Unit { enabled: false, running: false, ..Unit::existing("disk-hook.service") };
    machine.machine.converge_with(&machine.host(), &node(off.clone())).await.unwrap();
    machine.systemd.news();
    assert_eq!(machine.converge(&node(off)).await, [""; 0]);
}

#[tokio::test]
async fn a_hook_that_is_removed_and_added_again_runs_again() {
    let machine = Node::new();
    machine.converge(&node(hook(""))).await;
    let without = node(Unit::new("other.service", "[Service]\n"));
    machine.converge(&without).await;
    let asked = machine.converge(&node(hook(""))).await;
    assert!(asked.contains(&"start disk-hook.service".to_owned()), "{asked:?}");
}

const DROP_IN: &str = "/etc/systemd/system/kubelet.service.d/10-memory.conf";

/// A node with the units of containerd and kubelet, and the drop-in `text` for kubelet.
fn with_drop_in(text: &str) -> DesiredState {
    let kubelet = Unit::new("kubelet.service", "[Service]\n").restarted_by_files([DROP_IN]);
    let mut desired = state([kubelet, Unit::new("containerd.service", "[Service]\n")]);
    desired.add(File::text(DROP_IN, text));
    desired
}

#[tokio::test]
async fn adding_and_removing_a_drop_in_restarts_its_unit() {
    let machine = Node::new();
    let without = state(["containerd.service", "kubelet.service"].map(|unit| Unit::new(unit, "[Service]\n")));
    machine.converge(&without).await;
    for text in ["[Service]\nMemoryMax=1G\n", "[Service]\nMemoryMax=2G\n"] {
        assert_eq!(
            machine.converge(&with_drop_in(text)).await,
            ["daemon-reload", "daemon-reload", "restart kubelet.service"]
        );
    }
    let plan = machine.machine.plan(&machine.host(), &without);
    let steps: Vec<String> =
        plan.steps.iter().map(|step| format!("{} {}", step.stage.name(), step.resource)).collect();
    assert_eq!(steps, [format!("files file {DROP_IN}"), "services unit kubelet.service".to_owned()]);
    let restart = Change::Restart { because: vec![ResourceId::new(Kind::File, DROP_IN)] };
    assert_eq!(plan.steps[1].changes, [restart]);
    assert_eq!(
        machine.converge(&without).await,
        ["daemon-reload", "daemon-reload", "restart kubelet.service"]
    );
    assert!(!machine.machine.path(DROP_IN).exists());
}

#[tokio::test]
async fn a_removed_drop_in_that_its_unit_needs_is_restored() {
    let machine = Node::new();
    machine.converge(&with_drop_in("[Service]\n")).await;
    *machine.systemd.needs.lock() = Some(machine.machine.path(DROP_IN));
    let without = state(["containerd.service", "kubelet.service"].map(|unit| Unit::new(unit, "[Service]\n")));
    let error = machine.machine.converge_with(&machine.host(), &without).await.unwrap_err();
    assert!(matches!(error, Error::RolledBack(_)), "{error}");
    assert_eq!(machine.machine.read(DROP_IN), "[Service]\n");
    assert!(machine.machine.plan(&machine.host(), &with_drop_in("[Service]\n")).is_empty());
}

#[tokio::test]
async fn systemd_reads_a_drop_in_of_another_programs_unit() {
    let machine = Node::new();
    let drop_in = File::text("/etc/systemd/system/sshd.service.d/x.conf", "[Service]\n");
    let asset = File::text("/etc/motd", "hello\n");
    assert_eq!(machine.converge(&state([drop_in, asset.clone()])).await, ["daemon-reload"]);
    assert_eq!(machine.converge(&state([asset])).await, ["daemon-reload"]);
}

#[tokio::test]
async fn the_distributions_containerd_is_restarted_once_for_all_its_files() {
    let machine = Node::new();
    let drop_in = "/etc/systemd/system/containerd.service.d/10-kops.conf";
    let with = |config: &str, text: &str| {
        let unit =
            Unit::existing("containerd.service").restarted_by_files([drop_in, "/etc/containerd/config.toml"]);
        let mut desired = state([unit]);
        desired.add(File::text("/etc/containerd/config.toml", config));
        let commands =
            [["systemctl", "daemon-reload"].as_slice(), &["systemctl", "restart", "containerd.service"]];
        desired.add(commands.iter().fold(File::text(drop_in, text), |file, command| file.on_change(command)));
        desired
    };
    machine.converge(&with("version = 3\n", "[Service]\n")).await;
    let changed = with("version = 4\n", "[Service]\n");
    assert_eq!(machine.converge(&changed).await, ["daemon-reload", "restart containerd.service"]);
    let both = with("version = 3\n", "[Service]\nTasksMax=1\n");
    assert_eq!(
        machine.converge(&both).await,
        ["daemon-reload", "daemon-reload", "restart containerd.service"]
    );
    let commands = machine.machine.requests().into_iter().filter(|request| request.starts_with("run: "));
    assert_eq!(commands.collect::<Vec<_>>(), ["run: systemctl daemon-reload"; 2]);
}
