//! JSON of every verb is an object that names the version of its form, and keeps its fields.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::example::api_server::{ADDON, ApiServer};
use crate::example::{self, Ended, Machine};
use kops_agent_tests::example_store::{CONFIG_BASE, NODES};

/// The verb, path and type of each field in the JSON of the commands in [`Scene`]. docs/support-policy.md promises
/// these fields.
const FIELDS: &str = include_str!("json/fields.txt");
/// Objects whose fields depend on kOps or on the developer's machine. [`FIELDS`] leaves out their inner fields.
const WITHOUT_INNER_FIELDS: [&str; 3] = ["config dump: boot", "config dump: config", "facts: interfaces"];

#[test]
fn json_of_every_verb_says_its_version_and_keeps_its_fields() {
    let scene = Scene::new();
    let verbs = verbs_with_output(&[]);
    assert!(verbs.len() > 12, "{verbs:?}");
    let mut fields = BTreeSet::new();
    for verb in verbs {
        for mut command in scene.commands(&verb) {
            let ended = Ended::from_command(command.args(["-o", "json"]).stdin(Stdio::null()));
            let printed: Value = serde_json::from_str(&ended.stdout)
                .unwrap_or_else(|error| panic!("{verb}: {error}: {ended:#?}"));
            assert_eq!(printed["schemaVersion"], 1, "{verb}: {printed:#}");
            let printed = printed.as_object().unwrap();
            assert!(printed.len() > 1, "{verb} prints nothing else: {printed:#?}");
            for (name, value) in printed {
                note(&format!("{verb}: {name}"), value, &mut fields);
            }
        }
    }
    let kept: BTreeSet<String> = FIELDS.lines().map(str::to_owned).collect();
    let lost: Vec<&String> = kept.difference(&fields).collect();
    assert!(lost.is_empty(), "fields are missing, or have another type: {lost:#?}");
    // The facts of a developer's machine may have more fields than `FIELDS`.
    let new: Vec<&String> = fields.difference(&kept).filter(|field| !field.starts_with("facts: ")).collect();
    assert!(new.is_empty(), "add these fields to tests/it/json/fields.txt: {new:#?}");
}

/// Adds the path and the type of a value to `fields`, and does the same for all fields in the value.
fn note(path: &str, value: &Value, fields: &mut BTreeSet<String>) {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    fields.insert(format!("{path} {kind}"));
    if WITHOUT_INNER_FIELDS.contains(&path) {
        return;
    }
    match value {
        Value::Array(items) => items.iter().for_each(|item| note(&format!("{path}[]"), item, fields)),
        Value::Object(inner) => {
            inner.iter().for_each(|(name, value)| note(&format!("{path}.{name}"), value, fields));
        }
        _ => {}
    }
}

#[test]
fn each_line_of_a_watch_says_its_version() {
    let scene = Scene::new();
    let mut command = scene.on_cluster("fleet status");
    command.args(["--watch", "-o", "json"]).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut watching = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(watching.stdout.take().unwrap()).read_line(&mut line).unwrap();
    watching.kill().unwrap();
    watching.wait().unwrap();
    let row: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&row["schemaVersion"], &row["name"]), (&json!(1), &json!("node-1")), "{row:#}");
}

/// `--facts` accepts the output of `facts`.
#[test]
fn facts_are_read_back_with_their_version() {
    let machine = Machine::new(NODES);
    let text = fs::read_to_string(machine.cluster.store.facts(NODES)).unwrap();
    let mut facts: Value = kops_agent_spec::parse_document(text.as_bytes(), "facts").unwrap();
    facts["schemaVersion"] = 1.into();
    let before = machine.state(&[]);
    fs::write(machine.cluster.store.facts(NODES), facts.to_string()).unwrap();
    assert_eq!(machine.state(&[]), before);
}

