//! Machines of the example cluster on which the agent is disturbed.

use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::check::Expected;
use super::filesystem::{Disturbed, Fault, Mounted};
use super::operation::{Logged, Operation};
use super::tree::{Body, Tree};
use crate::example_cluster::ExampleCluster;
use crate::example_keys::Keyset;
use crate::example_store::{CONFIG_BASE, CONTROL_PLANE, NODES};

/// A run that takes longer hangs.
const LONGEST_RUN: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(5);
/// For how many seconds the agent tries to reach a server again: all that there are answer at once.
const PATIENCE: &str = "5";
const REQUESTS: &str = "var/lib/kops-agent/recorded/requests.txt";
const STATE: &str = "var/lib/kops-agent/recorded/state.json";

/// A machine before a run, and what the run makes of it.
pub struct Scenario {
    /// What it is called.
    pub name: &'static str,
    /// What it is, for the table.
    pub about: &'static str,
    /// The machine before the run.
    pub before: Tree,
    /// What is to become of it.
    pub expected: Expected,
    /// Everything that a run which nothing disturbs does.
    pub log: Vec<Logged>,
    /// Whether such a run takes back what it has done.
    rolls_back: bool,
    agent: PathBuf,
    folder: PathBuf,
    group: &'static str,
    cluster: ExampleCluster,
}

/// How a run ended.
#[derive(Debug)]
pub struct Ended {
    /// With which code or signal.
    pub status: ExitStatus,
    /// Its process.
    pub pid: u32,
    /// What it said.
    pub stderr: String,
}

/// A run, and what became of the tree.
#[derive(Debug)]
pub struct Run {
    /// How it ended.
    pub ended: Ended,
    /// How the run ended that came while it was stopped.
    pub second: Option<Ended>,
    /// What became of the tree.
    pub disturbed: Disturbed,
}

impl Scenario {
    /// A control plane's first run.
    ///
    /// # Errors
    /// If the agent does not converge where nothing disturbs it.
    pub fn first_run(agent: &Path, folder: &Path, keysets: &[Keyset]) -> anyhow::Result<Scenario> {
        let folder = folder.join("first-run");
        let cluster = ExampleCluster::start(&folder.join("cluster"), keysets)?;
        let about = "a control plane's first run, on an empty root";
        Scenario::new("first-run", about, agent, folder, CONTROL_PLANE, cluster)
    }

    /// A run on a converged worker whose configuration has changed (the kubelet's limit of pods, a file more and a file less), and from
    /// which somebody has removed a program.
    ///
    /// # Errors
    /// If the agent does not converge where nothing disturbs it.
    pub fn changed(agent: &Path, folder: &Path, keysets: &[Keyset]) -> anyhow::Result<Scenario> {
        const GROUP: &str = "instancegroup/nodes";
        const OLD: &str = "  fileAssets: [{name: old, path: /etc/motd.d/old, content: hello}]\n";
        const NEW: &str = "  fileAssets: [{name: new, path: /etc/motd.d/new, content: hello}]\n";
        let folder = folder.join("changed");
        let cluster = ExampleCluster::start(&folder.join("cluster"), keysets)?;
        cluster.edit(GROUP, "  role: Node\n", &format!("  role: Node\n{OLD}"))?;
        let about = "a converged worker whose kubelet gets another limit of pods, with a file more, a file less and a \
                     program that somebody has removed";
        let mut scenario = Scenario::new("changed", about, agent, folder, NODES, cluster)?;

        let mut before = scenario.undisturbed(&scenario.before)?.tree;
        let parent = before.at("usr/sbin").context("looking for /usr/sbin")?;
        let unlink = Operation::Unlink { parent, name: "runc".into() };
        before.apply(&Logged { operation: unlink, at: SystemTime::now() }).context("removing runc")?;
        scenario.cluster.edit(GROUP, OLD, NEW)?;
        scenario.cluster.edit(GROUP, "  role: Node\n", "  kubelet: {maxPods: 99}\n  role: Node\n")?;
        scenario.begin_with(Tree::of(before.nodes().clone()))?;
        ensure!(
            scenario.restarts_of_kubelet(scenario.expected.wanted())
                > scenario.restarts_of_kubelet(&scenario.before),
            "another limit of pods does not restart the kubelet"
        );
        Ok(scenario)
    }

