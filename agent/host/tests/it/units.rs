//! Units that fail or block. kubelet and the rest of the node run in spite of them.
#![allow(clippy::unwrap_used)]

use kops_agent_spec::failure::Failing as _;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use crate::support::{Machine, ended_once, state};
use kops_agent_host::health::HealthTimings;
use kops_agent_host::system::systemd::{Act, Job, Rest, Systemd, UnitState};
use kops_agent_host::{Error, Host, Report, Waits};
use kops_agent_plan::diff::Enablement;
use kops_agent_plan::resource::*;

/// A systemd whose units may be masked, fail, or block until another unit runs.
#[derive(Default)]
pub(crate) struct Manager(Arc<Mutex<Units>>);

impl Manager {
    /// A manager that fails the requests in `refused`, for example `start a.service`.
    pub(crate) fn refusing(refused: &[&str]) -> Manager {
        let manager = Manager::default();
        manager.0.lock().refused = refused.iter().map(|asked| (*asked).to_owned()).collect();
        manager
    }
}

#[derive(Default)]
struct Units {
    enabled: BTreeSet<String>,
    running: BTreeSet<String>,
    /// Refused requests, for example `start a.service`.
    refused: BTreeSet<String>,
    /// The job of the unit (the key) ends only when another unit (the value) runs. If that other unit does not exist,
    /// the job never ends.
    blocked_by: BTreeMap<String, String>,
    /// Units whose start process is running.
    starting: BTreeSet<String>,
    /// The units that can start only after the unit that runs the agent. A value is the unit through which the key
    /// waits for the agent's unit. `None` means that the key waits directly.
    after_this_run: BTreeMap<String, Option<String>>,
    asked: Vec<String>,
}

impl Units {
    fn ask(&mut self, verb: &str, unit: &str) -> Result<(), Error> {
        let asked = format!("{verb} {unit}");
        self.asked.push(asked.clone());
        match self.refused.contains(&asked) {
            false => Ok(()),
            true => Err(Error::Unit {
                doing: "start",
                unit: unit.into(),
                reason: format!("it has failed with the result exit-code; see `journalctl -u {unit}`"),
            }),
        }
    }

    fn is_blocked(&self, unit: &str) -> bool {
        self.blocked_by.get(unit).is_some_and(|other| !self.running.contains(other))
    }
}

impl Systemd for Manager {
    fn states(&self, units: &[&str]) -> Result<Vec<UnitState>, Error> {
        let known = self.0.lock();
        let state = |unit: &&str| {
            let enabled =
                if known.enabled.contains(*unit) { Enablement::Enabled } else { Enablement::Disabled };
            let starting = known.starting.contains(*unit);
            let running = starting || known.running.contains(*unit);
            UnitState {
                rests: if running { Rest::No } else { Rest::Yes },
                starting,
                ..UnitState::existing(enabled, running)
            }
        };
        Ok(units.iter().map(state).collect())
    }
    fn reload(&self) -> Result<(), Error> {
        Ok(())
    }
    fn enable(&self, unit: &str) -> Result<(), Error> {
        let mut units = self.0.lock();
        units.ask("enable", unit)?;
        units.enabled.insert(unit.into());
        Ok(())
    }
    fn disable(&self, unit: &str) -> Result<(), Error> {
        let mut units = self.0.lock();
        units.enabled.remove(unit);
        units.ask("disable", unit)
    }
    fn start(&self, unit: &str) -> Result<(), Error> {
        let mut units = self.0.lock();
        units.ask("start", unit)?;
        units.running.insert(unit.into());
        Ok(())
    }
    fn stop(&self, unit: &str) -> Result<(), Error> {
        let mut units = self.0.lock();
        units.running.remove(unit);
        units.ask("stop", unit)
    }
    fn kill(&self, _: &str) -> Result<(), Error> {
        Ok(())
    }
    fn restart(&self, unit: &str) -> Result<(), Error> {
        let mut units = self.0.lock();
        units.running.remove(unit);
        units.ask("restart", unit)?;
        units.running.insert(unit.into());
        Ok(())
    }

