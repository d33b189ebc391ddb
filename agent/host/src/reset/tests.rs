use std::fs;
use std::sync::Arc;

use kops_agent_plan::diff::{Action, Plan, Stage, Step};
use kops_agent_plan::resource::{DesiredState, File, Unit as UnitResource};
use parking_lot::{Condvar, Mutex};

use super::*;
use crate::staged::write_file;
use crate::system::systemd::Rest;

/// A fake unit. A `stubborn` unit ends only when it is killed.
#[derive(Default)]
struct Unit {
    stubborn: bool,
    asked: Mutex<Vec<&'static str>>,
    killed: Condvar,
}

impl Systemd for Unit {
    fn stop(&self, _: &str) -> Result<()> {
        let mut asked = self.asked.lock();
        asked.push("stop");
        while self.stubborn && !asked.contains(&"kill") {
            self.killed.wait(&mut asked);
        }
        Ok(())
    }
    fn kill(&self, _: &str) -> Result<()> {
        self.asked.lock().push("kill");
        self.killed.notify_all();
        Ok(())
    }
    fn states(&self, _: &[&str]) -> Result<Vec<UnitState>> {
        unreachable!()
    }
    fn reload(&self) -> Result<()> {
        unreachable!()
    }
    fn enable(&self, _: &str) -> Result<()> {
        unreachable!()
    }
    fn disable(&self, _: &str) -> Result<()> {
        unreachable!()
    }
    fn start(&self, _: &str) -> Result<()> {
        unreachable!()
    }
    fn restart(&self, _: &str) -> Result<()> {
        unreachable!()
    }
}

#[test]
fn only_a_unit_that_does_not_stop_in_time_is_killed() {
    let unit = Unit::default();
    stop_or_kill(&unit, PODS, Duration::from_secs(600)).unwrap();
    assert_eq!(*unit.asked.lock(), ["stop"]);
    let unit = Unit { stubborn: true, ..Unit::default() };
    stop_or_kill(&unit, PODS, Duration::from_millis(10)).unwrap();
    let asked = unit.asked.lock();
    assert!(asked.contains(&"kill") && asked.contains(&"stop"), "{asked:?}");
}

/// A fake systemd that knows some units. Like systemd, it rejects requests for other units.
#[derive(Default)]
struct Known {
    units: Vec<(&'static str, Enablement)>,
    asked: Mutex<Vec<String>>,
}

impl Known {
    fn ask(&self, verb: &str, unit: &str) -> Result<()> {
        if !self.units.iter().any(|(known, _)| *known == unit) {
            let reason = format!("Unit {unit} not loaded.");
            return Err(crate::Error::Path { doing: "stop", path: unit.to_owned(), reason });
        }
        self.asked.lock().push(format!("{verb} {unit}"));
        Ok(())
    }
}

impl Systemd for Known {
    fn states(&self, units: &[&str]) -> Result<Vec<UnitState>> {
        let state = |unit: &&str| match self.units.iter().find(|(known, _)| known == unit) {
            Some((_, enablement)) => UnitState {
                rests: Rest::No,
                ..UnitState::existing(*enablement, *enablement == Enablement::Enabled)
            },
            None => UnitState::UNKNOWN,
        };
        Ok(units.iter().map(state).collect())
    }
    fn stop(&self, unit: &str) -> Result<()> {
        if unit == PODS { Ok(()) } else { self.ask("stop", unit) }
    }
    fn kill(&self, _: &str) -> Result<()> {
        Ok(())
    }
    fn disable(&self, unit: &str) -> Result<()> {
        self.ask("disable", unit)
    }
    fn reload(&self) -> Result<()> {
        Ok(())
    }
    fn enable(&self, _: &str) -> Result<()> {
        unreachable!()
    }
    fn start(&self, _: &str) -> Result<()> {
        unreachable!()
    }
    fn restart(&self, _: &str) -> Result<()> {
        unreachable!()
    }
}

struct Deaf;

impl Resetting for Deaf {
    fn doing(&self, _: &str) {}
}

/// The root of a node with kubelet, containerd and a third unit.
fn node() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let host = Host::scratch(folder.path()).unwrap();
    let mut desired = DesiredState::default();
    for unit in [KUBELET, CONTAINER_RUNTIME, "ours.service"] {
        desired.add(UnitResource::new(unit, "[Service]\nExecStart=/bin/true\n"));
    }
    desired.add(File::text("/etc/ours", "ours"));
    for unit in [KUBELET, CONTAINER_RUNTIME, "ours.service"] {
        let path = unit_path(&host.root, unit);
        write_file(&host.root, &path, 0o644, None, b"[Service]\nExecStart=/bin/true\n").unwrap();
    }
    write_file(&host.root, "/etc/ours", 0o644, None, b"ours").unwrap();
    let steps = desired.iter().map(|(id, _)| Step {
        stage: Stage::from_resource(id),
        resource: id.clone(),
        action: Action::Create,
        changes: vec![],
    });
    let mut record = Record::default();
    let none = std::collections::BTreeMap::new();
    let plan = Plan { steps: steps.collect(), ..Plan::default() };
    record.claim(&host.root, &plan, &desired, &none).unwrap();
    record.settle(&host.root, &desired, &none).unwrap();
    record.write(&host.root).unwrap();
    folder
}

#[test]
fn a_unit_that_systemd_does_not_know_does_not_block_a_reset() {
    let folder = node();
    // An operator has removed kubelet's unit, and an earlier reset has removed ours.service.
    let systemd =
        Arc::new(Known { units: vec![(CONTAINER_RUNTIME, Enablement::Enabled)], ..Known::default() });
    let host = Host::scratch(folder.path()).unwrap().with_systemd(systemd.clone());
    let reset = host.plan_reset(&[], &[], &[]).unwrap();
    assert_eq!(reset.units, [KUBELET, "ours.service", CONTAINER_RUNTIME]);
    host.reset(&reset, &Deaf).unwrap();
    assert_eq!(*systemd.asked.lock(), ["stop containerd.service", "disable containerd.service"]);
    assert!(!folder.path().join("etc/ours").exists());
    // A second reset works too.
    let host = Host::scratch(folder.path()).unwrap().with_systemd(Arc::<Known>::default());
    host.reset(&reset, &Deaf).unwrap();
}

#[test]
fn units_that_start_the_agent_are_stopped_first_and_keep_their_files() {
    let folder = node();
    let of_packages = ["agent.timer", "agent.service", "absent.service"];
    let timer = folder.path().join("usr/lib/systemd/system/agent.timer");
    fs::create_dir_all(timer.parent().unwrap()).unwrap();
    fs::write(&timer, "").unwrap();
    let units = vec![("agent.timer", Enablement::Enabled), ("agent.service", Enablement::Disabled)];
    let systemd = Arc::new(Known { units, ..Known::default() });
    let host = Host::scratch(folder.path()).unwrap().with_systemd(systemd.clone());
    let reset = host.plan_reset(&[], &[], &of_packages).unwrap();
    assert_eq!(reset.units, ["agent.timer", KUBELET, "ours.service", CONTAINER_RUNTIME]);
    host.reset(&reset, &Deaf).unwrap();
    assert_eq!(*systemd.asked.lock(), ["stop agent.timer", "disable agent.timer"]);
    assert!(timer.exists(), "it is the package's");
}
