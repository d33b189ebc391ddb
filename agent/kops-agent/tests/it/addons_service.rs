//! A service applies add-ons instead of protokube, which applies them up to kOps 1.35.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use kops_agent_tests::example_cluster::edit;
use kops_agent_tests::example_store::{CONFIG_BASE, CONTROL_PLANE};

use crate::example::apart::apart;
use crate::example::{self, Ended, Machine};

const KOPS: &str = "1.35.2";
const PROTOKUBE: &str = "etc/systemd/system/protokube.service";
const CHANNELS: &str = "opt/kops/bin/channels";
const SERVICE: &str = "etc/systemd/system/kops-agent-addons.service";
const SETTINGS: &str = "etc/kubernetes/kops-channels/settings.json";

/// A control plane with the state store of a kOps 1.35 cluster, and with the configuration that kOps derived.
fn of_kops_1_35() -> Machine {
    let machine = Machine::new(CONTROL_PLANE);
    machine.serve_downloads_before_1_37();
    for name in ["protokube", "channels"] {
        for arch in ["amd64", "arm64"] {
            let path = format!("/binaries/kops/{KOPS}/linux/{arch}/{name}");
            machine.downloads().publish(&path, format!("#!/bin/sh\n# {name}\n").as_bytes());
        }
    }
    let folder = machine.cluster.store.cluster_folder();
    fs::write(folder.join("kops-version.txt"), KOPS).unwrap();
    let mut derive = Command::new(example::agent());
    derive.env_clear().envs(machine.cluster.environment()).args(["config", "derive"]);
    derive.env("HTTPS_PROXY", "http://127.0.0.1:1");
    let derived =
        Ended::from_command(derive.args(["--config-base", CONFIG_BASE, "--instance-group", CONTROL_PLANE]));
    derived.with(0, &[]);
    fs::write(folder.join(pinned()), derived.stdout).unwrap();
    machine
}

fn pinned() -> String {
    format!("igconfig/control-plane/{CONTROL_PLANE}/nodeupconfig.yaml")
}

/// Converges with the value `addons` of `KOPS_AGENT_ADDONS`.
fn converge(machine: &Machine, addons: &str) {
    let mut agent = machine.agent("converge");
    agent.args(["--config-from", "nodeup-config"]).env("KOPS_AGENT_ADDONS", addons);
    Ended::from_command(&mut agent).with(0, &[]);
}

fn read(machine: &Machine, path: &str) -> Option<String> {
    fs::read_to_string(machine.root().join(path)).ok()
}

/// The flags of protokube. `None` if protokube does not run.
fn flags(machine: &Machine) -> Option<String> {
    let unit = read(machine, PROTOKUBE)?;
    unit.lines().find_map(|line| line.strip_prefix("ExecStart=/opt/kops/bin/protokube ")).map(str::to_owned)
}

#[test]
fn the_service_takes_the_place_of_protokubes_channels_and_labels_and_gives_it_back() {
    let machine = of_kops_1_35();
    let bootstrap = format!("{CONFIG_BASE}/addons/bootstrap-channel.yaml");
    let channels = format!("--channels={bootstrap}");
    converge(&machine, "false");
    let by_protokube = flags(&machine).unwrap();
    assert!(by_protokube.contains(&channels) && read(&machine, CHANNELS).is_some(), "{by_protokube}");
    assert_eq!(read(&machine, SERVICE), None);

    // Without gossip, protokube has no task, so the run removes its files.
    converge(&machine, "true");
    for path in [PROTOKUBE, CHANNELS, "opt/kops/bin/protokube", "etc/sysconfig/protokube"] {
        assert_eq!(read(&machine, path), None, "{path}");
    }
    assert!(read(&machine, SERVICE).unwrap().contains("addons run"));
    let settings: serde_json::Value = serde_json::from_str(&read(&machine, SETTINGS).unwrap()).unwrap();
    assert_eq!(settings["channels"], serde_json::json!([bootstrap]));
    assert!(settings["nodeName"].as_str().is_some_and(|name| !name.is_empty()), "{settings}");
    assert_eq!(settings["nodeLabels"]["node-role.kubernetes.io/control-plane"], "");

    // In a gossip cluster, protokube still runs, but only for gossip.
    let config = machine.cluster.store.cluster_folder().join(pinned());
    edit(&config, "usesLegacyGossip: false", "usesLegacyGossip: true").unwrap();
    converge(&machine, "true");
    let gossip = flags(&machine).unwrap();
    assert!(gossip.contains("--gossip=true") && !gossip.contains("--channels"), "{gossip}");
    assert!(!gossip.contains("--bootstrap-master-node-labels"), "{gossip}");
    assert_eq!(read(&machine, CHANNELS), None);

    converge(&machine, "false");
    let both = flags(&machine).unwrap();
    assert!(both.contains("--gossip=true") && both.contains(&channels), "{both}");
    assert_eq!((read(&machine, SERVICE), read(&machine, SETTINGS)), (None, None));
    assert!(read(&machine, CHANNELS).is_some());
}

