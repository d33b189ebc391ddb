//! A converged node: it is verified, reported, repaired and reset.

#![allow(clippy::unwrap_used)]

use crate::example;

use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

use crate::example::{Ended, Machine};
use kops_agent_host::Host;
use kops_agent_tests::example_store::{CONTROL_PLANE, NODES};

const DIFFERENT: i32 = 4;

fn on_root(machine: &Machine, arguments: &[&str]) -> Ended {
    let mut agent = Command::new(example::agent());
    agent.env_clear().stdin(Stdio::null()).args(arguments).arg("--root").arg(machine.root());
    Ended::from_command(&mut agent)
}

fn converged(group: &'static str) -> Machine {
    let machine = Machine::new(group);
    machine.run("converge", &[]).with(0, &[]);
    machine
}

#[test]
fn changes_by_others_are_found_and_repaired() {
    let node = converged(NODES);
    let clean = node.run("verify", &[]);
    clean.with(0, &[]);
    assert!(
        clean.stdout.contains("Nothing has changed") && clean.stdout.contains("Nothing to do"),
        "{clean:#?}"
    );
    node.run("verify", &["--deep"]).with(0, &[]);

    fs::write(node.root().join("etc/containerd/config.toml"), "").unwrap();
    fs::remove_file(node.root().join("usr/local/bin/kubelet")).unwrap();
    let found = node.run("verify", &[]);
    found.with(DIFFERENT, &[]);
    for part in [
        "file /etc/containerd/config.toml: content",
        "file /usr/local/bin/kubelet: gone",
        "Plan: 1 file is created, 1 file changes. Restarts: ",
    ] {
        assert!(found.stdout.contains(part), "{part:?} is not in {}", found.stdout);
    }
    let json = node.run("verify", &["-o", "json"]);
    json.with(DIFFERENT, &[]);
    let json: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json["changed"].as_array().unwrap().len(), 2);

    node.run("verify", &["--repair"]).with(0, &[]);
    node.run("verify", &[]).with(0, &[]);
}

#[test]
fn a_failed_repair_is_reported_until_one_succeeds() {
    let node = converged(NODES);
    let config = node.root().join("etc/containerd/config.toml");
    fs::remove_file(&config).unwrap();
    fs::create_dir(&config).unwrap();
    node.run("verify", &["--repair"]).with(3, &["config.toml: a directory is in its place"]);
    let status = on_root(&node, &["status"]);
    status.with(DIFFERENT, &[]);
    assert!(status.stdout.contains("FAILED at"), "{}", status.stdout);

    fs::remove_dir_all(&config).unwrap();
    node.run("verify", &["--repair"]).with(0, &[]);
    let status = on_root(&node, &["status"]);
    status.with(0, &[]);
    assert!(!status.stdout.contains("FAILED"), "{}", status.stdout);

    // A failure before any change, such as an unreachable store, disappears from `status` after the next successful
    // repair.
    let failed = Host::scratch(node.root()).unwrap();
    failed
        .note_failure(kops_agent_spec::failure::Kind::StoreUnreachable, "the store cannot be reached")
        .unwrap();
    node.run("verify", &[]).with(0, &[]);
    on_root(&node, &["status"]).with(DIFFERENT, &[]);
    node.run("verify", &["--repair"]).with(0, &[]);
    on_root(&node, &["status"]).with(0, &[]);
}

#[test]
fn without_the_store_a_repair_is_recorded_as_failed_and_verify_is_not() {
    let node = converged(NODES);
    node.cluster.s3.forbid("demo.example.com/instancegroup/nodes");
    node.run("verify", &[]).with(1, &["instancegroup/nodes"]);
    on_root(&node, &["status"]).with(0, &[]);
    node.run("verify", &["--repair"]).with(1, &["instancegroup/nodes"]);
    let status = on_root(&node, &["status"]);
    status.with(DIFFERENT, &[]);
    assert!(status.stdout.contains("access denied"), "{}", status.stdout);
}