    /// A run on a converged worker whose configuration has changed to one with which the kubelet does not come back.
    ///
    /// # Errors
    /// If the agent does not put everything back where nothing disturbs it.
    pub fn rolled_back(agent: &Path, folder: &Path, keysets: &[Keyset]) -> anyhow::Result<Scenario> {
        const GROUP: &str = "instancegroup/nodes";
        const OLD: &str = "  fileAssets: [{name: old, path: /etc/motd.d/old, content: hello}]\n";
        const NEW: &str =
            "  fileAssets: [{name: new, path: /etc/motd.d/new, content: hello}]\n  kubelet: {maxPods: 99}\n";
        let folder = folder.join("rolled-back");
        let cluster = ExampleCluster::start(&folder.join("cluster"), keysets)?;
        cluster.edit(GROUP, "  role: Node\n", &format!("  role: Node\n{OLD}"))?;
        let about = "a converged worker that gets another limit of pods, a file more and a file less, and whose kubelet \
                     does not come back";
        let mut scenario = Scenario::new("rolled-back", about, agent, folder, NODES, cluster)?;

        let converged = scenario.undisturbed(&scenario.before)?.tree;
        scenario.cluster.edit(GROUP, OLD, NEW)?;
        let tried = scenario.undisturbed(&converged)?.tree;
        let refusal = serde_json::json!(
            [{"unit": "kubelet.service", "path": "/var/lib/kubelet/kubelet.conf", "text": "maxPods: 99"}]
        );
        let before = with_setting(&converged, STATE, "refusals", refusal)?;
        scenario.rolls_back = true;
        scenario.begin_with(Tree::of(before.nodes().clone()))?;
        let wrong =
            Expected::new(before.clone(), before.clone(), &before).not_converged(scenario.expected.wanted());
        ensure!(wrong.is_empty(), "a run that rolls back does not put everything back: {wrong:?}");
        scenario.expected = scenario.expected.trying(tried);
        Ok(scenario)
    }

    fn new(
        name: &'static str,
        about: &'static str,
        agent: &Path,
        folder: PathBuf,
        group: &'static str,
        cluster: ExampleCluster,
    ) -> anyhow::Result<Scenario> {
        let before = Tree::empty(SystemTime::now());
        let expected = Expected::new(before.clone(), before.clone(), &before);
        let agent = agent.to_owned();
        let mut scenario = Scenario {
            name,
            about,
            before,
            expected,
            log: Vec::new(),
            rolls_back: false,
            agent,
            folder,
            group,
            cluster,
        };
        scenario.begin_with(scenario.before.clone())?;
        Ok(scenario)
    }

    fn begin_with(&mut self, before: Tree) -> anyhow::Result<()> {
        let one = self.undisturbed(&before)?;
        let again = self.undisturbed(&before)?;
        self.expected = Expected::new(before.clone(), one.tree.clone(), &again.tree);
        let wrong = self.expected.not_converged(&again.tree);
        ensure!(wrong.is_empty(), "two undisturbed runs differ: {wrong:?}");
        (self.before, self.log) = (before, one.log);
        Ok(())
    }

    fn undisturbed(&self, tree: &Tree) -> anyhow::Result<Disturbed> {
        let run = self.run(tree.clone(), None)?;
        ensure!(self.has_ended_well(&run.ended), "the agent fails undisturbed: {}", run.ended.stderr);
        ensure!(run.disturbed.shown.is_empty(), "keys are shown: {:?}", run.disturbed.shown);
        Ok(run.disturbed)
    }

    /// Whether a run ended as one that nothing disturbs, or one after it.
    pub fn has_ended_well(&self, ended: &Ended) -> bool {
        match self.rolls_back {
            false => ended.is_code(0),
            true => ended.is_code(1) && ended.stderr.contains("rolled back"),
        }
    }

