#![allow(clippy::unwrap_used)]
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tempfile::TempDir;

use super::*;
use crate::staged::Staged;
use crate::system::health::HealthTimings;
use crate::system::systemd::{Systemd, UnitState};

const UNIT: &str = "kops-agent-controller.service";

/// A machine in a folder, and its program.
struct Machine {
    _folder: TempDir,
    host: Host,
    program: PathBuf,
}

impl Machine {
    fn new() -> Machine {
        let folder = tempfile::tempdir().unwrap();
        let host = Host::scratch(&folder.path().join("root")).unwrap();
        let program = folder.path().join("nodeup");
        fs::write(&program, "old").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        Machine { _folder: folder, host, program }
    }

    fn path(&self) -> &str {
        self.program.to_str().unwrap()
    }

    fn new_program(&self, content: &str) -> NewProgram {
        let mut staged = Staged::new(&real_root().unwrap(), self.path(), 0o755, None).unwrap();
        staged.write(content.as_bytes()).unwrap();
        NewProgram(staged.seal().unwrap())
    }

    fn previous(&self) -> PathBuf {
        self.program.with_file_name("nodeup.previous")
    }

    fn content(&self) -> String {
        fs::read_to_string(&self.program).unwrap()
    }
}

#[test]
fn the_present_program_stays_as_the_previous_one_and_comes_back() {
    let machine = Machine::new();
    let inode = fs::metadata(&machine.program).unwrap().ino();
    let new = machine.new_program("new");
    assert_eq!(fs::read_to_string(new.path()).unwrap(), "new", "it can be tried");
    machine.host.switch_program(machine.path(), new).unwrap();
    assert_eq!(machine.content(), "new");
    assert_eq!(fs::metadata(machine.previous()).unwrap().ino(), inode);

    machine.host.switch_program(machine.path(), machine.new_program("newest")).unwrap();
    assert_eq!(fs::read_to_string(machine.previous()).unwrap(), "new", "only one previous version stays");
    machine.host.take_program_back(machine.path()).unwrap();
    assert_eq!((machine.content().as_str(), machine.previous().exists()), ("new", false));
    machine.host.take_program_back(machine.path()).unwrap_err();
}

#[test]
fn a_switch_that_was_killed_is_continued() {
    let machine = Machine::new();
    // The process was killed after it had kept the present program.
    fs::hard_link(&machine.program, machine.previous()).unwrap();
    machine.host.switch_program(machine.path(), machine.new_program("new")).unwrap();
    assert_eq!(machine.content(), "new");
    assert_eq!(fs::read_to_string(machine.previous()).unwrap(), "old");
}

#[test]
fn a_program_that_is_not_switched_to_leaves_nothing() {
    let machine = Machine::new();
    let path = machine.new_program("new").path();
    assert!(!Path::new(&path).exists());
    assert_eq!(machine.content(), "old");
}

/// A systemd with one unit, which began before every program. After its restart it is active this often, and then no longer.
struct Flapping {
    left: AtomicUsize,
    restarts: AtomicUsize,
}

impl Systemd for Flapping {
    fn states(&self, units: &[&str]) -> Result<Vec<UnitState>> {
        let is_restarted = self.restarts.load(Ordering::SeqCst) > 0;
        let left = |left: usize| left.checked_sub(1);
        let running =
            !is_restarted || self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, left).is_ok();
        let started = (!is_restarted).then_some(SystemTime::UNIX_EPOCH);
        let state = UnitState { is_known: true, running, started, ..UnitState::UNKNOWN };
        Ok(units.iter().map(|_| state).collect())
    }

    fn restart(&self, _unit: &str) -> Result<()> {
        self.restarts.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn reload(&self) -> Result<()> {
        unreachable!()
    }

    fn enable(&self, _unit: &str) -> Result<()> {
        unreachable!()
    }

    fn disable(&self, _unit: &str) -> Result<()> {
        unreachable!()
    }

    fn start(&self, _unit: &str) -> Result<()> {
        unreachable!()
    }

    fn stop(&self, _unit: &str) -> Result<()> {
        unreachable!()
    }

    fn kill(&self, _unit: &str) -> Result<()> {
        unreachable!()
    }
}

#[tokio::test]
async fn a_service_that_ends_again_after_its_restart_is_a_failure() {
    let timings = HealthTimings {
        timeout: Duration::ZERO,
        pause: Duration::from_millis(1),
        steady: Duration::from_millis(20),
        ..HealthTimings::default()
    };
    for (left, is_well) in [(usize::MAX, true), (2, false), (0, false)] {
        let machine = Machine::new();
        let systemd = Arc::new(Flapping { left: left.into(), restarts: 0.into() });
        let host = machine.host.with_systemd(systemd.clone()).with_health_timings(timings);
        let restarted = host.restart_on_program(machine.program.to_str().unwrap(), &[UNIT]).await;
        assert_eq!(restarted.is_ok(), is_well, "{left}: {restarted:?}");
        assert_eq!(systemd.restarts.load(Ordering::SeqCst), 1);
        // A service that has begun since then runs the program already.
        if is_well {
            host.restart_on_program(machine.program.to_str().unwrap(), &[UNIT]).await.unwrap();
            assert_eq!(systemd.restarts.load(Ordering::SeqCst), 1);
        }
    }
}
