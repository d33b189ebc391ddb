//! Machines bootstrap from the controller, against a real API server. The tests check the answers, and a benchmark measures the cost.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use kops_agent_tests::ec2::Instance;
use kops_agent_tests::example_keys::Keyset;
use kops_agent_tests::ports::free_port;
use kops_agent_tests::sts::{Principal, Sts};
use rcgen::{KeyPair, PKCS_RSA_SHA256, PublicKeyData as _, RsaKeySize};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};

use crate::client::{connect, exchange, post};
use crate::cluster::{CLUSTER, Cluster, REGION, eventually, id};
use crate::controller::Controller;

/// The IAM role of nodes.
pub const ROLE: &str = "nodes.c.example.com";
/// The timeout of a machine's request, long enough for a busy computer.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// A cluster whose controller serves machines, and the data with which machines connect to it.
pub struct World {
    pub cluster: Cluster,
    pub address: SocketAddr,
    pub trust: Arc<ClientConfig>,
    pub name: ServerName<'static>,
    pki: PathBuf,
}

pub struct WithSts {
    pub world: World,
    pub sts: Sts,
}

impl std::ops::Deref for WithSts {
    type Target = World;

    fn deref(&self) -> &World {
        &self.world
    }
}

impl WithSts {
    pub fn start() -> WithSts {
        let sts = Sts::start().unwrap();
        // The controller sends its own requests to STS as this principal. The principal's account is the cluster's account.
        let of_controller = Principal::instance("control-plane.c.example.com", "i-0ccccccccccccccc0");
        let of_controller = Principal {
            access_key: "AKIDEXAMPLE".into(),
            secret: "secret".into(),
            session_token: String::new(),
            ..of_controller
        };
        sts.put(&of_controller);
        let cluster = Cluster::start().with_environment("AWS_ENDPOINT_URL_STS", &sts.url());
        WithSts { world: World::with(cluster, &on_aws(REGION)), sts }
    }

    /// Adds a machine to the cluster's group `nodes`.
    pub fn machine(&self, number: usize) -> Principal {
        let machine = Principal::instance(ROLE, &id(number));
        self.sts.put(&machine);
        self.cluster.ec2.put(&id(number), Instance::of_group(CLUSTER, "nodes"));
        machine
    }

    fn token(&self, machine: &Principal, body: &str) -> String {
        World::token_for(machine, &self.sts.host(), REGION, body)
    }
}

/// The provider options that kOps writes for machines in an AWS region.
pub fn on_aws(region: &str) -> Value {
    json!({"aws": {"nodesRoles": [ROLE], "Region": region}})
}

impl World {
    /// A cluster with a bootstrap server for machines of a cloud. The server's certificates are RSA, like those of kOps. The server's CA
    /// is not the API server's CA.
    pub fn with(cluster: Cluster, on: &Value) -> World {
        let authority = Keyset::make("kubernetes-ca", 7).unwrap();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port().unwrap()));
        World::signed_by(&authority, address, cluster, &json!({ "provider": on }))
    }

    /// Like `with`, with this CA, this address, and these options of the server.
    pub fn signed_by(authority: &Keyset, address: SocketAddr, cluster: Cluster, options: &Value) -> World {
        let name = format!("kops-controller.internal.{CLUSTER}");
        let pki = cluster.make_folder("pki");
        let key = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).unwrap();
        let serving = rcgen::CertificateParams::new([name.clone()]).unwrap();
        let serving = serving.signed_by(&key, &authority.issuer().unwrap()).unwrap();
        for (file, text) in [
            ("kops-controller.crt", serving.pem()),
            ("kops-controller.key", key.serialize_pem()),
            ("kubernetes-ca.crt", authority.certificate.clone()),
            ("kubernetes-ca.key", authority.private_key.clone()),
            ("keypair-ids.yaml", "kubernetes-ca: '7'\n".to_owned()),
        ] {
            fs::write(pki.join(file), text).unwrap();
        }
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.certificate.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let trust = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let world = World { cluster, address, trust: Arc::new(trust), name: name.try_into().unwrap(), pki };
        world.configure_server(options, &json!({}));
        world
    }

    /// Configures controllers with a bootstrap server for machines of a cloud, and with the options in `more`.
    pub fn configure(&self, provider: &Value, more: &Value) {
        self.configure_server(&json!({ "provider": provider }), more);
    }

    fn configure_server(&self, options: &Value, more: &Value) {
        let pki = &self.pki;
        let mut server = json!({
            "Listen": self.address.to_string(),
            "serverKeyPath": pki.join("kops-controller.key"), "serverCertificatePath": pki.join("kops-controller.crt"),
            "caBasePath": pki, "signingCAs": ["kubernetes-ca"], "certNames": ["kubelet", "kubelet-server", "kube-proxy"]
        });
        for (option, value) in options.as_object().unwrap() {
            server[option] = value.clone();
        }
        self.cluster.configure_with(Some(&server), more);
    }

    /// Starts a controller, and waits until it serves machines.
    pub fn controller(&self) -> Controller {
        let controller = self.cluster.controller();
        eventually("machines are served", || std::net::TcpStream::connect(self.address).is_ok());
        controller
    }

    /// A machine's token for a request, signed for the STS at the host `sts`.
    pub fn token_for(machine: &Principal, sts: &str, region: &str, body: &str) -> String {
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
        machine.token_v1(sts, region, body.as_bytes(), now.try_into().unwrap())
    }

    /// Sends a request from this address. Returns the status and the body of the response, or status 0 if no response comes.
    pub fn ask(&self, from: Ipv4Addr, token: &str, body: &str) -> (u16, String) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(self.try_ask(from, token, body)).unwrap_or_default()
    }

    /// Like `ask`, but `None` if no response comes in time.
    pub async fn try_ask(&self, from: Ipv4Addr, token: &str, body: &str) -> Option<(u16, String)> {
        let asking = async {
            let stream = connect(from, self.address).await.ok()?;
            exchange(stream, &self.trust, &self.name, &post(token, body)).await
        };
        tokio::time::timeout(TIMEOUT, asking).await.ok()?
    }
}

