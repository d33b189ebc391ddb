//! The readiness probe reports whether machines can bootstrap.

use std::net::TcpListener;

use prometheus_client::registry::Registry;

use kops_agent_cloud::hetzner::HetznerControlPlane;
use kops_agent_cloud::hosts::testing::KnownHosts;
use kops_agent_kube::events::Events;
use kops_agent_kube::node_watch::LIST_TIMEOUT;
use kops_agent_tests::ports::free_port;
use kops_agent_tests::sts::Mood;

use super::*;
use crate::State;
use crate::groups::Groups;
use crate::health::{self, Health};
use crate::identify::Identifier;
use crate::node_labels::{Mode, NodeLabels};
use crate::pod_ranges::PodRanges;

/// A controller that labels no Nodes and has no API server.
fn node_labels(setup: &Setup) -> NodeLabels {
    let nowhere = KubeClient::try_from(Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
    let known = Arc::<parking_lot::Mutex<crate::node_queue::NodeQueue>>::default();
    NodeLabels {
        nodes: Nodes::new(nowhere.clone()),
        known: known.clone(),
        identifier: Identifier::new(setup.cloud.clone(), known, setup.metrics.cache_hits.clone()),
        pod_ranges: PodRanges::new(None),
        groups: Groups::new(setup.store.clone(), "file:///none", Duration::from_secs(60)),
        events: Events::new(nowhere),
        metrics: setup.metrics.clone(),
        mode: Mode::Show,
        is_synced: AtomicBool::new(false),
        list_timeout: LIST_TIMEOUT,
        cloud_pauses: crate::node_queue::CLOUD_PAUSES,
        labels_from: crate::options::LabelsFrom::Store,
    }
}

fn election() -> Arc<kops_agent_kube::lease::Election> {
    let unreachable = KubeClient::try_from(Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
    Arc::new(kops_agent_kube::lease::Election::new(
        unreachable,
        kops_agent_kube::lease::OF_CONTROLLERS,
        "it".into(),
    ))
}

/// The setup of a bootstrap server that listens at this address for machines on Hetzner Cloud.
fn setup(world: &World, listen: SocketAddr) -> Setup {
    let pki = world.pki();
    let options = json!({
        "clusterName": CLUSTER, "cloud": "hetzner", "configBase": "file:///none",
        "server": {
            "Listen": listen.to_string(), "provider": {"hetzner": {}},
            "serverKeyPath": pki.join("kops-controller.key"),
            "serverCertificatePath": pki.join("kops-controller.crt"),
            "caBasePath": pki, "signingCAs": ["kubernetes-ca"], "certNames": ["kubelet"]
        }
    });
    let servers = HetznerServers::at(&world.hetzner.url(), TOKEN, CLUSTER, CloudCalls::default()).unwrap();
    let kubeconfig = world.folder.path().join("kubeconfig");
    let of_one = |kind: &str, content: Value| json!([{"name": "x", kind: content}]);
    let content = json!({
        "current-context": "x", "contexts": of_one("context", json!({"cluster": "x", "user": "x"})),
        "clusters": of_one("cluster", json!({"server": world.api.url})), "users": of_one("user", json!({"token": "t"}))
    });
    fs::write(&kubeconfig, content.to_string()).unwrap();
    Setup {
        options: KopsControllerOptions::parse(options.to_string().as_bytes(), "config.yaml").unwrap(),
        cloud: Arc::new(HetznerControlPlane { machines: Arc::new(servers) }),
        hosts: Arc::new(Enrolled::new(Arc::new(KnownHosts::new(Vec::new())))),
        kubeconfig: Some(kubeconfig),
        store: Arc::new(Store::new(&[]).unwrap()),
        metrics: Metrics::new(),
    }
}

/// Serves probes. The returned function requests a path, and returns the status and the text of the answer.
async fn probes(health: Arc<dyn Health>, registry: Registry) -> impl AsyncFn(&str) -> (u16, String) {
    let listener = health::listen("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(health::serve(listener, health, Arc::new(registry)));
    kops_agent_net::tls::install_provider();
    let client = Client::builder().no_proxy().build().unwrap();
    async move |path: &str| {
        let answer = client.get(format!("http://{address}{path}")).send().await.unwrap();
        (answer.status().as_u16(), text_of(answer).await)
    }
}

#[tokio::test]
async fn it_is_not_ready_while_machines_cannot_bootstrap() {
    let world = World::new().await;
    // `free_port` returns a port outside the kernel's ephemeral range, so no outgoing connection takes the port before this test binds it.
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port().unwrap()));
    let taken = TcpListener::bind(address).unwrap();
    let setup = setup(&world, address);
    let metrics = setup.metrics.clone();
    let node_labels = Arc::new(node_labels(&setup));
    let state = State { election: election(), node_labels, metrics: metrics.clone() };
    let asked = probes(Arc::new(state), metrics.registry(true)).await;
    assert_eq!(asked("/readyz").await, (200, "ok".into()), "there is nothing to serve yet");

    let serving = setup.start().await.unwrap().unwrap();
    let not_ready = (503, "machines cannot bootstrap here: see the log of this service".into());
    assert_eq!(asked("/readyz").await, not_ready, "another program has the port");
    assert_eq!(asked("/healthz").await, (200, "ok".into()), "a restart would not help");
    assert!(asked("/metrics").await.1.contains("kops_agent_bootstrap_down 1"));
    serving.drain().await;

    drop(taken);
    let again = self::setup(&world, address);
    let again = Setup { metrics: metrics.clone(), ..again };
    let serving = again.start().await.unwrap().unwrap();
    assert_eq!(asked("/readyz").await, (200, "ok".into()), "it serves when it says so");
    tokio::net::TcpStream::connect(address).await.unwrap();
    serving.drain().await;
    assert_eq!(asked("/readyz").await, not_ready, "it has stopped");
}

#[tokio::test]
async fn it_is_not_ready_while_sts_has_answered_no_machine_for_minutes() {
    let world = World::new().await;
    let setup = setup(&world, SocketAddr::from((Ipv4Addr::LOCALHOST, free_port().unwrap())));
    let mut metrics = setup.metrics.clone();
    metrics.cloud_calls = world.sts_calls.clone();
    let node_labels = Arc::new(node_labels(&setup));
    let state = State { election: election(), node_labels, metrics: metrics.clone() };
    let asked = probes(Arc::new(state), metrics.registry(true)).await;
    let bootstraps = async |machine: &Principal| {
        let body = request(json!({}), json!({}), false);
        world.ask(&world.v1(machine, &body), body).await.0 == 200
    };
    let machine = world.machine(ID);
    world.sts.set_mood(Mood::Down);
    assert!(!bootstraps(&machine).await);
    assert_eq!(asked("/readyz").await, (200, "ok".into()), "a short outage");

    world.sts.set_mood(Mood::Good);
    assert!(bootstraps(&machine).await);
    metrics.cloud_calls.fail_minutes_ago("sts");
    world.sts.set_mood(Mood::Down);
    assert!(!bootstraps(&machine).await);
    let silent = (503, "all calls to sts have failed for 3 minutes: see the log of this service".into());
    assert_eq!(asked("/readyz").await, silent);
    assert_eq!(asked("/healthz").await, (200, "ok".into()), "a restart would not help");

    // STS rejects the signature of a stranger. A rejection proves that STS is reachable.
    world.sts.set_mood(Mood::Good);
    let stranger = Principal::instance(ROLE, "i-0123456789abcdef1");
    assert!(!bootstraps(&stranger).await);
    assert_eq!(asked("/readyz").await, (200, "ok".into()));
}

#[tokio::test]
async fn nothing_listens_before_the_api_server_tells_of_nodes() {
    let world = World::new().await;
    let free = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port().unwrap()));
    let setup = setup(&world, free);
    let down = setup.metrics.bootstrap.down.clone();
    world.api_is_down.store(true, Ordering::Relaxed);
    let serving = setup.start().await.unwrap().unwrap();
    assert_eq!(down.get(), 1);
    let refused = tokio::net::TcpStream::connect(free).await.unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);

    world.api_is_down.store(false, Ordering::Relaxed);
    let listens = async {
        // The port opens shortly before the gauge changes.
        while tokio::net::TcpStream::connect(free).await.is_err() || down.get() != 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(60), listens).await.unwrap();
    serving.drain().await;
}

