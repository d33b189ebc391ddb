//! Changes of a working node. The run waits for each component in turn. If one stays unhealthy, everything is rolled
//! back.
#![allow(clippy::unwrap_used)]

use crate::support;

mod interrupted;
mod renewal;
pub(crate) mod scene;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::support::Machine;
use kops_agent_host::health::{Health, HealthTimings, unhealthy};
use kops_agent_host::system::commands::Commands;
use kops_agent_host::system::systemd::Systemd as _;
use kops_agent_host::{Error, Record};
use kops_agent_plan::health::{Check, StaticPod};
use kops_agent_plan::resource::*;
use kops_agent_spec::failure::Failure;
use scene::{KUBELET_CONFIG, Node, Scene, TIMINGS, node, with_keys, with_pods};

#[tokio::test]
async fn the_answer_of_another_process_neither_rolls_back_nor_passes() {
    let scene = Scene::converged(&node("1")).await;
    *scene.node.other_listener.lock() = Some("evil (process 8)".into());
    // A process that does not belong to kubelet listens on kubelet's port. Its answers report an unhealthy kubelet
    // first, and then a healthy one.
    for version in ["bad", "22"] {
        let error = scene.converge(&node(version)).await.unwrap_err();
        assert!(matches!(error, Error::Unasked { .. }), "{error:?}");
        let error = error.to_string();
        assert!(
            error.contains(
                "cannot check the health of unit kubelet.service: evil (process 8) listens at http"
            ),
            "{error}"
        );
        assert!(error.contains("causes no rollback") && error.contains("end that process"), "{error}");
        assert_eq!(scene.machine.read(KUBELET_CONFIG), format!("maxPods: {version}\n"));
        assert!(!scene.host().status().unwrap().converged);
    }
    // After the process on kubelet's port ends, the run completes the change.
    *scene.node.other_listener.lock() = None;
    scene.converge(&node("22")).await.unwrap();
    assert!(scene.host().status().unwrap().converged);
    scene.is_clean();
}

#[tokio::test]
async fn everything_is_rolled_back_if_kubelet_is_unhealthy() {
    let scene = Scene::converged(&node("1")).await;
    let before = scene.files();
    let error = scene.converge(&node("bad")).await.unwrap_err();
    assert!(matches!(error, Error::RolledBack(_)), "{error:?}");
    let error = error.to_string();
    for part in [
        "unit kubelet.service did not become healthy: connection refused; its last log lines: unknown field \
         bad",
        "`journalctl -u kubelet.service`",
        "rolled back to the previous configuration (hash), and everything is healthy again",
        "--retry-failed",
    ] {
        assert!(error.contains(part), "{part:?} is not in {error}");
    }
    assert_eq!(scene.files(), before);
    scene.is_clean();
    let news = scene.node.news();
    let of_kubelet: Vec<_> = news.iter().filter(|news| news.ends_with("kubelet.service")).collect();
    assert_eq!(of_kubelet, ["restart kubelet.service", "restart kubelet.service"]);
    assert!(!news.iter().any(|news| news.ends_with("containerd.service")), "{news:?}");
    assert!(news.contains(&"stop only-bad.service".to_owned()), "{news:?}");
    assert!(
        !news.contains(&"stop only-1.service".to_owned()),
        "removals come only when the node is healthy: {news:?}"
    );

    let status = scene.host().status().unwrap();
    assert!(status.converged && status.failure.is_some(), "{status:?}");
    assert_eq!(status.rolled_back.unwrap().back_to, "hash");
    assert!(scene.machine.plan(&scene.host(), &node("1")).is_empty());

    // Without `retrying_failed`, the agent does not retry the failed configuration. It still applies a different
    // configuration.
    let error = scene.converge(&node("bad")).await.unwrap_err();
    assert!(matches!(error, Error::FailedBefore(_)), "{error:?}");
    assert!(
        error.to_string().contains("so it is not tried again: unit kubelet.service did not become healthy"),
        "{error}"
    );
    assert_eq!((scene.node.news(), scene.files()), (vec![], before.clone()));
    let again = scene.host().retrying_failed(true);
    let error = scene.machine.converge_with(&again, &node("bad")).await.unwrap_err();
    assert!(matches!(error, Error::RolledBack(_)), "{error:?}");
    assert_eq!(scene.files(), before);
    scene.converge(&node("22")).await.unwrap();
    let status = scene.host().status().unwrap();
    assert!(status.converged && status.rolled_back.is_none() && status.failure.is_none(), "{status:?}");
    assert!(!scene.machine.path("/etc/kops/only-1").exists());
    scene.is_clean();
}