    fn is_starting(&self, unit: &str) -> Result<bool, Error> {
        Ok(self.0.lock().starting.contains(unit))
    }

    fn waits_for_this_run(&self, unit: &str, left: &BTreeSet<String>) -> Result<bool, Error> {
        let units = self.0.lock();
        let after = units.after_this_run.get(unit);
        Ok(after.is_some_and(|other| other.as_ref().is_none_or(|other| left.contains(other))))
    }

    fn begin(&self, act: Act, unit: &str) -> Job {
        let outcome = match act {
            Act::Start => self.start(unit),
            Act::Restart => self.restart(unit),
            Act::Stop => self.stop(unit),
        };
        let (units, unit) = (Arc::clone(&self.0), unit.to_owned());
        if act != Act::Stop && units.lock().is_blocked(&unit) {
            units.lock().running.remove(&unit);
        }
        Box::pin(async move {
            while units.lock().is_blocked(&unit) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            if act != Act::Stop && outcome.is_ok() {
                units.lock().running.insert(unit);
            }
            outcome
        })
    }
}

const KUBELET: &str = "kubelet.service";

struct Node {
    machine: Machine,
    systemd: Arc<Manager>,
}

impl Node {
    fn new() -> Node {
        Node { machine: Machine::new(), systemd: Arc::default() }
    }

    fn refusing(refused: &[&str]) -> Node {
        Node { machine: Machine::new(), systemd: Arc::new(Manager::refusing(refused)) }
    }

    fn blocking(blocked: &str, by: &str) -> Node {
        let node = Node::new();
        node.units().blocked_by.insert(blocked.into(), by.into());
        node
    }

    fn units(&self) -> MutexGuard<'_, Units> {
        self.systemd.0.lock()
    }

    /// The requests since the last call of `news`.
    fn news(&self) -> Vec<String> {
        std::mem::take(&mut self.units().asked)
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
        let waits = Waits {
            awaited: Duration::from_millis(200),
            others: Duration::from_millis(100),
            ..Waits::default()
        };
        self.machine.host().with_systemd(self.systemd.clone()).with_health_timings(timings).with_waits(waits)
    }

    async fn converge(&self, desired: &DesiredState) -> Result<Report, Error> {
        self.machine.converge_with(&self.host(), desired).await
    }

    /// Converges. Returns the units that have failed according to the error of the run.
    async fn failures(&self, desired: &DesiredState) -> Vec<String> {
        match self.converge(desired).await {
            Err(Error::Units(failed)) => failed.into_iter().map(|failed| failed.unit).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn joins(&self) {
        let units = self.units();
        assert!(units.running.contains(KUBELET), "kubelet does not run: {:?}", units.asked);
        assert!(units.enabled.contains(KUBELET), "kubelet does not start at boot: {:?}", units.asked);
    }
}

fn unit(name: &str, text: &str) -> Unit {
    Unit::new(
        name,
        format!("[Unit]\n{text}\n[Service]\nExecStart=/bin/{name}\n[Install]\nWantedBy=multi-user.target\n"),
    )
}

/// A node with its own units and the units in `others`.
fn node(others: impl IntoIterator<Item = Unit>) -> DesiredState {
    let own = [unit("containerd.service", ""), unit(KUBELET, "After=containerd.service")];
    state(own.into_iter().chain([Unit::existing("chrony.service")]).chain(others))
}

#[tokio::test]
async fn a_failing_hook_is_reported_and_blocks_nothing() {
    let it = Node::refusing(&["start a-hook.service"]);
    let desired = node([unit("a-hook.service", ""), unit("b-hook.service", "")]);
    let error = it.converge(&desired).await.unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::Units(_)) && !error.kind().is_configuration(), "{text}");
    assert!(
        text.contains("a-hook.service: it has failed") && text.contains("journalctl -u a-hook"),
        "{text}"
    );
    it.joins();
    assert!(it.units().running.contains("b-hook.service"));
    let status = it.host().status().unwrap();
    assert!(!status.converged && status.failure.unwrap().problem.contains("a-hook.service"));

    // The plan has only the failed unit: the next run starts this unit again.
    let plan = it.machine.plan(&it.host(), &desired);
    let left: Vec<&str> = plan.steps.iter().map(|step| step.resource.name.as_str()).collect();
    assert_eq!(left, ["a-hook.service"]);
    it.units().refused.clear();
    it.converge(&desired).await.unwrap();
    assert!(it.host().status().unwrap().converged);
}

