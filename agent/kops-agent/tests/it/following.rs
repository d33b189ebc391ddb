//! A node takes the current configuration of its group, keeps it, and goes back to an earlier configuration.

#![allow(clippy::unwrap_used)]

mod service_account;

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::process::Command;

use kops_agent_cluster::fleet::authorities_digest;
use kops_agent_tests::example_keys::Keyset;
use kops_agent_tests::example_store::{CONTROL_PLANE, NODES};
use kops_agent_tests::kops_controller::{KopsController, Mood, Served};

use crate::example::worker::{Worker, boot_config, kubernetes_ca, once};
use crate::example::{Ended, Machine};
use crate::last_good::{refuse, set};
use crate::superseded::{hash, pinned, read, status};

const FAILED: i32 = 1;
const CONFIGURATION: i32 = 3;
const KUBELET: &str = "var/lib/kubelet/kubelet.conf";
const SYSCTL: &str = "net.core.somaxconn = 4321";
/// The URL of the kops-controller in the served boot config. No node of this test sends requests to it.
const ELSEWHERE: &str = "https://elsewhere:3988/";
const SYSCTL_FILE: &str = "etc/sysctl.d/99-k8s-general.conf";

/// Changes the group's configuration in the store as `kops update cluster` does. Returns the new hash.
pub(crate) fn update(machine: &Machine, path: &str, sysctl: &str) -> String {
    let file = machine.cluster.store.cluster_folder().join(path);
    let text = with_sysctl(&fs::read_to_string(&file).unwrap(), sysctl);
    fs::write(&file, &text).unwrap();
    hash(&text)
}

/// The configuration with the kernel setting `sysctl`. It replaces the setting of an earlier call.
fn with_sysctl(nodeup_config: &str, sysctl: &str) -> String {
    let (without, _) = nodeup_config.split_once("SysctlParameters:").unwrap_or((nodeup_config, ""));
    format!("{without}SysctlParameters:\n- {sysctl}\n")
}

pub(crate) fn json_status(machine: &Machine) -> serde_json::Value {
    serde_json::from_str(&status(machine, "json").stdout).unwrap()
}

#[test]
fn a_node_that_reads_the_store_follows_stays_and_goes_back() {
    for (group, role) in [(NODES, "node"), (CONTROL_PLANE, "control-plane")] {
        let (node, path) = pinned(group, role);
        let before = fs::read_to_string(node.cluster.store.cluster_folder().join(&path)).unwrap();
        let first = hash(&before);
        let files = node.files();
        let second = update(&node, &path, SYSCTL);

        // `plan --follow` shows the change, but the node keeps its configuration.
        let planned = node.run("plan", &["--follow"]);
        planned.with(0, &[&second]);
        assert!(planned.stdout.contains("somaxconn"), "{planned:#?}");
        assert_eq!(node.files(), files);
        let stays = node.run("converge", &[]);
        stays.with(0, &["kops-agent converge --follow"]);

        node.run("converge", &["--follow=other="]).with(CONFIGURATION, &["cannot follow other=", &second]);
        assert!(!read(&node, SYSCTL_FILE).contains(SYSCTL));

        node.run("converge", &["--follow"]).with(0, &[&first, &second]);
        assert!(read(&node, SYSCTL_FILE).contains(SYSCTL));
        let told = json_status(&node);
        assert_eq!(
            (&told["configHash"], &told["followedFrom"]),
            (&second.clone().into(), &first.clone().into())
        );
        assert_eq!(told["superseded"], serde_json::Value::Null);
        assert!(status(&node, "text").stdout.contains("follows      its group"));

        // A run at the next boot has no `--follow`, and the user-data pins the first configuration. The node still keeps the
        // configuration that it follows.
        for verb in ["converge", "verify", "plan"] {
            let stays = node.run(verb, &[]);
            stays.with(0, &[]);
            assert!(stays.stdout.contains("Nothing to do") || verb == "verify", "{stays:#?}");
        }
        let third = update(&node, &path, "net.core.somaxconn = 9999");
        node.run("converge", &[]).with(0, &["rolling-update", &third]);
        assert_eq!(json_status(&node)["superseded"]["by"], third.as_str());
        node.run("converge", &["--follow"]).with(0, &[&third]);

        // An operator must give the hash to go back to an earlier configuration.
        assert_eq!(update(&node, &path, SYSCTL), second);
        node.run("converge", &["--follow"])
            .with(CONFIGURATION, &["has already left configuration", &format!("--follow={second}")]);
        assert!(read(&node, SYSCTL_FILE).contains("9999"), "the node keeps what it runs");
        node.run("converge", &[&format!("--follow={second}")]).with(0, &[]);
        assert!(read(&node, SYSCTL_FILE).contains(SYSCTL));

        node.run("converge", &["--no-follow"]).with(CONFIGURATION, &["NodeupConfigHash"]);
        fs::write(node.cluster.store.cluster_folder().join(&path), before).unwrap();
        node.run("converge", &["--no-follow"]).with(0, &[]);
        assert_eq!(json_status(&node)["followedFrom"], serde_json::Value::Null);
        assert_eq!(node.files(), files);
        node.run("converge", &["--follow="]).with(2, &["a value is required"]);
    }
}