#[tokio::test]
async fn a_rolled_back_volume_is_not_mounted_at_the_next_boot() {
    let scene = Scene::converged(&node("1")).await;
    let mut bad = node("bad");
    bad.add(Mount {
        device: "/dev/xvdd".into(),
        path: "/data".into(),
        filesystem: "ext4".into(),
        format_options: vec![],
        mount_options: vec![],
        at_boot: true,
    });
    let error = scene.converge(&bad).await.unwrap_err();
    assert!(matches!(error, Error::RolledBack(_)), "{error:?}");
    let news = scene.node.news();
    assert!(news.contains(&"enable data.mount".to_owned()), "{news:?}");
    assert!(news.contains(&"disable data.mount".to_owned()), "{news:?}");
    assert!(!scene.machine.path("/etc/systemd/system/data.mount").exists());
    let asked = scene.machine.requests();
    assert!(asked.contains(&"mounts: unmount /data".to_owned()), "{asked:?}");
    scene.is_clean();
}

#[tokio::test]
async fn a_unit_whose_job_fails_is_rolled_back() {
    let scene = Scene::converged(&node("1")).await;
    let before = scene.files();
    let error = scene.converge(&node("refused")).await.unwrap_err();
    assert!(matches!(error, Error::RolledBack(_)), "{error:?}");
    assert!(error.to_string().contains("cannot restart kubelet.service: its job has failed"), "{error}");
    assert_eq!(scene.files(), before);
    assert_eq!(scene.host().status().unwrap().rolled_back.unwrap().still_wrong, [""; 0]);
    scene.is_clean();
}

/// Commands that fail while a file contains `1`, the text of the old version.
struct Spoilt(PathBuf);

impl Commands for Spoilt {
    fn run(&self, command: &[String]) -> Result<(), Error> {
        match std::fs::read_to_string(&self.0).unwrap_or_default().contains('1') {
            true => Err(Error::Command { command: command.join(" "), outcome: "fails".into() }),
            false => Ok(()),
        }
    }
}

#[tokio::test]
async fn a_failure_during_the_rollback_does_not_stop_the_rest() {
    let with_command = |version: &str| {
        let mut state = node(version);
        state.add(File::text("/etc/rules", version).on_change(&["load-rules"]));
        state
    };
    let scene = Scene::converged(&with_command("1")).await;
    scene.node.enable("chrony.service").unwrap();
    let before = scene.files();
    *scene.node.refused.lock() = vec!["stop only-bad.service".into(), "disable only-bad.service".into()];
    let host = scene.host().with_commands(Arc::new(Spoilt(scene.machine.path("/etc/rules"))));
    let error = scene.machine.converge_with(&host, &with_command("bad")).await.unwrap_err();
    assert!(matches!(error, Error::RolledBack(_)), "{error:?}");
    assert_eq!(scene.files(), before);
    let news = scene.node.news();
    assert_eq!(news.iter().filter(|news| *news == "restart kubelet.service").count(), 2, "{news:?}");
    let wrong = scene.host().status().unwrap().rolled_back.unwrap().still_wrong;
    let expected = ["cannot stop only-bad.service", "cannot disable only-bad.service", "`load-rules` fails"];
    assert_eq!(wrong.len(), expected.len(), "{wrong:?}");
    assert!(expected.iter().all(|part| wrong.iter().any(|wrong| wrong.contains(part))), "{wrong:?}");
    scene.is_clean();
}

#[tokio::test]
async fn a_rollback_restores_stopped_and_disabled_units() {
    let scene = Scene::converged(&node("1")).await;
    // An operator disabled and stopped a unit of the agent that the next configuration wants to run.
    scene.node.disable("containerd.service").unwrap();
    scene.node.stop("containerd.service").unwrap();
    scene.node.news();
    scene.converge(&node("bad")).await.unwrap_err();
    let news = scene.node.news();
    let of_containerd: Vec<&String> =
        news.iter().filter(|news| news.ends_with("containerd.service")).collect();
    assert_eq!(
        of_containerd,
        [
            "enable containerd.service",
            "start containerd.service",
            "stop containerd.service",
            "disable containerd.service"
        ]
    );
    scene.is_clean();
}

#[tokio::test]
async fn after_a_rollback_the_previous_configuration_needs_no_change() {
    let scene = Scene::converged(&node("1")).await;
    scene.converge(&node("bad")).await.unwrap_err();
    scene.node.news();
    scene.converge(&node("1")).await.unwrap();
    assert_eq!(scene.node.news(), [""; 0]);
    assert!(scene.host().status().unwrap().converged);
}

