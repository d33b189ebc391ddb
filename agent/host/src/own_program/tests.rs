#![allow(clippy::unwrap_used)]
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kops_agent_plan::diff::Enablement;
use rustix::fs::{XattrFlags, lgetxattr, lsetxattr};
use tempfile::TempDir;

use super::*;
use crate::staged::Staged;
use crate::system::health::HealthTimings;
use crate::system::packages::PackageVersion;
use crate::system::systemd::{Rest, Systemd, UnitState};

const UNIT: &str = "kops-agent-controller.service";

/// A machine in a folder, with a program.
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
    // An earlier process was killed after it had made `previous` a hard link to the present program.
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

#[test]
fn the_new_program_gets_the_label_of_the_present_one() {
    const ATTRIBUTE: &str = "security.selinux";
    let machine = Machine::new();
    let new = machine.new_program("new");
    label_as_present(&real_root().unwrap(), machine.path()).unwrap();
    // Only root may set labels, so skip the test for other users.
    if lsetxattr(&machine.program, ATTRIBUTE, b"u:r:mine:s0\0", XattrFlags::empty()).is_err() {
        return;
    }
    label_as_present(&real_root().unwrap(), machine.path()).unwrap();
    let mut buffer = [0; 64];
    let size = lgetxattr(new.path(), ATTRIBUTE, &mut buffer).unwrap();
    assert_eq!(&buffer[..size], b"u:r:mine:s0\0");
}

#[test]
fn the_program_of_a_killed_trial_is_removed() {
    let machine = Machine::new();
    let tried = machine.program.with_file_name(".nodeup.kops-agent");
    fs::write(&tried, "tried").unwrap();
    machine.host.remove_tried_program(machine.path()).unwrap();
    assert!(!tried.exists());
    machine.host.remove_tried_program(machine.path()).unwrap();
    assert!(!machine.host.has_previous_program(machine.path()).unwrap());
    machine.host.switch_program(machine.path(), machine.new_program("new")).unwrap();
    assert!(machine.host.has_previous_program(machine.path()).unwrap());
}

const RUNS: UnitState = UnitState {
    is_known: true,
    running: true,
    rests: Rest::No,
    started: Some(SystemTime::UNIX_EPOCH),
    ..UnitState::UNKNOWN
};
/// The unit has failed, and systemd waits before it starts the unit again. systemd calls this state `activating`.
const RESTARTING: UnitState = UnitState { restarting: true, ..RUNS };
const FAILED: UnitState =
    UnitState { running: false, enablement: Enablement::Enabled, started: None, ..RUNS };

/// A systemd with one unit. After its restart, the unit runs for `runs_for` observations. After that, its state is `then`.
struct Flapping {
    before: UnitState,
    polls: AtomicUsize,
    runs_for: usize,
    then: UnitState,
    restarts: AtomicUsize,
}

impl Systemd for Flapping {
    fn states(&self, units: &[&str]) -> Result<Vec<UnitState>> {
        let state = match self.restarts.load(Ordering::SeqCst) {
            0 => self.before,
            _ if self.polls.fetch_add(1, Ordering::SeqCst) < self.runs_for => anew(),
            _ => self.then,
        };
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

/// A unit that started long after the program was installed.
fn anew() -> UnitState {
    started_at(1 << 40)
}

fn started_at(seconds: u64) -> UnitState {
    UnitState { started: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)), ..RUNS }
}

/// A machine whose unit has the state `before`. After its restart, the unit runs for `runs_for` observations. After that, its state is
/// `then`.
fn flapping(before: UnitState, runs_for: usize, then: UnitState) -> (Machine, Arc<Flapping>) {
    let timings = HealthTimings {
        timeout: Duration::ZERO,
        pause: Duration::from_millis(1),
        restarted: Duration::from_millis(20),
        ..HealthTimings::default()
    };
    let systemd = Arc::new(Flapping { before, polls: 0.into(), runs_for, then, restarts: 0.into() });
    let Machine { _folder, host, program } = Machine::new();
    let host = host.with_systemd(systemd.clone()).with_health_timings(timings);
    (Machine { _folder, host, program }, systemd)
}

