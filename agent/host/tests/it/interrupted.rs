//! A run that is interrupted, wherever that is, is finished by the next one.
#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::converge::{node, with};
use crate::support::{Machine, noon};
use kops_agent_host::health::Pace;
use kops_agent_host::system::systemd::{Systemd, UnitState};
use kops_agent_host::{Error, Host};
use kops_agent_plan::diff::Enablement;
use kops_agent_plan::resource::*;

/// A systemd that loses power at the n-th thing it is asked to do.
struct Failing {
    inner: Mutex<std::collections::BTreeMap<String, (bool, bool)>>,
    left: AtomicUsize,
    asked: Mutex<Vec<String>>,
}

impl Failing {
    fn after(left: usize) -> Arc<Failing> {
        Arc::new(Failing { inner: Mutex::default(), left: AtomicUsize::new(left), asked: Mutex::default() })
    }

    fn act(&self, what: &str, unit: &str, change: impl FnOnce(&mut (bool, bool))) -> Result<(), Error> {
        let failed =
            || Error::Command { command: format!("systemctl {what} {unit}"), outcome: "lost power".into() };
        self.left
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
            .map_err(|_| failed())?;
        self.asked.lock().unwrap().push(format!("{what} {unit}"));
        change(self.inner.lock().unwrap().entry(unit.into()).or_default());
        Ok(())
    }
}

impl Systemd for Failing {
    fn states(&self, units: &[&str]) -> Result<Vec<UnitState>, Error> {
        let inner = self.inner.lock().unwrap();
        let state = |unit: &&str| match inner.get(*unit) {
            Some((true, running)) => UnitState::known(Enablement::Enabled, *running),
            Some((false, running)) => UnitState::known(Enablement::Disabled, *running),
            None => UnitState::UNKNOWN,
        };
        Ok(units.iter().map(state).collect())
    }
    fn reload(&self) -> Result<(), Error> {
        self.act("daemon-reload", "", |_| {})
    }
    fn enable(&self, unit: &str) -> Result<(), Error> {
        self.act("enable", unit, |state| state.0 = true)
    }
    fn disable(&self, unit: &str) -> Result<(), Error> {
        self.act("disable", unit, |state| state.0 = false)
    }
    fn start(&self, unit: &str) -> Result<(), Error> {
        self.act("start", unit, |state| state.1 = true)
    }
    fn stop(&self, unit: &str) -> Result<(), Error> {
        self.act("stop", unit, |state| state.1 = false)
    }
    fn kill(&self, unit: &str) -> Result<(), Error> {
        self.act("kill", unit, |_| {})
    }
    fn restart(&self, unit: &str) -> Result<(), Error> {
        self.act("restart", unit, |state| state.1 = true)
    }
}

#[tokio::test]
async fn wherever_a_run_is_interrupted_the_next_one_finishes_it() {
    let changed = with(node(), File::text("/etc/sysconfig/kubelet", "DAEMON_ARGS=\"--v=4\"\n"));
    // What is asked of systemd: to read units, 3 times to enable and to start one, and 2 times for the change.
    for after in 0..9 {
        let machine = Machine::new();
        let systemd = Failing::after(after);
        // Nothing is rolled back: a machine without power does nothing more.
        let hasty = Pace { timeout: std::time::Duration::ZERO, ..Pace::default() };
        let host = || {
            let host = Host::scratch(machine.root.path()).unwrap().with_clock(noon);
            host.with_systemd(systemd.clone()).with_pace(hasty)
        };
        let first = machine.converge_with(&host(), &node()).await;
        let second = match &first {
            Ok(_) => Some(machine.converge_with(&host(), &changed).await),
            Err(_) => None,
        };
        assert!(first.is_err() || second.is_some_and(|second| second.is_err()), "after {after}");
        systemd.left.store(usize::MAX, Ordering::SeqCst);
        machine.converge_with(&host(), &changed).await.unwrap();
        assert!(machine.plan(&host(), &changed).is_empty(), "after {after}");
        let asked = systemd.asked.lock().unwrap().clone();
        let last = asked.iter().rfind(|what| what.ends_with("kubelet.service")).unwrap();
        let expected = if first.is_ok() { "restart kubelet.service" } else { "start kubelet.service" };
        assert_eq!(last, expected, "after {after}");
        assert_eq!(machine.leftovers(), [""; 0]);
    }
}