#[test]
fn an_unwanted_file_is_planned_to_be_removed_and_removed() {
    let node = Machine::new(NODES);
    node.cluster
        .edit(
            "instancegroup/nodes",
            "  role: Node\n",
            "  role: Node\n  fileAssets: [{name: motd, path: /etc/motd.d/kops, content: hello}]\n",
        )
        .unwrap();
    node.run("converge", &[]).with(0, &[]);
    assert!(node.root().join("etc/motd.d/kops").exists());
    node.cluster
        .edit(
            "instancegroup/nodes",
            "  fileAssets: [{name: motd, path: /etc/motd.d/kops, content: hello}]\n",
            "",
        )
        .unwrap();
    let planned = node.run("plan", &["--exit-code"]);
    planned.with(DIFFERENT, &[]);
    assert!(planned.stdout.contains("removals\n  - file /etc/motd.d/kops\n"), "{}", planned.stdout);
    let ended = node.run("converge", &[]);
    ended.with(0, &[]);
    assert!(ended.stdout.contains("removed"), "{ended:#?}");
    assert!(!node.root().join("etc/motd.d").exists());
}

#[test]
fn without_the_store_verify_still_lists_changed_files() {
    let node = converged(NODES);
    fs::write(node.root().join("etc/containerd/config.toml"), "").unwrap();
    node.cluster.s3.forbid("demo.example.com/instancegroup/nodes");
    let ended = node.run("verify", &[]);
    ended.with(1, &["instancegroup/nodes"]);
    assert!(ended.stdout.contains("file /etc/containerd/config.toml: content"), "{ended:#?}");
}

#[test]
fn the_status_is_one_screen_json_or_metrics() {
    let control_plane = converged(CONTROL_PLANE);
    let text = on_root(&control_plane, &["status"]);
    text.with(0, &[]);
    assert!(text.stdout.starts_with("converged    since "), "{}", text.stdout);
    assert!(text.stdout.contains("certificates ") && text.stdout.contains("expires in"), "{}", text.stdout);

    let json: serde_json::Value =
        serde_json::from_str(&on_root(&control_plane, &["status", "-o", "json"]).stdout).unwrap();
    assert_eq!(json["converged"], true);
    let units: Vec<&str> =
        json["units"].as_array().unwrap().iter().filter_map(|unit| unit["name"].as_str()).collect();
    assert!(units.contains(&"kubelet.service"), "{units:?}");
    let metrics = on_root(&control_plane, &["status", "-o", "prometheus"]).stdout;
    assert!(metrics.contains("kops_agent_unit_running{unit=\"kubelet.service\"} 1\n"), "{metrics}");

    // This is the command of kops-agent-metrics.service. It writes a file into a folder of node_exporter, and a reset
    // removes the file.
    let folder = control_plane.root().join("var/lib/prometheus/node-exporter");
    let file = "/var/lib/prometheus/node-exporter/kops-agent.prom";
    let write = |file: &str| on_root(&control_plane, &["status", "-o", "prometheus", "--write", file]);
    write(file).with(1, &["there is no such folder"]);
    fs::create_dir_all(&folder).unwrap();
    let ended = write(file);
    ended.with(0, &[]);
    assert_eq!(ended.stdout, "");
    assert_eq!(fs::read_to_string(folder.join("kops-agent.prom")).unwrap(), metrics);
    on_root(&control_plane, &["status", "--write", file]).with(2, &["give --output prometheus as well"]);

    // `status` shows a failed run until a run succeeds.
    control_plane.cluster.s3.forbid("demo.example.com/instancegroup/control-plane-eu-west-1a");
    control_plane.run("converge", &[]).with(1, &[]);
    let failed = on_root(&control_plane, &["status"]);
    failed.with(DIFFERENT, &[]);
    write(file).with(DIFFERENT, &[]);
    let metrics = fs::read_to_string(folder.join("kops-agent.prom")).unwrap();
    assert!(metrics.contains("\nkops_agent_last_run_failed 1\n"), "{metrics}");
    // An unreachable store is no drift.
    let converged = metrics.lines().find(|line| line.starts_with("kops_agent_converged{")).unwrap();
    assert!(converged.ends_with(" 1") && metrics.contains("\nkops_agent_changed_resources 0\n"), "{metrics}");
    assert!(!failed.stdout.contains("DRIFT"), "{}", failed.stdout);
    assert!(
        failed.stdout.contains("FAILED at") && failed.stdout.contains("access denied"),
        "{}",
        failed.stdout
    );
}

