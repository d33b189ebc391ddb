//! Records every state of the slots' Leases, the Nodes and the pods, in the order in which the API server wrote them. It uses
//! watches, because polling would miss states. An API server that restarts ends its watches, so every API server is watched: all of
//! them read the same etcd, and at most one restarts at a time.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Deserializer, Value};

use crate::cluster::{Cluster, Member, has_condition};
use crate::workload::DRAINED_PODS;

/// The name of each watch, and its arguments for `kubectl get`.
const WATCHED: [(&str, &[&str]); 3] = [
    ("leases", &["leases", "--namespace=kops-agent"]),
    ("nodes", &["nodes"]),
    ("pods", &["pods", "--selector=app=guarded"]),
];

/// Watches on every API server. They run from [`Witness::begins`] until [`Witness::ends`].
pub struct Witness<'a>(&'a Cluster);

/// The time during which a Node had a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    pub group: String,
    pub node: String,
    /// The time at which the Node took the slot. `until` is the time at which the Node released it. Both are RFC 3339 to the second,
    /// without the time zone.
    pub since: String,
    pub until: String,
}

/// The states of a cluster, computed from the events of the watches.
#[derive(Default)]
pub struct States {
    /// The key is the name of a Lease. The value is the Lease's group, its holder, and the time at which the holder acquired it.
    leases: BTreeMap<String, (String, String, String)>,
    pub turns: Vec<Turn>,
    cordoned: BTreeSet<String>,
    /// The pods of the guarded workload that have been ready at least once, and are neither deleted nor ending.
    pods: BTreeSet<String>,
    most_holders: BTreeMap<String, usize>,
    /// The smallest size of `pods` since it contained all guarded pods.
    fewest_pods: Option<usize>,
}

impl Witness<'_> {
    pub fn begins(cluster: &Cluster) -> Witness<'_> {
        let control_planes = cluster.control_planes();
        let kubectl =
            "kubectl --kubeconfig /root/.kube/config get \"$@\" --watch --output-watch-events --output=json";
        for Member { machine, .. } in control_planes {
            for (name, asked) in WATCHED {
                let (unit, file) = (unit(name), file(name));
                // A watch misses events while its API server restarts. With several control planes, the other watches get these events.
                // With one control plane, no other watch gets them. In this case, a watch that ends is not restarted, so `states` fails.
                let shell = match control_planes.len() {
                    1 => format!("exec {kubectl} >{file}"),
                    _ => format!("while true; do {kubectl}; sleep 1; done >{file}"),
                };
                let run = ["systemd-run", "--quiet", "--collect", "--unit", &unit, "sh", "-c", &shell, "sh"];
                machine.run(&[&run[..], asked].concat());
            }
        }
        for Member { machine, .. } in control_planes {
            machine.until("the watches have begun", || {
                (machine.try_run(&["test", "-s", &file("nodes")]).code == Some(0)).then_some(())
            });
        }
        Witness(cluster)
    }

    pub fn sees_guarded(&self, pods: usize) {
        self.0.control_plane().until("all guarded pods were seen ready", || self.states(pods).fewest_pods());
    }

    /// The states of the cluster since the watches began. `pods` is the number of pods of the guarded workload.
    pub fn states(&self, pods: usize) -> States {
        let mut events: Vec<(u64, &str, Value)> = Vec::new();
        for Member { machine, .. } in self.0.control_planes() {
            for (name, _) in WATCHED {
                assert_eq!(machine.show(&unit(name), "ActiveState"), "active", "{name} was not watched");
                let text = machine.read(&file(name));
                // The last event may be half written.
                let read = Deserializer::from_str(&text).into_iter::<Value>().map_while(Result::ok);
                events.extend(read.map(|event| (version(&event["object"]), name, event)));
            }
        }
        States::new(events, pods)
    }

    pub fn ends(self) {
        for Member { machine, .. } in self.0.control_planes() {
            for (name, _) in WATCHED {
                machine.run(&["systemctl", "stop", &unit(name)]);
                machine.run(&["rm", &file(name)]);
            }
        }
    }
}

