//! Machines bootstrap over TLS on loopback. The clouds and the API server are stand-ins; all other code is production
//! code.

#![allow(clippy::unwrap_used)]

mod audit;
mod azure;
mod derived_configs;
mod digital_ocean;
mod gce;
mod go_client;
mod grants;
mod hetzner;
mod honest;
mod lies;
mod linode;
mod metal;
mod openstack;
mod predecessors;
mod ready;
mod renewal;
mod scaleway;
mod slots;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::SystemTime;

use kops_agent_cluster::bootstrap::message::BootstrapRequest;
use kops_agent_cluster::identity::aws::AwsCluster;
use kops_agent_cluster::identity::azure::AzureCluster;
use kops_agent_cluster::identity::gce::GceCluster;
use kops_agent_spec::BootConfig;
use kops_agent_tests::authority::Authority;
use kops_agent_tests::azure::{Azure, RESOURCE_GROUP, SUBSCRIPTION};
use kops_agent_tests::digital_ocean::DigitalOcean;
use kops_agent_tests::ec2::{Ec2, Instance};
use kops_agent_tests::gce::{Gce, PROJECT};
use kops_agent_tests::hetzner::{Hetzner, TOKEN};
use kops_agent_tests::linode::Linode;
use kops_agent_tests::openstack::{self as stack, Openstack};
use kops_agent_tests::scaleway::{self as scw, Scaleway};
use kops_agent_tests::sts::{Principal, Sts as StsStandIn};
use kube::{Client as KubeClient, Config};
use parking_lot::Mutex;
use rcgen::{CertificateParams, KeyPair, PublicKeyData as _};
use reqwest::Client;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};

use super::super::metrics::BootstrapMetrics;
use super::answer::seconds;
use super::replay::REMEMBERED_FOR;
use super::*;
use kops_agent_cloud::aws;
use kops_agent_cloud::aws::ec2::Ec2 as Ec2Client;
use kops_agent_cloud::aws::instances::Instances;
use kops_agent_cloud::aws::sts::Sts;
use kops_agent_cloud::aws::verify::AwsVerifier;
use kops_agent_cloud::azure::arm::Arm;
use kops_agent_cloud::azure::attestation::Attestation;
use kops_agent_cloud::azure::scale_sets::ScaleSets;
use kops_agent_cloud::azure::verify::AzureVerifier;
use kops_agent_cloud::calls::CloudCalls;
use kops_agent_cloud::digital_ocean::{DigitalOceanDroplets, DigitalOceanVerifier};
use kops_agent_cloud::gce::compute::Compute;
use kops_agent_cloud::gce::managed_groups::ManagedGroups;
use kops_agent_cloud::gce::verify::GceVerifier;
use kops_agent_cloud::hetzner::{HetznerServers, HetznerVerifier};
use kops_agent_cloud::hosts::testing::KnownHosts;
use kops_agent_cloud::inventory::Scope;
use kops_agent_cloud::linode::{LinodeInstances, LinodeVerifier};
use kops_agent_cloud::openstack::{OpenstackServers, OpenstackVerifier};
use kops_agent_cloud::scaleway::{ScalewayServers, ScalewayVerifier};
use kops_agent_cloud::verify::LoadBalancing;
use kops_agent_source::bootstrap_client::{BootstrapError, KopsController};
use kops_agent_tests::test_server::{TestServer, text};

async fn text_of(answer: reqwest::Response) -> String {
    let body = kops_agent_net::http::body(answer, 1 << 20).await.unwrap().unwrap();
    String::from_utf8(body).unwrap()
}

/// Waits until `holds` returns true. The server may reach the expected state a moment after the peer has received the answer.
async fn eventually(holds: impl Fn() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(ANSWERED_WITHIN, waiting).await.unwrap();
}

const CLUSTER: &str = "c.example.com";
const NAME: &str = "kops-controller.internal.c.example.com";
const REGION: &str = "us-test-1";
const ROLE: &str = "nodes.c.example.com";
const ID: &str = "i-0123456789abcdef0";
const NODEUP_CONFIG: &str = "Networking: {}\n";
/// Timeout of a machine's request. A busy test machine may need long for a hundred concurrent requests.
const ANSWERED_WITHIN: Duration = Duration::from_secs(120);

fn new_authority(name: &str) -> Authority {
    Authority::new(name).unwrap()
}

