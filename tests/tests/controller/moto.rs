//! The controller against moto, a third party's EC2. It checks independently that our stand-in is like Amazon's EC2.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use kops_agent_tests::polling::poll;
use kops_agent_tests::ports::free_port;
use kops_agent_tests::sts::Principal;
use rcgen::KeyPair;
use serde_json::Value;

use crate::bootstrap::{ROLE, World, on_aws, request};
use crate::cluster::{CLUSTER, Cluster, GROUP_LABEL, eventually, id};

/// moto has instances only in real regions.
const REGION: &str = "us-east-1";
const START_WITHIN: Duration = Duration::from_secs(60);

/// A running server of moto, a stand-in for AWS' APIs by a third party. Dropping it stops the server.
struct Moto {
    child: Child,
    python: PathBuf,
    address: SocketAddr,
    url: String,
}

impl Moto {
    /// Starts moto. The variable `MOTO` contains the folder of its Python virtual environment.
    fn start() -> Moto {
        let environment = std::env::var_os("MOTO").expect("MOTO is set by tests/controller/run");
        let programs = Path::new(&environment).join("bin");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port().unwrap()));
        let child = Command::new(programs.join("moto_server"))
            .args(["-H", "127.0.0.1", "-p", &address.port().to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        poll(START_WITHIN, || TcpStream::connect(address).ok()).expect("moto does not start");
        Moto { child, python: programs.join("python"), address, url: format!("http://{address}") }
    }

    /// Makes instances. Returns the ids of each kind of instance, and the credentials of one instance.
    fn make_instances(&self) -> Value {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/controller/moto.py");
        let output =
            Command::new(&self.python).arg(script).args([&self.url, REGION, CLUSTER, ROLE]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("AWS_ENDPOINT_URL", self.url.clone()),
            ("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE".into()),
            ("AWS_SECRET_ACCESS_KEY", "secret".into()),
            ("AWS_EC2_METADATA_DISABLED", "true".into()),
        ]
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "starts an API server and moto: tests/controller/run"]
fn motos_instances_are_identified() {
    let moto = Moto::start();
    let made = moto.make_instances();
    let of = |what: &str| made["ids"][what].as_str().unwrap().to_owned();
    let cluster = Cluster::start().elsewhere(REGION, moto.environment());
    let refused = [
        (of("other"), "InstanceOfOtherCluster"),
        (of("stopped"), "InstanceNotRunning"),
        (id(1), "InstanceNotFound"),
    ];
    cluster.create_node(&of("nodes"), Some(&of("nodes")));
    for (node, _) in &refused {
        cluster.create_node(node, Some(node));
    }
    let _controller = cluster.controller();
    eventually("the cluster's own node is labelled", || {
        cluster.label(&of("nodes"), GROUP_LABEL).as_deref() == Some("nodes")
    });
    for (node, reason) in &refused {
        eventually(&format!("an Event says {reason}"), || cluster.reasons(node).contains(reason));
        assert_eq!(cluster.label(node, GROUP_LABEL), None, "{reason}");
    }
}

#[test]
#[ignore = "starts an API server and moto: tests/controller/run"]
fn motos_sts_identifies_the_machine() {
    let moto = Moto::start();
    let made = moto.make_instances();
    let given = |name: &str| made["credentials"][name].as_str().unwrap().to_owned();
    let instance = made["ids"]["nodes"].as_str().unwrap();
    let machine = Principal {
        access_key: given("AccessKeyId"),
        secret: given("SecretAccessKey"),
        session_token: given("SessionToken"),
        ..Principal::instance(ROLE, instance)
    };
    let world = World::with(Cluster::start().elsewhere(REGION, moto.environment()), &on_aws(REGION));
    let _controller = world.controller();
    let body = request(&KeyPair::generate().unwrap());
    let token = |machine: &Principal| World::token_for(machine, &moto.address.to_string(), REGION, &body);
    let from = Ipv4Addr::new(127, 0, 1, 1);
    let (status, answer) = world.ask(from, &token(&machine), &body);
    assert_eq!(status, 200, "{answer}");
    assert!(answer.contains("BEGIN CERTIFICATE"), "{answer}");
    // moto accepts every signature, but it knows the owner of each access key. An unknown key belongs to no instance.
    let unknown = Principal { access_key: "ASIAUNKNOWN".into(), ..machine };
    assert_eq!(world.ask(from, &token(&unknown), &body).0, 403);
}
