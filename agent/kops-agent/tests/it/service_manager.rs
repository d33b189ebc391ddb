//! The messages of the agent to a systemd that waits for it, on a socket like systemd's own.

#![allow(clippy::unwrap_used)]

use std::process::{Child, Stdio};
use std::thread;

use crate::example::listener::Listener;
use crate::example::{Ended, Machine};
use kops_agent_tests::example_store::NODES;

/// A run that is killed when the test ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // After a passed test, the process has already ended, so both calls may fail.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn position(told: &[String], beginning: &str) -> usize {
    let found = told.iter().position(|line| line.starts_with(beginning));
    found.unwrap_or_else(|| panic!("{beginning:?} is not in {told:#?}"))
}

#[test]
fn a_node_that_has_converged_is_ready_and_not_before() {
    let machine = Machine::new(NODES);
    let listener = Listener::new();
    let mut agent = machine.agent("converge");
    listener.listen_to(&mut agent).env("WATCHDOG_USEC", "2000000");
    let (ended, told) = thread::scope(|scope| {
        let listening = scope.spawn(|| listener.until(|line| line == "READY=1"));
        (Ended::from_command(&mut agent), listening.join().unwrap().unwrap())
    });
    ended.with(0, &[]);
    let reading = position(&told, "STATUS=reading what the cluster wants of this node");
    let ready = position(&told, "READY=1");
    assert!(reading < ready && told[ready..] == ["READY=1", "STATUS=converged"], "{told:#?}");
    position(&told, "EXTEND_TIMEOUT_USEC=3000000");
    position(&told, "WATCHDOG=1");
    // If several steps end quickly, only the last message is sent. A stage takes longer, so its message is always sent.
    position(&told, "STATUS=downloading ");
}

#[test]
fn a_run_that_failed_reports_no_readiness() {
    let machine = Machine::new(NODES);
    let listener = Listener::new();
    let mut agent = machine.agent_with_store("converge", "s3://no-such-bucket/cluster");
    listener.listen_to(&mut agent);
    let (ended, told) = thread::scope(|scope| {
        let listening = scope.spawn(|| listener.until(|line| line.starts_with("STATUS=failed: ")));
        (Ended::from_command(&mut agent), listening.join().unwrap().unwrap())
    });
    assert_ne!(ended.code, 0, "{ended:?}");
    assert!(told.iter().all(|line| line != "READY=1"), "{told:#?}");
    assert!(told.last().unwrap().contains("no-such-bucket"), "{told:#?}");
}

#[test]
fn a_run_that_is_asked_to_stop_says_so() {
    let machine = Machine::new(NODES);
    let listener = Listener::new();
    let mut agent = machine.agent("converge");
    // No program listens at the store's address, so the run retries.
    agent.env("S3_ENDPOINT", "http://127.0.0.1:1").args(["--store-timeout=0", "--retries=-1"]);
    listener.listen_to(&mut agent).stdout(Stdio::null()).stderr(Stdio::null());
    let mut agent = Running(agent.spawn().unwrap());
    let told = listener.until(|line| line.starts_with("STATUS=trying again in ")).unwrap();
    assert!(told.iter().all(|line| line != "READY=1"), "{told:#?}");
    let process = nix::unistd::Pid::from_raw(agent.0.id().try_into().unwrap());
    nix::sys::signal::kill(process, nix::sys::signal::Signal::SIGTERM).unwrap();
    let told = listener.until(|line| line.starts_with("STATUS=stopping")).unwrap();
    assert!(told.contains(&"STOPPING=1".to_owned()), "{told:#?}");
    assert_eq!(agent.0.wait().unwrap().code(), Some(1));
}
