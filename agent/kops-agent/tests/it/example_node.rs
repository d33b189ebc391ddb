//! The example cluster's machines, all the way: from the store over S3 to a converged root.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::example::Machine;
use kops_agent_tests::example_store::{CONTROL_PLANE, NODES};

fn converges(group: &'static str, expected: &[&str]) {
    let machine = Machine::new(group);
    let planned = machine.run("plan", &["--exit-code"]);
    planned.with(4, &[]);
    assert_eq!(machine.files(), [""; 0], "a plan wrote something");

    machine.run("converge", &[]).with(0, &[]);
    let files = machine.files();
    for file in expected {
        assert!(files.contains(&(*file).to_owned()), "{file} is not in {files:#?}");
    }

    let requests = machine.downloads().requests().len();
    let again = machine.run("converge", &[]);
    again.with(0, &[]);
    assert!(again.stdout.contains("Nothing to do"), "{again:#?}");
    assert_eq!(machine.files(), files);
    let downloaded: Vec<_> = machine.downloads().requests()[requests..]
        .iter()
        .filter(|path| !path.contains(".sha256"))
        .cloned()
        .collect();
    assert_eq!(downloaded, [""; 0], "the second run downloaded something");
    machine.run("plan", &["--exit-code"]).with(0, &[]);
}

#[test]
fn a_control_plane_converges_and_stays() {
    converges(
        CONTROL_PLANE,
        &[
            "etc/kubernetes/manifests/kube-scheduler.manifest",
            "etc/systemd/system/kubelet.service",
            "usr/bin/containerd",
            "usr/local/bin/kubelet",
            "var/lib/kubelet/kubeconfig",
        ],
    );
}

#[test]
fn a_node_converges_and_stays() {
    converges(
        NODES,
        &[
            "etc/containerd/config.toml",
            "etc/systemd/system/kubelet.service",
            "usr/bin/containerd",
            "usr/local/bin/kubelet",
            "usr/sbin/runc",
        ],
    );
}

#[test]
fn the_controller_is_a_service_of_a_control_plane_that_asks_for_it() {
    const FILES: [&str; 4] = [
        "etc/kubernetes/kops-controller/config.yaml",
        "etc/kubernetes/kops-controller/kubeconfig",
        "etc/kubernetes/kops-controller/pki",
        "etc/systemd/system/kops-agent-controller.service",
    ];
    let machine = Machine::new(CONTROL_PLANE);
    machine.run("converge", &["--controller"]).with(0, &[]);
    let read = |path: &str| fs::read_to_string(machine.root().join(path)).unwrap();
    let config: serde_json::Value = serde_json::from_str(&read(FILES[0])).unwrap();
    for path in ["serverCertificatePath", "serverKeyPath"] {
        let named = config["server"][path].as_str().unwrap().trim_start_matches('/');
        assert!(machine.root().join(named).is_file(), "{named} is not where the configuration says");
    }
    let kubeconfig = fs::metadata(machine.root().join(FILES[1])).unwrap();
    assert_eq!(kubeconfig.permissions().mode() & 0o777, 0o400);
    let requests = read("var/lib/kops-agent/recorded/requests.txt");
    assert!(requests.contains("systemd: start kops-agent-controller.service"), "{requests}");
    machine.run("plan", &["--exit-code", "--controller"]).with(0, &[]);

    let left = || {
        let files = machine.files().into_iter();
        files.filter(|file| FILES.contains(&file.as_str())).collect::<Vec<_>>()
    };
    machine.run("converge", &[]).with(0, &["kops-agent-controller.service stays"]);
    assert_eq!(left(), FILES, "a run from a shell does not know what another was told");
    let environment = machine.root().join("etc/environment");
    fs::write(&environment, "KOPS_AGENT_CONTROLLER=false\n").unwrap();
    machine.run("converge", &[]).with(0, &[]);
    assert_eq!(left(), [""; 0], "it is not wanted any more");
    machine.run("converge", &[]).with(0, &[]);
    assert_eq!(left(), [""; 0]);
    fs::write(&environment, "KOPS_AGENT_CONTROLLER=true\n").unwrap();
    machine.run("converge", &[]).with(0, &[]);
    assert_eq!(left(), FILES, "the units of the agent are told so");
    let worker = Machine::new(NODES);
    worker.run("converge", &["--controller"]).with(0, &[]);
    assert!(!worker.files().contains(&FILES[0].to_owned()), "a worker has no controller");
}

#[test]
fn an_edited_file_is_shown_and_put_right() {
    let machine = Machine::new(NODES);
    machine.run("converge", &[]).with(0, &[]);
    let config = machine.root().join("etc/containerd/config.toml");
    let right = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("{right}\n# changed by hand\n")).unwrap();

    let plan = machine.run("plan", &["--exit-code", "--color", "never"]);
    plan.with(4, &[]);
    // The changed line may be a registry's password, so the plan hides it.
    assert!(plan.stdout.contains("-[***]") && !plan.stdout.contains("changed by hand"), "{plan:#?}");
    let plan = machine.run("plan", &["--show-secrets", "--color", "never"]);
    assert!(plan.stdout.contains("-# changed by hand"), "{plan:#?}");
    machine.run("converge", &[]).with(0, &[]);
    assert_eq!(fs::read_to_string(&config).unwrap(), right);
}

#[test]
fn no_private_key_is_shown_or_left_readable() {
    let machine = Machine::new(CONTROL_PLANE);
    let plan = machine.run("plan", &["-v", "8"]);
    let converged = machine.run("converge", &["-v", "8"]);
    for said in [&plan.stdout, &plan.stderr, &converged.stdout, &converged.stderr] {
        assert!(!said.contains("PRIVATE KEY"), "{said}");
    }
    for file in machine.files() {
        let path = machine.root().join(&file);
        let content = fs::read(&path).unwrap_or_default();
        if content.windows(11).any(|bytes| bytes == b"PRIVATE KEY") {
            let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode & 0o077, 0, "{file} holds a key and has mode {mode:o}");
        }
    }
}