#[test]
fn new_user_data_ends_the_following() {
    let (node, path) = pinned(NODES, "node");
    let before = fs::read_to_string(node.cluster.store.cluster_folder().join(&path)).unwrap();
    update(&node, &path, SYSCTL);
    node.run("converge", &["--follow"]).with(0, &[]);
    fs::write(node.cluster.store.cluster_folder().join(&path), &before).unwrap();
    let kube_env = node.cluster.store.kube_env(NODES);
    let text = fs::read_to_string(&kube_env).unwrap();
    fs::write(&kube_env, format!("{text}EtcdIPs: [10.9.9.9]\n")).unwrap();
    node.run("converge", &[]).with(0, &[]);
    assert!(!read(&node, SYSCTL_FILE).contains(SYSCTL));
    assert_eq!(json_status(&node)["followedFrom"], serde_json::Value::Null);
}

/// Changes the group's configuration so that kubelet must restart. Returns the new hash.
pub(crate) fn more_pods(machine: &Machine, path: &str) -> String {
    let file = machine.cluster.store.cluster_folder().join(path);
    let text = fs::read_to_string(&file).unwrap();
    let more = text.replace("KubeletConfig:\n", "KubeletConfig:\n  maxPods: 99\n");
    assert_ne!(text, more);
    fs::write(&file, &more).unwrap();
    hash(&more)
}

#[test]
fn a_change_that_was_interrupted_while_following_is_continued_without_the_flag() {
    let (node, path) = pinned(NODES, "node");
    let next = more_pods(&node, &path);
    refuse(&node, "");
    set(&node, |state| state["units"]["kubelet.service"]["running"] = false.into());
    node.run("converge", &["--follow"]).with(FAILED, &["kubelet.service"]);
    assert!(status(&node, "text").stdout.contains("unfinished"));
    set(&node, |state| drop(state.as_object_mut().unwrap().remove("refusals")));
    node.run("converge", &[]).with(0, &[]);
    assert!(read(&node, KUBELET).contains("maxPods: 99"));
    assert_eq!(json_status(&node)["configHash"], next.as_str());
}

#[test]
fn a_node_that_rolls_back_a_followed_configuration_is_unchanged() {
    let (node, path) = pinned(NODES, "node");
    let before = node.files();
    refuse(&node, "maxPods: 99");
    let next = more_pods(&node, &path);
    node.run("converge", &["--follow"]).with(FAILED, &["rolled back to the previous configuration"]);
    assert_eq!(json_status(&node)["followedFrom"], serde_json::Value::Null);
    node.run("converge", &["--follow"]).with(FAILED, &["is not tried again"]);
    node.run("converge", &[]).with(0, &["rolling-update", &next]);
    assert_eq!(node.files(), before);
    assert!(!read(&node, KUBELET).contains("maxPods: 99"));
}

/// A worker that has converged to the configuration of a kops-controller. Its group already has the next configuration.
struct Following {
    worker: Worker,
    server: Option<KopsController>,
    /// The listening socket of all servers of this test. It stays open when a server restarts. A new socket might find
    /// the address in use, because a child process of another test may have inherited the old socket.
    socket: TcpListener,
    url: String,
    /// Whether the user-data pins the first configuration.
    is_pinned: bool,
}

