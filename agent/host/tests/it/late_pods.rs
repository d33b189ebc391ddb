//! Static pods that exit if no API server answers. On its first boot, a machine starts them only once the API server
//! answers.
#![allow(clippy::unwrap_used)]

use kops_agent_spec::failure::{Failing as _, Failure};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::images::Runtime;
use crate::support::{Machine, ended_once, state};
use crate::units::Manager;
use kops_agent_host::health::{Health, unhealthy};
use kops_agent_host::{Host, Waits};
use kops_agent_plan::health::{Check, StaticPod};
use kops_agent_plan::resource::{DesiredState, File, Resource, ResourceId, Unit};

const PROBE: &str = "http://127.0.0.1:3990/healthz";
/// A timeout longer than any test takes.
const FOR_EVER: Duration = Duration::from_secs(3600);

fn path(pod: &str) -> String {
    format!("/etc/kubernetes/manifests/{pod}.manifest")
}

fn image(pod: &str) -> String {
    format!("registry.example.com/{pod}:1")
}

fn manifest(pod: &str, probe: &str) -> Resource {
    let text = format!(
        "metadata: {{name: {pod}, namespace: kube-system}}\nspec:\n  hostNetwork: true\n  containers:\n  - name: {pod}\n    \
         image: {}\n{probe}",
        image(pod)
    );
    File::text(path(pod), text).into()
}

fn unit(name: &str) -> Resource {
    let text = "[Unit]\n[Service]\nExecStart=/x\n[Install]\nWantedBy=multi-user.target\n";
    Unit::new(name, text).into()
}

/// A control plane without etcd.
fn control_plane() -> DesiredState {
    let probe = "    livenessProbe:\n      httpGet: {host: 127.0.0.1, path: /healthz, port: 3990}\n";
    state([
        unit("containerd.service"),
        unit("kubelet.service"),
        manifest("kube-apiserver", probe),
        manifest("kube-controller-manager", ""),
        manifest("kube-proxy", ""),
        manifest("kube-scheduler", ""),
    ])
}

/// An API server that answers when the test sets `answers`.
#[derive(Default)]
struct ApiServer {
    answers: AtomicBool,
    asked: AtomicBool,
}

#[async_trait::async_trait]
impl Health for ApiServer {
    async fn ask(&self, check: &Check) -> Result<(), Failure> {
        self.asked.store(true, Ordering::SeqCst);
        let is_it = matches!(check, Check::Answers { url } if url == PROBE);
        match is_it && self.answers.load(Ordering::SeqCst) {
            true => Ok(()),
            false => Err(unhealthy("refused")),
        }
    }
    fn pod_uid(&self, _: &StaticPod, _: &str) -> Result<Option<String>, Failure> {
        Ok(None)
    }
    fn last_words(&self, _: &ResourceId) -> Vec<String> {
        Vec::new()
    }
}

struct Scene {
    machine: Machine,
    api_server: Arc<ApiServer>,
    runtime: Arc<Runtime>,
    desired: DesiredState,
}

impl Scene {
    /// A scene in which only kubelet can pull the scheduler's image.
    fn new() -> Scene {
        Scene::with(Runtime::default().failing("kube-scheduler"))
    }

    fn with(runtime: Runtime) -> Scene {
        let desired = control_plane();
        Scene { machine: Machine::new(), api_server: Arc::default(), runtime: Arc::new(runtime), desired }
    }

    fn host(&self, api_server: Duration) -> Host {
        let host = self.machine.host().with_health(self.api_server.clone()).with_images(self.runtime.clone());
        host.with_waits(Waits { api_server, ..Waits::default() })
    }

    async fn converge(&self, api_server: Duration) {
        self.machine.converge_with(&self.host(api_server), &self.desired).await.unwrap();
    }

