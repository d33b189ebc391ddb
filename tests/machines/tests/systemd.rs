//! Sends requests to a real systemd with the agent's own code.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::thread;

use kops_agent_machines::machine::Machine;
use kops_agent_machines::network::{Family, Network};
use kops_agent_machines::script;

const DRIVER: &str = "/root/systemd-driver";

/// The units to which the test applies [`VERBS`]. They are templates, and the test uses their instances `driven`.
const UNITS: [(&str, &str); 12] = [
    ("works@.service", "[Service]\nExecStart=sleep infinity\n[Install]\nWantedBy=multi-user.target\n"),
    (
        "notifies@.service",
        "[Service]\nType=notify\nNotifyAccess=all\nExecStart=sh -c 'systemd-notify --ready; exec sleep infinity'\n",
    ),
    ("once@.service", "[Service]\nType=oneshot\nExecStart=true\n[Install]\nWantedBy=multi-user.target\n"),
    ("stays@.service", "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=true\n"),
    ("fails@.service", "[Service]\nType=oneshot\nExecStart=false\n[Install]\nAlias=failing-%i.service\n"),
    ("too-slow@.service", "[Service]\nType=notify\nTimeoutStartSec=300ms\nExecStart=sleep infinity\n"),
    (
        "needs@.service",
        "[Unit]\nRequires=fails@%i.service\nAfter=fails@%i.service\n[Service]\nExecStart=true\n",
    ),
    ("skipped@.service", "[Unit]\nConditionPathExists=/no\n[Service]\nExecStart=true\n"),
    ("timed@.service", "[Service]\nExecStart=sleep infinity\n"),
    ("timed@.timer", "[Timer]\nOnCalendar=2100-01-01\n[Install]\nWantedBy=timers.target\n"),
    (
        "listens@.socket",
        "[Socket]\nListenStream=/run/listens-%i\nAccept=yes\n[Install]\nWantedBy=sockets.target\n",
    ),
    ("broken@.service", "[Service]\nType=simple\n"),
];

/// The requests that the test sends for each unit, in this order. `kill` is missing, because a killed unit changes its
/// state with a delay.
const VERBS: [&str; 9] =
    ["state", "start", "start", "restart", "enable", "start", "disable", "stop", "state"];

/// Units of several types. Every machine has these units.
const OTHERS: [&str; 10] = [
    "-.mount",
    "-.slice",
    "basic.target",
    "dbus.service",
    "dbus.socket",
    "init.scope",
    "systemd-ask-password-console.path",
    "systemd-journald.service",
    "systemd-tmpfiles-clean.service",
    "systemd-tmpfiles-clean.timer",
];

/// Lines that must be in the driver's output. `@` stands for `@driven`.
const EXPECTED: [&str; 19] = [
    "start works@.service: ok, known, Disabled, running",
    "enable works@.service: ok, known, Enabled, running",
    "stop works@.service: ok, known, Disabled, not running",
    "start notifies@.service: ok, known, Static, running",
    // systemd forgets a finished unit, unless another unit wants it. An enabled unit is wanted by a target.
    "start once@.service: ok, known, Disabled, not running",
    "start once@.service: ok, known, Enabled, running",
    "stop stays@.service: ok, known, Static, not running",
    "start fails@.service: refused, known, Disabled, not running",
    "start too-slow@.service: refused, known, Static, not running",
    "start needs@.service: refused, known, Static, not running",
    "start skipped@.service: ok, known, Static, not running",
    "state systemd-tmpfiles-clean.service: ok, known, Static, running",
    "enable timed@.timer: ok, known, Enabled, running",
    "start listens@.socket: ok, known, Disabled, running",
    "start broken@.service: refused, known, Static, not running",
    "start masked@.service: refused, known, Disabled, not running",
    "enable masked@.service: refused, known, Disabled, not running",
    "start unknown@.service: refused, not known, Disabled, not running",
    "state -.mount: ok, known, Disabled, running",
];

/// A unit that records each start. It becomes active only when the test creates a file.
const SLOW: &str = "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=sh -c 'echo >>/root/began; until test -e /root/go; do sleep 0.05; done'\n";

fn boot(suite: &str) -> (Machine, Network) {
    let root = PathBuf::from(script("machines/root", &[suite]).trim()).join("rootfs");
    let network = Network::up(&[("systemd", Family::Ipv4.address(10))]);
    let machine = Machine::boot("systemd", &network.namespace("systemd"), &root, &[], lay_out);
    (machine, network)
}

fn lay_out(files: &Path) {
    let units = files.join("etc/systemd/system");
    fs::create_dir_all(&units).unwrap();
    for (name, text) in UNITS.iter().chain(&[("slow.service", SLOW)]) {
        fs::write(units.join(name), text).unwrap();
    }
    symlink("/dev/null", units.join("masked@.service")).unwrap();
    let driver = files.join(DRIVER.trim_start_matches('/'));
    fs::create_dir_all(driver.parent().unwrap()).unwrap();
    fs::copy(env!("CARGO_BIN_EXE_systemd-driver"), &driver).unwrap();
    fs::set_permissions(&driver, fs::Permissions::from_mode(0o755)).unwrap();
}

