//! Machines of the example cluster on which the agent is disturbed.

#[cfg(target_arch = "x86_64")]
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use parking_lot::Mutex;

use super::check::{Expected, is_own};
#[cfg(target_arch = "x86_64")]
use super::clock;
use super::fault::Fault;
use super::filesystem::{Disturbed, Mounted};
use super::operation::{Logged, Operation};
use super::tree::{Body, Tree};
use kops_agent_tests::example_cluster::ExampleCluster;
use kops_agent_tests::example_keys::Keyset;
use kops_agent_tests::example_store::{BUCKET, CONFIG_BASE, CONTROL_PLANE, ExampleStore, NODES};

/// A run that takes longer hangs.
const LONGEST_RUN: Duration = Duration::from_secs(600);
const POLL: Duration = Duration::from_millis(1);
/// For how many seconds the agent tries to reach a server again: all that there are answer at once.
const TIMEOUT: &str = "5";
/// No number or name of the agent's notes is longer.
const SHORTEST_HASH: usize = 32;
const REQUESTS: &str = "var/lib/kops-agent/recorded/requests.txt";
const STATE: &str = "var/lib/kops-agent/recorded/state.json";

/// A machine before a run, and what the run makes of it.
pub struct Scenario {
    pub name: &'static str,
    /// What it is, for the table.
    pub about: &'static str,
    /// The machine before the run.
    pub before: Tree,
    /// What is to become of it.
    pub expected: Expected,
    /// What is to become of it by the next run, whose configuration may be another one.
    pub expected_next: Expected,
    /// Everything that a run which nothing disturbs does.
    pub log: Vec<Logged>,
    /// Whether such a run takes back what it has done.
    rolls_back: bool,
    /// The operations, by number, at which it makes a difference that the clock jumps: before the first, and before each
    /// that came next when the agent had asked for the time. Jumps without a question between them are the same.
    pub jumps: BTreeSet<usize>,
    agent: PathBuf,
    folder: PathBuf,
    group: &'static str,
    cluster: ExampleCluster,
    /// The store that the next run reads, where that is another one.
    next: Option<ExampleStore>,
    /// Files that a run has made anew where there was nothing yet: certificates and keys.
    issued: BTreeSet<String>,
    /// Hashes in the agent's notes that were there before the run, or that every run notes.
    hashes: BTreeSet<String>,
}

#[derive(Debug)]
pub struct Ended {
    /// With which code or signal.
    pub status: ExitStatus,
    pub pid: u32,
    pub stderr: String,
}

/// A run, and what became of the tree.
#[derive(Debug)]
pub struct Run {
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
    /// which a program was removed.
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
                     program that was removed";
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

    /// A run on a converged worker that gets a file and a unit more. They are withdrawn before the next run.
    ///
    /// # Errors
    /// If the agent does not converge where nothing disturbs it.
    pub fn withdrawn(agent: &Path, folder: &Path, keysets: &[Keyset]) -> anyhow::Result<Scenario> {
        const MORE: &str = "  fileAssets: [{name: new, path: /etc/new, content: hello}]\n  hooks: [{name: new, manifest: \"[Service]\\nType=oneshot\\nExecStart=/bin/true\\n\"}]\n";
        let folder = folder.join("withdrawn");
        let cluster = ExampleCluster::start(&folder.join("cluster"), keysets)?;
        let mirror = cluster.downloads.as_ref().map(|downloads| downloads.url());
        let next = ExampleStore::write_with_keys(&folder.join("next"), mirror.as_deref(), keysets)?;
        let about =
            "a converged worker that gets a file and a unit more, which are withdrawn before the next run";
        let mut scenario = Scenario::new("withdrawn", about, agent, folder, NODES, cluster)?;
        let before = scenario.expected.wanted().clone();
        scenario.cluster.edit("instancegroup/nodes", "  role: Node\n", &format!("{MORE}  role: Node\n"))?;
        scenario.next = Some(next);
        scenario.begin_with(before)?;
        for path in ["etc/new", "etc/systemd/system/new.service"] {
            ensure!(scenario.expected.wanted().at(path).is_ok(), "/{path} was not made");
            ensure!(scenario.expected_next.wanted().at(path).is_err(), "/{path} was not withdrawn");
        }
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
        scenario.expected_next = scenario.expected.clone();
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
            expected_next: expected.clone(),
            expected,
            log: Vec::new(),
            rolls_back: false,
            jumps: BTreeSet::new(),
            agent,
            folder,
            group,
            cluster,
            next: None,
            issued: BTreeSet::new(),
            hashes: BTreeSet::new(),
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
        self.issued.extend(self.expected.random().iter().cloned());
        self.expected_next = match self.next {
            None => self.expected.clone(),
            Some(_) => {
                let next = self.run_next(one.tree)?;
                ensure!(next.ended.is_code(0), "the agent fails undisturbed: {}", next.ended.stderr);
                Expected::new(before.clone(), next.disturbed.tree.clone(), &next.disturbed.tree)
            }
        };
        self.hashes = &hashes(&before) | &(&hashes(self.expected.wanted()) & &hashes(&again.tree));
        self.jumps = self.find_jumps(&before)?;
        (self.before, self.log) = (before, one.log);
        Ok(())
    }

