//! A boot script's program, which no package installed, brings its timers, its name and its completions.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::completions;
use crate::example::{self, Ended, Machine};
use kops_agent_tests::example_store::{CONFIG_BASE, NODES};

const DIFFERENT: i32 = 4;
/// The timers' units. Their file names begin with `kops-agent-`.
const UNITS: [&str; 4] = ["verify.service", "verify.timer", "metrics.service", "metrics.timer"];

const COMPLETIONS: &str = "usr/local/share/bash-completion/completions/kops-agent";

/// A node whose boot script has placed the program next to the boot config.
struct BootScript {
    node: Machine,
    program: PathBuf,
    conf: PathBuf,
}

impl BootScript {
    fn new() -> BootScript {
        let node = Machine::new(NODES);
        let kops = node.folder().join("kops");
        let (program, conf) = (kops.join("bin/nodeup"), kops.join("conf/kube_env.yaml"));
        [&program, &conf].into_iter().for_each(|file| fs::create_dir_all(file.parent().unwrap()).unwrap());
        example::copy_agent(&program);
        fs::copy(node.cluster.store.kube_env(NODES), &conf).unwrap();
        BootScript { node, program, conf }
    }

    fn decides(&self, verb: &str) -> Ended {
        let BootScript { node, program, conf } = self;
        let mut agent = Command::new(program);
        agent.env_clear().envs(node.cluster.environment()).env("HTTPS_PROXY", "http://127.0.0.1:1");
        agent.args([verb, "--config-base", CONFIG_BASE, "--conf"]).arg(conf);
        agent.arg("--facts").arg(node.cluster.store.facts(NODES)).arg("--root").arg(node.root());
        Ended::from_command(&mut agent)
    }

    fn ran<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Ended {
        let mut agent = Command::new(&self.program);
        agent.env_clear().stdin(Stdio::null()).args(arguments).arg("--root").arg(self.node.root());
        Ended::from_command(&mut agent)
    }

    fn unit(&self, name: &str) -> PathBuf {
        self.node.root().join(format!("etc/systemd/system/kops-agent-{name}"))
    }

    fn link(&self) -> PathBuf {
        self.node.root().join("usr/local/bin/kops-agent")
    }

    fn has_timers(&self) -> [bool; 4] {
        UNITS.map(|unit| self.unit(unit).exists())
    }

    /// Runs the command of the metrics service. Returns the content of the file for node_exporter.
    fn written_metrics(&self) -> String {
        let folder = self.node.root().join("var/lib/prometheus/node-exporter");
        fs::create_dir_all(&folder).unwrap();
        let service = fs::read_to_string(self.unit("metrics.service")).unwrap();
        let command = service.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
        let mut words = command.split(' ');
        assert_eq!(words.next(), self.program.to_str());
        self.ran(words).with(DIFFERENT, &[]);
        fs::read_to_string(folder.join("kops-agent.prom")).unwrap()
    }
}

#[test]
fn a_boot_scripts_program_brings_its_timers_and_its_name() {
    let script = BootScript::new();
    let BootScript { node, program, conf } = &script;
    let converge = || script.decides("converge").with(0, &[]);
    let others = || [script.link().is_symlink(), node.root().join(COMPLETIONS).exists()];
    let is_there = || [&script.has_timers()[..], &others()].concat();

    converge();
    assert_eq!(is_there(), [true; 6]);
    assert_eq!(fs::read_link(script.link()).unwrap(), *program);
    let verify = fs::read_to_string(script.unit("verify.service")).unwrap();
    let command = format!("\nExecStart={} verify --renew --conf {} ", program.display(), conf.display());
    assert!(verify.contains(&command), "{verify}");
    script.ran(["status"]).with(0, &[]);
    let mut bash = completions::in_bash(&node.root().join(COMPLETIONS), &["kops-agent", "conv"]);
    let bin = script.link().parent().unwrap().display().to_string();
    let completed = Ended::from_command(bash.env("PATH", format!("{bin}:/usr/bin:/bin")));
    completed.with(0, &[]);
    assert_eq!((completed.stdout.as_str(), completed.stderr.as_str()), ("converge\n", ""));

    // The command that `status` advises has the path of this program.
    fs::write(node.root().join("etc/containerd/config.toml"), "").unwrap();
    let drifted = script.ran(["status"]);
    assert!(drifted.stdout.contains(&format!("`{} verify`", program.display())), "{}", drifted.stdout);

    let environment = node.root().join("etc/environment");
    fs::write(&environment, "KOPS_AGENT_TIMERS=false\n").unwrap();
    converge();
    assert_eq!(is_there(), [false; 6]);

    fs::write(&environment, "").unwrap();
    converge();
    assert_eq!(is_there(), [true; 6]);
    let packaged = node.root().join("usr/bin/kops-agent");
    fs::create_dir_all(packaged.parent().unwrap()).unwrap();
    fs::write(packaged, "").unwrap();
    converge();
    assert_eq!(is_there(), [false; 6], "a package brings them");
}

