//! A node carries out the order of a rollout that takes it to another version of kops-agent, and goes back.

#![allow(clippy::unwrap_used)]

mod in_place;
mod own_units;
mod package;
mod trial;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;

use kops_agent_process::version;
use kops_agent_tests::digest::sha256_hex;
use kops_agent_tests::downloads::{Downloads, Fault};
use kops_agent_tests::example_store::{CONTROL_PLANE, NODES};
use kops_agent_tests::kops_controller::{Asked, KopsController, Mood};
use kops_agent_tests::loopback::LoopbackServer;
use kops_agent_tests::polling::eventually;
use serde_json::{Value, json};

use crate::cloud_facts::{INSTANCE, metadata, on_ubuntu};
use crate::config_server::metadata_of_node;
use crate::example::api_server::ApiServer;
use crate::example::worker::{NODE, Worker};
use crate::example::{Machine, copy_agent};
use crate::fleet_plan::point_to;
use crate::superseded::{hash, pin, read, update};

const ARCHITECTURE: &str = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
const IMDS: &str = "AWS_EC2_METADATA_SERVICE_ENDPOINT";
const STATE: &str = "var/lib/kops-agent/recorded/state.json";
const REQUESTS: &str = "var/lib/kops-agent/recorded/requests.txt";
const CONTROLLER: &str = "kops-agent-controller.service";

/// A machine with its program in the folder `bin` next to the boot config, and a mirror with other versions of the
/// program.
struct Scene {
    machine: Machine,
    mirror: Downloads,
    server: ApiServer,
    node: &'static str,
    program: PathBuf,
    conf: PathBuf,
    environment: Vec<(&'static str, String)>,
}

/// A process that is killed when the test ends.
struct Following(Child);

impl Drop for Following {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Scene {
    /// A control plane whose facts come from a file.
    fn new() -> Scene {
        let machine = Machine::new(CONTROL_PLANE);
        let conf = machine.cluster.store.kube_env(CONTROL_PLANE);
        let facts = machine.cluster.store.facts(CONTROL_PLANE);
        let scene = Scene::bare(machine, "i-0d3a0c0ffee000001", &conf, Vec::new());
        let converged = scene.agent(&["converge"]).arg("--facts").arg(facts).output().unwrap();
        scene.after(&converged)
    }

    /// A control plane whose facts come from the metadata service `imds`. While the agent tests a new program, this
    /// program reads the facts from `imds`, too.
    fn observing(imds: &LoopbackServer) -> Scene {
        Scene::pinned(imds).0
    }

    /// Like [`Scene::observing`]. The state store has a newer configuration, which the node takes only at a rolling
    /// update.
    fn superseded(imds: &LoopbackServer) -> Scene {
        let (scene, config) = Scene::pinned(imds);
        update(&scene.machine, &config);
        scene
    }

    /// Like [`Scene::observing`]. Also returns the path of the node's configuration.
    fn pinned(imds: &LoopbackServer) -> (Scene, String) {
        let machine = Machine::new(CONTROL_PLANE);
        let config = pin(&machine, CONTROL_PLANE, "control-plane");
        let conf = machine.cluster.store.kube_env(CONTROL_PLANE);
        let environment = vec![(IMDS, imds.url()), ("AWS_EC2_METADATA_DISABLED", "false".to_owned())];
        let scene = Scene::bare(machine, INSTANCE, &conf, environment);
        let converged = scene.agent(&["converge"]).output().unwrap();
        (scene.after(&converged), config)
    }

    fn after(self, converged: &Output) -> Scene {
        assert!(converged.status.success(), "{converged:?}");
        self
    }

