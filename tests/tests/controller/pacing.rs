//! Nodes take turns before they restart components. They use Leases of a real API server (`docs/pacing.md`).

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Stdio;
use std::sync::Arc;

use kops_agent_tests::ec2::Instance;
use kops_agent_tests::example_keys::Keyset;
use kops_agent_tests::ports::free_port;
use kops_agent_tests::sts::{Principal, Sts};
use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair};
use rustls::ClientConfig;
use serde_json::{Value, json};

use crate::bootstrap::{World, on_aws};
use crate::client::{connect, exchange, post};
use crate::cluster::{
    CLUSTER, Cluster, GROUP_LABEL, REGION, agent_on_node, eventually, id, kubectl_on, plain_agent,
};
use crate::renewal::showing;

const FROM: Ipv4Addr = Ipv4Addr::new(127, 0, 1, 1);
const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";

/// A cluster with two workers (1 and 2), and two control planes in two groups (3 and 4).
pub struct Scene {
    pub world: World,
    authority: Keyset,
    _sts: Sts,
}

impl Scene {
    pub fn start() -> Scene {
        let sts = Sts::start().unwrap();
        let of_controller = Principal::instance("control-plane.c.example.com", "i-0ccccccccccccccc0");
        sts.put(&of_controller);
        let cluster = Cluster::start().with_environment("AWS_ENDPOINT_URL_STS", &sts.url());
        let labels = format!("{CONTROL_PLANE}: '', kops.k8s.io/kops-controller-pki: ''");
        cluster.apply("control-plane", "control-plane-b", &labels);
        for (number, group) in [(1, "nodes"), (2, "nodes"), (3, "control-plane"), (4, "control-plane-b")] {
            cluster.ec2.put(&id(number), Instance::of_group(CLUSTER, group));
            cluster.create_node(&id(number), Some(&id(number)));
        }
        let authority = Keyset::make("kubernetes-ca", 7).unwrap();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port().unwrap()));
        let world = World::signed_by(&authority, address, cluster, &json!({ "provider": on_aws(REGION) }));
        Scene { world, authority, _sts: sts }
    }

    pub fn is_labelled(&self) {
        let cluster = &self.world.cluster;
        eventually("all are labelled", || {
            (1..=4).all(|number| cluster.label(&id(number), GROUP_LABEL).is_some())
        });
    }

    /// A client whose certificate has this name and organization.
    fn client(&self, name: &str, organization: &str) -> Arc<ClientConfig> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.distinguished_name.push(DnType::OrganizationName, organization);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.authority.issuer().unwrap()).unwrap();
        showing(&self.world, &certificate.pem(), &key)
    }

    fn ask_by(&self, client: &Arc<ClientConfig>, body: &Value) -> (u16, String) {
        let asked = post("", &body.to_string()).replacen("POST /bootstrap ", "POST /slot ", 1);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let asking = async {
            let stream = connect(FROM, self.world.address).await.unwrap();
            exchange(stream, client, &self.world.name, &asked).await
        };
        runtime.block_on(asking).unwrap_or_default()
    }

    fn kubelet(&self, number: usize) -> Arc<ClientConfig> {
        self.client(&format!("system:node:{}", id(number)), "system:nodes")
    }

    /// The server's response to a node's request.
    #[track_caller]
    pub fn ask(&self, number: usize, action: &str, max_unavailable: u32) -> Value {
        let body = json!({"action": action, "maxUnavailable": max_unavailable});
        let (status, answer) = self.ask_by(&self.kubelet(number), &body);
        assert_eq!(status, 200, "{answer}");
        serde_json::from_str(&answer).unwrap()
    }

    /// The name of the Lease that a node acquires. `None` if the server grants no slot.
    #[track_caller]
    pub fn acquire(&self, number: usize, max_unavailable: u32) -> Option<String> {
        let answer = self.ask(number, "acquire", max_unavailable);
        (answer["granted"] == true).then(|| answer["lease"].as_str().unwrap().to_owned())
    }

    pub fn lease(&self, name: &str) -> Value {
        self.world.cluster.get(&format!("/apis/coordination.k8s.io/v1/namespaces/kops-agent/leases/{name}"))
    }

    fn patch_lease(&self, name: &str, patch: &Value) {
        let patch = patch.to_string();
        self.world.cluster.kubectl(&[
            "-n",
            "kops-agent",
            "patch",
            "lease",
            name,
            "--type=merge",
            "-p",
            &patch,
        ]);
    }
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn nodes_of_a_group_take_turns_and_all_control_planes_are_one_group() {
    let scene = Scene::start();
    let controller = scene.world.controller();
    scene.is_labelled();
    let [first, second] = [0, 1].map(|number| format!("kops-agent-disruption.nodes.{number}"));

    assert_eq!(scene.acquire(1, 1).as_deref(), Some(first.as_str()));
    let lease = scene.lease(&first);
    assert_eq!(
        (&lease["spec"]["holderIdentity"], &lease["spec"]["leaseDurationSeconds"]),
        (&json!(id(1)), &json!(300))
    );
    assert_eq!(lease["metadata"]["labels"]["kops-agent/disruption-group"], "nodes");
    let admin = scene.world.cluster.api.kubeconfig("admin", &["system:masters"]).unwrap();
    let fleet = plain_agent().args(["fleet", "status", "--kubeconfig"]).arg(admin).output().unwrap();
    let shown = String::from_utf8(fleet.stdout).unwrap();
    assert!(shown.contains(&format!("\n{} has the slot {first} since ", id(1))), "{shown}");
    let leases = scene.world.cluster.type_in(&kubectl_on("docs/pacing.md", "get leases"));
    let row: Vec<&str> =
        leases.lines().find(|line| line.starts_with(&first)).unwrap().split_whitespace().collect();
    assert_eq!(row[1], id(1), "{leases}");
    let busy = scene.ask(2, "acquire", 1);
    assert_eq!((&busy["granted"], &busy["group"]), (&json!(false), &json!("nodes")));
    assert_eq!((&busy["holders"][0]["node"], &busy["holders"][0]["lease"]), (&json!(id(1)), &json!(first)));
    assert_eq!(scene.ask(2, "renew", 9)["granted"], false, "it has none");
    assert_eq!(scene.acquire(1, 9).as_deref(), Some(first.as_str()), "it has no second one");
    assert_eq!(scene.ask(1, "renew", 1)["granted"], true);
    assert_eq!(scene.acquire(2, 2).as_deref(), Some(second.as_str()));

    // The server ignores the node, the group and the Lease in a request's body. So no node can release the slot of a
    // different node.
    let other = json!({"action": "release", "maxUnavailable": 1, "node": id(1), "group": "control-plane", "lease": first});
    assert_eq!(scene.ask_by(&scene.kubelet(2), &other).0, 200);
    assert_eq!(scene.lease(&first)["spec"]["holderIdentity"], id(1));
    assert_ne!(scene.lease(&second)["spec"]["holderIdentity"], id(2));
    scene.ask(1, "release", 1);
    assert_eq!(scene.acquire(2, 1).as_deref(), Some(first.as_str()));

    for number in [3, 4] {
        scene.world.cluster.report(&id(number));
    }
    assert_eq!(scene.acquire(3, 5).as_deref(), Some("kops-agent-disruption.control-plane.0"));
    assert_eq!(scene.ask(4, "acquire", 5)["holders"][0]["node"], id(3), "never two control planes");
    scene.ask(3, "release", 5);
    assert_eq!(scene.acquire(4, 5).as_deref(), Some("kops-agent-disruption.control-plane.0"));

    let metrics = controller.get("/metrics");
    for line in [
        r#"kops_agent_slot_requests_total{outcome="refused",reason="NoSlotFree"} 2"#,
        r#"kops_agent_slot_requests_total{outcome="refused",reason="HasNone"} 1"#,
    ] {
        assert!(metrics.contains(line), "{line} is not in:\n{metrics}");
    }
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn a_control_plane_gets_a_slot_only_while_all_others_are_ready() {
    let scene = Scene::start();
    let controller = scene.world.controller();
    scene.is_labelled();
    let cluster = &scene.world.cluster;
    let lease = "kops-agent-disruption.control-plane.0";
    #[track_caller]
    fn is_held_back(answer: &Value, by: usize, why: &str) {
        assert_eq!(
            (&answer["granted"], &answer["notReady"][0]["node"]),
            (&json!(false), &json!(id(by))),
            "{answer}"
        );
        assert_eq!(
            (answer["notReady"].as_array().unwrap().len(), answer.get("holders")),
            (1, None),
            "{answer}"
        );
        assert!(answer["notReady"][0]["why"].as_str().unwrap().contains(why), "{answer}");
    }
    // Node 4 has just joined, and has not reported its state. Later its machine is off.
    is_held_back(&scene.ask(3, "acquire", 1), 4, "has not reported its state yet");
    cluster.report(&id(4));
    let off = json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown",
        "message": "Kubelet stopped posting node status.", "lastTransitionTime": "2026-11-21T00:00:00Z"}]}});
    let is_off = |number: usize| {
        let (node, patch) = (id(number), off.to_string());
        cluster.kubectl(&["patch", "node", &node, "--subresource=status", "--type=merge", "-p", &patch]);
    };
    is_off(4);
    is_held_back(&scene.ask(3, "acquire", 5), 4, "NodeStatusUnknown: Kubelet stopped posting node status.");
    assert!(!cluster.kubectl(&["-n", "kops-agent", "get", "leases", "-o", "name"]).contains("control-plane"));
    assert!(scene.acquire(1, 1).is_some(), "workers go on");

    // A control plane that is not ready may itself get the slot. Until it releases the slot, all other control planes
    // wait.
    cluster.report(&id(3));
    assert_eq!(scene.acquire(4, 1).as_deref(), Some(lease));
    assert_eq!(scene.ask(3, "acquire", 1)["holders"][0]["node"], id(4));
    scene.ask(4, "release", 1);
    cluster.report(&id(4));
    // Node 4 is Ready, but no API server answers at the Node's address, as if etcd on this Node was down.
    cluster.is_at(&id(4), "127.0.0.2");
    is_held_back(&scene.ask(3, "acquire", 1), 4, "its API server is not ready: 127.0.0.2:");
    cluster.is_at(&id(4), "127.0.0.1");
    assert_eq!(scene.acquire(3, 1).as_deref(), Some(lease));
    // A run that has a slot may renew it. A new run gets no slot, not even on the node that has the slot.
    is_off(4);
    assert_eq!(scene.ask(3, "renew", 1)["granted"], true);
    is_held_back(&scene.ask(3, "acquire", 1), 4, "NodeStatusUnknown");
    assert!(controller.get("/metrics").contains(r#"reason="ControlPlaneNotReady"} 4"#));

    // If the server cannot list the Nodes, it treats none of them as healthy.
    let rules = json!({"rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "patch"]}]});
    cluster.kubectl(&["patch", "clusterrole", "kops-controller", "--type=merge", "-p", &rules.to_string()]);
    eventually("the right is gone", || {
        let (status, told) =
            scene.ask_by(&scene.kubelet(3), &json!({"action": "acquire", "maxUnavailable": 1}));
        status == 500 && told.contains("listing the Nodes of control planes") && told.contains("forbidden")
    });
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn a_slot_expires_without_renewal_and_is_never_held_forever() {
    let scene = Scene::start();
    let _controller = scene.world.controller();
    scene.is_labelled();
    let lease = scene.acquire(1, 1).unwrap();
    assert_eq!(scene.acquire(2, 1), None);
    // The Lease expires, as if its holder had been killed minutes ago.
    scene.patch_lease(&lease, &json!({"spec": {"leaseDurationSeconds": 1}}));
    eventually("it is free", || scene.acquire(2, 1).is_some());
    assert_eq!(scene.ask(1, "renew", 1)["granted"], false, "it is another's by now");
    assert_eq!(scene.lease(&lease)["spec"]["holderIdentity"], id(2));

    scene.patch_lease(&lease, &json!({"spec": {"acquireTime": "2026-01-01T00:00:00.000000Z"}}));
    for action in ["renew", "acquire"] {
        let answer = scene.ask(2, action, 1);
        assert!(answer["granted"] == false && answer["notBefore"].is_string(), "{answer}");
    }
    scene.ask(2, "release", 1);
    assert_eq!(scene.acquire(2, 9), None, "it has to rest, though there are slots");
    assert_eq!(scene.acquire(1, 1).as_deref(), Some(lease.as_str()), "others have their turn");

    // An operator takes the slot away from a run that renews its slot.
    let taking = kubectl_on("docs/pacing.md", "patch lease");
    assert!(taking.contains("GROUP.N"), "{taking}");
    scene.world.cluster.type_in(&taking.replace("GROUP.N", "nodes.0"));
    assert_eq!(scene.lease(&lease)["spec"]["holderIdentity"], "");
    assert_eq!(scene.ask(1, "renew", 1)["granted"], false, "it is told so at its next renewal");
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn only_the_kubelet_of_an_existing_node_gets_a_slot() {
    let scene = Scene::start();
    let _controller = scene.world.controller();
    scene.is_labelled();
    let body = json!({"action": "acquire", "maxUnavailable": 1});
    let ask = |client: &Arc<ClientConfig>| scene.ask_by(client, &body);
    assert_eq!(ask(&scene.world.trust), (403, "NoClientCertificate".to_owned()));
    assert_eq!(
        ask(&scene.client("system:kube-proxy", "system:nodes")),
        (403, "CertificateOfNoNode".to_owned())
    );
    assert_eq!(
        ask(&scene.client("system:node:a", "system:masters")),
        (403, "CertificateOfNoNode".to_owned())
    );
    assert_eq!(ask(&scene.kubelet(9)), (403, "NodeNotFound".to_owned()));
    let (status, told) = scene.ask_by(&scene.kubelet(1), &json!({"action": "acquire", "maxUnavailable": 0}));
    assert!(status == 400 && told.contains("maxUnavailable"), "{told}");

    let unlabelled = "unlabelled";
    scene.world.cluster.create_node(unlabelled, None);
    let (status, told) = ask(&scene.client(&format!("system:node:{unlabelled}"), "system:nodes"));
    assert!(status == 500 && told.contains("has no label"), "{status} {told}");

    scene.world.cluster.kubectl(&["-n", "kops-agent", "delete", "rolebinding", "kops-agent-pacing"]);
    eventually("the right is gone", || {
        let (status, told) = ask(&scene.kubelet(1));
        let is_told = told.contains("forbidden") && told.contains("packaging/kubernetes/rbac.yaml");
        status == 200 && told.contains("notSetUp") && is_told
    });
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn a_kubelet_may_cordon_and_drain_its_own_node_and_budgets_are_respected() {
    let cluster = Cluster::start();
    for node in ["a", "b"] {
        cluster.create_node(node, None);
        let labels = json!({"app": "web"});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("on-{node}"), "labels": labels},
            "spec": {"nodeName": node, "terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "i"}]}});
        cluster.api.kubectl(&["create", "-f", "-"], &pod.to_string()).unwrap();
        // The pods must run, because a pod that does not run yet may always be evicted.
        let runs =
            json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}})
                .to_string();
        let name = format!("on-{node}");
        cluster.kubectl(&["patch", "pod", &name, "--subresource=status", "--type=merge", "-p", &runs]);
    }
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "web"}}}});
    cluster.api.kubectl(&["create", "-f", "-"], &budget.to_string()).unwrap();
    let as_kubelet = |arguments: &[&str], input: &str| cluster.api.kubectl_as_kubelet("a", arguments, input);

    let cordon =
        r#"{"metadata":{"annotations":{"kops-agent/cordoned-since":"now"}},"spec":{"unschedulable":true}}"#;
    as_kubelet(&["patch", "node", "a", "--type=merge", "-p", cordon], "").unwrap();
    let refused =
        as_kubelet(&["patch", "node", "b", "--type=merge", "-p", cordon], "").unwrap_err().to_string();
    assert!(refused.contains("forbidden"), "{refused}");
    let own = "/api/v1/pods?fieldSelector=spec.nodeName%3Da";
    assert!(as_kubelet(&["get", "--raw", own], "").unwrap().contains("on-a"));

    let evict = |node: &str| {
        let name = format!("on-{node}");
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "default"}});
        let path = format!("/api/v1/namespaces/default/pods/{name}/eviction");
        as_kubelet(&["create", "--raw", &path, "-f", "-"], &eviction.to_string())
    };
    let of_another = evict("b").unwrap_err().to_string();
    assert!(of_another.contains("forbidden") || of_another.contains("can only evict"), "{of_another}");
    // No controller manager runs, so a PodDisruptionBudget allows no eviction until the test writes the budget's status.
    let held_back = evict("a").unwrap_err().to_string();
    assert!(held_back.contains("disruption budget"), "{held_back}");
    let allowed = json!({"status": {"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1,
        "expectedPods": 2}});
    let patch = allowed.to_string();
    cluster.kubectl(&["patch", "pdb", "web", "--subresource=status", "--type=merge", "-p", &patch]);
    evict("a").unwrap();
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn only_the_cordon_of_a_killed_run_is_removed() {
    let cluster = Cluster::start();
    let root = |node: &str| {
        cluster.create_node(node, None);
        let root = cluster.make_folder(&format!("machine-{node}"));
        for folder in ["var/lib/kubelet", "var/lib/kops-agent"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        let kubeconfig = cluster.api.kubeconfig(&format!("system:node:{node}"), &["system:nodes"]).unwrap();
        fs::copy(kubeconfig, root.join("var/lib/kubelet/kubeconfig")).unwrap();
        let record = json!({"version": 1, "configHash": "a=", "convergedSince": "2026-01-01T00:00:00Z", "resources": {}});
        fs::write(root.join("var/lib/kops-agent/record.json"), record.to_string()).unwrap();
        cluster.kubectl(&["cordon", node]);
        root
    };
    let (left, operators, at_work) = (root("left"), root("operators"), root("at-work"));
    for node in ["left", "at-work"] {
        cluster.annotate_node(node, "kops-agent/cordoned-since", "2026-01-01T00:00:00Z");
    }
    let node = |name: &str| cluster.node(name);
    for root in [left, operators] {
        let ended = agent_on_node().args(["fleet", "tell", "--root"]).arg(&root).output().unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    }
    let (left, operators) = (node("left"), node("operators"));
    assert_eq!(left["spec"].get("unschedulable"), None, "{left}");
    assert_eq!(left["metadata"]["annotations"].get("kops-agent/cordoned-since"), None);
    assert_eq!(operators["spec"]["unschedulable"], true);

    // While a run has the lock, `fleet tell` waits. After the run, `fleet tell` uncordons the Node, whether the run
    // succeeded or failed.
    let run = File::create(at_work.join("var/lib/kops-agent/lock")).unwrap();
    run.lock().unwrap();
    let mut beside = agent_on_node();
    beside.args(["fleet", "tell", "--only-uncordon", "--root"]).arg(&at_work).stderr(Stdio::piped());
    let mut beside = beside.spawn().unwrap();
    let mut said = BufReader::new(beside.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(said.any(|line| line.contains("waiting for another run")), "it does not wait");
    assert_eq!(node("at-work")["spec"]["unschedulable"], true);
    drop(run);
    assert!(said.any(|line| line.contains("was left cordoned by a run that was interrupted")));
    assert!(beside.wait().unwrap().success());
    let uncordoned = node("at-work");
    assert_eq!(uncordoned["spec"].get("unschedulable"), None, "{uncordoned}");
    let conditions = uncordoned["status"]["conditions"].as_array();
    assert!(conditions.is_none_or(Vec::is_empty), "it has told how a machine is: {uncordoned}");
}