    #[cfg(target_arch = "x86_64")]
    fn find_jumps(&self, before: &Tree) -> anyhow::Result<BTreeSet<usize>> {
        let folder = tempfile::tempdir_in(&self.folder).context("making a folder to mount at")?;
        let mounted = Mounted::mount(before.clone(), None, folder.path())?;
        let jumps = Mutex::new(BTreeSet::from([0]));
        let asked = || _ = jumps.lock().insert(mounted.done());
        let (agent, stderr) = (self.agent(&self.cluster.store, folder.path()), tempfile::tempfile()?);
        let (_, status) = clock::run(&agent, stderr, mounted.clock(), LONGEST_RUN, &asked)?;
        ensure!(status.success() || self.rolls_back, "the agent fails while it is traced: {status}");
        let mut jumps = jumps.into_inner();
        // After the last operation nothing can strike.
        jumps.remove(&mounted.done());
        Ok(jumps)
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn find_jumps(&self, _: &Tree) -> anyhow::Result<BTreeSet<usize>> {
        Ok(BTreeSet::new())
    }

    /// [`Scenario::expected`] where the clock was wrong: certificates may be new though no new ones were wanted.
    pub fn expected_by_any_clock(&self) -> Expected {
        self.expected.with_random(&self.issued)
    }

    /// [`Scenario::expected_next`] where the clock was wrong.
    pub fn expected_next_by_any_clock(&self) -> Expected {
        self.expected_next.with_random(&self.issued)
    }

    /// Whether a file is made anew by every run, or by one that finds nothing.
    pub fn is_issued(&self, path: &str) -> bool {
        self.issued.contains(path)
    }

    /// Whether it is a hash that was noted before the run, or that every run notes.
    pub fn is_lasting_hash(&self, word: &str) -> bool {
        self.hashes.contains(word)
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
            true => {
                let is_noted = !ended.stderr.contains("could not be noted");
                ended.is_code(1) && ended.stderr.contains("rolled back") && is_noted
            }
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
        self.run_from(&self.cluster.store, tree, fault)
    }

    /// Has the agent converge on what another run has left, with nothing to disturb it.
    ///
    /// # Errors
    /// If it cannot be run there, or does not end.
    pub fn run_next(&self, tree: Tree) -> anyhow::Result<Run> {
        self.run_from(self.next.as_ref().unwrap_or(&self.cluster.store), tree, None)
    }

    fn run_from(
        &self,
        store: &ExampleStore,
        tree: Tree,
        fault: Option<(usize, Fault)>,
    ) -> anyhow::Result<Run> {
        let folder = tempfile::tempdir_in(&self.folder).context("making a folder to mount at")?;
        let mounted = Mounted::mount(tree, fault, folder.path())
            .with_context(|| format!("mounting a FUSE file system at {}", folder.path().display()))?;
        let agent = || self.agent(store, folder.path());
        #[cfg(target_arch = "x86_64")]
        if fault.is_some_and(|(_, fault)| fault.jump().is_some()) {
            let stderr = tempfile::tempfile().context("making a file for what the agent says")?;
            let (pid, status) =
                clock::run(&agent(), stderr.try_clone()?, mounted.clock(), LONGEST_RUN, &|| ())?;
            let ended = Ended { status, pid, stderr: said(stderr)? };
            return Ok(Run { ended, second: None, disturbed: mounted.unmount() });
        }
        let (child, stderr) = spawn(agent())?;
        let mut second = None;
        let ended = wait(child, stderr, |pid| {
            let is_stopped = matches!(fault, Some((_, Fault::Stopped))) && mounted.has_struck();
            if is_stopped && second.is_none() {
                let (child, stderr) = spawn(agent())?;
                second = Some(wait(child, stderr, |_| Ok(()))?);
                kill(Pid::from_raw(pid), Signal::SIGCONT).context("having a stopped agent go on")?;
            }
            Ok(())
        })?;
        Ok(Run { ended, second, disturbed: mounted.unmount() })
    }

    /// The call of the agent. It reads the store from a folder: faults of servers are tried elsewhere.
    fn agent(&self, store: &ExampleStore, root: &Path) -> Command {
        let mut agent = self.cluster.agent(&self.agent, "converge", self.group, CONFIG_BASE);
        // By TLS no server is reached: a mirror that fails must not send a test to the publishers.
        agent.env("HTTPS_PROXY", "http://127.0.0.1:1");
        let bucket = store.buckets().join(BUCKET);
        agent.arg("--store-mirror").arg(format!("s3://{BUCKET}={}", bucket.display()));
        agent.args(["--download-timeout", TIMEOUT, "--store-timeout", TIMEOUT, "--root"]).arg(root);
        agent
    }
}

fn spawn(mut agent: Command) -> anyhow::Result<(Child, File)> {
    let stderr = tempfile::tempfile().context("making a file for what the agent says")?;
    agent.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr.try_clone()?);
    let child = agent.spawn().with_context(|| format!("running {}", agent.get_program().display()))?;
    Ok((child, stderr))
}

/// The rows of letters and digits in a text.
pub(super) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty())
}

/// The hashes in the agent's own files.
fn hashes(tree: &Tree) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (path, node) in tree.entries() {
        if let (true, Body::File(bytes)) = (is_own(&path), &node.body) {
            let text = String::from_utf8_lossy(bytes);
            found.extend(words(&text).filter(|word| word.len() >= SHORTEST_HASH).map(str::to_owned));
        }
    }
    found
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
    stderr: File,
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
    Ok(Ended { status, pid, stderr: said(stderr)? })
}

fn said(mut stderr: File) -> anyhow::Result<String> {
    let mut said = String::new();
    stderr.rewind()?;
    stderr.read_to_string(&mut said).context("reading what the agent said")?;
    Ok(said)
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
