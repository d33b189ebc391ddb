//! Reads the containers of static pods from containerd by `ctr`.

use std::collections::{BTreeMap, BTreeSet};

use kops_agent_plan::health::StaticPod;
use kops_agent_spec::failure::{Failure, Kind};
use serde::Deserialize;

use super::commands::{self, Outcome};

/// Timeouts for `ctr`. Without timeouts, a hanging container runtime would block the run.
pub(super) const DEADLINES: [&str; 4] = ["--timeout", "15s", "--connect-timeout", "5s"];

/// The labels under which containerd's CRI plugin stores kubelet's metadata of a container.
mod labels {
    pub(super) const KIND: &str = "io.cri-containerd.kind";
    pub(super) const NAMESPACE: &str = "io.kubernetes.pod.namespace";
    pub(super) const POD: &str = "io.kubernetes.pod.name";
    pub(super) const UID: &str = "io.kubernetes.pod.uid";
    pub(super) const CONTAINER: &str = "io.kubernetes.container.name";
}

#[derive(Deserialize)]
pub(crate) struct Container {
    #[serde(rename = "ID")]
    pub(crate) id: String,
    #[serde(rename = "Labels", default)]
    labels: BTreeMap<String, String>,
}

impl Container {
    /// The UID of the container's pod.
    pub(crate) fn uid(&self) -> &str {
        self.label(labels::UID)
    }

    /// The container's name in the pod's manifest.
    pub(crate) fn name(&self) -> &str {
        self.label(labels::CONTAINER)
    }

    /// Whether the container belongs to this static pod. kubelet derives the UID of a static pod from the hash of its
    /// manifest (pkg/kubelet/config/common.go). Such a UID has no dashes; UIDs from the API server have dashes.
    fn is_of(&self, pod: &StaticPod) -> bool {
        let is_named =
            self.label(labels::POD).strip_prefix(&pod.name).is_some_and(|rest| rest.starts_with('-'));
        is_named && !self.uid().contains('-')
    }

    fn label(&self, name: &str) -> &str {
        self.labels.get(name).map(String::as_str).unwrap_or_default()
    }

    #[cfg(test)]
    pub(crate) fn stand_in(uid: &str, name: &str) -> Container {
        let labels = [(labels::UID, uid), (labels::CONTAINER, name)];
        Container {
            id: format!("{uid}-{name}"),
            labels: labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        }
    }
}

/// The running containers of a static pod. `None` if `ctr` is not installed.
pub(crate) fn running(pod: &StaticPod, socket: &str) -> Result<Option<Vec<Container>>, Failure> {
    let Some(listed) = ask(socket, &list_of(pod)) else { return Ok(None) };
    let listed = output_or_error(listed)?;
    let running = running_tasks(socket)?;
    let mut containers = Vec::new();
    for id in listed.lines().filter(|id| running.contains(*id)) {
        // The container may have ended since `ctr` listed it. Then `ctr` does not know its ID.
        let Some(info) = ask(socket, &["containers", "info", id]).and_then(|info| output_or_error(info).ok())
        else {
            continue;
        };
        containers.extend(serde_json::from_str::<Container>(&info).ok().filter(|found| found.is_of(pod)));
    }
    Ok(Some(containers))
}

/// The IDs of the containers that have a running process.
pub(crate) fn running_tasks(socket: &str) -> Result<BTreeSet<String>, Failure> {
    Ok(running_of(&tasks(socket)?))
}

/// The first process of each running container, by container ID.
pub(crate) fn processes(socket: &str) -> Result<BTreeMap<String, u32>, Failure> {
    Ok(processes_of(&tasks(socket)?))
}

fn tasks(socket: &str) -> Result<String, Failure> {
    let listed = ask(socket, &["tasks", "list"]);
    output_or_error(listed.ok_or_else(|| Failure::new(Kind::Command, "ctr cannot be started"))?)
}

/// Runs `ctr`. `None` if it cannot be started, for example because it is not installed.
pub(crate) fn ask(socket: &str, arguments: &[impl AsRef<str>]) -> Option<Outcome> {
    let mut command = vec!["ctr", "--address", socket, "--namespace", "k8s.io"];
    command.extend(DEADLINES);
    command.extend(arguments.iter().map(AsRef::as_ref));
    commands::ask(&command).ok()
}

/// The output of `ctr`, or its error message if it failed.
pub(crate) fn output_or_error(outcome: Outcome) -> Result<String, Failure> {
    match outcome.status.success() {
        true => Ok(outcome.stdout),
        false => Err(Failure::new(Kind::Command, format!("ctr: {}", outcome.stderr.trim()))),
    }
}

/// The `ctr` arguments that list the containers of a static pod, by namespace and container name.
fn list_of(pod: &StaticPod) -> Vec<String> {
    let filter = |container: &String| {
        format!(
            "labels.\"{}\"==container,labels.\"{}\"=={},labels.\"{}\"=={container}",
            labels::KIND,
            labels::NAMESPACE,
            pod.namespace,
            labels::CONTAINER
        )
    };
    let words = ["containers", "list", "--quiet"].map(str::to_owned);
    words.into_iter().chain(pod.containers.iter().map(filter)).collect()
}

fn running_of(listed: &str) -> BTreeSet<String> {
    processes_of(listed).into_keys().collect()
}

fn processes_of(listed: &str) -> BTreeMap<String, u32> {
    let running = listed.lines().filter_map(|line| line.trim_end().strip_suffix("RUNNING"));
    let process = |line: &str| {
        let (id, process) = line.trim_end().rsplit_once(' ')?;
        Some((id.trim_end().to_owned(), process.parse().ok()?))
    };
    running.filter_map(process).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_read_as_ctr_prints_them() {
        let tasks = "TASK    PID    STATUS    \nabc     12     RUNNING\ndef     13     STOPPED\n";
        assert_eq!(running_of(tasks), BTreeSet::from(["abc".to_owned()]));
        assert_eq!(processes_of(tasks), BTreeMap::from([("abc".to_owned(), 12)]));
    }

    #[test]
    fn a_container_belongs_to_one_static_pod() {
        let pod = StaticPod {
            namespace: "kube-system".into(),
            name: "kube-apiserver".into(),
            containers: BTreeSet::new(),
            termination_grace_period_seconds: 30,
        };
        let is_of = |name: &str, uid: &str| {
            let json =
                format!(r#"{{"ID":"a","Labels":{{"{}":"{name}","{}":"{uid}"}}}}"#, labels::POD, labels::UID);
            serde_json::from_str::<Container>(&json).unwrap().is_of(&pod)
        };
        assert!(is_of("kube-apiserver-i-01", "aaa"));
        assert!(!is_of("kube-apiserver-i-01", "a-a"), "the UID is that of a pod from the API server");
        assert!(!is_of("kube-apiserverx-1", "aaa"));
        assert!(!is_of("x", "aaa"));
    }
}
