//! A run at boot retries until the node has converged. Meanwhile, operators may correct permissions, files and
//! mistakes.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::example::listener::Listener;
use crate::example::{Ended, Machine};
use kops_agent_tests::example_store::{CONTROL_PLANE, NODES};

/// A run that retries, as at boot, and a socket that receives the run's messages to systemd.
struct Boot {
    agent: Child,
    listener: Listener,
    stderr: PathBuf,
}

impl Boot {
    fn start(machine: &Machine, flags: &[&str]) -> Boot {
        let listener = Listener::new();
        let stderr = machine.folder().join("stderr");
        let mut agent: Command = machine.agent("converge");
        agent.args(["--retries=-1", "--store-timeout=0"]).args(flags);
        listener.listen_to(&mut agent).stdout(Stdio::null()).stderr(fs::File::create(&stderr).unwrap());
        Boot { agent: agent.spawn().unwrap(), listener, stderr }
    }

    /// The messages up to the first line that begins with `beginning`.
    fn until(&mut self, beginning: &str) -> String {
        let gave_up = |line: &str| line.starts_with("STATUS=failed");
        let told = self.listener.until(|line| line.starts_with(beginning) || gave_up(line));
        let told = told.unwrap_or_else(|silence| panic!("no {beginning:?}: {silence}\n{}", self.said()));
        assert!(!told.iter().any(|line| gave_up(line)), "it gave up: {told:#?}\n{}", self.said());
        told.join("\n")
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.stderr).unwrap()
    }

    fn ends_with(&mut self, code: i32) {
        let status = self.agent.wait().unwrap();
        assert_eq!(status.code(), Some(code), "{status}: {}", self.said());
    }
}

impl Drop for Boot {
    fn drop(&mut self) {
        // After a passed test, the process has already ended, so both calls may fail.
        let _ = self.agent.kill();
        let _ = self.agent.wait();
    }
}

#[test]
fn a_role_that_gets_its_permissions_late_is_waited_for() {
    let machine = Machine::new(CONTROL_PLANE);
    machine.cluster.s3.forbid_below(&["demo.example.com/pki/"]);
    let mut boot = Boot::start(&machine, &[]);
    let told = boot.until("STATUS=trying again in ");
    assert!(told.contains("pki/private") && !told.contains("READY=1"), "{told}");
    machine.cluster.s3.permit_all();
    boot.until("READY=1");
    boot.ends_with(0);
    assert!(boot.said().contains("trying again in "), "{}", boot.said());
}

#[test]
fn a_store_that_is_half_written_is_waited_for() {
    let machine = Machine::new(NODES);
    let file = machine.cluster.store.cluster_folder().join("cluster-completed.spec");
    let aside = file.with_extension("aside");
    fs::rename(&file, &aside).unwrap();
    let mut boot = Boot::start(&machine, &[]);
    let told = boot.until("STATUS=trying again in ");
    assert!(told.contains("cluster-completed.spec does not exist"), "{told}");
    fs::rename(aside, file).unwrap();
    boot.until("READY=1");
    boot.ends_with(0);
}

#[test]
fn a_mistake_in_the_spec_is_waited_for_until_it_is_put_right() {
    let machine = Machine::new(NODES);
    let (good, bad) = ("  role: Node\n", "  role: Nod\n");
    machine.cluster.edit("instancegroup/nodes", good, bad).unwrap();
    // Without `--retries` the run ends after one try, with the exit code of a configuration error.
    let mut agent = machine.agent("converge");
    Ended::from_command(&mut agent).with(3, &["instancegroup/nodes"]);
    let mut boot = Boot::start(&machine, &[]);
    boot.until("STATUS=trying again in ");
    machine.cluster.edit("instancegroup/nodes", bad, good).unwrap();
    boot.until("READY=1");
    boot.ends_with(0);
}

#[test]
fn a_node_whose_store_is_denied_at_boot_works_as_before_and_waits() {
    let machine = Machine::new(NODES);
    machine.run("converge", &[]).with(0, &[]);
    let containerd = machine.root().join("etc/containerd/config.toml");
    let right = fs::read_to_string(&containerd).unwrap();
    fs::write(&containerd, "").unwrap();
    machine.cluster.s3.forbid_below(&[""]);
    let mut boot = Boot::start(&machine, &[]);
    // With this message, systemd starts the units that are ordered after this run.
    boot.until("READY=1");
    boot.until("STATUS=trying again in ");
    assert_eq!(fs::read_to_string(&containerd).unwrap(), right);
    machine.cluster.s3.permit_all();
    boot.until("STATUS=converged");
    boot.ends_with(0);
}

#[test]
fn wrong_usage_is_not_retried() {
    let machine = Machine::new(NODES);
    let ended =
        Ended::from_command(machine.agent("converge").args(["--retries=-1", "--store-mirror", "nonsense"]));
    ended.with(2, &["--store-mirror nonsense"]);
    Ended::from_command(machine.agent("converge").args(["--retries=soon"])).with(2, &["--retries"]);
}