#[test]
fn the_timeline_of_a_run_shows_its_steps() {
    let node = Machine::new(NODES);
    let none = on_root(&node, &["status", "--timeline"]);
    none.with(0, &[]);
    assert_eq!(none.stdout, "no run has finished yet\n");

    let first = node.run("converge", &[]);
    first.with(0, &["; longest steps: ", "lower bound: ", " s with these packages, downloads and units"]);
    let again = node.run("converge", &[]);
    again.with(0, &[]);
    assert!(!again.stderr.contains("longest steps"), "{}", again.stderr);

    let shown = on_root(&node, &["status", "--timeline"]);
    shown.with(0, &[]);
    let (idle, boot) = shown.stdout.split_once("\n\n").unwrap();
    assert!(idle.contains(" s, nothing to do"), "{idle}");
    for step in ["reading what is wanted", "observing this machine", "packages", "downloads", "files"] {
        assert!(boot.lines().any(|line| line.trim_start().starts_with(step)), "{step:?} is not in {boot}");
    }
    assert!(boot.contains("# ") && boot.contains("after ") && boot.contains("  lower bound: "), "{boot}");

    let json = on_root(&node, &["status", "--timeline", "-o", "json"]);
    json.with(0, &[]);
    let json: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    let [idle, boot] = &json["runs"].as_array().unwrap()[..] else { panic!("{json:#}") };
    assert_eq!((&idle["changes"], &idle["succeeded"]), (&0.into(), &true.into()));
    let step = |name: &str| {
        boot["steps"].as_array().unwrap().iter().find(|step| step["name"] == name).unwrap().clone()
    };
    let time = |name: &str, field: &str| step(name)[field].as_u64().unwrap();
    assert!(
        time("packages are fetched", "beginUs") < time("downloads", "endUs"),
        "one waited for the other: {boot:#}"
    );
    assert!(
        time("files", "beginUs") >= time("packages", "endUs").max(time("downloads", "endUs")),
        "{boot:#}"
    );
    assert!(boot["floorUs"].as_u64().unwrap() <= boot["tookUs"].as_u64().unwrap());

    on_root(&node, &["status", "--timeline", "-o", "prometheus"]).with(2, &["has no form for Prometheus"]);
}

#[test]
fn status_shows_that_a_machine_never_converged() {
    let node = Machine::new(NODES);
    let ended = on_root(&node, &["status"]);
    ended.with(DIFFERENT, &[]);
    assert!(ended.stdout.starts_with("NEVER CONVERGED"), "{}", ended.stdout);
    assert_eq!(fs::read_dir(node.root()).unwrap().count(), 0, "a status wrote something");
}

#[test]
fn a_failed_first_run_is_reported_with_its_reason_until_one_succeeds() {
    let node = Machine::new(NODES);
    node.cluster.s3.forbid("demo.example.com/instancegroup/nodes");
    node.run("converge", &[]).with(1, &["access denied"]);
    let status = on_root(&node, &["status"]);
    status.with(DIFFERENT, &[]);
    for part in ["NEVER CONVERGED", "FAILED at ", "access denied"] {
        assert!(status.stdout.contains(part), "{part:?} is not in {}", status.stdout);
    }
    let metrics = on_root(&node, &["status", "-o", "prometheus"]).stdout;
    for line in [
        "kops_agent_last_run_failed 1",
        "kops_agent_never_converged 1",
        "kops_agent_converged{config_hash=\"\"} 0",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line:?} is not in {metrics}");
    }

    node.cluster.s3.permit_all();
    node.run("converge", &[]).with(0, &[]);
    let status = on_root(&node, &["status"]);
    status.with(0, &[]);
    assert!(!status.stdout.contains("FAILED"), "{}", status.stdout);
}