impl States {
    /// Computes the states from these events. Each event has its resource version and the name of its watch. Several API servers may send
    /// the same event.
    fn new(mut events: Vec<(u64, &str, Value)>, pods: usize) -> States {
        events.sort_by_key(|(version, ..)| *version);
        let mut states = States::default();
        // An API server that restarts may end a watch with an event of the type ERROR.
        for (_, name, event) in events.iter().filter(|(.., event)| event["type"] != "ERROR") {
            let is_there = event["type"] != "DELETED";
            let object = &event["object"];
            match *name {
                "leases" => states.lease(object, is_there),
                "nodes" => states.node(object, is_there),
                _ => states.pod(object, is_there, pods),
            }
        }
        states
    }

    fn lease(&mut self, lease: &Value, is_there: bool) {
        let text =
            |pointer: &str| lease.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let name = text("/metadata/name");
        let (group, holder) =
            (text("/metadata/labels/kops-agent~1disruption-group"), text("/spec/holderIdentity"));
        let until = second(&text("/spec/renewTime"));
        let before = self.leases.remove(&name);
        if let Some((group, node, since)) =
            before.filter(|(_, before, _)| !before.is_empty() && *before != holder)
        {
            assert!(!self.cordoned.contains(&node), "{node} has lost the slot {name} while it is cordoned");
            self.turns.push(Turn { group, node, since, until });
        }
        if is_there {
            self.leases.insert(name, (group.clone(), holder, second(&text("/spec/acquireTime"))));
        }
        let holders = self.holders(&group).len();
        let most = self.most_holders.entry(group).or_default();
        *most = (*most).max(holders);
    }

    fn node(&mut self, node: &Value, is_there: bool) {
        let name = node["metadata"]["name"].as_str().unwrap().to_owned();
        if is_there && node["spec"]["unschedulable"] == true {
            let has_slot = self.leases.values().any(|(_, holder, _)| *holder == name);
            assert!(has_slot, "{name} is cordoned without a slot");
            self.cordoned.insert(name);
        } else {
            self.cordoned.remove(&name);
        }
    }

    fn pod(&mut self, pod: &Value, is_there: bool, all: usize) {
        let name = pod["metadata"]["name"].as_str().unwrap().to_owned();
        let is_ending = !pod["metadata"]["deletionTimestamp"].is_null();
        // After a restart, kubelet reports pods as not ready until it has probed them. So a pod that is not ready stays in `pods`.
        if !is_there || is_ending {
            self.pods.remove(&name);
        } else if has_condition(pod, "Ready") {
            self.pods.insert(name);
        }
        let there_are = self.pods.len();
        if there_are >= all || self.fewest_pods.is_some() {
            self.fewest_pods = Some(self.fewest_pods.unwrap_or(there_are).min(there_are));
        }
    }

    /// The Nodes that hold a slot of a group.
    pub fn holders(&self, group: &str) -> Vec<&str> {
        let of_group = self.leases.values().filter(|(of, holder, _)| of == group && !holder.is_empty());
        of_group.map(|(_, holder, _)| holder.as_str()).collect()
    }

    /// The largest number of slots of a group that were taken at any one time.
    pub fn most_holders(&self, group: &str) -> usize {
        self.most_holders.get(group).copied().unwrap_or_default()
    }

    /// Checks for each of these groups that a slot was taken, and that two slots were never taken at the same time.
    pub fn had_one_holder(&self, groups: &[&str]) {
        for group in groups {
            assert_eq!(self.most_holders(group), 1, "{group}: {:#?}", self.turns);
        }
    }

    /// Checks what happened since [`guard_for_drains`](crate::workload::guard_for_drains): pods were drained, the budget was kept, and no
    /// Node stayed cordoned.
    pub fn are_of_drains(&self) {
        assert!(self.cordoned.is_empty(), "{:?} stay cordoned", self.cordoned);
        assert_eq!(
            self.fewest_pods,
            Some(DRAINED_PODS - 1),
            "the budget was not kept, or nothing was drained"
        );
    }

    pub fn cordoned(&self) -> &BTreeSet<String> {
        &self.cordoned
    }

    /// The smallest number of guarded pods since all of them were ready. `None` if they were never all ready.
    pub fn fewest_pods(&self) -> Option<usize> {
        self.fewest_pods
    }
}

fn unit(name: &str) -> String {
    format!("witness-{name}.service")
}

fn file(name: &str) -> String {
    format!("/root/witness-{name}.json")
}