#[tokio::test]
async fn a_service_must_run_for_a_while_after_its_restart() {
    let other_process = started_at((1 << 40) + 6);
    let corrected_clock = started_at((1 << 40) + 1);
    for (before, runs_for, then, restarts, is_well) in [
        (RUNS, usize::MAX, RUNS, 1, true),
        (RUNS, 2, corrected_clock, 1, true),
        (RUNS, 2, RESTARTING, 1, false),
        (RUNS, 2, other_process, 1, false),
        (RUNS, 2, FAILED, 1, false),
        (RUNS, 0, RESTARTING, 1, false),
        (RUNS, 0, FAILED, 1, false),
        // The unit started after the program was installed, so it already runs this program.
        (anew(), 0, RUNS, 0, true),
    ] {
        let (machine, systemd) = flapping(before, runs_for, then);
        let services = machine.host.services(&[UNIT]).unwrap();
        let restarted = machine.host.restart_on_program(machine.path(), &services).await;
        assert_eq!(restarted.is_ok(), is_well, "{runs_for} {then:?}: {restarted:?}");
        assert_eq!(systemd.restarts.load(Ordering::SeqCst), restarts);
    }
}

#[tokio::test]
async fn a_service_that_was_unhealthy_may_stay_so() {
    let sha256 = "a".repeat(64);
    for before in [RESTARTING, FAILED, UnitState { starting: true, ..RUNS }] {
        let (machine, systemd) = flapping(before, 0, RESTARTING);
        let services = machine.host.services(&[UNIT]).unwrap();
        let own = vec!["unit kops-agent-verify.timer".to_owned()];
        let to = OrderedProgram { sha256: &sha256, file: "f=" };
        machine.host.note_switch(to, &services, own.clone(), Vec::new(), "").unwrap();
        assert_eq!(machine.host.noted_own(&sha256).unwrap(), own);
        assert_eq!(machine.host.noted_own(&"b".repeat(64)).unwrap(), [""; 0], "it is another program");
        machine.host.restart_on_program(machine.path(), &services).await.unwrap();
        assert_eq!(systemd.restarts.load(Ordering::SeqCst), 1);
        // A later process reads which service was unhealthy before the switch, but only if the program has this SHA-256.
        let services = machine.host.services_after(&sha256, &[UNIT]).unwrap();
        machine.host.restart_on_program(machine.path(), &services).await.unwrap();
        let services = machine.host.services_after(&"b".repeat(64), &[UNIT]).unwrap();
        machine.host.restart_on_program(machine.path(), &services).await.unwrap_err();
    }
}

#[tokio::test]
async fn services_that_should_run_are_restarted_and_no_others() {
    let disabled = UnitState { enablement: Enablement::Disabled, ..FAILED };
    let stopped = UnitState { rests: Rest::Yes, ..FAILED };
    for (before, restarts) in [(FAILED, 1), (RUNS, 1), (disabled, 0), (stopped, 0), (UnitState::UNKNOWN, 0)] {
        let (machine, systemd) = flapping(before, usize::MAX, RUNS);
        let services = machine.host.services(&[UNIT]).unwrap();
        machine.host.restart_all(&services).await.unwrap();
        assert_eq!(systemd.restarts.load(Ordering::SeqCst), restarts, "{before:?}");
    }
}

#[test]
fn a_program_is_unchecked_until_its_own_check_succeeds() {
    let Machine { _folder, host, .. } = &Machine::new();
    let [new, other] = ["a", "b"].map(|digit| digit.repeat(64));
    let ordered = |sha256, file| OrderedProgram { sha256, file };
    let are_unchecked = || [&new, &other].map(|sha256| host.is_unchecked(sha256).unwrap());
    let is_noted = |sha256, file| host.is_noted(ordered(sha256, file)).unwrap();
    assert_eq!(are_unchecked(), [false, false]);
    host.note_switch(ordered(&new, "f="), &[], vec!["unit a.timer".to_owned()], Vec::new(), "").unwrap();
    assert_eq!(are_unchecked(), [true, false]);
    assert_eq!([is_noted(&new, "f="), is_noted(&new, "g="), is_noted(&other, "f=")], [true, false, false]);
    let for_any_file = [&new, &other].map(|sha256| host.is_noted_for_any_file(sha256).unwrap());
    assert_eq!(for_any_file, [true, false]);
    host.note_checked(&new).unwrap();
    assert_eq!(are_unchecked(), [false, false]);

    // Later, the state store has another program file, which names the same program, `new`.
    host.note_check(ordered(&new, "g=")).unwrap();
    assert_eq!((are_unchecked(), is_noted(&new, "g=")), ([true, false], true));
    assert_eq!(host.noted_own(&new).unwrap(), ["unit a.timer"]);
    // Neither program has passed its last check, so both programs count as unchecked.
    host.note_switch(ordered(&other, "h="), &[], Vec::new(), Vec::new(), "").unwrap();
    assert_eq!((are_unchecked(), is_noted(&new, "g=")), ([true, true], false));
    host.note_check(ordered(&other, "h=")).unwrap();
    host.note_checked(&other).unwrap();
    assert_eq!(are_unchecked(), [true, false]);
    assert_eq!(host.noted_own(&other).unwrap(), [""; 0]);
}

