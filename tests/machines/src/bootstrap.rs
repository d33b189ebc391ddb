//! Sends bootstrap requests from a machine's network namespace, as a machine that has not joined the cluster yet.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kops_agent_tests::kops_controller::server_name;
pub use rcgen::KeyPair;
use rcgen::{PKCS_RSA_SHA256, PublicKeyData as _, RsaKeySize};
use serde_json::json;

use crate::machine::Machine;

const ASK: &str = r#"
import hashlib, http.client, socket, ssl, sys
address, name, token, body = sys.argv[1:]
context = ssl.create_default_context(cafile="/srv/kubernetes/ca.crt")
tls = context.wrap_socket(socket.create_connection((address, 3988), timeout=30), server_hostname=name)
connection = http.client.HTTPConnection(name)
connection.sock = tls
connection.request("POST", "/bootstrap", body, {"Authorization": token} if token else {})
answer = connection.getresponse()
print(answer.status, hashlib.sha256(tls.getpeercert(True)).hexdigest(), answer.read().decode(), sep="\n")
"#;

/// The bootstrap server's response to a client that trusts the cluster's CA.
pub struct Answer {
    pub status: u16,
    /// The SHA-256 digest of the server's certificate, in hexadecimal.
    pub certificate: String,
    pub body: String,
}

/// Sends a request to the bootstrap server. If `token` is empty, the request has no token. Panics if the server
/// does not respond.
#[track_caller]
pub fn ask(from: &Machine, server: IpAddr, token: &str, body: &str) -> Answer {
    let (address, name) = (server.to_string(), server_name());
    read(&from.run(&["python3", "-c", ASK, &address, &name, token, body]))
}

/// Like `ask`, but returns `None` if the server does not respond.
pub fn try_ask(from: &Machine, server: IpAddr, token: &str, body: &str) -> Option<Answer> {
    let (address, name) = (server.to_string(), server_name());
    let asked = from.try_run(&["python3", "-c", ASK, &address, &name, token, body]);
    (asked.code == Some(0)).then(|| read(&asked.stdout))
}

fn read(printed: &str) -> Answer {
    let mut parts = printed.splitn(3, '\n').map(str::to_owned);
    let mut part = || parts.next().unwrap_or_default();
    Answer { status: part().parse().unwrap(), certificate: part(), body: part() }
}

/// A request for a kubelet's certificate, for a new key.
pub fn certificate_request() -> String {
    request_for(&new_key())
}

/// A new RSA key of 2048 bits, like a kubelet's key.
pub fn new_key() -> KeyPair {
    KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).unwrap()
}

/// A request for a kubelet's certificate for this key.
pub fn request_for(key: &KeyPair) -> String {
    let key = STANDARD.encode(key.subject_public_key_info());
    let key = format!("-----BEGIN RSA PUBLIC KEY-----\n{key}\n-----END RSA PUBLIC KEY-----\n");
    json!({"apiVersion": "bootstrap.kops.k8s.io/v1alpha1", "certs": {"kubelet": key}}).to_string()
}
