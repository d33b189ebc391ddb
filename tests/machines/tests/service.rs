//! The agent as a service under a real systemd, from the unit files that packages install.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::Value;

use crate::cluster::{AGENT, BOOT_CONFIG, Cluster};
use kops_agent_machines::machine::Machine;

const UNIT: &str = "kops-agent.service";
/// The path at which packages install the agent.
const PROGRAM: &str = "/usr/bin/kops-agent";
const STUCK: &str = "/run/systemd/system/kops-agent.service.d/stuck.conf";

/// Installs the files of a package, and a unit that must start only after the node has converged.
pub fn install(files: &Path) {
    let place = |path: &str| {
        let path = files.join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    };
    for unit in fs::read_dir(kops_agent_machines::path_of("../units")).unwrap() {
        let unit = unit.unwrap();
        let name = unit.file_name().into_string().unwrap();
        fs::copy(unit.path(), place(&format!("/usr/lib/systemd/system/{name}"))).unwrap();
    }
    fs::copy(crate::agent(), place(PROGRAM)).unwrap();
    fs::set_permissions(place(PROGRAM), fs::Permissions::from_mode(0o755)).unwrap();
    let after = format!(
        "[Unit]\nAfter={UNIT}\n[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=systemctl is-active kubelet.service\n"
    );
    fs::write(place("/etc/systemd/system/after-kops-agent.service"), after).unwrap();
}

/// Configures the service with the URL and the credentials of this cluster's store.
fn configure(cluster: &Cluster, machine: &Machine) {
    machine
        .write("/etc/sysconfig/kops-configuration", &cluster.environment().map(|line| line + "\n").concat());
    // The boot config of a worker does not contain the state store's URL, so the command contains the URL.
    let converge = format!(
        "[Service]\nExecStart=\nExecStart={PROGRAM} converge --conf {BOOT_CONFIG} --config-base {} --v=2\n",
        cluster.config_base()
    );
    machine.write("/etc/systemd/system/kops-agent.service.d/cluster.conf", &converge);
    machine.run(&["systemctl", "daemon-reload"]);
}

/// Converges a machine with the service that a package installs.
pub fn converges(cluster: &Cluster, machine: &Machine) {
    configure(cluster, machine);
    machine.run(&["systemctl", "start", "--no-block", UNIT, "after-kops-agent.service"]);
    // The run waits until apt's locks are free. Meanwhile, the unit's StatusText names the program that holds the
    // locks.
    machine.until("systemd is told what is being waited for", || {
        machine.show(UNIT, "StatusText").contains("waiting for python3").then_some(())
    });
    assert_eq!(machine.show(UNIT, "ActiveState"), "activating");
    assert_eq!(
        machine.show("after-kops-agent.service", "ActiveState"),
        "inactive",
        "the unit did not wait for the node"
    );
    machine.run(&["touch", "/root/apt-may-go-on"]);
    let state = machine.until("the service has started or failed", || {
        Some(machine.show(UNIT, "ActiveState")).filter(|state| state != "activating")
    });
    assert_eq!(state, "active", "{}", machine.run(&["journalctl", "--no-pager", "--unit", UNIT]));
    assert_eq!(machine.show(UNIT, "StatusText"), "converged");
    // The process reports readiness to systemd shortly before it ends.
    machine.until("its process has ended", || (machine.show(UNIT, "SubState") == "exited").then_some(()));
    // `after-kops-agent.service` runs `systemctl is-active kubelet.service`, which succeeds only on a converged node.
    machine.until("what is ordered after it has started", || {
        (machine.show("after-kops-agent.service", "ActiveState") == "active").then_some(())
    });
    steps_are_found_in_the_journal(machine);
}