#[test]
fn a_failed_switch_of_packages_goes_back_to_the_packages_from_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let open = || Host::scratch(folder.path()).unwrap();
    assert!(open().own_packages().unwrap().is_empty());
    let repository = r#"{"kops-agent=0.1.0-1": {}, "kops-agent=0.2.0-1": {}}"#;
    let packages = format!(r#"{{"packages": ["kops-agent=0.1.0-1"], "repository": {repository}}}"#);
    record(&folder, &packages);
    let host = open();
    let of_version = |version: &str| vec![PackageVersion::of_release("kops-agent", version)];
    let (old, new, missing) = (of_version("0.1.0"), of_version("0.2.0"), of_version("0.3.0"));
    let sha256 = "a".repeat(64);
    let to = OrderedProgram { sha256: &sha256, file: "f=" };
    assert_eq!(host.own_packages().unwrap(), old);
    assert_eq!(host.command_of_previous_packages().unwrap(), None);

    host.note_switch(to, &[], Vec::new(), old.clone(), "1").unwrap();
    assert!(!host.is_unchecked("b").unwrap(), "the package manager has not begun");
    host.replace_packages(&new).unwrap();
    // At this point, the process is killed.
    assert!(host.is_unchecked("b").unwrap(), "the installed program may be another one");
    assert_eq!(host.own_packages().unwrap(), old);
    let command = host.command_of_previous_packages().unwrap();
    assert_eq!(command.as_deref(), Some("install kops-agent=0.1.0-1"));
    // Repeat the switch. Now the present program is the one that the killed process had installed, with the hash `2`.
    host.note_switch(to, &[], Vec::new(), old.clone(), "2").unwrap();
    assert_eq!(host.previous_sha256().unwrap(), "1");
    host.restore_packages().unwrap();
    assert!(host.has_packages(&old).unwrap() && host.unfinished_packages().unwrap().is_empty());

    host.note_switch(to, &[], Vec::new(), old.clone(), "3").unwrap();
    assert_eq!(host.previous_sha256().unwrap(), "3");
    host.replace_packages(&new).unwrap();
    host.note_check(to).unwrap();
    assert_eq!(host.own_packages().unwrap(), new, "the switch is finished before its check has succeeded");
    let are_unchecked = [sha256.as_str(), "b"].map(|sha256| host.is_unchecked(sha256).unwrap());
    assert_eq!(are_unchecked, [true, false]);
    assert_eq!(host.previous_packages().unwrap(), old, "an operator may go back");
    assert_eq!(host.packages_not_offered(&[new, missing.clone()].concat()).unwrap(), missing);
    host.replace_packages(&missing).unwrap_err();
}

/// Sets the state of the fake machine in this folder.
fn record(folder: &TempDir, state: &str) {
    let path = folder.path().join("var/lib/kops-agent/recorded/state.json");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, state).unwrap();
}

#[test]
fn a_package_that_is_installed_in_two_versions_is_not_switched() {
    for packages in [
        &["kops-agent=0.1.0-1", "kops-agent=0.2.0-1"][..],
        &["kops-agent=0.1.0-1", "kops-agent-controller=0.1.0-1", "kops-agent-controller=0.2.0-1"],
        &["kops-agent-controller=0.1.0-1"],
    ] {
        let folder = tempfile::tempdir().unwrap();
        record(&folder, &serde_json::json!({"packages": packages}).to_string());
        let own = Host::scratch(folder.path()).unwrap().own_packages().unwrap();
        assert!(own.is_empty(), "{packages:?}");
    }
}

#[test]
fn packages_are_restored_even_if_the_note_of_it_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    record(&folder, r#"{"repository": {"kops-agent=0.1.0-1": {}}}"#);
    let host = Host::scratch(folder.path()).unwrap();
    let old = vec![PackageVersion::of_release("kops-agent", "0.1.0")];
    let to = OrderedProgram { sha256: "a", file: "f=" };
    host.note_switch(to, &[], Vec::new(), old.clone(), "").unwrap();
    // The note cannot be written, because a folder has the note's temporary name.
    fs::create_dir(folder.path().join("var/lib/kops-agent").join(temporary_name("program.json"))).unwrap();
    host.restore_packages().unwrap();
    assert!(host.has_packages(&old).unwrap());
    assert_eq!(host.unfinished_packages().unwrap(), old);
}
