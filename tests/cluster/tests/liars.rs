//! Machines that claim to be what they are not, at the bootstrap server that honest ones are served by.

use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kops_agent_tests::ec2::Instance;
use kops_agent_tests::example_store::{CLUSTER, NODES, REGION};
use kops_agent_tests::sts::Principal;
use rcgen::{KeyPair, PKCS_RSA_SHA256, PublicKeyData as _, RsaKeySize};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::{CONTROL_PLANE_ADDRESS, store};

const STS: &str = "sts.eu-west-1.amazonaws.com";
/// Asks from a worker's place in the network; prints the status and the answer.
const ASK: &str = r#"
import http.client, socket, ssl, sys
address, name, token, body = sys.argv[1:]
context = ssl.create_default_context(cafile="/srv/kubernetes/ca.crt")
tls = context.wrap_socket(socket.create_connection((address, 3988), timeout=30), server_hostname=name)
connection = http.client.HTTPConnection(name)
connection.sock = tls
connection.request("POST", "/bootstrap", body, {"Authorization": token} if token else {})
answer = connection.getresponse()
print(answer.status, answer.read().decode(), sep="\n")
"#;

/// A machine that has not joined yet, and a key of its own.
pub struct Newcomer {
    principal: Principal,
    request: String,
}

impl Newcomer {
    /// A machine of the group `nodes`, which the cloud knows.
    pub fn of_nodes(cluster: &Cluster, id: &str) -> Newcomer {
        let principal = Principal::instance(&format!("nodes.{CLUSTER}"), id);
        cluster.world.sts.put(&principal);
        cluster.world.ec2.put(id, Instance::of_group(CLUSTER, NODES));
        Newcomer { principal, request: request() }
    }

    /// Asks for its certificate once; the status of the answer, if there is one.
    pub fn try_join(&self, cluster: &Cluster) -> Option<u16> {
        let token = self.principal.token_v1(STS, REGION, self.request.as_bytes(), now());
        try_ask(cluster, &token, &self.request).map(|(status, _)| status)
    }
}

/// Each is refused, and learns nothing; an honest newcomer beside them is served.
pub fn get_nothing(cluster: &Cluster) {
    let node = |id: &str| Principal::instance(&format!("nodes.{CLUSTER}"), id);
    let world = &cluster.world;
    let request = request();
    let honest = node("i-0d3a0c0ffee0000a1");
    world.sts.put(&honest);
    world.ec2.put("i-0d3a0c0ffee0000a1", Instance::of_group(CLUSTER, NODES));

    let unknown = node("i-0d3a0c0ffee0000a2");
    let of_another_cluster = node("i-0d3a0c0ffee0000a3");
    world.sts.put(&of_another_cluster);
    world.ec2.put("i-0d3a0c0ffee0000a3", Instance::of_group("other.example.com", NODES));
    let of_another_role = Principal::instance("build-servers", "i-0d3a0c0ffee0000a4");
    world.sts.put(&of_another_role);
    world.ec2.put("i-0d3a0c0ffee0000a4", Instance::of_group(CLUSTER, NODES));
    let terminated = node("i-0d3a0c0ffee0000a5");
    world.sts.put(&terminated);

    let token = |of: &Principal, body: &str| of.token_v1(STS, REGION, body.as_bytes(), now());
    let of_honest = token(&honest, &request);
    for (what, token) in [
        ("no token", String::new()),
        ("the signature of a key that nobody has", token(&unknown, &request)),
        ("another cluster's machine", token(&of_another_cluster, &request)),
        ("another role's machine", token(&of_another_role, &request)),
        ("a machine that is gone", token(&terminated, &request)),
        ("a token for another request", token(&honest, "{}")),
        ("a token for another service", honest.token_v1("example.com", REGION, request.as_bytes(), now())),
        ("a token of yesterday", honest.token_v1(STS, REGION, request.as_bytes(), now() - 86_400)),
    ] {
        let (status, answer) = ask(cluster, &token, &request);
        assert!((400..500).contains(&status), "{what}: {status} {answer}");
        assert!(!answer.contains("BEGIN"), "{what}: {answer}");
    }
    let (status, answer) = ask(cluster, &of_honest, &request);
    assert_eq!(status, 200, "{answer}");
    let certs: Value = serde_json::from_str(&answer).unwrap();
    assert!(
        certs["Certs"]["kubelet"].as_str().is_some_and(|pem| pem.contains("BEGIN CERTIFICATE")),
        "{answer}"
    );
}

fn request() -> String {
    let key = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).unwrap();
    let key = STANDARD.encode(key.subject_public_key_info());
    let key = format!("-----BEGIN RSA PUBLIC KEY-----\n{key}\n-----END RSA PUBLIC KEY-----\n");
    json!({"apiVersion": "bootstrap.kops.k8s.io/v1alpha1", "certs": {"kubelet": key}}).to_string()
}

fn now() -> i64 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs().try_into().unwrap()
}

fn ask(cluster: &Cluster, token: &str, body: &str) -> (u16, String) {
    try_ask(cluster, token, body).unwrap()
}

/// `None` where there is no answer.
fn try_ask(cluster: &Cluster, token: &str, body: &str) -> Option<(u16, String)> {
    let worker = &cluster.workers()[0].machine;
    let address = CONTROL_PLANE_ADDRESS.to_string();
    let asked = worker.try_run(&["python3", "-c", ASK, &address, &store::bootstrap_name(), token, body]);
    let (status, answer) = asked.stdout.split_once('\n')?;
    Some((status.parse().ok()?, answer.to_owned()))
}
