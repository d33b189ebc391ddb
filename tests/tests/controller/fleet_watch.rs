//! `fleet status --watch` with a real API server: its output when Nodes change, come and go, and when the API server restarts.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::cluster::{Cluster, TIMEOUT, plain_agent};

/// A running command of `fleet` with `--watch`, and the lines that it prints.
pub struct Watching {
    child: Child,
    lines: Receiver<String>,
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Watching {
    fn of_status(cluster: &Cluster, arguments: &[&str]) -> Watching {
        let admin = cluster.api.kubeconfig("admin", &["system:masters"]).unwrap();
        Watching::start(&admin, &[&["status"][..], arguments].concat())
    }

    pub fn start(admin: &Path, command_of_fleet: &[&str]) -> Watching {
        let mut command = plain_agent();
        command.arg("fleet").args(command_of_fleet).args(["--watch", "--kubeconfig"]).arg(admin);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let printed = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || printed.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Watching { child, lines }
    }

    #[track_caller]
    fn line(&self) -> String {
        self.lines.recv_timeout(TIMEOUT).expect("another line is printed")
    }

    /// The first line that contains `part`. Waits until the command prints this line.
    #[track_caller]
    pub fn until(&self, part: &str) -> String {
        loop {
            let line = self.line();
            if line.contains(part) {
                return line;
            }
        }
    }

    #[track_caller]
    fn json(&self) -> Value {
        serde_json::from_str(&self.line()).unwrap()
    }

    /// Sends this signal. Returns the result of [`Watching::ended`].
    fn ended_by(&mut self, signal: Signal) -> (Option<i32>, Vec<String>) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
        self.ended()
    }

    /// Waits until the command ends. Returns the exit code, and the lines that the test has not read yet.
    pub fn ended(&mut self) -> (Option<i32>, Vec<String>) {
        let code = self.child.wait().unwrap().code();
        (code, self.lines.iter().collect())
    }
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn the_table_is_printed_again_when_a_node_changes_also_after_an_outage() {
    let mut cluster = Cluster::start();
    let mut watching = Watching::of_status(&cluster, &[]);
    assert_eq!(watching.line(), "There are no Nodes.");
    cluster.create_node("a", None);
    assert_eq!(watching.line(), "");
    assert!(watching.line().starts_with("GROUP "));
    assert!(watching.line().starts_with("-      a     -      -"));
    cluster.report("a");
    watching.until("-      a     True   -");
    // The table does not show this label, so the row of `a` does not change.
    cluster.kubectl(&["label", "node", "a", "team=x"]);
    cluster.create_node("b", None);
    assert_eq!(watching.line(), "");
    watching.until("-      b     -");

    cluster.api.kill_api_server();
    cluster.api.start_api_server().unwrap();
    cluster.kubectl(&["delete", "node", "a"]);
    cluster.create_node("c", None);
    watching.until("-      c     -");
    let (code, rest) = watching.ended_by(Signal::SIGTERM);
    assert_eq!((code, rest), (Some(0), vec![]));
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn as_json_each_node_that_has_changed_gets_a_line() {
    let cluster = Cluster::start();
    cluster.create_node("a", None);
    cluster.create_node("b", None);
    let mut watching = Watching::of_status(&cluster, &["-o", "json"]);
    assert_eq!([watching.json(), watching.json()].map(|row| row["name"].clone()), ["a", "b"]);
    cluster.report("b");
    let row = watching.json();
    assert_eq!((&row["name"], &row["ready"]), (&json!("b"), &json!("True")));
    cluster.kubectl(&["delete", "node", "a"]);
    assert_eq!(watching.json(), json!({"schemaVersion": 1, "name": "a", "gone": true}));
    assert_eq!(watching.ended_by(Signal::SIGINT), (Some(0), vec![]));

    // No program reads the output any more. The command ends when it next prints a line.
    let mut command = plain_agent();
    let admin = cluster.api.kubeconfig("admin", &["system:masters"]).unwrap();
    command.args(["fleet", "status", "--watch", "--kubeconfig"]).arg(admin).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));

    let stranger = cluster.api.kubeconfig("stranger", &[]).unwrap();
    let refused =
        plain_agent().args(["fleet", "status", "--watch", "--kubeconfig"]).arg(stranger).output().unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("listing Nodes by the kubeconfig") && said.contains("forbidden"), "{said}");
}
