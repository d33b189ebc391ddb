//! The port on which a joining node answers kops-controller's call-back. Every peer that reaches the machine may connect to it.

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use kops_agent_tests::authority::{Authority, common_name};
use kops_agent_tests::example_cluster::edit;
use kops_agent_tests::example_store::NODES;
use kops_agent_tests::kops_controller::Mood;
use kops_agent_tests::program::processor_time;
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose};

use crate::example::apart::apart;
use crate::example::worker::Worker;

const PORT: u16 = 3987;
const HANDSHAKES: usize = 10;

/// A node that joins. Its process is killed on drop.
struct Node(Child);

impl Drop for Node {
    fn drop(&mut self) {
        // The process may have ended already, so both calls may fail.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Asserts that the node refuses a client with the certificate `own.pem` in `folder`. The client also sends the
/// certificates in `beside`. It uses TLS 1.2, so that it waits for the node's decision about the certificate.
fn assert_refused(folder: &Path, beside: &str) {
    let file = |name: &str| folder.join(name);
    fs::write(file("beside.pem"), beside).unwrap();
    let mut client = Command::new("openssl");
    client.args(["s_client", "-tls1_2", "-alpn", "h2", "-connect", &format!("127.0.0.1:{PORT}")]);
    client.arg("-cert").arg(file("own.pem")).arg("-key").arg(file("own.key"));
    if !beside.is_empty() {
        client.arg("-cert_chain").arg(file("beside.pem"));
    }
    let output = client.stdin(Stdio::null()).output().unwrap();
    let told = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(!output.status.success() && told.contains("alert"), "{told}");
}

/// webpki tries certificates of authorities with the same name in every order. If a client sent many such certificates
/// to a joining node, the node would need seconds to verify the client.
#[test]
fn certificates_beside_a_strangers_own_cost_a_joining_node_nothing() {
    apart("nameserver 127.0.0.1\n", || {
        let worker = Worker::new();
        let server = worker.kops_controller();
        // kops-controller calls a joining node back. The node listens while it waits for kops-controller's response.
        server.answer_next(&[const { Mood::Silent }; 60]);
        let mut agent = worker.agent("converge", &[server.url()], &worker.served.authority);
        let folder = worker.machine.folder();
        edit(&folder.join("kube_env.yaml"), "CloudProvider: aws", "CloudProvider: hetzner").unwrap();
        let facts = worker.machine.cluster.store.facts(NODES);
        let text = fs::read_to_string(&facts).unwrap();
        let (of_machine, _) = text.split_once("cloud:\n").unwrap();
        let of_hetzner = "cloud:\n  hetzner: {instanceID: '81000002', privateIPv4: 127.0.0.1}\n";
        fs::write(facts, format!("{of_machine}{of_hetzner}")).unwrap();
        agent.args(["--store-timeout", "600"]).stdout(Stdio::null()).stderr(Stdio::null());
        let mut node = Node(agent.spawn().unwrap());
        while TcpStream::connect(("127.0.0.1", PORT)).is_err() {
            assert_eq!(node.0.try_wait().unwrap(), None, "the node does not listen");
            thread::sleep(Duration::from_millis(10));
        }

        let stranger = Authority::new("kubernetes-ca").unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name = common_name("kops-controller.demo.example.com");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let own = stranger.issue(&params).unwrap();
        fs::write(folder.join("own.pem"), own.certificate).unwrap();
        fs::write(folder.join("own.key"), own.private_key).unwrap();
        let others: String = (0..30).map(|_| Authority::new("kubernetes-ca").unwrap().pem).collect();
        let cost = |beside: &str| {
            let before = processor_time(node.0.id()).unwrap();
            (0..HANDSHAKES).for_each(|_| assert_refused(folder, beside));
            processor_time(node.0.id()).unwrap() - before
        };
        let (alone, chained) = (cost(""), cost(&others));
        assert!(
            chained <= 2.0 * alone + 0.2,
            "{HANDSHAKES} handshakes cost {chained:.2} s of processor time, and {alone:.2} s without other certificates"
        );
    });
}