#[tokio::test]
async fn every_failed_unit_is_reported() {
    let it = Node::refusing(&["enable chrony.service", "start chrony.service", "start a-hook.service"]);
    let failed = it.failures(&node([unit("a-hook.service", "")])).await;
    assert_eq!(
        failed,
        ["chrony.service", "a-hook.service"],
        "the masked unit and the failed unit are reported"
    );
    it.joins();
}

#[tokio::test]
async fn a_runtime_that_does_not_start_leaves_kubelet_started_and_enabled() {
    for desired in [node([]), node([unit("disk.service", "Before=containerd.service")])] {
        let it = Node::refusing(&["start containerd.service", "start disk.service"]);
        let mut desired = desired;
        desired.add(Image {
            name: "registry.k8s.io/pause:3.10".into(),
            sources: vec![],
            sha256: String::new(),
        });
        let failed = it.failures(&desired).await;
        assert!(failed.contains(&"containerd.service".to_owned()), "{failed:?}");
        it.joins();
        assert_eq!(it.host().status().unwrap().config_hash, "", "no pod can run on it");
        it.units().refused.clear();
        it.converge(&desired).await.unwrap();
        assert!(it.machine.plan(&it.host(), &desired).is_empty());
    }
}

#[tokio::test]
async fn units_are_enabled_before_the_run_waits_for_any_of_them() {
    let it = Node::blocking("containerd.service", "nothing");
    let desired = node([]);
    let waiting = it.host().with_waits(Waits::default());
    let converging = it.machine.converge_with(&waiting, &desired);
    // A run that waits for systemd ends as soon as it is dropped.
    let is_waited_for = |asked: &Vec<String>| asked.contains(&"start containerd.service".to_owned());
    ended_once(converging, || is_waited_for(&it.units().asked)).await;
    assert!(it.units().enabled.contains(KUBELET) && !it.units().running.contains(KUBELET));
    it.units().blocked_by.clear();
    it.converge(&desired).await.unwrap();
    it.joins();
}

#[tokio::test]
async fn a_hook_that_waits_for_kubelet_does_not_block_kubelet() {
    let it = Node::blocking("a-hook.service", KUBELET);
    let desired = node([unit("a-hook.service", "")]);
    let report = it.converge(&desired).await.unwrap();
    assert_eq!(report.starting, [""; 0]);
    it.joins();
    assert!(it.machine.plan(&it.host(), &desired).is_empty());
}

#[tokio::test]
async fn a_hook_that_waits_indirectly_for_this_run_is_left_to_systemd() {
    let it = Node::blocking("a-hook.service", "cloud-final.service");
    let desired = node([unit("a-hook.service", "After=cloud-final.service")]);
    let report = it.converge(&desired).await.unwrap();
    assert_eq!(report.starting, ["a-hook.service"]);
    it.joins();
    assert!(it.host().status().unwrap().failure.is_none());
    // The job that is still in the queue starts the unit. So the run does not start the unit again.
    it.units().running.insert("a-hook.service".into());
    it.units().blocked_by.clear();
    it.news();
    it.converge(&desired).await.unwrap();
    assert_eq!(it.news(), [""; 0]);
}

#[tokio::test]
async fn a_unit_that_pods_wait_for_times_out_and_kubelet_starts() {
    let it = Node::blocking("disk.service", "nothing");
    let desired = node([unit("disk.service", "Before=containerd.service")]);
    let failed = it.failures(&desired).await;
    assert_eq!(failed, ["disk.service"]);
    it.joins();
}

