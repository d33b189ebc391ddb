//! The state after an interrupted change, and the run that resumes the change.

use std::os::unix::fs::MetadataExt as _;

use kops_agent_host::{Error, Resetting};
use kops_agent_plan::resource::*;

use super::scene::{Node, Scene, node, with_keys, with_pods};
use crate::support::Machine;

#[tokio::test]
async fn the_next_run_restarts_a_pod_that_an_interrupted_run_did_not_reach() {
    let scene = Scene::converged(&with_keys(["1", "1", "1"])).await;
    scene.interrupt(&with_keys(["2", "2", "bad"]), "end etcd-main").await;
    scene.node.news();
    scene.converge(&with_keys(["2", "2", "3"])).await.unwrap();
    let news = scene.node.news();
    let ended: Vec<&String> = news.iter().filter(|news| news.starts_with("end ")).collect();
    assert_eq!(ended, ["end etcd-main", "end kube-apiserver", "end kube-scheduler"]);
    scene.is_clean();
}

#[tokio::test]
async fn a_change_that_was_interrupted_during_a_wait_continues() {
    for (then, is_good) in [("bad", false), ("22", true)] {
        let scene = Scene::converged(&node("1")).await;
        let before = scene.files();
        scene.interrupt(&node("bad"), "restart kubelet.service").await;
        assert!(scene.machine.path("/var/lib/kops-agent/rollback/journal.json").exists());
        let folder = scene.machine.path("/var/lib/kops-agent/rollback").metadata().unwrap();
        assert_eq!(folder.mode() & 0o777, 0o700);
        match scene.converge(&node(then)).await {
            Ok(()) => assert!(is_good),
            Err(error) => {
                assert!(!is_good && matches!(error, Error::RolledBack(_)), "{error}");
                assert_eq!(
                    scene.files(),
                    before,
                    "the rollback restores the state before the interrupted run"
                );
            }
        }
        scene.is_clean();
    }
}

#[tokio::test]
async fn the_next_run_waits_for_the_pods_of_an_interrupted_run() {
    let scene = Scene::converged(&with_pods(node("1"), ["1", "1", "1"])).await;
    let before = scene.files();
    let bad = with_pods(node("1"), ["bad", "1", "1"]);
    scene.interrupt(&bad, "pod kube-scheduler # bad").await;
    assert!(scene.machine.plan(&scene.host(), &bad).is_empty(), "all files are written");
    let error = scene.converge(&bad).await.unwrap_err();
    assert!(matches!(error, Error::RolledBack(_)), "{error}");
    assert_eq!(scene.files(), before);
    scene.is_clean();
}

struct Quiet;

impl Resetting for Quiet {
    fn doing(&self, _what: &str) {}
}

#[tokio::test]
async fn a_reset_after_an_interrupted_change_removes_backups_and_keeps_other_files() {
    let with_motd = |version: &str, mode: Mode| {
        let mut state = node(version);
        state.add(File::text("/etc/motd", "hello").mode(mode));
        state
    };
    let machine = Machine::new();
    std::fs::create_dir_all(machine.path("/etc")).unwrap();
    std::fs::write(machine.path("/etc/motd"), "hello").unwrap();
    let scene = Scene { node: Node::new(&machine), machine };
    scene.converge(&with_motd("1", Mode::FILE)).await.unwrap();
    scene.interrupt(&with_motd("bad", Mode::PRIVATE), "restart kubelet.service").await;
    let motd = scene.machine.path("/etc/motd").metadata().unwrap();
    assert_eq!(motd.nlink(), 2, "the backup is no hard link, so this test shows nothing");

    let host = scene.host();
    host.reset(&host.plan_reset(&[], &[], &[]).unwrap(), &Quiet).unwrap();
    assert_eq!(scene.machine.read("/etc/motd"), "hello");
    assert!(!scene.machine.path("/var/lib/kops-agent").exists());
}
