//! A machine with the program of kOps' boot script and the program of a package. The agent's own services run one of them.

#![allow(clippy::unwrap_used)]

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use kops_agent_tests::example_store::{CONFIG_BASE, CONTROL_PLANE};

use crate::example::{self, Ended, Machine};
use crate::superseded::read;

const DIFFERENT: i32 = 4;
const UNITS: [&str; 3] = ["follow", "controller", "addons"];

/// A control plane with all services of the agent, and with two copies of kops-agent: from the boot script and from the
/// package. The boot script's copy has made the node.
struct TwoPrograms {
    machine: Machine,
    boot_scripts: PathBuf,
}

impl TwoPrograms {
    fn new() -> TwoPrograms {
        let machine = Machine::new(CONTROL_PLANE);
        let boot_scripts = machine.folder().join("kops/bin/nodeup");
        fs::create_dir_all(boot_scripts.parent().unwrap()).unwrap();
        example::copy_agent(&boot_scripts);
        // If the package's program exists, neither program writes timers.
        let packaged = machine.root().join("usr/bin/kops-agent");
        fs::create_dir_all(packaged.parent().unwrap()).unwrap();
        fs::write(packaged, "").unwrap();
        let two = TwoPrograms { machine, boot_scripts };
        two.run(&two.boot_scripts, "converge", &[]).with(0, &[]);
        two
    }

    fn run(&self, program: &Path, verb: &str, flags: &[&str]) -> Ended {
        let mut agent = self.machine.cluster.agent(program, verb, CONTROL_PLANE, CONFIG_BASE);
        agent.env("HTTPS_PROXY", "http://127.0.0.1:1").arg("--root").arg(self.machine.root());
        for service in ["ROLLOUTS", "CONTROLLER", "ADDONS"] {
            agent.env(format!("KOPS_AGENT_{service}"), "true");
        }
        Ended::from_command(agent.args(flags))
    }

    /// Runs the program of the package.
    fn packaged(&self, verb: &str, flags: &[&str]) -> Ended {
        self.run(&example::agent(), verb, flags)
    }

    fn units(&self) -> [String; 3] {
        UNITS.map(|name| read(&self.machine, &path_of(name)))
    }

    #[track_caller]
    fn assert_services_run(&self, program: &Path) {
        let start = format!("\nExecStart={} ", program.display());
        for unit in self.units() {
            assert!(unit.contains(&start), "{start:?} is not in {unit}");
        }
    }
}

fn path_of(unit: &str) -> String {
    format!("etc/systemd/system/kops-agent-{unit}.service")
}

#[test]
fn neither_program_changes_the_units_of_the_other() {
    let two = TwoPrograms::new();
    two.assert_services_run(&two.boot_scripts);
    let units = two.units();
    two.packaged("verify", &[]).with(0, &[]);
    two.packaged("plan", &["--exit-code"]).with(0, &[]);
    two.packaged("verify", &["--repair"]).with(0, &[]);
    two.packaged("converge", &[]).with(0, &[]);
    assert_eq!(two.units(), units);
    two.run(&two.boot_scripts, "verify", &[]).with(0, &[]);

    // A repaired unit uses the program of the other units.
    fs::remove_file(two.machine.root().join(path_of("addons"))).unwrap();
    two.packaged("verify", &["--repair"]).with(0, &[]);
    assert_eq!(two.units(), units);
}

#[test]
fn the_other_program_takes_over_when_the_program_is_replaced_by_nodeup() {
    let two = TwoPrograms::new();
    let aside = two.boot_scripts.with_file_name("aside");
    fs::rename(&two.boot_scripts, &aside).unwrap();
    two.packaged("verify", &[]).with(DIFFERENT, &[]);
    // A copy of `/bin/true` stands in for nodeup, because neither program is kops-agent.
    assert!(Command::new("cp").arg("/bin/true").arg(&two.boot_scripts).status().unwrap().success());
    two.packaged("verify", &["--repair"]).with(0, &[]);
    two.assert_services_run(&example::agent().canonicalize().unwrap());

    fs::rename(&aside, &two.boot_scripts).unwrap();
    two.run(&two.boot_scripts, "verify", &[]).with(0, &[]);
    two.run(&two.boot_scripts, "converge", &[]).with(0, &[]);
    two.assert_services_run(&example::agent().canonicalize().unwrap());
}

#[test]
fn the_units_of_another_build_keep_its_texts() {
    let two = TwoPrograms::new();
    let units = two.units();
    // The added bytes make the boot script's program differ from the package's program.
    let program = OpenOptions::new().append(true).open(&two.boot_scripts);
    program.unwrap().write_all(b"another build").unwrap();
    two.packaged("plan", &["--exit-code"])
        .with(0, &["kops-agent-follow.service stays as it is", "a different build"]);
    two.packaged("converge", &[]).with(0, &[]);
    assert_eq!(two.units(), units);
    two.run(&two.boot_scripts, "verify", &[]).with(0, &[]);
}

#[test]
fn a_change_by_hand_is_repaired_and_its_program_never_runs() {
    let two = TwoPrograms::new();
    let (follow, marker) = (two.machine.root().join(path_of("follow")), two.machine.folder().join("ran"));
    let program = two.machine.folder().join("program");
    // This script is not kops-agent, but contains the text by which the agent recognizes a kops-agent.
    fs::write(&program, format!("#!/bin/sh\ntouch {} # kops-agent-follow.service\n", marker.display()))
        .unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let text = fs::read_to_string(&follow).unwrap();
    let boot_scripts = two.boot_scripts.to_str().unwrap();
    fs::write(&follow, text.replace(boot_scripts, program.to_str().unwrap())).unwrap();
    two.packaged("verify", &[]).with(DIFFERENT, &[]);
    two.packaged("verify", &["--repair"]).with(0, &[]);
    two.assert_services_run(&two.boot_scripts);
    assert!(!marker.exists());
}