#[tokio::test]
async fn static_pods_change_one_after_another_before_kubelet() {
    let scene = Scene::converged(&with_pods(node("1"), ["1", "1", "1"])).await;
    scene.converge(&with_pods(node("22"), ["2", "2", "2"])).await.unwrap();
    let news = scene.node.news();
    let at = |what: &str| {
        news.iter().position(|news| news == what).unwrap_or_else(|| panic!("no {what} in {news:?}"))
    };
    let order =
        ["pod etcd-main # 2", "pod kube-apiserver # 2", "pod kube-scheduler # 2", "restart kubelet.service"];
    assert!(order.windows(2).all(|two| at(two[0]) < at(two[1])), "{news:?}");
    scene.is_clean();
}

#[tokio::test]
async fn an_unhealthy_pod_rolls_back_the_pods_before_it() {
    let before = with_pods(node("1"), ["1", "1", "1"]);
    let scene = Scene::converged(&before).await;
    let files = scene.files();
    let error = scene.converge(&with_pods(node("22"), ["2", "bad", "2"])).await.unwrap_err().to_string();
    assert!(
        error.contains("kube-apiserver.manifest did not become healthy: kube-apiserver does not run"),
        "{error}"
    );
    assert_eq!(scene.files(), files);
    let news = scene.node.news();
    assert!(!news.contains(&"pod kube-scheduler # 2".to_owned()), "{news:?}");
    assert!(
        !news.contains(&"restart kubelet.service".to_owned()),
        "kubelet was restarted after a failed pod: {news:?}"
    );
    assert_eq!(news.iter().rfind(|news| news.starts_with("pod etcd-main")).unwrap(), "pod etcd-main # 1");
    assert!(scene.machine.plan(&scene.host(), &before).is_empty());
    scene.is_clean();
}

#[tokio::test]
async fn pods_whose_keys_change_are_restarted_one_after_another() {
    let scene = Scene::converged(&with_keys(["1", "1", "1"])).await;
    assert!(scene.machine.plan(&scene.host(), &with_keys(["1", "1", "1"])).is_empty());
    scene.converge(&with_keys(["1", "2", "2"])).await.unwrap();
    let ended = |news: Vec<String>| {
        news.into_iter().filter(|news| news.starts_with("end ") || news.starts_with("restart ")).collect()
    };
    let news: Vec<String> = ended(scene.node.news());
    assert_eq!(news, ["end etcd-main", "end kube-apiserver"], "each pod is ended once, and no other pod");
    scene.converge(&with_keys(["1", "2", "2"])).await.unwrap();
    assert_eq!(ended(scene.node.news()), [""; 0]);
    scene.is_clean();
}

#[tokio::test]
async fn a_pod_that_is_unhealthy_with_a_new_key_gets_the_old_one_again() {
    let before = with_keys(["1", "1", "1"]);
    let scene = Scene::converged(&before).await;
    let files = scene.files();
    let error = scene.converge(&with_keys(["2", "bad", "2"])).await.unwrap_err();
    assert!(matches!(error, Error::RolledBack(_)), "{error:?}");
    assert_eq!(scene.files(), files);
    let news = scene.node.news();
    let ended: Vec<&String> = news.iter().filter(|news| news.starts_with("end ")).collect();
    assert_eq!(ended, ["end etcd-main", "end kube-apiserver", "end etcd-main", "end kube-apiserver"]);
    let status = scene.host().status().unwrap();
    assert_eq!(status.rolled_back.unwrap().still_wrong, [""; 0]);
    assert!(scene.machine.plan(&scene.host(), &before).is_empty());
    scene.is_clean();
}

#[tokio::test]
async fn the_run_does_not_wait_for_a_pod_that_was_unhealthy_before() {
    let scene = Scene::converged(&with_keys(["bad", "1", "1"])).await;
    scene.converge(&with_keys(["bad 2", "2", "1"])).await.unwrap();
    assert!(scene.node.news().contains(&"end kube-scheduler".to_owned()));
    assert_eq!(scene.machine.read("/srv/kubernetes/kube-scheduler/tls.key"), "bad 2");
    // The run still waits for a pod that was healthy before the run.
    let error = scene.converge(&with_keys(["bad 3", "bad", "1"])).await.unwrap_err();
    assert!(matches!(error, Error::RolledBack(_)), "{error:?}");
    assert_eq!(scene.machine.read("/srv/kubernetes/kube-scheduler/tls.key"), "bad 2");
    scene.is_clean();
}