/// The resource version of an object. All kinds of objects in an etcd share one counter, so the versions give the order of all events.
fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"]
        .as_str()
        .and_then(|version| version.parse().ok())
        .unwrap_or_default()
}

/// A time in RFC 3339, to the second and without the time zone.
pub fn second(time: &str) -> String {
    time.chars().take("2026-01-01T00:00:00".len()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lease(version: u64, number: u32, holder: &str) -> (u64, &'static str, Value) {
        let (acquired, renewed) =
            ("2026-01-01T00:00:00.000000Z", format!("2026-01-01T00:00:{version:02}.000000Z"));
        let metadata =
            json!({"name": format!("slot.{number}"), "labels": {"kops-agent/disruption-group": "nodes"}});
        let spec = json!({"holderIdentity": holder, "acquireTime": acquired, "renewTime": renewed});
        (version, "leases", json!({"type": "MODIFIED", "object": {"metadata": metadata, "spec": spec}}))
    }

    fn node(version: u64, name: &str, is_cordoned: bool) -> (u64, &'static str, Value) {
        let object = json!({"metadata": {"name": name}, "spec": {"unschedulable": is_cordoned}});
        (version, "nodes", json!({"type": "MODIFIED", "object": object}))
    }

    #[test]
    fn slots_are_counted_in_the_order_of_the_writes() {
        let events = vec![lease(9, 0, ""), lease(3, 1, "b"), lease(1, 0, "a"), lease(4, 1, "")];
        let states = States::new(events, 0);
        assert_eq!(states.most_holders("nodes"), 2);
        assert!(states.holders("nodes").is_empty());
        let turns: Vec<(&str, &str)> =
            states.turns.iter().map(|turn| (turn.node.as_str(), turn.until.as_str())).collect();
        assert_eq!(turns, [("b", "2026-01-01T00:00:04"), ("a", "2026-01-01T00:00:09")]);
        let one_after_another = vec![lease(1, 0, "a"), lease(2, 0, ""), lease(3, 1, "b")];
        assert_eq!(States::new(one_after_another, 0).most_holders("nodes"), 1);
    }

    #[test]
    fn an_event_of_two_api_servers_counts_once() {
        let error = json!({"type": "ERROR", "object": {"kind": "Status", "metadata": {}}});
        let watched = [lease(1, 0, "a"), node(2, "a", true), node(3, "a", false), lease(4, 0, "")];
        let again = [(0, "nodes", error), lease(1, 0, "a"), node(3, "a", false), lease(4, 0, "")];
        let states = States::new([&watched[..], &again].concat(), 0);
        assert_eq!((states.most_holders("nodes"), states.turns.len()), (1, 1), "{:#?}", states.turns);
        assert!(states.cordoned().is_empty());
    }

    #[test]
    fn a_pod_counts_from_ready_until_its_deletion() {
        let pod = |version: u64, name: &str, kind: &str, is_ready: &str| {
            let status = json!({"conditions": [{"type": "Ready", "status": is_ready}]});
            let object = json!({"metadata": {"name": name}, "status": status});
            (version, "pods", json!({"type": kind, "object": object}))
        };
        let probed_anew = [
            pod(1, "a", "ADDED", "True"),
            pod(2, "b", "ADDED", "True"),
            pod(3, "a", "MODIFIED", "False"),
            pod(4, "a", "MODIFIED", "True"),
        ];
        assert_eq!(States::new(probed_anew.to_vec(), 2).fewest_pods(), Some(2));
        let replaced_too_late =
            [&probed_anew[..2], &[pod(5, "a", "DELETED", "True"), pod(6, "c", "ADDED", "True")]].concat();
        assert_eq!(States::new(replaced_too_late, 2).fewest_pods(), Some(1));
    }

    #[test]
    fn a_cordon_outside_a_slot_fails() {
        let within = [lease(1, 0, "a"), node(2, "a", true), node(3, "a", false), lease(4, 0, "")];
        assert!(States::new(within.to_vec(), 0).cordoned().is_empty());
        for of in [[1, 2, 4, 3], [2, 1, 3, 4]] {
            let moved =
                within.iter().zip(of).map(|((_, name, event), version)| (version, *name, event.clone()));
            let moved: Vec<_> = moved.collect();
            assert!(std::panic::catch_unwind(|| States::new(moved, 0)).is_err(), "{of:?}");
        }
    }
}