    /// How often the kubelet was restarted.
    pub fn restarts_of_kubelet(&self, tree: &Tree) -> usize {
        let Ok(node) = tree.at(REQUESTS).and_then(|inode| tree.node(inode)) else { return 0 };
        match &node.body {
            Body::File(bytes) => {
                String::from_utf8_lossy(bytes).matches("systemd: restart kubelet.service\n").count()
            }
            Body::Directory(_) | Body::Symlink(_) => 0,
        }
    }

    /// Has the agent converge on this tree.
    ///
    /// # Errors
    /// If it cannot be run there, or does not end.
    pub fn run(&self, tree: Tree, fault: Option<(usize, Fault)>) -> anyhow::Result<Run> {
        let folder = tempfile::tempdir_in(&self.folder).context("making a folder to mount at")?;
        let mounted = Mounted::mount(tree, fault, folder.path())
            .with_context(|| format!("mounting a FUSE file system at {}", folder.path().display()))?;
        let (child, stderr) = self.spawn(folder.path())?;
        let mut second = None;
        let ended = wait(child, stderr, |pid| {
            let is_stopped = matches!(fault, Some((_, Fault::Stopped))) && mounted.has_struck();
            if is_stopped && second.is_none() {
                let (child, stderr) = self.spawn(folder.path())?;
                second = Some(wait(child, stderr, |_| Ok(()))?);
                kill(Pid::from_raw(pid), Signal::SIGCONT).context("having a stopped agent go on")?;
            }
            Ok(())
        })?;
        Ok(Run { ended, second, disturbed: mounted.unmount() })
    }

    fn spawn(&self, root: &Path) -> anyhow::Result<(Child, File)> {
        let stderr = tempfile::tempfile().context("making a file for what the agent says")?;
        let mut agent = self.cluster.agent(&self.agent, "converge", self.group, CONFIG_BASE);
        // By TLS nobody is reached: a mirror that fails must not send a test to the publishers.
        agent.env("HTTPS_PROXY", "http://127.0.0.1:1");
        agent.args(["--download-patience", PATIENCE, "--store-patience", PATIENCE, "--root"]).arg(root);
        agent.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr.try_clone()?);
        let child = agent.spawn().with_context(|| format!("running {}", self.agent.display()))?;
        Ok((child, stderr))
    }
}

/// The same tree with a field of a JSON file set.
fn with_setting(tree: &Tree, path: &str, field: &str, value: serde_json::Value) -> anyhow::Result<Tree> {
    let mut tree = tree.clone();
    let inode = tree.at(path).with_context(|| format!("looking for {path}"))?;
    let Body::File(bytes) = &tree.node(inode).with_context(|| format!("looking for {path}"))?.body else {
        anyhow::bail!("{path} is no file");
    };
    let mut json: serde_json::Value = serde_json::from_slice(bytes)?;
    json[field] = value;
    let operation = Operation::Write { inode, offset: 0, bytes: serde_json::to_vec_pretty(&json)?.into() };
    tree.apply(&Logged { operation, at: SystemTime::now() }).with_context(|| format!("writing {path}"))?;
    Ok(tree)
}

/// Waits until a run ends, with something to do meanwhile.
fn wait(
    mut child: Child,
    mut stderr: File,
    mut meanwhile: impl FnMut(i32) -> anyhow::Result<()>,
) -> anyhow::Result<Ended> {
    let (start, pid) = (Instant::now(), child.id());
    let status = loop {
        if let Some(status) = child.try_wait().context("waiting for the agent")? {
            break status;
        }
        if start.elapsed() > LONGEST_RUN {
            child.kill().context("killing an agent that hangs")?;
            break child.wait().context("waiting for a killed agent")?;
        }
        meanwhile(i32::try_from(pid)?)?;
        sleep(POLL);
    };
    let mut said = String::new();
    stderr.rewind()?;
    stderr.read_to_string(&mut said).context("reading what the agent said")?;
    Ok(Ended { status, pid, stderr: said })
}

impl Ended {
    /// Whether it ended with this exit code.
    pub fn is_code(&self, code: i32) -> bool {
        self.status.code() == Some(code)
    }

    /// Whether it was ended by SIGKILL.
    pub fn is_killed(&self) -> bool {
        self.status.signal() == Some(Signal::SIGKILL as i32)
    }
}