#[tokio::test]
async fn a_repair_is_not_rolled_back() {
    let scene = Scene::converged(&node("1")).await;
    std::fs::write(scene.machine.path("/etc/systemd/system/kubelet.service"), "broken by hand").unwrap();
    let good = scene.machine.read(KUBELET_CONFIG);
    std::fs::write(scene.machine.path(KUBELET_CONFIG), "broken by hand").unwrap();
    scene.node.started_with.lock().clear();
    let stubborn = Stubborn(scene.node.clone());
    let host = scene.host().with_health(Arc::new(stubborn));
    let error = scene.machine.converge_with(&host, &node("1")).await.unwrap_err();
    assert!(matches!(error, Error::Unhealthy { .. }), "{error:?}");
    assert_eq!(scene.machine.read(KUBELET_CONFIG), good);
    scene.converge(&node("1")).await.unwrap();
    assert_eq!(scene.node.news().iter().filter(|news| *news == "restart kubelet.service").count(), 2);
    scene.is_clean();
}

struct Stubborn(Arc<Node>);

#[async_trait::async_trait]
impl Health for Stubborn {
    async fn ask(&self, _check: &Check) -> Result<(), Failure> {
        Err(unhealthy("connection refused"))
    }
    fn pod_uid(&self, _pod: &StaticPod, _socket: &str) -> Result<Option<String>, Failure> {
        Err(unhealthy("no pod"))
    }
    fn last_words(&self, resource: &ResourceId) -> Vec<String> {
        self.0.last_words(resource)
    }
}

#[tokio::test]
async fn an_unhealthy_component_is_reported_and_the_rest_is_rolled_back() {
    let scene = Scene::converged(&node("1")).await;
    let before = scene.files();
    let host = scene.host().with_health(Arc::new(Stubborn(scene.node.clone())));
    let error = scene.machine.converge_with(&host, &node("22")).await.unwrap_err().to_string();
    assert!(
        error.contains(", but these problems remain: unit kubelet.service did not become healthy"),
        "{error}"
    );
    assert_eq!(scene.files(), before);
    assert_eq!(scene.host().status().unwrap().rolled_back.unwrap().still_wrong.len(), 1);
    scene.is_clean();
}

#[tokio::test]
async fn a_new_machine_and_a_zero_timeout_wait_for_nothing() {
    let machine = Machine::new();
    let scene = Scene { node: Node::new(&machine), machine };
    scene.converge(&node("bad")).await.unwrap();
    let hasty = scene.host().with_health_timings(HealthTimings { timeout: Duration::ZERO, ..TIMINGS });
    scene.machine.converge_with(&hasty, &node("bad-too")).await.unwrap();
    let mut warming = node("1");
    let kubelet = Unit { running: false, ..Unit::new("kubelet.service", "[Service]\n") };
    let others: Vec<Resource> = warming
        .iter()
        .filter(|(id, _)| id.name != "kubelet.service")
        .map(|(_, resource)| resource.clone())
        .collect();
    warming = support::state(others);
    warming.add(kubelet);
    scene.converge(&warming).await.unwrap();
    scene.is_clean();
}

#[tokio::test]
async fn backups_may_be_on_another_file_system() {
    use nix::mount::{MsFlags, mount, umount};
    let scene = Scene::converged(&node("1")).await;
    let disk = scene.machine.path("/var/lib/kops-agent/rollback");
    std::fs::create_dir_all(&disk).unwrap();
    if mount(Some("tmpfs"), &disk, Some("tmpfs"), MsFlags::empty(), Some("size=1m")).is_err() {
        // Without the right to mount, the test has no second file system.
        return;
    }
    let before = scene.files();
    let error = scene.converge(&node("bad")).await;
    let after = scene.files();
    umount(&disk).unwrap();
    assert!(matches!(error, Err(Error::RolledBack(_))), "{error:?}");
    assert_eq!(after, before);
    assert_eq!(scene.machine.leftovers(), [""; 0]);
}

#[tokio::test]
async fn a_scratch_root_can_simulate_a_unit_that_does_not_start() {
    let machine = Machine::new();
    machine.converge(&node("1")).await.unwrap();
    let path = machine.path("/var/lib/kops-agent/recorded/state.json");
    let mut state: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    state["refusals"] =
        serde_json::json!([{"unit": "kubelet.service", "path": KUBELET_CONFIG, "text": "22"}]);
    std::fs::write(&path, serde_json::to_vec(&state).unwrap()).unwrap();
    let error = machine.error(&node("22")).await;
    assert!(error.contains("`systemctl restart kubelet.service` is refused while"), "{error}");
    assert_eq!(machine.read(KUBELET_CONFIG), "maxPods: 1\n");
    machine.converge(&node("333")).await.unwrap();
    assert!(machine.path(Record::PATH).exists());
}
