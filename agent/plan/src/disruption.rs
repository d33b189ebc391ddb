//! Decides which essential parts of a running node a plan restarts (kubelet, the container runtime, the API server, etcd), and which
//! group's slots limit these restarts.

use std::collections::BTreeSet;

use kops_agent_cluster::fleet::NextPlan;
use kops_agent_cluster::pacing::{CONTROL_PLANE, Versions};

use crate::diff::{Action, CONTAINER_RUNTIME, Change, KUBELET, Plan, Stage, Step};
use crate::resource::{DesiredState, Kind};
use crate::static_pod::{Rank, is_manifest, name_by_file, rank};

/// Names of the units and static pods that a working node needs and that a plan restarts or removes. Units and pods that the plan only
/// starts are left out: they do not run yet, so nothing is disrupted.
pub fn restarted(plan: &Plan) -> BTreeSet<String> {
    plan.steps.iter().flat_map(|step| of_step(step)).map(str::to_owned).collect()
}

/// A summary of the plan, for the node's Node object. `versions` are the versions after the change.
pub fn next_plan(plan: &Plan, versions: Versions) -> NextPlan {
    let summary = plan.summary();
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let counts = NextPlan {
        create: number(summary.create.number),
        change: number(summary.change.number),
        remove: number(summary.remove.number),
        takes_slot: !restarted(plan).is_empty(),
        versions,
        ..NextPlan::default()
    };
    counts.with_restarts(summary.restarts)
}

/// The group of nodes with which this node shares slots, for display before a server has named the group. It is the control plane if the
/// node's desired state has etcd, which only control planes run. Otherwise it is the instance group.
pub fn shown_group<'a>(desired: &DesiredState, instance_group: &'a str) -> &'a str {
    let is_etcd = |name: &str| is_manifest(name) && rank(name) == Rank::Etcd;
    if desired.iter().any(|(id, _)| is_etcd(&id.name)) { CONTROL_PLANE } else { instance_group }
}

fn of_step(step: &Step) -> Option<&str> {
    let name = step.resource.name.as_str();
    match step.resource.kind {
        Kind::Unit => is_part(name).then_some(name).filter(|_| stops(step)),
        Kind::File if is_pod(step) => is_part_of_control_plane(name).then(|| name_by_file(name)),
        // A change of a file may restart a unit with one of the file's commands.
        Kind::File => {
            step.changes.iter().filter_map(Change::unit_restarted_by_command).find(|unit| is_part(unit))
        }
        _ => None,
    }
}

fn is_part(unit: &str) -> bool {
    matches!(unit, KUBELET | CONTAINER_RUNTIME)
}

fn stops(step: &Step) -> bool {
    step.action == Action::Remove
        || step.changes.iter().any(|change| matches!(change, Change::Restart { .. } | Change::Stop))
}

/// Whether the step restarts or removes a running static pod.
fn is_pod(step: &Step) -> bool {
    step.restarts_pod()
        || (Stage::from_resource(&step.resource) == Stage::Pods && step.action == Action::Remove)
}