/// A request for a node's certificates.
pub fn request(key: &KeyPair) -> String {
    use base64::Engine as _;
    let der = base64::engine::general_purpose::STANDARD.encode(key.subject_public_key_info());
    let pem = format!("-----BEGIN RSA PUBLIC KEY-----\n{der}\n-----END RSA PUBLIC KEY-----\n");
    json!({
        "apiVersion": "bootstrap.kops.k8s.io/v1alpha1",
        "certs": {"kubelet": pem, "kubelet-server": pem}, "keypairIDs": {"kubernetes-ca": "7"}, "includeNodeConfig": false
    })
    .to_string()
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn a_machine_bootstraps_only_until_it_is_a_node() {
    let world = WithSts::start();
    let _controller = world.controller();
    let machine = world.machine(1);
    let body = request(&KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).unwrap());
    let token = world.token(&machine, &body);
    let (status, answer) = world.ask(Ipv4Addr::new(127, 0, 1, 1), &token, &body);
    assert_eq!(status, 200, "{answer}");
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert!(
        answer["Certs"]["kubelet"].as_str().unwrap().starts_with("-----BEGIN CERTIFICATE-----"),
        "{answer}"
    );
    let (status, _) = world.ask(Ipv4Addr::new(127, 0, 1, 1), &token, &body);
    assert_eq!(status, 403, "a token is good once");

    world.cluster.create_node(&id(1), Some(&id(1)));
    world.cluster.report(&id(1));
    let other = request(&KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).unwrap());
    let (status, answer) = world.ask(Ipv4Addr::new(127, 0, 1, 1), &world.token(&machine, &other), &other);
    assert_eq!((status, answer.as_str()), (409, ""));
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn a_controller_is_not_ready_while_it_cannot_serve_machines() {
    let world = WithSts::start();
    let taken = TcpListener::bind(world.address).unwrap();
    let controller = world.cluster.controller();
    assert!(controller.get("/readyz").contains("machines cannot bootstrap"));
    assert_eq!(controller.get("/healthz"), "ok");
    drop(taken);
    eventually("it serves", || controller.get("/readyz") == "ok");
    assert_eq!(world.ask(Ipv4Addr::new(127, 0, 1, 1), "x-aws-sts e30", "{}").0, 403);
}

struct Taken(Vec<Duration>);

impl Taken {
    fn percentile(&mut self, percent: usize) -> Duration {
        self.0.sort();
        self.0[(self.0.len() * percent / 100).min(self.0.len() - 1)]
    }
}