fn journal(machine: &Machine, matches: &[&str]) -> Vec<Value> {
    let command = [&["journalctl", "--no-pager", "--output=json"][..], matches].concat();
    machine.run(&command).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn steps_are_found_in_the_journal(machine: &Machine) {
    let lines = journal(machine, &["KOPS_AGENT_RESOURCE=unit:kubelet.service"]);
    let line = lines.first().expect("the journal has nothing about kubelet.service");
    for (field, value) in [
        ("KOPS_AGENT_STAGE", "services"),
        ("KOPS_AGENT_ACTION", "create"),
        ("MESSAGE", "applying unit kubelet.service"),
        ("SYSLOG_IDENTIFIER", "kops-agent"),
        ("_SYSTEMD_UNIT", UNIT),
    ] {
        assert_eq!(line[field], value, "{field} of {line:#}");
    }
    let files = journal(machine, &["KOPS_AGENT_STAGE=files", "KOPS_AGENT_ACTION=create"]);
    assert!(files.len() > 10, "{files:#?}");
}

/// Checks a unit with `systemd-analyze verify`. If systemd ignores a setting of the unit, the command prints a warning
/// and exits with 0, so the test checks the output.
pub fn is_clean(machine: &Machine, unit: &str) {
    let verified = machine.try_run(&["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", unit]);
    assert_eq!((verified.code, verified.stderr.as_str()), (Some(0), ""), "{unit}");
}

/// If a run sends no more watchdog messages, systemd ends the run and logs the reason. While a run sends messages, it may
/// exceed the start timeout.
pub fn a_stuck_run_is_ended(machine: &Machine) {
    machine.run(&["mkfifo", "/root/never-written-to"]);
    // If the unit has a watchdog, the run reports to systemd more often than without one.
    let stuck = format!(
        "[Service]\nTimeoutStartSec=5s\nTimeoutStopSec=5s\nWatchdogSec=5s\nRestart=no\nExecStart=\n\
         ExecStart={AGENT} converge --conf /root/never-written-to\n"
    );
    machine.write(STUCK, &stuck);
    machine.run(&["systemctl", "daemon-reload"]);
    machine.run(&["systemctl", "restart", "--no-block", UNIT]);
    let process = machine.until("the run waits", || {
        let waits = machine.show(UNIT, "StatusText") == "reading what the cluster wants of this node";
        Some(machine.show(UNIT, "MainPID")).filter(|process| waits && process != "0")
    });
    machine.until("its time has been extended", || {
        let started: u64 = machine.show(UNIT, "ExecMainStartTimestampMonotonic").parse().unwrap();
        let uptime = machine.read("/proc/uptime");
        let now: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
        (now * 1e6 > started as f64 + 12e6).then_some(())
    });
    assert_eq!(machine.show(UNIT, "ActiveState"), "activating");
    machine.run(&["kill", "-STOP", &process]);
    machine.until("systemd has ended it", || (machine.show(UNIT, "ActiveState") == "failed").then_some(()));
    assert_eq!(machine.show(UNIT, "Result"), "watchdog");
    machine.run(&["journalctl", "--sync"]);
    let said = journal(machine, &["_PID=1", "UNIT=kops-agent.service"]);
    let is_of_the_end =
        |line: &Value| line["MESSAGE"].as_str().is_some_and(|text| text.contains("Watchdog timeout"));
    assert!(said.iter().any(is_of_the_end), "{said:#?}");
    machine.run(&["rm", STUCK, "/root/never-written-to"]);
    machine.run(&["systemctl", "daemon-reload"]);
    machine.run(&["systemctl", "start", UNIT]);
}

/// The message of a panic reaches the journal. To cause a panic, the test starts control-plane mode in a unit that allows
/// no threads. Without threads, the runtime of control-plane mode panics.
pub fn a_panic_reaches_the_journal(machine: &Machine) {
    const PANICS: &str = "panics.service";
    let failed = machine.try_run(&[
        "systemd-run",
        "--quiet",
        "--wait",
        "--unit=panics",
        "--setenv=RUST_BACKTRACE=1",
        // Root is exempt from this limit. So the program runs as a user that has no other processes.
        "--property=User=daemon",
        "--property=LimitNPROC=1",
        PROGRAM,
        "controller",
    ]);
    assert_ne!(failed.code, Some(0));
    machine.run(&["journalctl", "--sync"]);
    let said = journal(machine, &["_SYSTEMD_UNIT=panics.service"]);
    let is_of_the_panic = |line: &Value| {
        line["MESSAGE"].as_str().is_some_and(|text| text.contains(" panicked at ") && text.contains(".rs:"))
            && line["PRIORITY"] == "2"
    };
    assert!(said.iter().any(is_of_the_panic), "{said:#?}");
    machine.run(&["systemctl", "reset-failed", PANICS]);
}