    fn bare(
        machine: Machine,
        node: &'static str,
        conf: &Path,
        mut environment: Vec<(&'static str, String)>,
    ) -> Scene {
        let kops = machine.root().join("opt/kops");
        let (program, own_conf) = (kops.join("bin/nodeup"), kops.join("conf/kube_env.yaml"));
        [&program, &own_conf]
            .into_iter()
            .for_each(|file| fs::create_dir_all(file.parent().unwrap()).unwrap());
        copy_agent(&program);
        fs::copy(conf, &own_conf).unwrap();
        let object = json!({"apiVersion": "v1", "kind": "Node", "spec": {}, "metadata": {"name": node, "annotations": {}}, "status": {}});
        let server = ApiServer::with_nodes(vec![object]);
        let mirror = Downloads::start_with(BTreeMap::new()).unwrap();
        let mut all: Vec<_> = machine.cluster.environment().into();
        all.append(&mut environment);
        let mut environment = all;
        environment.push(("HTTPS_PROXY", "http://127.0.0.1:1".to_owned()));
        Scene { machine, mirror, server, node, program, conf: own_conf, environment }
    }

    fn agent(&self, arguments: &[&str]) -> Command {
        self.agent_at(&self.program, arguments)
    }

    fn agent_at(&self, program: &Path, arguments: &[&str]) -> Command {
        let mut agent = Command::new(program);
        agent.env_clear().envs(self.environment.iter().cloned()).stdin(Stdio::null());
        agent.args(arguments).arg("--conf").arg(&self.conf).arg("--root").arg(self.machine.root());
        agent
    }

    fn follow(&self) -> Following {
        Following(self.agent(&["fleet", "follow"]).spawn().unwrap())
    }

    fn kubeconfig(&self) -> PathBuf {
        self.machine.root().join("var/lib/kubelet/kubeconfig")
    }

    fn lock(&self) -> PathBuf {
        self.machine.root().join("var/lib/kops-agent/lock")
    }

    /// Points the node's kubeconfig to the API server's stand-in, and runs `fleet follow` until the command waits for
    /// the lock. Then restores the node's own kubeconfig, because `verify` compares this file. Also returns the lines
    /// that the command writes to standard error after that.
    fn follow_to_the_lock(&self) -> (Following, impl Iterator<Item = String> + Send + use<>) {
        let own = fs::read(self.kubeconfig()).unwrap();
        let run = File::create(self.lock()).unwrap();
        run.lock().unwrap();
        point_to(&self.machine, &self.server);
        let mut following =
            Following(self.agent(&["fleet", "follow"]).stderr(Stdio::piped()).spawn().unwrap());
        let mut said = BufReader::new(following.0.stderr.take().unwrap()).lines().map(Result::unwrap);
        assert!(said.any(|line| line.contains("waiting for another run")), "it does not wait");
        fs::write(self.kubeconfig(), own).unwrap();
        (following, said)
    }

    /// Runs `fleet follow` until it ends, so that systemd can start the new program.
    fn end_for_successor(&self) -> ExitStatus {
        let (mut following, said) = self.follow_to_the_lock();
        said.for_each(|line| assert!(!line.contains("did not carry out"), "{line}"));
        following.0.wait().unwrap()
    }

    /// Runs `fleet follow` with the ordered program until the order has an outcome. Returns the problem in the
    /// outcome.
    fn problem_of_successor(&self, rollout: &str) -> String {
        let own = fs::read(self.kubeconfig()).unwrap();
        let (following, mut said) = self.follow_to_the_lock();
        let is_verified = said.find(|line| {
            ["would change nothing on this node", "did not carry out"].iter().any(|end| line.contains(end))
        });
        assert!(is_verified.is_some(), "it has ended");
        // The process must report its outcome to the API server's stand-in.
        point_to(&self.machine, &self.server);
        let draining = thread::spawn(move || said.for_each(drop));
        let problem = self.outcome(rollout);
        fs::write(self.kubeconfig(), own).unwrap();
        drop(following);
        draining.join().unwrap();
        problem
    }

    /// Writes a program file into the state store, and an order for this program into the Node.
    fn order(&self, rollout: &str, version: &str, url: &str, sha256: &str) {
        let text = program_file(version, url, sha256);
        let file = self.program_file();
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, &text).unwrap();
        self.order_hash(rollout, &hash(&text));
    }

    fn program_file(&self) -> PathBuf {
        self.machine.cluster.store.cluster_folder().join("kops-agent/program.yaml")
    }