impl Following {
    fn new(is_pinned: bool) -> Following {
        let worker = Worker::new();
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let server =
            KopsController::start_renewing_on(socket.try_clone().unwrap(), worker.served.clone()).unwrap();
        let url = server.url();
        let following = Following { worker, server: Some(server), socket, url, is_pinned };
        once(&mut following.agent("converge")).with(0, &[]);
        following
    }

    fn agent(&self, verb: &str) -> Command {
        let servers = std::slice::from_ref(&self.url);
        let agent = self.worker.agent(verb, servers, &self.worker.served.authority);
        if !self.is_pinned {
            let conf = self.worker.machine.folder().join("kube_env.yaml");
            let text = fs::read_to_string(&conf).unwrap();
            let (unpinned, _) = text.split_once("NodeupConfigHash").unwrap();
            fs::write(conf, unpinned).unwrap();
        }
        agent
    }

    /// Runs a command on this node. The server serves the next configuration. If `authorities` is set, the server
    /// also serves a boot config that trusts `authorities`.
    fn run(&mut self, arguments: &[&str], authorities: Option<&str>) -> Ended {
        let nodeup_config = with_sysctl(&self.worker.served.nodeup_config, SYSCTL);
        let boot = authorities.map(|all| boot_config(&[ELSEWHERE.into()], all, &nodeup_config));
        self.run_at(Served { nodeup_config, boot_config: boot, ..self.worker.served.clone() }, arguments)
    }

    /// Runs a command on this node after `kops promote keypair`. The server issues certificates with the key of `signer`. The server
    /// and its boot config trust `authorities`, which begins with the certificate of `signer`.
    fn run_promoted(&mut self, arguments: &[&str], signer: &Keyset, authorities: &str) -> Ended {
        let before = &self.worker.served;
        let old = with_sysctl(&before.nodeup_config, SYSCTL);
        let nodeup_config = old.replace(&before.authority.id.to_string(), &signer.id.to_string());
        assert_ne!(nodeup_config, old, "the configuration names the key that signs");
        let boot = boot_config(&[ELSEWHERE.into()], authorities, &nodeup_config);
        let authority = Keyset { certificate: authorities.to_owned(), ..signer.clone() };
        let served = Served { authority, nodeup_config, boot_config: Some(boot), ..before.clone() };
        self.run_at(served, arguments)
    }

    fn run_at(&mut self, served: Served, arguments: &[&str]) -> Ended {
        drop(self.server.take());
        let server = KopsController::start_renewing_on(self.socket.try_clone().unwrap(), served).unwrap();
        // kops-controller gives this answer to a machine whose Node is Ready.
        let registered = Mood::Refusing(409, "");
        server.answer_next(&[registered.clone(), registered]);
        let ended = once(self.agent(arguments[0]).args(&arguments[1..]));
        assert_eq!(server.problems(), [""; 0]);
        self.server = Some(server);
        ended
    }
}

/// The worker takes the three steps of docs/rotate.md: create, promote, distrust. Its user-data trusts only the old authority.
#[test]
fn a_worker_follows_by_its_server_and_takes_the_next_authority() {
    const KUBECONFIG: &str = "var/lib/kubelet/kubeconfig";
    let mut node = Following::new(true);
    let ours = kubernetes_ca().certificate;
    let next = Keyset::make("kubernetes-ca", 9).unwrap();
    let both = format!("{ours}{}", next.certificate);
    node.run(&["plan", "--follow"], Some(&both)).with(0, &[]);
    // The node reports its next change, but keeps its configuration.
    node.run(&["verify", "--renew"], Some(&both)).with(0, &[]);
    let planned = json_status(&node.worker.machine)["superseded"]["next"].clone();
    assert!(planned["outcome"]["planned"]["change"].as_u64().unwrap() > 0, "{planned:#}");
    assert!(!node.worker.read(SYSCTL_FILE).contains(SYSCTL));
    node.run(&["converge"], Some(&both)).with(0, &["kops-agent converge --follow"]);
    node.run(&["converge", "--follow"], Some(&both))
        .with(0, &["the current configuration of the instance group nodes is"]);
    assert!(node.worker.read(SYSCTL_FILE).contains(SYSCTL));
    let [created, _, authorities] = node.worker.kubeconfig(KUBECONFIG);
    assert_eq!(authorities.matches("BEGIN CERTIFICATE").count(), 2, "{authorities}");
    let again = node.run(&["converge"], None);
    again.with(0, &[]);
    assert!(again.stdout.contains("Nothing to do"), "{again:#?}");

    let both = format!("{}{ours}", next.certificate);
    node.run_promoted(&["converge", "--follow"], &next, &both).with(0, &[]);
    let [promoted, _, authorities] = node.worker.kubeconfig(KUBECONFIG);
    assert_ne!(promoted, created, "the next key signs kubelet's certificate");
    assert_eq!(authorities.matches("BEGIN CERTIFICATE").count(), 2, "{authorities}");

    // From now on, the server accepts only certificates that the new key has signed.
    for is_done in [false, true] {
        let ended = node.run_promoted(&["converge", "--follow"], &next, &next.certificate);
        ended.with(0, &[]);
        assert_eq!(ended.stdout.contains("Nothing to do"), is_done, "{ended:#?}");
        let [distrusted, _, authorities] = node.worker.kubeconfig(KUBECONFIG);
        assert_eq!(distrusted, promoted);
        assert_eq!(authorities.matches("BEGIN CERTIFICATE").count(), 1, "{authorities}");
    }
}

