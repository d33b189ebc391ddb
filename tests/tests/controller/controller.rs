//! A controller that a test has started.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use kops_agent_tests::program::processor_time;

use crate::cluster::TIMEOUT;

/// A running controller. Dropping it kills the controller.
pub struct Controller {
    child: Child,
    address: String,
    begun: Instant,
}

impl Controller {
    /// Starts the controller, or another command that serves health probes. Waits until the command logs the address of the probes.
    #[allow(clippy::print_stderr)]
    pub fn start(mut command: Command) -> Controller {
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        let (sender, address) = mpsc::channel();
        // The log is printed if the test fails.
        thread::spawn(move || {
            for line in log.lines().map_while(Result::ok) {
                // These lines are left out, because a flood of them would hide all other lines.
                if !line.contains("bootstrap: refused") {
                    eprintln!("    {line}");
                }
                if let Some((_, address)) = line.split_once("are at http://") {
                    let _ = sender.send(address.to_owned());
                }
            }
        });
        let address = address.recv_timeout(TIMEOUT).expect("the controller says where it listens");
        Controller { child, address, begun: Instant::now() }
    }

    pub fn uptime(&self) -> Duration {
        self.begun.elapsed()
    }

    /// The address at which the controller serves probes.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The processor time that the controller has used, in seconds.
    pub fn processor_time(&self) -> f64 {
        processor_time(self.child.id()).unwrap()
    }

    /// The controller's peak memory, in MiB.
    pub fn peak_memory(&self) -> f64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        peak.trim().trim_end_matches(" kB").parse::<f64>().unwrap() / 1024.0
    }

    pub fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }

    /// The body of the controller's response to a GET request.
    pub fn get(&self, path: &str) -> String {
        let mut socket = TcpStream::connect(&self.address).unwrap();
        write!(socket, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        answer.split_once("\r\n\r\n").unwrap().1.to_owned()
    }

    /// The value of a metric. `name` is the name with the labels.
    pub fn metric(&self, name: &str) -> Option<u64> {
        let metrics = self.get("/metrics");
        let value = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok();
        metrics.lines().find_map(value)
    }

    /// Sends SIGTERM, waits until the controller ends, and checks that it succeeds.
    pub fn terminate(mut self) {
        let id = nix::unistd::Pid::from_raw(self.child.id().try_into().unwrap());
        nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGTERM).unwrap();
        assert!(self.child.wait().unwrap().success());
    }

    /// Sends SIGKILL, and waits until the controller has ended. No other controller can lead until the killed
    /// controller's Lease expires.
    pub fn kill(self) {
        drop(self);
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
