//! A worker that may not read the state store, and the kops-controllers that its boot config names.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kops_agent_tests::example_keys::Keyset;
use kops_agent_tests::example_store::{CLUSTER, NODES};
use kops_agent_tests::kops_controller::{Asked, KopsController, Mood, Served, server_name};
use kops_agent_tests::loopback::LoopbackServer;
use sha2::{Digest as _, Sha256};

use super::{Ended, Machine, agent, keysets};

pub const DOCKER_CONFIG: &str = r#"{"auths":{"registry.example.com":{"auth":"aHVzaA=="}}}"#;
pub const NODE: &str = "i-0d3a0c0ffee000002";
pub const CERTIFICATES: [&str; 3] = ["kube-proxy", "kubelet", "kubelet-server"];

/// A worker whose boot config names kops-controllers instead of a state store.
pub struct Worker {
    pub machine: Machine,
    pub served: Served,
}

pub fn kubernetes_ca() -> Keyset {
    keysets().iter().find(|keyset| keyset.name == "kubernetes-ca").unwrap().clone()
}

impl Worker {
    pub fn new() -> Worker {
        Worker::on(Machine::new(NODES))
    }

    /// A worker for which kops-controllers serve the configuration from the machine's store.
    pub fn on(machine: Machine) -> Worker {
        let nodeup_config = Ended::from_command(
            Command::new(agent())
                .env_clear()
                .envs(machine.cluster.environment())
                .args(["config", "derive", "--instance-group", NODES, "--config-base"])
                .arg(kops_agent_tests::example_store::CONFIG_BASE),
        );
        nodeup_config.with(0, &[]);
        let served = Served {
            authority: kubernetes_ca(),
            node_name: NODE.to_owned(),
            nodeup_config: nodeup_config.stdout,
            docker_config: DOCKER_CONFIG.to_owned(),
            boot_config: None,
            kops_version: None,
            program: None,
        };
        Worker { machine, served }
    }

    pub fn kops_controller(&self) -> KopsController {
        KopsController::start(self.served.clone()).unwrap()
    }

    /// A command of the agent for this machine. The boot config names `servers`, and trusts `authority` for their
    /// certificates.
    pub fn agent(&self, verb: &str, servers: &[String], authority: &Keyset) -> Command {
        self.agent_of(self.machine.root(), verb, servers, authority)
    }

    /// Like `agent`, but for a machine with the root `root`.
    pub fn agent_of(&self, root: &Path, verb: &str, servers: &[String], authority: &Keyset) -> Command {
        let conf = self.machine.folder().join("kube_env.yaml");
        let boot_config = boot_config(servers, &authority.certificate, &self.served.nodeup_config);
        fs::write(&conf, boot_config).unwrap();
        let mut agent = self.observing(root, verb, &conf);
        agent.arg("--facts").arg(self.machine.cluster.store.facts(NODES));
        agent
    }

    /// A command without `--facts`, so that the agent observes the facts of the machine.
    fn observing(&self, root: &Path, verb: &str, conf: &Path) -> Command {
        let mut agent = Command::new(agent());
        agent.env_clear().env("HTTPS_PROXY", "http://127.0.0.1:1");
        // These variables replace the credentials of the instance's IAM role. The worker does not use a state store, so
        // no store needs them.
        agent.env("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE").env("AWS_SECRET_ACCESS_KEY", "secret");
        agent.args([verb, "--conf"]).arg(conf).arg("--root").arg(root);
        agent
    }

    /// Runs the agent on an instance with the metadata service `imds`. The agent observes the facts of this instance.
    pub fn run_on(&self, imds: &LoopbackServer, verb: &str, server: &KopsController) -> Ended {
        // This call is needed because it writes the boot config.
        self.agent(verb, &[server.url()], &self.served.authority);
        let mut agent =
            self.observing(self.machine.root(), verb, &self.machine.folder().join("kube_env.yaml"));
        once(agent.env("AWS_EC2_METADATA_SERVICE_ENDPOINT", imds.url()))
    }

    pub fn run(&self, verb: &str, server: &KopsController) -> Ended {
        once(&mut self.agent(verb, &[server.url()], &self.served.authority))
    }

    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.machine.root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// Certificate, key and trusted authorities of a kubeconfig.
    pub fn kubeconfig(&self, path: &str) -> [String; 3] {
        let kubeconfig: serde_yaml::Value = serde_yaml::from_str(&self.read(path)).unwrap();
        let user = &kubeconfig["users"][0]["user"];
        let cluster = &kubeconfig["clusters"][0]["cluster"];
        [&user["client-certificate-data"], &user["client-key-data"], &cluster["certificate-authority-data"]]
            .map(|value| String::from_utf8(STANDARD.decode(value.as_str().unwrap()).unwrap()).unwrap())
    }

    #[track_caller]
    pub fn is_untouched(&self) {
        assert_eq!(self.machine.files(), [""; 0]);
    }
}

/// A worker's boot config with `servers` and `authorities`. The boot config pins `nodeup_config`.
pub fn boot_config(servers: &[String], authorities: &str, nodeup_config: &str) -> String {
    let indented = |text: &str| text.lines().map(|line| format!("    {line}\n")).collect::<String>();
    let servers: String = servers.iter().map(|url| format!("  - {url}\n")).collect();
    let hash = STANDARD.encode(Sha256::digest(nodeup_config));
    format!(
        "CloudProvider: aws\nClusterName: {CLUSTER}\nConfigServer:\n  CACertificates: |\n{}  servers:\n{servers}  \
         tlsServerName: {}\nInstanceGroupName: {NODES}\nInstanceGroupRole: Node\nNodeupConfigHash: {hash}\n",
        indented(authorities),
        server_name(),
    )
}

/// Runs a command that asks every server once.
pub fn once(agent: &mut Command) -> Ended {
    Ended::from_command(agent.args(["--store-timeout", "1"]))
}

pub fn honest(asked: &[&str]) -> Vec<Asked> {
    let mut all = vec![Asked::Configuration(Mood::Honest)];
    if !asked.is_empty() {
        all.push(certificates(Mood::Honest, asked));
    }
    all
}

pub fn certificates(mood: Mood, names: &[&str]) -> Asked {
    Asked::Certificates(names.iter().map(|name| (*name).to_owned()).collect(), mood)
}

pub fn openssl(arguments: &[&str], input: &str) -> String {
    let mut openssl = Command::new("openssl");
    openssl.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut openssl = openssl.spawn().unwrap();
    std::io::Write::write_all(openssl.stdin.as_mut().unwrap(), input.as_bytes()).unwrap();
    let output = openssl.wait_with_output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