#[test]
fn a_reset_asks_and_leaves_nothing() {
    let control_plane = Machine::new(CONTROL_PLANE);
    fs::create_dir_all(control_plane.root().join("etc")).unwrap();
    fs::write(control_plane.root().join("etc/hosts"), "127.0.0.1 localhost\n").unwrap();
    control_plane.run("converge", &[]).with(0, &[]);
    let files = control_plane.files();
    let asked = on_root(&control_plane, &["reset"]);
    asked.with(2, &["there is no terminal to confirm it on; give --yes"]);
    assert!(asked.stdout.contains("unit kubelet.service"), "{}", asked.stdout);
    assert_eq!(control_plane.files(), files, "something was removed unasked");
    // If a folder is a link, a reset empties its target.
    let (data, link) = (control_plane.root().join("data"), control_plane.root().join("var/lib/containerd"));
    fs::create_dir(&data).unwrap();
    symlink("../../data", &link).unwrap();
    let asked = on_root(&control_plane, &["reset"]);
    let told = "\n  /var/lib/containerd, which is a link to ../../data\n";
    assert!(asked.stdout.contains(told), "{}", asked.stdout);
    fs::remove_file(link).unwrap();
    fs::remove_dir(data).unwrap();

    // The file with the metrics is in a folder of node_exporter. It is a hard link to a key, because the owner of the
    // folder could make such a link. The reset must not change the key.
    let folder = control_plane.root().join("var/lib/prometheus/node-exporter");
    fs::create_dir_all(&folder).unwrap();
    fs::write(control_plane.root().join("key"), "key").unwrap();
    fs::hard_link(control_plane.root().join("key"), folder.join("kops-agent.prom")).unwrap();
    on_root(&control_plane, &["reset", "--yes"]).with(0, &[]);
    assert_eq!(fs::read_to_string(control_plane.root().join("key")).unwrap(), "key");
    fs::remove_file(control_plane.root().join("key")).unwrap();
    assert_eq!(control_plane.files(), ["etc/hosts"]);
    assert_eq!(fs::read_to_string(control_plane.root().join("etc/hosts")).unwrap(), "127.0.0.1 localhost\n");
    // The machine can become a node again.
    control_plane.run("converge", &[]).with(0, &[]);
    assert_eq!(control_plane.files(), files);
}

/// From the user-data, Ignition writes a unit that runs at each boot, and a script with the boot config. A reset
/// removes both files.
#[test]
fn a_reset_removes_the_units_of_the_ways_in_and_their_scripts() {
    let node = converged(NODES);
    let ways_in = [
        "etc/systemd/system/kops-agent-boot.service",
        "etc/systemd/system/kops-configuration.service",
        "etc/sysconfig/kops-configuration",
        "opt/kops/boot",
    ];
    put(&node, &ways_in);
    let asked = on_root(&node, &["reset"]);
    for told in ["  kops-agent-boot.service\n", "  unit kops-agent-boot.service\n", "  file /opt/kops/boot\n"]
    {
        assert!(asked.stdout.contains(told), "{told:?} is not in {}", asked.stdout);
    }
    on_root(&node, &["reset", "--yes"]).with(0, &[]);
    for gone in ways_in {
        assert!(!node.root().join(gone).exists(), "{gone} stays");
    }
}

#[test]
fn a_reset_lists_files_that_would_make_a_node_again_and_purges_them_if_asked() {
    let node = converged(NODES);
    let given = ["opt/kops/conf/kube_env.yaml", "etc/kops-agent/environment"];
    put(&node, &given);
    let stay = |asked: &Ended| {
        asked.stdout.split_once("These stay, and may contain keys").map(|(_, list)| list.to_owned())
    };
    let asked = on_root(&node, &["reset", "--yes"]);
    asked.with(0, &[]);
    let list = stay(&asked).unwrap();
    for file in given {
        assert!(list.contains(&format!("  /{file}\n")), "{file} is not told in {list}");
        assert!(node.root().join(file).exists(), "{file}");
    }
    assert!(!list.contains("toolbox"), "{list}");

    // `--purge` also works after an earlier reset.
    let asked = on_root(&node, &["reset", "--yes", "--purge"]);
    asked.with(0, &[]);
    assert_eq!(stay(&asked), None);
    for file in given {
        assert!(asked.stdout.contains(&format!("  file /{file}\n")), "{}", asked.stdout);
        assert!(!node.root().join(file).exists(), "{file}");
    }
}