#[tokio::test]
async fn the_next_run_joins_a_slow_start_that_pods_wait_for() {
    let disk = unit("disk.service", "Before=containerd.service").restarted_by_files(["/etc/disk"]);
    let mut desired = node([disk]);
    desired.add(File::text("/etc/disk", "one"));
    let it = Node::blocking("disk.service", "nothing");
    it.units().starting.insert("disk.service".into());
    assert_eq!(it.failures(&desired).await, ["disk.service"]);
    it.news();
    // During the next two runs of the agent, the unit's start process is still running.
    assert_eq!(it.failures(&desired).await, ["disk.service"]);
    assert_eq!(it.failures(&desired).await, ["disk.service"]);
    assert_eq!(it.news(), ["start disk.service", "start disk.service"]);
    it.units().blocked_by.clear();
    it.units().starting.clear();
    it.units().running.insert("disk.service".into());
    it.converge(&desired).await.unwrap();
    assert_eq!(it.news(), [""; 0]);
    assert!(it.machine.plan(&it.host(), &desired).is_empty());
}

#[tokio::test]
async fn a_rollback_waits_for_no_hook_that_waits_for_kubelet() {
    let with = |text: &str| {
        let hook = unit("a-hook.service", "").restarted_by_files(["/etc/config"]);
        let disk = unit("disk.service", "Before=containerd.service").restarted_by_files(["/etc/config"]);
        let kubelet = unit(KUBELET, "After=containerd.service").restarted_by_files(["/etc/config"]);
        let mut desired = state([hook, disk, unit("containerd.service", ""), kubelet]);
        desired.add(File::text("/etc/config", text));
        desired
    };
    let it = Node::new();
    it.converge(&with("one")).await.unwrap();
    it.news();
    for unit in ["a-hook.service", KUBELET] {
        it.units().blocked_by.insert(unit.into(), "nothing".into());
    }
    let (host, two) = (it.host(), with("two"));
    let run = it.machine.converge_with(&host, &two);
    let error = tokio::time::timeout(Duration::from_secs(300), run).await.unwrap().unwrap_err();
    assert!(matches!(error, Error::RolledBack(_)), "{error:?}");
    assert_eq!(it.machine.read("/etc/config"), "one");
    let once = ["restart disk.service", "restart a-hook.service", "restart kubelet.service"];
    assert_eq!(it.news(), [once, once].concat());
    let still_wrong = it.host().status().unwrap().rolled_back.unwrap().still_wrong;
    assert!(still_wrong.len() == 1 && still_wrong[0].contains("restart kubelet.service"), "{still_wrong:?}");

    // After the rollback, the hook and kubelet may still run with the text `two`. So the next run restarts both units.
    it.units().blocked_by.clear();
    it.units().running.extend(["a-hook.service".to_owned(), KUBELET.to_owned()]);
    it.converge(&with("one")).await.unwrap();
    assert_eq!(it.news(), ["restart a-hook.service", "restart kubelet.service"]);
}

#[tokio::test]
async fn no_process_of_a_working_node_stays_older_than_its_file() {
    let with = |text: &str| {
        let config = File::text("/etc/config", text);
        let units = ["a-hook.service", "z-hook.service"]
            .map(|name| unit(name, "").restarted_by_files(["/etc/config"]));
        let mut desired = node(units);
        desired.add(config);
        desired
    };
    let it = Node::new();
    it.converge(&with("one")).await.unwrap();
    it.news();
    it.units().refused = BTreeSet::from(["restart a-hook.service".to_owned()]);
    assert_eq!(it.failures(&with("two")).await, ["a-hook.service"], "nothing is rolled back");
    assert_eq!(it.machine.read("/etc/config"), "two");
    assert_eq!(it.news(), ["restart a-hook.service", "restart z-hook.service"]);
    let status = it.host().status().unwrap();
    assert!(!status.unfinished && !status.converged, "{status:?}");

    // If a process of the failed unit still runs, the next run restarts the unit.
    it.units().running.insert("a-hook.service".into());
    it.units().refused.clear();
    it.converge(&with("two")).await.unwrap();
    assert_eq!(it.news(), ["restart a-hook.service"]);
    assert!(it.machine.plan(&it.host(), &with("two")).is_empty());
}