    fn order_hash(&self, rollout: &str, hash: &str) {
        self.order_until(rollout, hash, "2099-01-01T00:00:00Z");
    }

    fn order_until(&self, rollout: &str, hash: &str, until: &str) {
        let order = json!({
            "rollout": rollout, "attempt": 1, "hash": hash, "drain": "never", "maxUnavailable": 1, "program": true,
            "at": "2026-11-30T00:00:00Z", "until": until,
        });
        self.ask("PATCH", &json!({"kops-agent/follow": order.to_string()}));
    }

    /// Sends a request about the machine's Node to the server, and returns the Node. `PATCH` sets annotations of the
    /// Node.
    fn ask(&self, method: &str, annotations: &Value) -> Value {
        let mut stream = TcpStream::connect(self.server.url.strip_prefix("http://").unwrap()).unwrap();
        let body = json!({"metadata": {"annotations": annotations}}).to_string();
        let length = body.len();
        write!(
            stream,
            "{method} /api/v1/nodes/{} HTTP/1.1\r\nContent-Length: {length}\r\n\r\n{body}",
            self.node
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
    }

    /// An annotation of the Node as JSON. Null if the Node does not have the annotation.
    fn annotation(&self, name: &str) -> Value {
        let node = self.ask("GET", &json!({}));
        let text = node["metadata"]["annotations"][name].as_str();
        text.map_or(Value::Null, |text| serde_json::from_str(text).unwrap())
    }

    /// Runs `fleet follow` until the order of `rollout` has an outcome. Returns the problem in the outcome.
    fn problem(&self, rollout: &str) -> String {
        let own = fs::read(self.kubeconfig()).unwrap();
        point_to(&self.machine, &self.server);
        let _following = self.follow();
        let problem = self.outcome(rollout);
        fs::write(self.kubeconfig(), own).unwrap();
        problem
    }

    /// Waits until the order of `rollout` has an outcome. Returns the problem in the outcome.
    fn outcome(&self, rollout: &str) -> String {
        let outcome = || self.annotation("kops-agent/followed");
        eventually("the node answers", || outcome()["rollout"] == rollout);
        outcome()["problem"].as_str().unwrap().to_owned()
    }

    fn sha256(&self) -> String {
        sha256_hex(&fs::read(&self.program).unwrap())
    }

    /// The sorted names of the files in the program's folder: the program and its other versions. Files without
    /// `nodeup` in their names are left out.
    fn beside(&self) -> Vec<String> {
        let files = fs::read_dir(self.program.parent().unwrap()).unwrap();
        let mut names: Vec<String> =
            files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|name| name.contains("nodeup"));
        names.sort();
        names
    }

    /// Records that the process of a unit started in 1970. So the process is older than every program.
    fn run_before(&self, unit: &str) {
        let mut state: Value = serde_json::from_str(&read(&self.machine, STATE)).unwrap();
        state["units"][unit] = json!({"enabled": true, "running": true, "started": 1});
        fs::write(self.machine.root().join(STATE), state.to_string()).unwrap();
    }