/// Operators may move the data folders of kubelet and containerd from the root disk to another disk.
#[test]
fn a_reset_removes_the_data_folders_that_the_spec_names_and_tells_those_it_leaves() {
    let node = Machine::new(NODES);
    let folders = "  kubelet: {rootDir: /mnt/kubelet/}\n  containerd: {root: /mnt/disk/../containerd, state: /mnt/linked}\n  role: Node\n";
    node.cluster.edit("instancegroup/nodes", "  role: Node\n", folders).unwrap();
    node.run("converge", &["--config-from", "cluster-spec"]).with(0, &[]);
    put(
        &node,
        &[
            "mnt/kubelet/pods/u/volumes/kubernetes.io~projected/token",
            "mnt/containerd/x",
            "var/lib/kubelet/pods/u/token",
        ],
    );
    put(&node, &["mnt/disk/others", "srv/data/x", "etc/mine"]);
    symlink("../etc", node.root().join("mnt/linked")).unwrap();
    let asked = on_root(&node, &["reset", "--yes"]);
    asked.with(0, &[]);
    for gone in ["mnt/kubelet", "var/lib/kubelet"] {
        assert!(!node.root().join(gone).exists(), "{gone} stays: {}", asked.stdout);
    }
    assert!(asked.stdout.contains("\n  /mnt/kubelet\n"), "{}", asked.stdout);
    let (_, left) = asked.stdout.split_once("These folders stay").unwrap();
    // The agent does not remove these folders: the first path has `..`, and the second path is a link to a system
    // folder.
    for folder in ["/mnt/disk/../containerd", "/mnt/linked"] {
        assert!(left.contains(&format!("\n  {folder}\n")), "{folder}: {}", asked.stdout);
    }
    for stays in ["mnt/containerd/x", "mnt/disk/others", "srv/data/x", "etc/mine"] {
        assert!(node.root().join(stays).exists(), "{stays} has gone: {}", asked.stdout);
    }
}

#[test]
fn a_reset_removes_the_folders_of_containerd_that_the_spec_names() {
    let node = Machine::new(NODES);
    let folders = "  containerd: {root: /mnt/containerd, state: /mnt/disk/state/}\n  role: Node\n";
    node.cluster.edit("instancegroup/nodes", "  role: Node\n", folders).unwrap();
    node.run("converge", &["--config-from", "cluster-spec"]).with(0, &[]);
    let of_pods = [
        "mnt/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots/1/fs/token",
        "mnt/disk/state/io.containerd.runtime.v2.task/k8s.io/u/config.json",
    ];
    put(&node, &of_pods);
    put(&node, &["mnt/disk/others"]);
    let asked = on_root(&node, &["reset"]);
    asked.with(2, &[]);
    for (file, folder) in of_pods.into_iter().zip(["/mnt/containerd", "/mnt/disk/state"]) {
        assert!(asked.stdout.contains(&format!("\n  {folder}\n")), "{}", asked.stdout);
        assert!(node.root().join(file).exists(), "{file} has gone unasked");
    }
    on_root(&node, &["reset", "--yes"]).with(0, &[]);
    for gone in ["mnt/containerd", "mnt/disk/state"] {
        assert!(!node.root().join(gone).exists(), "{gone} stays");
    }
    assert!(node.root().join("mnt/disk/others").exists());
}

#[test]
fn a_reset_never_empties_a_folder_of_the_system_whatever_the_spec_names() {
    for folder in ["/", "/var", "/var/lib", "/etc/kubelet", "/mnt"] {
        let node = Machine::new(NODES);
        let folders = format!("  containerd: {{configOverride: 'root = \"{folder}\"'}}\n  role: Node\n");
        node.cluster.edit("instancegroup/nodes", "  role: Node\n", &folders).unwrap();
        node.run("converge", &["--config-from", "cluster-spec"]).with(0, &[]);
        let others = ["var/lib/mine/x", "etc/kubelet/mine", "mnt/mine"];
        put(&node, &others);
        let asked = on_root(&node, &["reset", "--yes"]);
        asked.with(0, &[]);
        assert!(asked.stdout.contains(&format!("\n  {folder}\n")), "{}", asked.stdout);
        for stays in others {
            assert!(node.root().join(stays).exists(), "{folder}: {stays} has gone: {}", asked.stdout);
        }
    }
}

fn put(machine: &Machine, files: &[&str]) {
    for file in files {
        let path = machine.root().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "x").unwrap();
    }
}
