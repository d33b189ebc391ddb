//! `verify --repair --only` repairs nothing but the named resources.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::PathBuf;

use kops_agent_tests::example_store::NODES;
use serde_json::json;

use crate::example::Machine;

const DIFFERENT: i32 = 4;
const SPEC: &str = "instancegroup/nodes";
const A: &str = "file /etc/motd.d/a";
const B: &str = "file /etc/motd.d/b";
const C: &str = "file /etc/motd.d/c";

/// A converged node whose spec has the file assets `files`.
struct Scene {
    node: Machine,
    files: [PathBuf; 2],
}

impl Scene {
    fn new() -> Scene {
        let node = Machine::new(NODES);
        let assets = "  fileAssets: [{name: a, path: /etc/motd.d/a, content: hello}, {name: b, path: /etc/motd.d/b, content: hello}]\n";
        node.cluster.edit(SPEC, "  role: Node\n", &format!("  role: Node\n{assets}")).unwrap();
        node.run("converge", &[]).with(0, &[]);
        let files = ["etc/motd.d/a", "etc/motd.d/b"].map(|file| node.root().join(file));
        Scene { node, files }
    }

    fn change(&self, files: &[PathBuf]) {
        files.iter().for_each(|file| fs::write(file, "changed by hand").unwrap());
    }

    fn are_changed(&self) -> [bool; 2] {
        self.files.each_ref().map(|file| fs::read_to_string(file).unwrap().contains("changed by hand"))
    }
}

#[test]
fn a_limited_repair_changes_nothing_if_another_resource_differs() {
    let scene = Scene::new();
    scene.change(&scene.files);
    let refused = scene.node.run("verify", &["--repair", "--only", A]);
    refused.with(DIFFERENT, &[&format!("repairs nothing, because it may not repair {B}")]);
    assert_eq!(scene.are_changed(), [true, true]);
    scene.node.run("verify", &["--repair", "--only", A, "--only", B]).with(0, &[]);
    assert_eq!(scene.are_changed(), [false, false]);
    scene.node.run("verify", &[]).with(0, &[]);
    scene.node.run("verify", &["--only", A]).with(2, &["--repair"]);
}

/// Each repair with `--only` leaves the changed file as it is. Then a repair without `--only` restores this file, which
/// shows that the repair was possible.
#[test]
fn a_limited_repair_neither_goes_back_to_the_last_applied_configuration_nor_finishes_a_rollback() {
    let scene = Scene::new();
    let Scene { node, files: [file, _] } = &scene;
    let limited = || node.run("verify", &["--repair", "--only", A, "--only", C]);
    let unlimited = || node.run("verify", &["--repair"]);

    scene.change(std::slice::from_ref(file));
    node.cluster.s3.forbid(&format!("demo.example.com/{SPEC}"));
    limited().with(1, &[SPEC]);
    assert_eq!(scene.are_changed(), [true, false], "the wanted configuration is not known");
    unlimited().with(1, &[SPEC]);
    assert_eq!(scene.are_changed(), [false, false]);
    node.cluster.s3.permit_all();

    scene.change(std::slice::from_ref(file));
    let another = "hello}, {name: c, path: /etc/motd.d/c, content: hello}]";
    node.cluster.edit(SPEC, "hello}]", another).unwrap();
    let in_the_way = node.root().join("etc/motd.d/c");
    fs::create_dir(&in_the_way).unwrap();
    let expected = ["a directory is in its place"];
    limited().with(3, &expected);
    assert_eq!(scene.are_changed(), [true, false], "the wanted configuration cannot be applied");
    unlimited().with(3, &expected);
    assert_eq!(scene.are_changed(), [false, false]);
    fs::remove_dir(&in_the_way).unwrap();

    scene.change(std::slice::from_ref(file));
    let journal = node.root().join("var/lib/kops-agent/rollback/journal.json");
    fs::create_dir_all(journal.parent().unwrap()).unwrap();
    let attempt = json!({"configHash": "a=", "desired": "a"});
    let rolling_back = json!({"attempt": attempt, "takenBack": "kubelet is dead", "kept": {}, "begun": []});
    fs::write(&journal, rolling_back.to_string()).unwrap();
    limited().with(DIFFERENT, &["repairs nothing", "interrupted while it rolled back"]);
    assert!(scene.are_changed() == [true, false] && journal.exists());
    unlimited().with(0, &["has finished the rollback"]);
    assert!(scene.are_changed() == [false, false] && !journal.exists());
}