/// The arguments of the driver: pairs of a verb and the unit to which it applies.
fn requests() -> Vec<String> {
    let own = UNITS.iter().map(|(name, _)| *name).chain(["masked@.service", "unknown@.service"]);
    let own = own.flat_map(|unit| VERBS.map(|verb| (verb, unit.replace('@', "@driven"))));
    let others = OTHERS.map(|unit| ("state", unit.to_owned()));
    own.chain(others).flat_map(|(verb, unit)| [verb.to_owned(), unit]).collect()
}

fn requests_for_units_of_every_kind_work(machine: &Machine) {
    let requests = requests();
    let mut command = vec![DRIVER];
    command.extend(requests.iter().map(String::as_str));
    let ended = machine.try_run(&command);
    assert_eq!(ended.code, Some(0), "{}", machine.explain(&ended));
    let lines: Vec<String> = ended.stdout.lines().map(|line| line.replace("@driven", "@")).collect();
    for line in EXPECTED {
        assert!(lines.iter().any(|found| found == line), "no {line:?} in {lines:#?}");
    }
    for sentence in [
        "cannot start fails@driven.service: it has failed with the result exit-code; see `journalctl -u fails@driven.service`",
        "cannot start too-slow@driven.service: it has failed with the result timeout; see `journalctl -u",
        "cannot start needs@driven.service: a unit that it needs did not start; see `journalctl -u",
        "cannot start masked@driven.service: Unit masked@driven.service is masked.",
        "cannot start unknown@driven.service: Unit unknown@driven.service not found.",
    ] {
        assert!(ended.stderr.contains(sentence), "no {sentence:?} in {}", ended.stderr);
    }
}

fn a_killed_unit_has_ended(machine: &Machine) {
    let unit = "works@killed.service";
    // Killing a missing unit succeeds, because it has no processes.
    let ended = machine.try_run(&[DRIVER, "start", unit, "kill", unit, "kill", "unknown.service"]);
    assert_eq!(ended.code, Some(0), "{}", machine.explain(&ended));
    assert!(ended.stdout.contains("kill unknown.service: ok"), "{}", ended.stdout);
    machine.until("the unit has been killed", || (machine.show(unit, "Result") == "signal").then_some(()));
}

/// While the program runs, a second request to run it has no effect. When the program has ended, its unit is gone.
fn a_program_runs_apart_once(machine: &Machine) {
    let unit = "apart.service";
    let ended = machine.try_run(&[DRIVER, "run-apart", unit, "run-apart", unit]);
    assert_eq!(ended.code, Some(0), "{}", machine.explain(&ended));
    assert_eq!(ended.stdout.matches(": ok").count(), 2, "{ended:?}");
    machine.until("the program has begun", || {
        (machine.try_run(&["test", "-e", "/root/apart"]).code == Some(0)).then_some(())
    });
    assert_eq!(machine.show(unit, "LimitCORE"), "0");
    machine.run(&["systemctl", "stop", unit]);
    assert_eq!(machine.show(unit, "LoadState"), "not-found");
    assert_eq!(machine.read("/root/apart"), "\n", "it was started more than once");
}

/// A unit is restarted exactly once, although the system bus is killed and systemd re-executes itself during the
/// restart.
fn a_restart_survives_the_end_of_the_bus_and_of_systemd(machine: &Machine) {
    let driving = thread::scope(|scope| {
        let driving =
            scope.spawn(|| machine.try_run(&[DRIVER, "restart", "slow.service", "state", "dbus.service"]));
        machine.until("the unit is being started", || {
            (machine.try_run(&["test", "-e", "/root/began"]).code == Some(0)).then_some(())
        });
        machine.run(&["systemctl", "kill", "--signal=SIGKILL", "dbus.service"]);
        machine.run(&["systemctl", "daemon-reexec"]);
        machine.run(&["touch", "/root/go"]);
        driving.join().unwrap()
    });
    assert_eq!(driving.code, Some(0), "{}", machine.explain(&driving));
    assert!(driving.stdout.starts_with("restart slow.service: ok, known, Static, running\n"), "{driving:?}");
    assert_eq!(machine.read("/root/began"), "\n", "the unit was not started once");
}

fn systemd_is_asked(suite: &str) {
    let (machine, _network) = boot(suite);
    requests_for_units_of_every_kind_work(&machine);
    a_killed_unit_has_ended(&machine);
    a_program_runs_apart_once(&machine);
    a_restart_survives_the_end_of_the_bus_and_of_systemd(&machine);
}

#[test]
#[ignore = "boots machines: tests/machines/run"]
fn debian_12_s_systemd_is_asked() {
    systemd_is_asked("bookworm");
}

#[test]
#[ignore = "boots machines: tests/machines/run"]
fn debian_13_s_systemd_is_asked() {
    systemd_is_asked("trixie");
}