#[tokio::test]
async fn a_restart_that_waits_in_the_queue_stays_due() {
    let with = |text: &str| {
        let mut desired = node([unit("a-hook.service", "").restarted_by_files(["/etc/config"])]);
        desired.add(File::text("/etc/config", text));
        desired
    };
    let it = Node::new();
    it.converge(&with("one")).await.unwrap();
    it.units().blocked_by.insert("a-hook.service".into(), "nothing".into());
    let report = it.converge(&with("two")).await.unwrap();
    assert_eq!(report.starting, ["a-hook.service"]);
    // The old process runs until systemd executes the queued job.
    it.units().running.insert("a-hook.service".into());
    it.units().blocked_by.clear();
    it.news();
    it.converge(&with("two")).await.unwrap();
    assert_eq!(it.news(), ["restart a-hook.service"]);
}

#[tokio::test]
async fn a_hook_before_kubelet_that_waits_for_this_run_is_left_to_systemd_with_kubelet() {
    let it = Node::blocking("a-hook.service", "cloud-final.service");
    it.units().blocked_by.insert(KUBELET.into(), "a-hook.service".into());
    it.units().after_this_run =
        BTreeMap::from([("a-hook.service".into(), None), (KUBELET.into(), Some("a-hook.service".into()))]);
    let desired = node([unit("a-hook.service", "Before=kubelet.service\nAfter=cloud-final.service")]);
    let timings = HealthTimings { timeout: Duration::from_secs(60), ..HealthTimings::default() };
    let waits =
        Waits { awaited: Duration::from_secs(600), others: Duration::from_millis(100), ..Waits::default() };
    let host = it.host().with_waits(waits).with_health_timings(timings);
    let run = it.machine.converge_with(&host, &desired);
    let report = tokio::time::timeout(Duration::from_secs(300), run).await.unwrap().unwrap();
    assert_eq!(report.starting, ["a-hook.service", KUBELET]);
    assert!(it.units().enabled.contains(KUBELET));
    // After cloud-init ends, systemd itself starts the hook and kubelet. Then the plan is empty.
    it.units().blocked_by.clear();
    it.units().running.extend(["a-hook.service".to_owned(), KUBELET.to_owned()]);
    assert!(it.machine.plan(&it.host(), &desired).is_empty());
}

#[tokio::test]
async fn the_next_run_joins_a_slow_start_after_this_run_was_ended() {
    let disk = unit("disk.service", "Before=containerd.service").restarted_by_files(["/etc/disk"]);
    let mut desired = node([disk]);
    desired.add(File::text("/etc/disk", "one"));
    let it = Node::blocking("disk.service", "nothing");
    let host = it.host().with_waits(Waits::default());
    let run = it.machine.converge_with(&host, &desired);
    let is_begun = |asked: &Vec<String>| asked.iter().any(|asked| asked.ends_with("start disk.service"));
    ended_once(run, || is_begun(&it.units().asked)).await;
    it.units().starting.insert("disk.service".into());
    it.news();
    assert_eq!(it.failures(&desired).await, ["disk.service"]);
    let asked = it.news();
    assert!(asked.contains(&"start disk.service".to_owned()), "{asked:?}");
    assert!(!asked.contains(&"restart disk.service".to_owned()), "{asked:?}");
}

#[tokio::test]
async fn a_failing_new_hook_does_not_roll_back_a_working_node() {
    let with = |text: &str, hooks: Vec<Unit>| {
        let kubelet = unit(KUBELET, "After=containerd.service").restarted_by_files(["/etc/config"]);
        let mut desired = state([unit("containerd.service", ""), kubelet].into_iter().chain(hooks));
        desired.add(File::text("/etc/config", text));
        desired
    };
    let it = Node::new();
    it.converge(&with("one", vec![])).await.unwrap();
    it.news();
    it.units().refused = BTreeSet::from(["start a-hook.service".to_owned()]);
    let two = with("two", vec![unit("a-hook.service", "Before=kubelet.service")]);
    assert_eq!(it.failures(&two).await, ["a-hook.service"]);
    assert_eq!(it.machine.read("/etc/config"), "two");
    assert!(it.news().contains(&"restart kubelet.service".to_owned()));
    let status = it.host().status().unwrap();
    assert!(status.rolled_back.is_none() && status.failure.is_some(), "{status:?}");
}