/// A failed first run also installs the timers. Without them, nothing would export the metrics of a machine that never
/// becomes a node.
#[test]
fn a_first_run_that_fails_is_in_the_metrics() {
    let script = BootScript::new();
    let node = &script.node;
    node.cluster.s3.forbid("demo.example.com/instancegroup/nodes");
    // `plan` and a dry run install no timers.
    script.decides("plan").with(1, &["access denied"]);
    assert_eq!(script.has_timers(), [false; 4]);

    script.decides("converge").with(1, &["access denied"]);
    assert_eq!(script.has_timers(), [true; 4]);
    let first_files = ["metrics.service", "metrics.timer", "verify.service", "verify.timer"]
        .map(|unit| format!("etc/systemd/system/kops-agent-{unit}"));
    assert_eq!(node.files(), first_files, "anything else was placed before the store answered");
    let record = node.root().join("var/lib/kops-agent/record.json");
    assert!(!record.exists(), "there is a record before a run has begun to make the node");
    let metrics = script.written_metrics();
    for line in [
        "kops_agent_last_run_failed 1",
        "kops_agent_never_converged 1",
        "kops_agent_converged{config_hash=\"\"} 0",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line:?} is not in {metrics}");
    }
    let status = script.ran(["status"]);
    for part in ["NEVER CONVERGED", "FAILED at ", "access denied", "2 of 2 running", "nothing since"] {
        assert!(status.stdout.contains(part), "{part:?} is not in {}", status.stdout);
    }

    // The next run makes the node. From then on, the timers belong to the node.
    node.cluster.s3.permit_all();
    let planned = script.decides("plan");
    assert!(!planned.stdout.contains("kops-agent-metrics.timer"), "{}", planned.stdout);
    script.decides("converge").with(0, &[]);
    script.ran(["status"]).with(0, &[]);
    script.ran(["reset", "--yes"]).with(0, &[]);
    assert_eq!(node.files(), [] as [&str; 0]);
}

#[test]
fn the_timers_of_a_first_run_that_failed_go_with_a_reset_and_with_the_variable() {
    let script = BootScript::new();
    let node = &script.node;
    node.cluster.s3.forbid("demo.example.com/instancegroup/nodes");
    script.decides("converge").with(1, &["access denied"]);
    script.written_metrics();
    let asked = script.ran(["reset", "--yes"]);
    asked.with(0, &[]);
    assert_eq!(node.files(), [] as [&str; 0], "{}", asked.stdout);
    assert!(asked.stdout.contains("  unit kops-agent-metrics.timer\n"), "{}", asked.stdout);

    script.decides("converge").with(1, &["access denied"]);
    assert_eq!(script.has_timers(), [true; 4]);
    node.cluster.s3.permit_all();
    fs::write(node.root().join("etc/environment"), "KOPS_AGENT_TIMERS=false\n").unwrap();
    script.decides("converge").with(0, &[]);
    assert_eq!(script.has_timers(), [false; 4]);
}

/// A wrong environment variable ends a run before it reads anything.
#[test]
fn a_wrong_variable_of_the_first_run_is_in_the_metrics() {
    let script = BootScript::new();
    let environment = script.node.root().join("etc/environment");
    fs::create_dir_all(environment.parent().unwrap()).unwrap();
    let mut agent = Command::new(&script.program);
    agent.env_clear().env("KOPS_AGENT_MAX_UNAVAILABLE", "many");
    agent.arg("converge").arg("--conf").arg(&script.conf).arg("--root").arg(script.node.root());
    Ended::from_command(&mut agent).with(3, &["KOPS_AGENT_MAX_UNAVAILABLE"]);
    assert!(script.written_metrics().contains("\nkops_agent_last_run_failed 1\n"));
}