    fn restarts(&self, unit: &str) -> usize {
        read(&self.machine, REQUESTS).matches(&format!("systemd: restart {unit}")).count()
    }
}

fn program_file(version: &str, url: &str, sha256: &str) -> String {
    format!("version: {version}\nprograms: {{{ARCHITECTURE}: {{url: '{url}', sha256: {sha256}}}}}\n")
}

/// A program that prints `version`, and succeeds for `fleet follow --check`. For `verify`, the program runs the shell
/// code `verify`.
fn script(version: &str, verify: &str) -> Vec<u8> {
    script_that_follows(version, "exit 0", verify)
}

fn script_that_follows(version: &str, follow: &str, verify: &str) -> Vec<u8> {
    let arguments = r#""fleet follow --conf "*/kube_env.yaml" --root "*" --check""#;
    format!(
        "#!/bin/sh\ncase \"$*\" in --version) echo 'kops-agent {version} (test)';; {arguments}) {follow};; fleet*) exit 9;; *) {verify};; esac\n"
    )
    .into_bytes()
}

#[test]
fn a_service_that_starts_another_program_than_the_one_in_place_fails_plainly() {
    let scene = Scene::new();
    let [tried, other] = [".nodeup.kops-agent", "other"].map(|name| scene.program.with_file_name(name));
    fs::rename(&scene.program, &tried).unwrap();
    let program = script("0.9.0", "exit 0");
    fs::write(&other, &program).unwrap();
    fs::rename(&other, &scene.program).unwrap();
    scene.order("r-1", "0.9.0", "https://mirror.example.com/x", &sha256_hex(&program));
    point_to(&scene.machine, &scene.server);
    let mut agent = scene.agent_at(&tried, &["fleet", "follow"]);
    let _following = Following(agent.env("KOPS_AGENT_PATH_TO_BE", &scene.program).spawn().unwrap());
    let problem = scene.outcome("r-1");
    assert!(problem.contains("does not run the program that is in place"), "{problem}");
    assert_eq!(scene.sha256(), sha256_hex(&program));
}

#[test]
fn runs_continue_while_a_mirror_does_not_answer() {
    let scene = Scene::new();
    let program = script("0.9.0", "exit 0");
    let url = scene.mirror.put("/slow", &program);
    scene.mirror.break_path("/slow", Fault::Silent);
    scene.order("r-1", "0.9.0", &url, &sha256_hex(&program));
    point_to(&scene.machine, &scene.server);
    let _following = scene.follow();
    eventually("it asks the mirror", || scene.mirror.requests().iter().any(|line| line.contains("/slow")));
    File::open(scene.lock()).unwrap().try_lock().unwrap();
}

#[test]
fn a_service_that_fails_with_the_program_brings_the_previous_one_back() {
    let scene = Scene::new();
    let before = scene.sha256();
    scene.run_before(CONTROLLER);
    let mut state: Value = serde_json::from_str(&read(&scene.machine, STATE)).unwrap();
    // Another version of the agent may write its own units differently. So a change of such a unit does not prevent the
    // upgrade.
    let own = r#"{"resource": "unit kops-agent-verify.timer", "action": "change"}"#;
    let program = script("0.9.0", &format!(r#"echo '{{"plan": {{"steps": [{own}]}}}}'; exit 4"#));
    // The unit does not start while the new program is in place.
    state["refusals"] = json!([{"unit": CONTROLLER, "path": "/opt/kops/bin/nodeup", "text": "0.9.0 (test)"}]);
    fs::write(scene.machine.root().join(STATE), state.to_string()).unwrap();
    let url = scene.mirror.put("/new", &program);
    scene.order("r-1", "0.9.0", &url, &sha256_hex(&program));
    let problem = scene.problem("r-1");
    assert!(
        problem.contains(CONTROLLER) && problem.contains("the previous version is restored"),
        "{problem}"
    );
    assert_eq!((scene.sha256(), scene.beside()), (before, vec!["nodeup".to_owned()]));
    assert_eq!(scene.restarts(CONTROLLER), 1, "with the previous program");
}

#[test]
fn a_node_takes_another_build_reports_it_and_goes_back() {
    on_ubuntu(|| {
        let imds = metadata("m5.large");
        let scene = Scene::superseded(&imds);
        let old = fs::read(&scene.program).unwrap();
        // One more byte at the end of a program changes its hash and not its behaviour.
        let new = [&old[..], b"\n"].concat();
        let (old_sha256, new_sha256) = (sha256_hex(&old), sha256_hex(&new));
        let mode = fs::metadata(&scene.program).unwrap().permissions().mode();
        let owner = fs::metadata(&scene.program).unwrap().uid();
        let urls = [scene.mirror.put("/old", &old), scene.mirror.put("/new", &new)];
        drop((old, new));
        scene.run_before(CONTROLLER);

        scene.order("r-1", version::NUMBER, &urls[1], &new_sha256);
        let ended = scene.end_for_successor();
        assert!(ended.success(), "{ended}");
        assert_eq!(scene.annotation("kops-agent/followed"), Value::Null, "only the new program answers");
        assert_eq!(scene.sha256(), new_sha256);
        assert_eq!(scene.beside(), ["nodeup", "nodeup.previous"]);
        let placed = fs::metadata(&scene.program).unwrap();
        assert_eq!((placed.permissions().mode(), placed.uid()), (mode, owner));
        assert_eq!(scene.restarts(CONTROLLER), 1);

        // The state is as if the process was killed before it restarted the service.
        scene.run_before(CONTROLLER);
        assert_eq!(scene.problem_of_successor("r-1"), "");
        assert_eq!(scene.annotation("kops-agent/program")["sha256"], new_sha256.as_str());
        assert_eq!(scene.restarts(CONTROLLER), 2);
        // The node already runs the ordered program.
        scene.order("r-2", version::NUMBER, &urls[1], &new_sha256);
        assert_eq!(scene.problem_of_successor("r-2"), "");
        assert_eq!(scene.restarts(CONTROLLER), 2);

        scene.order("r-3", version::NUMBER, &urls[0], &old_sha256);
        let ended = scene.end_for_successor();
        assert!(ended.success() && scene.sha256() == old_sha256, "{ended}");
        assert_eq!(scene.problem_of_successor("r-3"), "");
        assert_eq!(scene.annotation("kops-agent/program")["sha256"], old_sha256.as_str());
        let verified = scene.agent(&["verify"]).output().unwrap();
        assert!(verified.status.success(), "{verified:?}");

        fs::write(scene.machine.root().join("etc/containerd/config.toml"), "").unwrap();
        scene.order("r-4", version::NUMBER, &urls[1], &new_sha256);
        let problem = scene.problem("r-4");
        assert!(problem.contains("would change this node") && problem.contains("config.toml"), "{problem}");
        assert_eq!(scene.sha256(), old_sha256);
    });
}

#[test]
fn a_worker_gets_the_program_file_from_its_server() {
    let mut worker = Worker::new();
    let program = script("0.9.1", "exit 0");
    let mirror = Downloads::start_with(BTreeMap::new()).unwrap();
    let text = program_file("0.9.0", &mirror.put("/new", &program), &sha256_hex(&program));
    worker.served.program = Some(text.clone());
    let imds = metadata_of_node();
    let registered = Mood::Refusing(409, "");
    let renews = KopsController::start_renewing(worker.served.clone()).unwrap();
    let refused = || Asked::ProgramFile(registered.clone());
    let elsewhere = || Asked::Elsewhere("/renew".into());
    for (server, expected, refusals, asked) in [
        (
            renews,
            "does not have the version",
            1,
            vec![refused(), Asked::ToRenew, Asked::ProgramFile(Mood::Honest)],
        ),
        (
            worker.kops_controller(),
            "no server answers /renew with the program file",
            2,
            // The node requests the program file twice, because a server may still serve an earlier file.
            vec![refused(), elsewhere(), refused(), elsewhere()],
        ),
    ] {
        let worker = Worker { machine: Machine::new(NODES), served: worker.served.clone() };
        worker.run("converge", &server).with(0, &[]);
        server.asked();
        server.answer_next(&vec![registered.clone(); refusals]);
        let conf = worker.machine.folder().join("kube_env.yaml");
        let keys = [("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE"), ("AWS_SECRET_ACCESS_KEY", "secret")];
        let mut environment = vec![(IMDS, imds.url()), ("AWS_EC2_METADATA_DISABLED", "false".to_owned())];
        environment.extend(keys.map(|(name, value)| (name, value.to_owned())));
        let scene = Scene::bare(worker.machine, NODE, &conf, environment);
        scene.order_hash("r-1", &hash(&text));
        let problem = scene.problem("r-1");
        assert!(problem.contains(expected), "{expected:?} is not in {problem:?}");
        assert_eq!(server.asked(), asked);
        assert_eq!(server.problems(), [""; 0]);
    }
}