    /// The static pods whose manifests exist.
    fn pods(&self) -> Vec<&'static str> {
        let all = ["kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler"];
        all.into_iter().filter(|pod| self.machine.path(&path(pod)).exists()).collect()
    }

    fn runs_kubelet(&self) -> bool {
        self.machine.requests().iter().any(|request| request == "systemd: start kubelet.service")
    }

    fn has_settled(&self) -> bool {
        self.host(Duration::ZERO).status().unwrap().converged
    }

    fn is_waiting(&self) -> bool {
        self.api_server.asked.load(Ordering::SeqCst)
    }

    fn has_pulled(&self, pod: &str) -> bool {
        self.runtime.has(&image(pod))
    }

    fn kubelet_pulls_the_api_server(&self) {
        self.runtime.insert(&image("kube-apiserver"));
    }

    async fn until(&self, is_so: impl Fn() -> bool) {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

const WITHOUT_CLIENTS: [&str; 2] = ["kube-apiserver", "kube-proxy"];
const ALL: [&str; 4] = ["kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler"];

#[tokio::test]
async fn clients_of_the_api_server_start_once_it_answers() {
    let it = Scene::new();
    tokio::join!(it.converge(FOR_EVER), async {
        it.until(|| it.is_waiting()).await;
        assert!(it.runs_kubelet() && !it.has_pulled("kube-controller-manager"));
        it.kubelet_pulls_the_api_server();
        it.until(|| it.has_pulled("kube-controller-manager")).await;
        assert_eq!(it.pods(), WITHOUT_CLIENTS);
        // The run does not wait for the scheduler's image, because only kubelet can pull it.
        it.api_server.answers.store(true, Ordering::SeqCst);
    });
    assert_eq!(it.pods(), ALL);
    assert!(it.has_settled() && !it.has_pulled("kube-scheduler"));
    assert!(it.machine.plan(&it.host(FOR_EVER), &it.desired).is_empty());
}

#[tokio::test]
async fn an_api_server_with_another_image_name_counts_if_it_answers() {
    let it = Scene::new();
    it.api_server.answers.store(true, Ordering::SeqCst);
    it.converge(FOR_EVER).await;
    assert_eq!(it.pods(), ALL);
}

#[tokio::test]
async fn the_wait_for_an_api_server_that_never_answers_times_out() {
    let it = Scene::new();
    it.converge(Duration::from_millis(50)).await;
    assert!(it.is_waiting() && it.has_settled());
    assert_eq!(it.pods(), ALL);
}

#[tokio::test]
async fn a_missing_image_delays_no_pod_once_the_api_server_answers() {
    let it = Scene::with(Runtime::default().hanging("kube-controller-manager"));
    it.kubelet_pulls_the_api_server();
    tokio::join!(it.converge(FOR_EVER), async {
        let pull = format!("pull {}", image("kube-controller-manager"));
        it.until(|| it.runtime.has_been_asked(&pull)).await;
        it.api_server.answers.store(true, Ordering::SeqCst);
    });
    assert_eq!(it.pods(), ALL);
}

#[tokio::test]
async fn if_no_pod_can_run_the_run_does_not_wait() {
    let it = Scene::new();
    let host = it.host(FOR_EVER).with_systemd(Arc::new(Manager::refusing(&["start containerd.service"])));
    let error = it.machine.converge_with(&host, &it.desired).await.unwrap_err();
    assert!(!error.kind().leaves_a_working_node(), "{error}");
    assert!(!it.is_waiting());
    assert_eq!(it.pods(), ALL);
}

#[tokio::test]
async fn the_next_run_continues_a_run_that_ended_during_the_wait() {
    let it = Scene::new();
    let host = it.host(FOR_EVER);
    ended_once(it.machine.converge_with(&host, &it.desired), || it.is_waiting()).await;
    drop(host);
    assert_eq!(it.pods(), WITHOUT_CLIENTS);
    assert!(!it.has_settled());
    it.api_server.answers.store(true, Ordering::SeqCst);
    it.converge(FOR_EVER).await;
    assert_eq!(it.pods(), ALL);
    assert!(it.has_settled());
}

#[tokio::test]
async fn a_manual_run_and_a_working_node_do_not_wait() {
    let it = Scene::new();
    it.converge(Duration::ZERO).await;
    assert_eq!(it.pods(), ALL);
    assert!(!it.is_waiting());

    // On a working node, the repair of a manifest waits for the manifest's pod and not for the API server.
    std::fs::remove_file(it.machine.path(&path("kube-scheduler"))).unwrap();
    it.converge(FOR_EVER).await;
    assert_eq!(it.pods(), ALL);
    assert!(!it.is_waiting());
}