fn write_authority(authority: &Authority, folder: &Path, name: &str) {
    fs::write(folder.join(format!("{name}.crt")), &authority.pem).unwrap();
    fs::write(folder.join(format!("{name}.key")), &authority.key).unwrap();
}

fn write_server(authority: &Authority, folder: &Path) -> String {
    let pair = authority.issue(&CertificateParams::new([NAME.to_owned()]).unwrap()).unwrap();
    fs::write(folder.join("kops-controller.key"), pair.private_key).unwrap();
    fs::write(folder.join("kops-controller.crt"), &pair.certificate).unwrap();
    pair.certificate
}

struct World {
    folder: tempfile::TempDir,
    authority: Authority,
    ec2: Ec2,
    sts: StsStandIn,
    sts_calls: CloudCalls,
    hetzner: Hetzner,
    digital_ocean: DigitalOcean,
    linode: Linode,
    openstack: Openstack,
    scaleway: Scaleway,
    gce: Gce,
    azure: Azure,
    hosts: Arc<KnownHosts>,
    /// The names of the Nodes that are Ready.
    ready: Arc<Mutex<BTreeSet<String>>>,
    /// Whether the Nodes have the label of the group `nodes`.
    are_labelled: Arc<AtomicBool>,
    /// The `spec.providerID` of Nodes, by name.
    provider_ids: Arc<Mutex<BTreeMap<String, String>>>,
    /// Whether the API server answers every request with status 500.
    api_is_down: Arc<AtomicBool>,
    api: TestServer,
    keystore: Arc<Keystore>,
    metrics: BootstrapMetrics,
    address: SocketAddr,
    serving: Option<Serving>,
    began: i64,
    tokens: AtomicI64,
}

impl World {
    async fn new() -> World {
        World::with(server::Limits::default(), admission::Limits::default()).await
    }

    /// A server that has run for [`REMEMBERED_FOR`], so it accepts all tokens of [`World::v1`].
    async fn with(limits: server::Limits, admission: admission::Limits) -> World {
        World::since(Instant::now().checked_sub(REMEMBERED_FOR).unwrap(), limits, admission).await
    }

    async fn since(began: Instant, limits: server::Limits, admission: admission::Limits) -> World {
        World::begun(began, limits, admission, false).await
    }

    /// A server that treats each peer as a load balancer, unless the peer has the address of a Hetzner server.
    async fn behind_a_load_balancer() -> World {
        let began = Instant::now().checked_sub(REMEMBERED_FOR).unwrap();
        World::begun(began, server::Limits::default(), admission::Limits::default(), true).await
    }

