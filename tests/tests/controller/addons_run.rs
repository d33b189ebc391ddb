//! Add-ons applied by a service instead of kOps' channels pod, on a real API server: several services, an outage, a failure.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::addons::{Addons, CHANNEL, config_map, hash};
use crate::cluster::{Cluster, eventually};
use crate::controller::Controller;

const LEASE: &str = "kops-agent-addons";
const LEADS: &str = r#"leader_election_master_status{name="kops-agent-addons"}"#;
const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";

fn leads(service: &Controller) -> bool {
    service.metric(LEADS) == Some(1)
}

pub fn addon_metric(service: &Controller, metric: &str, addon: &str) -> Option<u64> {
    service.metric(&format!(r#"{metric}{{addon="{addon}",channel="{CHANNEL}"}}"#))
}

/// The type, the reason and the message of each Event about add-ons.
pub fn reasons(cluster: &Cluster) -> String {
    let selector = "involvedObject.kind=Namespace,involvedObject.name=kube-system";
    let reasons = "jsonpath={range .items[*]}{.type} {.reason} {.message}{'\\n'}{end}";
    cluster.kubectl(&["get", "events", "-n", "kube-system", "--field-selector", selector, "-o", reasons])
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn one_of_three_services_leads_and_another_takes_over() {
    let cluster = Cluster::start();
    let mut addons = Addons::new(&cluster);
    let nodes = ["cp-1", "cp-2", "cp-3"];
    nodes.iter().for_each(|node| cluster.create_node(node, None));
    addons.put("a", json!({}), &config_map("a", "kube-system", "1"));
    let mut services: Vec<Controller> = nodes
        .iter()
        .map(|node| cluster.addons_run(&["--node-name", node, "--node-labels", "foo=bar"]))
        .collect();

    eventually("one applies", || addons.recorded("a").is_some());
    assert_eq!(services.iter().filter(|service| leads(service)).count(), 1);
    let version = json!({"channel": CHANNEL, "manifestHash": hash(&config_map("a", "kube-system", "1")), "systemGeneration": 1});
    assert_eq!(addons.recorded("a"), Some(version), "as upstream's pod records it");
    let has_looked = |service: &Controller| addon_metric(service, "kops_agent_addon_due", "a").is_some();
    eventually("it tells of it", || services.iter().any(has_looked));
    assert!(
        services.iter().all(|service| leads(service) == has_looked(service)),
        "a process that does not lead looks at nothing"
    );
    // Each service labels its own Node even if it does not lead, like upstream's pods.
    for node in nodes {
        let label = |label: &str| cluster.label(node, label);
        eventually("the Node is labelled", || label(CONTROL_PLANE).is_some());
        for (name, value) in [("kops.k8s.io/kops-controller-pki", ""), ("foo", "bar")] {
            assert_eq!(label(name).as_deref(), Some(value), "{node}");
        }
    }
    cluster.label_node("cp-2", CONTROL_PLANE, Value::Null);
    eventually("a label is put back", || cluster.label("cp-2", CONTROL_PLANE).is_some());
    assert_eq!(services.iter().map(|service| service.get("/readyz")).collect::<Vec<_>>(), ["ok"; 3]);

    // A killed service does not release the Lease, so the Lease must expire. After SIGTERM, the service releases the Lease.
    for (generation, is_killed) in [("2", true), ("3", false)] {
        let holder = cluster.holder_of(LEASE);
        let leader = services.remove(services.iter().position(leads).unwrap());
        if is_killed {
            leader.kill()
        } else {
            leader.terminate()
        }
        let manifest = config_map("a", "kube-system", generation);
        addons.put("a", json!({}), &manifest);
        eventually("another applies", || {
            addons.recorded("a").is_some_and(|version| version["manifestHash"] == hash(&manifest))
        });
        assert_ne!(cluster.holder_of(LEASE), holder);
    }
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn current_add_ons_cost_no_list_and_no_read_of_objects() {
    let cluster = Cluster::start();
    let mut addons = Addons::new(&cluster);
    addons.put("ours", json!({}), &config_map("ours", "kube-system", "1"));
    // Upstream's pod has recorded this add-on as current. So the service does not notice that the add-on's object is missing.
    let theirs = config_map("theirs", "kube-system", "1");
    addons.put("theirs", json!({}), &theirs);
    let recorded = json!({"channel": CHANNEL, "manifestHash": hash(&theirs), "systemGeneration": 1});
    let annotation = format!("addons.k8s.io/theirs={recorded}");
    cluster.kubectl(&["annotate", "namespace", "kube-system", &annotation]);
    let service = cluster.addons_run(&[]);
    eventually("the other is applied", || addons.recorded("ours").is_some());

    // The API server's counts of requests for namespaces and ConfigMaps, by verb. `get` is left out, because the test's own
    // kubectl sends it too.
    let all = || -> Vec<usize> {
        let ways = [
            ("namespaces", "LIST"),
            ("configmaps", "LIST"),
            ("configmaps", "APPLY"),
            ("configmaps", "PATCH"),
            ("namespaces", "PATCH"),
        ];
        ways.iter().map(|(resource, verb)| cluster.requests(resource, verb)).collect()
    };
    let last_look = || addon_metric(&service, "kops_agent_addon_last_success_seconds", "ours").unwrap();
    let (begun, before, got) = (last_look(), all(), cluster.requests("namespaces", "GET"));
    eventually("it has looked some times", || last_look() >= begun + 5);
    assert_eq!(all(), before);
    assert!(cluster.requests("namespaces", "GET") >= got + 4, "one request a look");
    assert!(!addons.is_there("configmap", "theirs", "kube-system"));
    assert_eq!(addon_metric(&service, "kops_agent_addon_due", "theirs"), Some(0));
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn an_outage_of_the_store_changes_nothing_and_is_reported() {
    let cluster = Cluster::start();
    let mut addons = Addons::new(&cluster);
    addons.put("a", json!({}), &config_map("a", "kube-system", "1"));
    let service = cluster.addons_run(&[]);
    eventually("it is applied", || addons.recorded("a").is_some() && service.get("/readyz") == "ok");
    let before = addons.recorded("a");

    cluster.break_store();
    let readable = format!(r#"kops_agent_addon_channel_readable{{channel="{CHANNEL}"}}"#);
    eventually("it is told", || service.metric(&readable) == Some(0));
    assert!(service.get("/readyz").contains("cannot be read"), "{}", service.get("/readyz"));
    assert_eq!(service.get("/healthz"), "ok");
    eventually("an Event says so", || {
        reasons(&cluster).contains("Warning ChannelUnreadable the channel s3://")
    });
    assert!(leads(&service) && addon_metric(&service, "kops_agent_addon_due", "a") == Some(0));
    assert!(addons.is_there("configmap", "a", "kube-system") && addons.recorded("a") == before);

    cluster.mend_store();
    let manifest = config_map("a", "kube-system", "2");
    addons.put("a", json!({}), &manifest);
    eventually("it goes on", || addons.recorded("a").unwrap()["manifestHash"] == hash(&manifest));
    eventually("it is ready", || service.get("/readyz") == "ok");
    assert_eq!(service.metric(&readable), Some(1));
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn a_failing_add_on_delays_no_other_and_a_changed_one_is_applied_immediately() {
    /// After this number of failures, the pause before the next try is 40 s.
    const FAILURES: u64 = 4;
    let cluster = Cluster::start();
    let mut addons = Addons::new(&cluster);
    addons.put("bad", json!({}), &config_map("in-bad", "nowhere", "1"));
    addons.put("good", json!({}), &config_map("good", "kube-system", "1"));
    let service = cluster.addons_run(&[]);
    eventually("the good one is applied", || addons.recorded("good").is_some());
    let failures = || addon_metric(&service, "kops_agent_addon_failures_total", "bad").unwrap_or_default();
    let begun = Instant::now();
    eventually("the bad one is tried again", || failures() >= FAILURES);
    assert!(begun.elapsed() > Duration::from_secs(10), "{FAILURES} tries in {:?}", begun.elapsed());
    let told = reasons(&cluster);
    assert!(
        told.contains("Warning AddonFailed the add-on bad could not be applied") && told.contains("nowhere"),
        "{told}"
    );
    assert!(told.contains("Normal AddonApplied the add-on good was applied ("), "{told}");
    assert!(
        service.get("/readyz").contains("the add-on bad: ConfigMap nowhere/in-bad"),
        "{}",
        service.get("/readyz")
    );
    let due = |addon| addon_metric(&service, "kops_agent_addon_due", addon);
    assert_eq!((due("bad"), due("good")), (Some(1), Some(0)));
    assert_eq!(addons.recorded("bad"), None);

    let begun = Instant::now();
    addons.put("bad", json!({}), &config_map("in-bad", "kube-system", "1"));
    eventually("the changed one is applied", || addons.recorded("bad").is_some());
    assert!(begun.elapsed() < Duration::from_secs(30), "it waited for {:?}", begun.elapsed());
    eventually("nothing is due", || service.get("/readyz") == "ok");
    assert_eq!(failures(), FAILURES);
}