#[tokio::test]
async fn a_port_that_is_taken_is_waited_for() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let listening = tokio::spawn({
        let address = address.clone();
        async move { health::listen(&address).await }
    });
    tokio::task::yield_now().await;
    assert!(!listening.is_finished());
    drop(taken);
    let listener = timeout(Duration::from_secs(60), listening).await.unwrap().unwrap().unwrap();
    assert_eq!(listener.local_addr().unwrap().to_string(), address);
    assert!(health::listen("nowhere").await.is_err());
}

#[tokio::test]
async fn a_server_that_ends_by_itself_is_noticed() {
    let metrics = BootstrapMetrics::new();
    let down = metrics.down.clone();
    let mut serving = Some(
        Serving::on_own_threads(|_| async move {
            let _up = Up::from_now(&down);
            assert_eq!(down.get(), 0);
            panic!("the server is gone");
        })
        .unwrap(),
    );
    let error = timeout(Duration::from_secs(30), crate::ended(&mut serving)).await.unwrap();
    assert!(error_text(&error).contains("the server is gone"), "{error:?}");
    assert_eq!(metrics.down.get(), 1, "probes hear of it too");
    assert!(timeout(Duration::from_millis(1), crate::ended(&mut None)).await.is_err());
}

/// Strangers may keep all threads of the bootstrap server busy, for example by TLS handshakes.
#[tokio::test]
async fn probes_are_answered_while_no_thread_of_the_server_is_free() {
    let world = World::new().await;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port().unwrap()));
    let setup = setup(&world, address);
    let metrics = setup.metrics.clone();
    let state =
        State { election: election(), node_labels: Arc::new(node_labels(&setup)), metrics: metrics.clone() };
    let asked = probes(Arc::new(state), metrics.registry(true)).await;
    let serving = setup.start().await.unwrap().unwrap();

    let (release, held) = std::sync::mpsc::channel::<()>();
    let held = Arc::new(Mutex::new(held));
    let threads = std::thread::available_parallelism().map_or(2, usize::from).max(2);
    let (busy, all_busy) = std::sync::mpsc::channel();
    for _ in 0..threads {
        let (held, busy) = (held.clone(), busy.clone());
        serving.threads.handle().unwrap().spawn(async move {
            busy.send(std::thread::current().name().map(str::to_owned)).unwrap();
            let _released = held.lock().recv();
        });
    }
    for _ in 0..threads {
        assert_eq!(all_busy.recv_timeout(Duration::from_secs(60)).unwrap().as_deref(), Some("bootstrap"));
    }
    let mut silent = tokio::net::TcpStream::connect(address).await.unwrap();
    assert_eq!(asked("/readyz").await, (200, "ok".into()));
    // No thread is free to accept this connection, so the server cannot close it.
    let hung_up =
        timeout(Duration::from_millis(50), tokio::io::AsyncReadExt::read(&mut silent, &mut [0])).await;
    assert!(hung_up.is_err());
    drop(release);
    serving.drain().await;
}

#[tokio::test]
async fn a_process_that_is_not_live_fails_both_probes() {
    struct Dead;
    impl Health for Dead {
        fn not_live(&self) -> Option<String> {
            Some("it is dead".into())
        }

        fn not_ready(&self) -> Option<String> {
            self.not_live()
        }
    }
    let asked = probes(Arc::new(Dead), Metrics::new().registry(true)).await;
    assert_eq!(asked("/healthz").await, (503, "it is dead".into()));
    assert_eq!(asked("/readyz").await, (503, "it is dead".into()));
    assert_eq!(asked("/metrics").await.0, 200);
    assert_eq!(asked("/secrets").await.0, 404);
}
