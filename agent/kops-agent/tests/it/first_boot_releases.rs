//! A worker that asks kops-controller for its configuration becomes the node that its own kOps release makes. Workers of kOps 1.35 and
//! 1.36 have the same configuration, so another source tells the release.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::process::Command;

use kops_agent_tests::example_store::NODES;
use kops_agent_tests::kops_controller::KopsController;

use crate::example::worker::{Worker, boot_config};
use crate::example::{Ended, Machine, agent};

const SYSCTLS: &str = "etc/sysctl.d/99-k8s-general.conf";
const USER_DATA: &str = "var/lib/cloud/instance/user-data.txt";
const VARIABLE: &str = "KOPS_AGENT_KOPS_VERSION";

/// A worker of a cluster with the kOps version `version`.
fn worker(version: &str) -> Worker {
    let machine = Machine::new(NODES);
    machine.cluster.edit("kops-version.txt", "1.37.0-alpha.1", version).unwrap();
    machine.serve_downloads_before_1_37();
    let mut worker = Worker::on(machine);
    if version.starts_with("1.34.") {
        let settings = "KubeletConfig:\n  podInfraContainerImage: registry.example.com/pause:3.9\n";
        worker.served.nodeup_config = worker.served.nodeup_config.replacen("KubeletConfig:\n", settings, 1);
    }
    worker
}

impl Worker {
    fn write(&self, path: &str, text: &str) {
        let file = self.machine.root().join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }

    /// The boot script of kOps `version`. Its boot config pins `nodeup_config`.
    fn boot_script(&self, server: &KopsController, version: &str, nodeup_config: &str) -> String {
        let nodeup = format!("https://artifacts.k8s.io/binaries/kops/{version}/linux/amd64/nodeup");
        let boot_config = boot_config(&[server.url()], &self.served.authority.certificate, nodeup_config);
        format!(
            "#!/bin/bash\nNODEUP_URL_AMD64={nodeup}\n\ncat > conf/kube_env.yaml << '__EOF_KUBE_ENV'\n{boot_config}\n__EOF_KUBE_ENV\n"
        )
    }

    /// Converges the worker to a node. Returns the output of the run, and the line of `status` about the kOps
    /// release.
    fn becomes_a_node(&self, server: &KopsController) -> (Ended, String) {
        let converged = self.run("converge", server);
        converged.with(0, &[]);
        let mut status = Command::new(agent());
        let status =
            Ended::from_command(status.env_clear().args(["status", "--root"]).arg(self.machine.root()));
        status.with(0, &[]);
        let told = status.stdout.lines().find_map(|line| line.strip_prefix("written by   "));
        (converged, told.unwrap().to_owned())
    }

    /// Whether the node has the files of a node in a cluster of kOps 1.35 or older.
    fn is_of_1_35_or_older(&self) -> bool {
        let has_watches = self.read(SYSCTLS).contains("fs.inotify.max_user_watches");
        let has_flags = self.read("etc/sysconfig/kubelet").contains("--cgroup-driver=");
        assert_eq!(has_watches, has_flags);
        has_watches
    }
}

#[test]
fn user_data_tells_the_release_where_kops_controller_does_not() {
    for (version, is_older) in [("1.35.2", true), ("1.36.2", false)] {
        let worker = worker(version);
        let server = worker.kops_controller();
        worker.write(USER_DATA, &worker.boot_script(&server, version, &worker.served.nodeup_config));
        let (converged, told) = worker.becomes_a_node(&server);
        assert_eq!(worker.is_of_1_35_or_older(), is_older, "{version}");
        assert_eq!(told, format!("kOps {version}, told by the URL of nodeup in the user-data"));
        assert!(!converged.stderr.contains("is unknown"), "{converged:#?}");
    }
}

#[test]
fn a_worker_of_1_34_shows_its_release_by_its_configuration() {
    let worker = worker("1.34.3");
    let server = worker.kops_controller();
    let (converged, told) = worker.becomes_a_node(&server);
    assert!(worker.is_of_1_35_or_older());
    assert!(told.starts_with("kOps 1.34, told by the fields"), "{told}");
    assert!(converged.stderr.contains("so the rules of kOps 1.34 apply"), "{converged:#?}");
}

#[test]
fn kops_agents_own_server_tells_the_release_before_user_data_does() {
    let mut worker = worker("1.35.2");
    worker.served.kops_version = Some("1.35.2\n".into());
    let server = worker.kops_controller();
    worker.write(USER_DATA, &worker.boot_script(&server, "1.36.2", &worker.served.nodeup_config));
    let (_, told) = worker.becomes_a_node(&server);
    assert!(worker.is_of_1_35_or_older());
    assert_eq!(told, "kOps 1.35.2, told by kops-controller");
}

#[test]
fn a_release_that_nothing_tells_is_guessed_with_a_warning_until_the_operator_tells_it() {
    // A proof of identity is valid only once, so each run needs its own machine.
    let machine = || {
        let worker = worker("1.35.2");
        let server = worker.kops_controller();
        // This user-data pins an earlier configuration.
        worker.write(USER_DATA, &worker.boot_script(&server, "1.35.2", "an earlier one"));
        (worker, server)
    };
    let (worker, server) = machine();
    let plan = worker.run("plan", &server);
    plan.with(0, &["so the rules of kOps 1.36 apply", &format!("set {VARIABLE}"), "/etc/environment"]);

    let (worker, server) = machine();
    let (_, told) = worker.becomes_a_node(&server);
    assert!(!worker.is_of_1_35_or_older());
    assert!(told.starts_with("kOps 1.36, told by the fields"), "{told}");

    let (worker, server) = machine();
    worker.write("etc/environment", &format!("{VARIABLE}=1.35.2\n"));
    let (_, told) = worker.becomes_a_node(&server);
    assert!(worker.is_of_1_35_or_older());
    assert_eq!(told, format!("kOps 1.35.2, told by {VARIABLE}"));
}