/// `kops toolbox enroll` writes user-data that pins no configuration.
#[test]
fn a_worker_whose_user_data_pins_nothing_carries_out_orders() {
    let mut node = Following::new(false);
    let next = Keyset::make("kubernetes-ca", 9).unwrap().certificate;
    let both = format!("{}{next}", kubernetes_ca().certificate);
    assert_eq!(json_status(&node.worker.machine)["configHash"], hash(&node.worker.served.nodeup_config));
    let current = hash(&with_sysctl(&node.worker.served.nodeup_config, SYSCTL));
    node.run(&["converge", "--follow=other=", "--only-newer"], Some(&both))
        .with(CONFIGURATION, &["cannot follow other=", &current]);
    assert!(!node.worker.read(SYSCTL_FILE).contains(SYSCTL));
    node.run(&["converge", &format!("--follow={current}"), "--only-newer"], Some(&both)).with(0, &[]);
    assert!(node.worker.read(SYSCTL_FILE).contains(SYSCTL));
    assert_eq!(json_status(&node.worker.machine)["configHash"], current.as_str());
    let authorities = &node.worker.kubeconfig("var/lib/kubelet/kubeconfig")[2];
    assert_eq!(authorities.matches("BEGIN CERTIFICATE").count(), 2, "{authorities}");
}

#[test]
fn a_worker_takes_nothing_unless_it_will_trust_the_ordered_authorities() {
    let mut node = Following::new(true);
    let ours = kubernetes_ca().certificate;
    let both = format!("{ours}{}", Keyset::make("kubernetes-ca", 9).unwrap().certificate);
    let follow = format!("--follow={}", hash(&with_sysctl(&node.worker.served.nodeup_config, SYSCTL)));
    let files = node.worker.machine.files();
    for (ordered, served) in [(&both, &ours), (&ours, &both)] {
        let digest = authorities_digest(ordered).unwrap();
        let order = ["converge", &follow, "--only-newer", "--authorities", &digest];
        node.run(&order, Some(served)).with(CONFIGURATION, &["names other authorities of kubernetes-ca"]);
        assert_eq!(node.worker.machine.files(), files);
    }
    let digest = authorities_digest(&both).unwrap();
    node.run(&["converge", &follow, "--authorities", &digest], Some(&both)).with(0, &[]);
    assert!(node.worker.read(SYSCTL_FILE).contains(SYSCTL));
}

#[test]
fn a_worker_takes_nothing_of_strangers_nor_from_a_server_that_cannot_say() {
    let mut node = Following::new(true);
    let stranger = Keyset::make("kubernetes-ca", 9).unwrap().certificate;
    node.run(&["converge", "--follow"], Some(&stranger))
        .with(CONFIGURATION, &["trusts none of the authorities"]);
    node.run(&["converge", "--follow"], None).with(1, &["cannot follow", "/renew"]);
    assert!(!node.worker.read(SYSCTL_FILE).contains(SYSCTL));
}