fn is_part_of_control_plane(manifest: &str) -> bool {
    matches!(rank(manifest), Rank::Etcd | Rank::ApiServer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::{File, ResourceId};

    const API_SERVER: &str = "/etc/kubernetes/manifests/kube-apiserver.manifest";
    const ETCD: &str = "/etc/kubernetes/manifests/etcd-main.manifest";
    const PROXY: &str = "/etc/kubernetes/manifests/kube-proxy.manifest";

    fn step(kind: Kind, name: &str, action: Action, changes: Vec<Change>) -> Step {
        let resource = ResourceId::new(kind, name);
        Step { stage: Stage::from_resource(&resource), resource, action, changes }
    }

    fn restarts(steps: Vec<Step>) -> Vec<String> {
        restarted(&Plan { steps, ..Plan::default() }).into_iter().collect()
    }

    fn restart() -> Vec<Change> {
        vec![Change::Restart { because: vec![] }]
    }

    fn write() -> Vec<Change> {
        vec![Change::Write { diff: String::new() }]
    }

    #[test]
    fn restarts_but_not_starts_of_kubelet_or_the_runtime_disrupt() {
        for unit in [KUBELET, CONTAINER_RUNTIME] {
            assert_eq!(restarts(vec![step(Kind::Unit, unit, Action::Restart, restart())]), [unit]);
            assert_eq!(restarts(vec![step(Kind::Unit, unit, Action::Change, vec![Change::Stop])]), [unit]);
            assert_eq!(restarts(vec![step(Kind::Unit, unit, Action::Remove, vec![])]), [unit]);
            assert!(restarts(vec![step(Kind::Unit, unit, Action::Change, vec![Change::Start])]).is_empty());
            assert!(
                restarts(vec![step(Kind::Unit, unit, Action::Create, vec![Change::Enable, Change::Start])])
                    .is_empty()
            );
        }
        assert!(restarts(vec![step(Kind::Unit, "logrotate.timer", Action::Restart, restart())]).is_empty());
    }

    #[test]
    fn changed_pods_of_the_api_server_or_etcd_disrupt() {
        for (path, name) in [(API_SERVER, "kube-apiserver"), (ETCD, "etcd-main")] {
            assert_eq!(restarts(vec![step(Kind::File, path, Action::Change, write())]), [name]);
            assert_eq!(
                restarts(vec![step(Kind::File, path, Action::Restart, restart())]),
                [name],
                "a key of it"
            );
            assert_eq!(restarts(vec![step(Kind::File, path, Action::Remove, vec![Change::Remove])]), [name]);
            assert!(
                restarts(vec![step(Kind::File, path, Action::Create, write())]).is_empty(),
                "it does not run"
            );
            let mode = vec![Change::Set { field: "mode".into(), from: None, to: "0400".into() }];
            assert!(restarts(vec![step(Kind::File, path, Action::Change, mode)]).is_empty());
        }
        assert!(restarts(vec![step(Kind::File, PROXY, Action::Change, write())]).is_empty());
    }

    #[test]
    fn a_file_whose_command_restarts_a_unit_disrupts() {
        let run = |unit: &str| {
            let command = ["systemctl", "restart", unit].map(str::to_owned).into();
            vec![Change::Write { diff: String::new() }, Change::Run { command }]
        };
        assert_eq!(restarts(vec![step(Kind::File, "/etc/x", Action::Change, run(KUBELET))]), [KUBELET]);
        assert!(restarts(vec![step(Kind::File, "/etc/x", Action::Change, run("x.service"))]).is_empty());
        assert!(restarts(vec![step(Kind::File, "/etc/x", Action::Change, write())]).is_empty());
        assert!(restarts(vec![]).is_empty());
    }

    #[test]
    fn a_summary_has_counts_and_names_and_no_content() {
        let mut changes = write();
        changes.extend(restart());
        let secret = Step { changes, ..step(Kind::Unit, KUBELET, Action::Restart, vec![]) };
        let steps = vec![secret, step(Kind::Unit, "logrotate.timer", Action::Restart, restart())];
        let next = next_plan(&Plan { steps, ..Plan::default() }, Versions::default());
        assert_eq!(next.restarts, [KUBELET, "logrotate.timer"]);
        assert_eq!((next.create, next.change, next.remove, next.takes_slot), (0, 0, 0, true));
    }

    #[test]
    fn the_shown_group_depends_on_whether_the_node_runs_etcd() {
        let mut desired = DesiredState::default();
        desired.add(File::text("/etc/kubernetes/manifests/kube-proxy.manifest", ""));
        assert_eq!(shown_group(&desired, "nodes"), "nodes");
        desired.add(File::text("/etc/kubernetes/manifests/etcd-main.manifest", ""));
        assert_eq!(shown_group(&desired, "control-plane-a"), CONTROL_PLANE);
    }
}