/// The response to a probe. `None` if nothing listens yet.
fn probed(probe: &serde_yaml::Value) -> Option<String> {
    let (host, port) = (probe["host"].as_str().unwrap(), probe["port"].as_u64().unwrap());
    let mut stream = TcpStream::connect(format!("{host}:{port}")).ok()?;
    let path = probe["path"].as_str().unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    Some(answer)
}

/// Kills the service when the test ends.
struct Service(Child);

impl Drop for Service {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// The readiness probe in the pod's manifest uses the port of kOps' channels pod. The probe must reach the agent's
/// service. The test starts this service with the command of its unit.
#[test]
fn the_pod_that_mirrors_the_service_is_unready_while_the_service_is() {
    apart("", || {
        let machine = Machine::new(CONTROL_PLANE);
        Ended::from_command(machine.agent("converge").env("KOPS_AGENT_ADDONS", "true")).with(0, &[]);
        let manifest = read(&machine, "etc/kubernetes/manifests/kops-agent-addons.manifest").unwrap();
        let pod: serde_yaml::Value = serde_yaml::from_str(&manifest).unwrap();
        let probe = &pod["spec"]["containers"][0]["readinessProbe"]["httpGet"];

        // No API server answers at the address in the kubeconfig, so the service cannot label the machine's Node.
        let kubeconfig = machine.folder().join("kubeconfig");
        let cluster = serde_json::json!({
            "current-context": "x", "contexts": [{"name": "x", "context": {"cluster": "x"}}],
            "clusters": [{"name": "x", "cluster": {"server": "http://127.0.0.1:1"}}],
        });
        fs::write(&kubeconfig, cluster.to_string()).unwrap();
        let unit = read(&machine, SERVICE).unwrap();
        let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
        let mut words = start.split(' ').skip(1);
        let mut run = Command::new(example::agent());
        run.env_clear().envs(machine.cluster.environment());
        while let Some(word) = words.next() {
            run.arg(word);
            // The unit's command names two files of the machine. The test uses its own files instead.
            let file = match word {
                "--settings" => machine.root().join(SETTINGS),
                "--kubeconfig" => kubeconfig.clone(),
                _ => continue,
            };
            run.arg(file);
            assert!(words.next().is_some(), "{start}");
        }
        let _service = Service(run.stderr(Stdio::null()).spawn().unwrap());
        let deadline = Instant::now() + Duration::from_secs(120);
        let unready = loop {
            match probed(probe) {
                Some(answer) if !answer.starts_with("HTTP/1.1 200 ") => break answer,
                answer if Instant::now() > deadline => panic!("it is not unready in time: {answer:?}"),
                _ => thread::sleep(Duration::from_millis(20)),
            }
        };
        assert!(unready.starts_with("HTTP/1.1 503 "), "{unready}");
        assert!(unready.contains("does not have the labels of a control plane: "), "{unready}");
    });
}

#[test]
fn a_configuration_that_names_no_channel_is_refused_where_the_service_is_asked_for() {
    let machine = of_kops_1_35();
    let config = machine.cluster.store.cluster_folder().join(pinned());
    edit(&config, &format!("channels:\n- {CONFIG_BASE}/addons/bootstrap-channel.yaml\n"), "").unwrap();
    let mut agent = machine.agent("plan");
    agent.args(["--config-from", "nodeup-config", "--addons"]);
    Ended::from_command(&mut agent)
        .with(3, &["the list `channels`", "names no channel", "KOPS_AGENT_ADDONS=false"]);
}