    async fn begun(
        began: Instant,
        limits: server::Limits,
        admission: admission::Limits,
        is_balanced: bool,
    ) -> World {
        kops_agent_net::tls::install_provider();
        let folder = tempfile::tempdir().unwrap();
        let pki = folder.path().join("pki");
        let authority = new_authority("kubernetes-ca");
        for name in ["pki", "store/igconfig/node/nodes", "store/secrets"] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        write_authority(&authority, &pki, "kubernetes-ca");
        write_authority(&new_authority("etcd-clients-ca-cilium"), &pki, "etcd-clients-ca-cilium");
        write_server(&authority, &pki);
        fs::write(
            pki.join("keypair-ids.yaml"),
            "{kubernetes-ca: '7', etcd-clients-ca-cilium: '8', other: '9'}",
        )
        .unwrap();
        let store = folder.path().join("store");
        fs::write(store.join("igconfig/node/nodes/nodeupconfig.yaml"), NODEUP_CONFIG).unwrap();
        fs::write(store.join("secrets/dockerconfig"), r#"{"Data":"e30="}"#).unwrap();

        let options: KopsControllerServerOptions = serde_json::from_value(json!({
            "Listen": "127.0.0.1:0", "provider": {"aws": {"nodesRoles": [ROLE], "Region": REGION}},
            "serverKeyPath": pki.join("kops-controller.key"), "serverCertificatePath": pki.join("kops-controller.crt"),
            "caBasePath": pki, "signingCAs": ["kubernetes-ca", "etcd-clients-ca-cilium"],
            "certNames": ["kubelet", "kubelet-server", "kube-proxy", "etcd-client-cilium"]
        }))
        .unwrap();
        let (ec2, sts) = (Ec2::start().unwrap(), StsStandIn::start().unwrap());
        let controller = Principal::instance("control-plane.c.example.com", "i-0ccccccccccccccc0");
        sts.put(&controller);
        let api_is_down = Arc::<AtomicBool>::default();
        let provider_ids = Arc::<Mutex<BTreeMap<String, String>>>::default();
        let are_labelled = Arc::<AtomicBool>::default();
        let (ready, api) = api_server(api_is_down.clone(), are_labelled.clone(), provider_ids.clone()).await;
        let (metrics, sts_calls) = (BootstrapMetrics::new(), CloudCalls::default());
        let keystore = Arc::new(Keystore::load(&options).unwrap());
        let ec2_url = ec2.environment()[0].1.clone();
        let verifier = AwsVerifier {
            cluster: AwsCluster {
                name: CLUSTER.into(),
                region: REGION.into(),
                use_ip_based_node_names: false,
            },
            nodes_roles: vec![ROLE.into()],
            sts: Sts::for_tests(
                &sts.url(),
                REGION,
                &controller.access_key,
                &controller.secret,
                sts_calls.clone(),
            ),
            instances: Instances::new(Ec2Client::for_tests(&ec2_url), CloudCalls::default()),
        };
        let hetzner = Hetzner::start().unwrap();
        let servers = HetznerServers::at(&hetzner.url(), TOKEN, CLUSTER, CloudCalls::default()).unwrap();
        let servers = Arc::new(servers);
        let load_balancing = match is_balanced {
            true => LoadBalancing::Of(servers.clone()),
            false => LoadBalancing::None,
        };
        let on_hetzner = HetznerVerifier { machines: servers };
        let digital_ocean = DigitalOcean::start().unwrap();
        let token = kops_agent_tests::digital_ocean::TOKEN;
        let droplets =
            DigitalOceanDroplets::at(&digital_ocean.url(), token, CLUSTER, CloudCalls::default()).unwrap();
        let on_digital_ocean = DigitalOceanVerifier { machines: Arc::new(droplets) };
        let linode = Linode::start().unwrap();
        let token = kops_agent_tests::linode::TOKEN;
        let instances = LinodeInstances::at(&linode.url(), token, CLUSTER, CloudCalls::default()).unwrap();
        let on_linode = LinodeVerifier { machines: Arc::new(instances) };
        let openstack = Openstack::start().unwrap();
        let login = stack::login(&openstack.origin());
        let servers = OpenstackServers::with_login(&login, CLUSTER, CloudCalls::default()).unwrap();
        let on_openstack = OpenstackVerifier { machines: Arc::new(servers) };
        let scaleway = Scaleway::start().unwrap();
        let scope = Scope { zone: scw::ZONE.into(), project: scw::PROJECT.into(), ..Scope::from(CLUSTER) };
        let servers = ScalewayServers::at(&scaleway.url(), scw::TOKEN, scope, CloudCalls::default()).unwrap();
        let on_scaleway = ScalewayVerifier { machines: Arc::new(servers) };
        let gce = Gce::start().unwrap();
        let compute = Compute::for_tests(&gce.url(), CloudCalls::default());
        let on_gce = GceCluster { name: CLUSTER.into(), project: PROJECT.into(), region: "us-test1".into() };
        let on_gce = GceVerifier::new(ManagedGroups::new(compute, on_gce), 0);
        let azure = Azure::start().unwrap();
        let on_azure = azure::verifier(&azure);
        let hosts = Arc::new(KnownHosts::new(Vec::new()));
        let kube = KubeClient::try_from(Config::new(api.url.parse().unwrap())).unwrap();
        let base = store.to_str().unwrap();
        let bootstrap = Arc::new(Bootstrap {
            verifiers: vec![
                Box::new(verifier),
                Box::new(on_gce),
                Box::new(on_azure),
                Box::new(on_hetzner),
                Box::new(on_digital_ocean),
                Box::new(on_linode),
                Box::new(on_openstack),
                Box::new(on_scaleway),
                Box::new(HostVerifier::new(Arc::new(Enrolled::new(hosts.clone())), 0)),
            ],
            taken: Taken::since(began),
            admission: Admission::new(admission, metrics.waiting.clone()),
            call_back: CallBack::new(CLUSTER, keystore.clone()),
            renewal: Renewal::default(),
            slots: Slots::new(&Nodes::new(kube.clone()), ApiServers::at_port_of(&api.url).unwrap()),
            nodes: Nodes::new(kube),
            grants: Grants::new(
                Arc::new(Store::new(&[]).unwrap()),
                base,
                &format!("{base}/secrets"),
                &options.cert_names,
                keystore.clone(),
            ),
            machines: aws::identify::MACHINE_PREFIX,
            load_balancing,
            metrics: metrics.clone(),
        });
        let listener = server::bind(&options.listen).await.unwrap().listen().unwrap();
        let server = Server::new(listener, keystore.clone(), bootstrap, limits).unwrap();
        let address = server.address().unwrap();
        let keys = keystore.clone();
        let serve = |stopped| async move { serve(server, &keys, stopped).await };
        let serving = Some(Serving::on_own_threads(serve).unwrap());
        World {
            folder,
            authority,
            ec2,
            sts,
            sts_calls,
            hetzner,
            digital_ocean,
            linode,
            openstack,
            scaleway,
            gce,
            azure,
            hosts,
            ready,
            are_labelled,
            provider_ids,
            api_is_down,
            api,
            keystore,
            metrics,
            address,
            serving,
            began: seconds(SystemTime::now()),
            tokens: AtomicI64::new(0),
        }
    }

    /// A server whose store has the group `nodes` twice: as a group of nodes and as a group of control planes.
    async fn with_control_planes() -> World {
        let world = World::new().await;
        let group = world.folder.path().join("store/igconfig/control-plane/nodes");
        fs::create_dir_all(&group).unwrap();
        fs::write(group.join("nodeupconfig.yaml"), NODEUP_CONFIG).unwrap();
        world
    }

    /// Asserts that the server rejected the machine because of its group's role.
    fn assert_refuses_control_planes(&self, asked: Result<BTreeMap<String, String>, BootstrapError>) {
        let error = asked.unwrap_err().to_string();
        assert!(error.contains("403 (failed to verify token)"), "{error}");
        assert!(self.counted("GroupOfOtherRole") && !self.counted("Granted"));
    }

    fn pki(&self) -> std::path::PathBuf {
        self.folder.path().join("pki")
    }

    /// Replaces the signing authority. The new authority also issues a new certificate of the server.
    fn promote(&mut self, authority: Authority) {
        write_authority(&authority, &self.pki(), "kubernetes-ca");
        write_server(&authority, &self.pki());
        self.keystore.refresh();
        self.authority = authority;
    }

    /// A running instance of the cluster, with the IAM role of nodes.
    fn machine(&self, id: &str) -> Principal {
        self.ec2.put(id, Instance::of_group(CLUSTER, "nodes"));
        let machine = Principal::instance(ROLE, id);
        self.sts.put(&machine);
        machine
    }

    /// Returns a unique token. Two tokens of one second would be equal, so each token gets a different second.
    fn v1(&self, machine: &Principal, body: &[u8]) -> String {
        let earlier = self.tokens.fetch_add(1, Ordering::Relaxed) % 500;
        machine.token_v1(&self.sts.host(), REGION, body, self.began - earlier)
    }

    /// A client that trusts the cluster's authority. Its requests come from this loopback address.
    fn client(&self, from: Ipv4Addr) -> Client {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.authority.pem.as_bytes()).unwrap()).unwrap();
        let tls = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        Client::builder()
            .tls_backend_preconfigured(tls)
            .no_proxy()
            .resolve(NAME, self.address)
            .local_address(IpAddr::from(from))
            .pool_max_idle_per_host(0)
            .timeout(ANSWERED_WITHIN)
            .build()
            .unwrap()
    }

    fn url(&self) -> String {
        format!("https://{NAME}:{}/bootstrap", self.address.port())
    }

    /// The boot config of a node of this cloud. It names this server.
    fn boot_config(&self, cloud: &str) -> BootConfig {
        self.boot_config_of(cloud, &[format!("https://{}/", self.address)])
    }

    /// The boot config of a node of this cloud. It names these servers.
    fn boot_config_of(&self, cloud: &str, servers: &[String]) -> BootConfig {
        serde_json::from_value(json!({
            "CloudProvider": cloud, "ClusterName": CLUSTER, "InstanceGroupName": "nodes", "InstanceGroupRole": "Node",
            "ConfigServer": {"servers": servers, "tlsServerName": NAME, "CACertificates": self.authority.pem}
        }))
        .unwrap()
    }

    /// Sends one request. Returns the status and the text of the answer.
    async fn ask(&self, token: &str, body: Vec<u8>) -> (u16, String) {
        let request = self.client(Ipv4Addr::LOCALHOST).post(self.url()).header("Authorization", token);
        let answer = request.body(body).send().await.unwrap();
        (answer.status().as_u16(), text_of(answer).await)
    }

    fn counted(&self, reason: &str) -> bool {
        let mut registry = prometheus_client::registry::Registry::default();
        self.metrics.register(&mut registry);
        super::super::metrics::text(&registry).contains(&format!("reason=\"{reason}\"}} "))
    }
}