/// The verbs below `path` that have the flag `--output`.
fn verbs_with_output(path: &[String]) -> Vec<String> {
    let help = Ended::from_command(Command::new(example::agent()).env_clear().args(path).arg("--help"));
    help.with(0, &[]);
    let mut verbs = Vec::new();
    if help.stdout.contains("--output <") {
        verbs.push(path.join(" "));
    }
    let commands = help.stdout.lines().skip_while(|line| *line != "Commands:").skip(1);
    for line in commands.take_while(|line| !line.is_empty()) {
        // The names of verbs are in the first column. Further lines continue a long description.
        let name = line.strip_prefix("  ").and_then(|line| line.split(' ').next()).unwrap_or_default();
        if !name.is_empty() && name != "help" {
            verbs.extend(verbs_with_output(&[path, &[name.to_owned()]].concat()));
        }
    }
    verbs
}

/// A converged node, a machine without any run, and an API server with one Node and one add-on that no channel lists.
struct Scene {
    node: Machine,
    blank: Machine,
    api_server: ApiServer,
}

impl Scene {
    fn new() -> Scene {
        let node = Machine::new(NODES);
        node.run("converge", &[]).with(0, &[]);
        fs::write(node.root().join("etc/os-release"), "ID=debian\nVERSION_ID=12\n").unwrap();
        fs::write(node.folder().join("channel.yaml"), "kind: Addons\nmetadata: {name: empty}\nspec: {}\n")
            .unwrap();
        let controller = format!("clusterName: demo.example.com\ncloud: aws\nconfigBase: {CONFIG_BASE}\n");
        fs::write(node.folder().join("controller.yaml"), controller).unwrap();
        Scene { node, blank: Machine::new(NODES), api_server: ApiServer::start() }
    }

    /// The tested calls of a verb. A new verb with `--output` needs an entry here.
    fn commands(&self, verb: &str) -> Vec<Command> {
        let Scene { node, blank, .. } = self;
        let on_root = |more: &[&str]| {
            let mut agent = Command::new(example::agent());
            agent.env_clear().args(verb.split(' ')).arg("--root").arg(node.root()).args(more);
            agent
        };
        let on_cluster = |more: &[&str]| {
            let mut agent = self.on_cluster(verb);
            agent.args(more);
            agent
        };
        let with = |mut agent: Command, more: &str| {
            agent.arg(more);
            agent
        };
        let folder = node.folder().display();
        let store =
            ["--channel", "s3://channels/channel.yaml", "--store-mirror", &format!("s3://channels={folder}")];
        match verb {
            "plan" => vec![node.agent(verb), with(node.agent(verb), "--summary"), blank.agent(verb)],
            "converge" | "verify" | "doctor" => vec![node.agent(verb)],
            "render" | "config dump" | "config check" => vec![node.agent_without_root(verb)],
            "explain" => ["--max-pods", "kubelet.service"]
                .map(|asked| with(node.agent_without_root(verb), asked))
                .into(),
            "status" => vec![on_root(&[]), on_root(&["--timeline"])],
            "facts" => vec![on_root(&[])],
            "config assets" => vec![crate::assets::command(node, &[])],
            "version" => vec![with(Command::new(example::agent()), verb)],
            "fleet status" | "fleet plan" | "fleet rollout status" => vec![on_cluster(&[])],
            "addons status" | "addons diff" | "addons apply" => vec![on_cluster(&store)],
            "addons remove" => vec![with(on_cluster(&store), ADDON)],
            "controller takeover" => {
                let conf = format!("{folder}/controller.yaml");
                let none = format!("{folder}/none");
                vec![on_cluster(&[
                    "--check",
                    "--conf",
                    &conf,
                    "--admin-kubeconfig",
                    &none,
                    "--health",
                    "127.0.0.1:1",
                ])]
            }
            _ => panic!("`kops-agent {verb}` has --output: add it to this list"),
        }
    }

    /// The command for a verb that needs the API server, with a kubeconfig for the test's API server.
    fn on_cluster(&self, verb: &str) -> Command {
        let mut agent = Command::new(example::agent());
        agent.env_clear().envs(self.node.cluster.environment()).args(verb.split(' '));
        agent.arg("--kubeconfig").arg(self.api_server.kubeconfig(self.node.folder()));
        agent
    }
}