/// Lets each machine bootstrap once, four at a time.
fn all_bootstrap(world: &WithSts, machines: &[(Principal, String)]) -> Taken {
    const HANDS: usize = 4;
    let next = AtomicUsize::new(0);
    let took = thread::scope(|scope| {
        let hands: Vec<_> = (0..HANDS)
            .map(|_| {
                scope.spawn(|| {
                    let mut took = Vec::new();
                    while let Some((machine, body)) = machines.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let number = next.load(Ordering::Relaxed);
                        let from =
                            Ipv4Addr::new(127, 0, 1 + (number / 200 % 50) as u8, 1 + (number % 200) as u8);
                        let (token, begun) = (world.token(machine, body), Instant::now());
                        let (status, answer) = world.ask(from, &token, body);
                        assert_eq!(status, 200, "{answer}");
                        took.push(begun.elapsed());
                    }
                    took
                })
            })
            .collect();
        hands.into_iter().flat_map(|hand| hand.join().unwrap()).collect()
    });
    Taken(took)
}

#[test]
#[ignore = "measures: tests/bench/run controller"]
#[allow(clippy::print_stdout)]
fn measured_bootstrap() {
    const MACHINES: usize = 1000;
    const LIARS: u8 = 8;
    /// After this pause, the controller has its full budget of EC2 requests again.
    const REFILLED: Duration = Duration::from_secs(6);
    let world = WithSts::start();
    let controller = world.controller();
    let rsa = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).unwrap();
    let ecdsa = KeyPair::generate().unwrap();
    let machines = |from: usize, count: usize, key: &KeyPair| -> Vec<(Principal, String)> {
        (from..from + count).map(|number| (world.machine(number), request(key))).collect()
    };
    println!("| what | measured | promised |\n| --- | --- | --- |");
    let mut rates = Vec::new();
    for (what, from, key) in [("RSA 2048", 10_000, &rsa), ("ECDSA P-256", 20_000, &ecdsa)] {
        let machines = machines(from, MACHINES, key);
        let before = controller.processor_time();
        let mut took = all_bootstrap(&world, &machines);
        let rate = MACHINES as f64 / (controller.processor_time() - before);
        println!(
            "| machines that bootstrap in a second of one core, keys of {what}, two certificates each | {rate:.0} | at least 200 |"
        );
        println!(
            "| their median and p99, ms | {:.0}, {:.0} | |",
            millis(took.percentile(50)),
            millis(took.percentile(99))
        );
        rates.push(rate);
    }
    // Both measurements start with a full budget of EC2 requests. Without a pause, a measurement could include a wait for this budget.
    thread::sleep(REFILLED);
    let calm = all_bootstrap(&world, &machines(30_000, MACHINES / 4, &ecdsa)).percentile(99);
    println!("| p99 of {} machines with nothing else there, ms | {:.0} | |", MACHINES / 4, millis(calm));
    let machines = machines(35_000, MACHINES / 4, &ecdsa);
    thread::sleep(REFILLED);
    let over = AtomicBool::new(false);
    let lies = AtomicUsize::new(0);
    let asked_before = world.sts.calls();
    // This principal's signature is wrong, which only STS can detect.
    let forged = Principal { secret: "guessed".into(), ..world.machine(40_000) };
    let mut flooded = thread::scope(|scope| {
        for liar in 1..=LIARS {
            let (world, over, lies, forged) = (&world, &over, &lies, &forged);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let lie = lies.fetch_add(1, Ordering::Relaxed);
                    let body =
                        json!({"apiVersion": "bootstrap.kops.k8s.io/v1alpha1", "certs": {}, "lie": lie});
                    let token = world.token(forged, &body.to_string());
                    let (status, _) = world.ask(Ipv4Addr::new(127, 0, 200, liar), &token, &body.to_string());
                    assert_ne!(status, 200);
                }
            });
        }
        let took = all_bootstrap(&world, &machines);
        over.store(true, Ordering::Relaxed);
        took
    });
    let flooded = flooded.percentile(99);
    println!(
        "| p99 while {LIARS} liars at as many addresses ask without pause ({} lies), ms | {:.0} | |",
        lies.load(Ordering::Relaxed),
        millis(flooded)
    );
    let asked = world.sts.calls() - asked_before;
    assert!(asked > machines.len(), "the lies reach STS: {asked} calls");
    println!("| calls of STS meanwhile, {} of them for honest machines | {asked} | |", machines.len());
    let (ratio, memory) = (flooded.as_secs_f64() / calm.as_secs_f64(), controller.peak_memory());
    println!("| its ratio to the calm one | {ratio:.2} | at most 2 |");
    println!("| peak memory of the controller, MiB | {memory:.1} | at most 64 |");
    assert!(rates.iter().all(|rate| *rate >= 200.0), "machines that bootstrap in a second: {rates:.0?}");
    assert!(ratio <= 2.0 && memory <= 64.0, "p99 under flood is {ratio:.2} of the calm one; {memory:.1} MiB");
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