/// The creation time of each Node, which is also its last heartbeat.
const HEARTBEAT: &str = "2026-02-01T10:00:00Z";

/// A fake API server that serves Nodes.
async fn api_server(
    is_down: Arc<AtomicBool>,
    are_labelled: Arc<AtomicBool>,
    provider_ids: Arc<Mutex<BTreeMap<String, String>>>,
) -> (Arc<Mutex<BTreeSet<String>>>, TestServer) {
    let ready = Arc::<Mutex<BTreeSet<String>>>::default();
    let known = ready.clone();
    let server = TestServer::start(move |request| {
        let name = request.uri().path().strip_prefix("/api/v1/nodes/").map(str::to_owned);
        let is_ready = name.as_ref().is_some_and(|name| {
            known.lock().contains(name)
        });
        let provider_id = name.as_ref().and_then(|name| {
            provider_ids.lock().get(name).cloned()
        });
        let is_down = is_down.load(Ordering::Relaxed);
        let labels = match are_labelled.load(Ordering::Relaxed) {
            true => json!({"kops.k8s.io/instancegroup": "nodes"}),
            false => json!({}),
        };
        async move {
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound",
                                "message": "not found", "code": 404});
            let node = json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": name, "creationTimestamp": HEARTBEAT,
                                                                               "labels": labels},
                              "spec": {"providerID": provider_id.clone().unwrap_or_default()},
                              "status": {"conditions": [{"type": "Ready", "status": if is_ready { "True" } else { "False" },
                                                         "lastHeartbeatTime": HEARTBEAT}]}});
            let mut answer = match () {
                () if is_down => text(500, ""),
                () if is_ready || provider_id.is_some() => text(200, &node.to_string()),
                () => text(404, &status.to_string()),
            };
            answer.headers_mut().insert("content-type", "application/json".parse().unwrap());
            Ok(answer)
        }
    })
    .await;
    (ready, server)
}

/// A public key in the format that machines send.
fn public_key(key: &KeyPair) -> String {
    let pem = rustls_pem(&key.subject_public_key_info());
    pem.replace("CERTIFICATE", "RSA PUBLIC KEY")
}

fn rustls_pem(der: &[u8]) -> String {
    use base64::Engine as _;
    let encoded = base64::engine::general_purpose::STANDARD.encode(der);
    let lines: Vec<String> =
        encoded.as_bytes().chunks(64).map(|line| String::from_utf8(line.to_vec()).unwrap()).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

async fn certificates(machine: &KopsController) -> Result<BTreeMap<String, String>, BootstrapError> {
    let key = KeyPair::generate().unwrap();
    let public_keys = ["kubelet", "kubelet-server"].map(|name| (name.to_owned(), public_key(&key)));
    let keypair_ids = [("kubernetes-ca".to_owned(), "7".to_owned())];
    machine.certificates(public_keys.into(), keypair_ids.into(), Ok).await
}

/// The body of a request for these certificates, all with one key.
fn for_certificates(names: &[&str], key: &KeyPair) -> Vec<u8> {
    let certs: BTreeMap<&str, String> = names.iter().map(|name| (*name, public_key(key))).collect();
    request(json!(certs), json!({"kubernetes-ca": "7", "etcd-clients-ca-cilium": "8"}), false)
}

fn request(certs: Value, keypair_ids: Value, include_node_config: bool) -> Vec<u8> {
    json!({"apiVersion": "bootstrap.kops.k8s.io/v1alpha1", "certs": certs, "keypairIDs": keypair_ids,
           "includeNodeConfig": include_node_config})
    .to_string()
    .into_bytes()
}
