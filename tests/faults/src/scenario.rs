//! Scenarios: machines of the example cluster on which a run of the agent is disturbed.

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

/// The time after which a run counts as hanging and is killed.
const LONGEST_RUN: Duration = Duration::from_secs(600);
const POLL: Duration = Duration::from_millis(1);
/// The number of seconds for which the agent retries a request. A small number is enough, because all servers of the test respond
/// immediately.
const TIMEOUT: &str = "5";
/// A word of this length or more in the agent's own files counts as a hash. Numbers and names are shorter.
const SHORTEST_HASH: usize = 32;
const REQUESTS: &str = "var/lib/kops-agent/recorded/requests.txt";
const STATE: &str = "var/lib/kops-agent/recorded/state.json";

/// A machine before a run, and its expected state after the run.
pub struct Scenario {
    pub name: &'static str,
    /// A description for output.
    pub about: &'static str,
    pub before: Tree,
    /// The expected state after this run.
    pub expected: Expected,
    /// The expected state after the next run, which may have a different configuration.
    pub expected_next: Expected,
    /// All operations of an undisturbed run.
    pub log: Vec<Logged>,
    /// Whether an undisturbed run rolls back.
    rolls_back: bool,
    /// The numbers of the operations at which clock jumps are tried. Jumps between the same two requests for the time have the same effect.
    /// So jumps are tried only at the first operation, and at the first operation after each request for the time.
    pub jumps: BTreeSet<usize>,
    agent: PathBuf,
    folder: PathBuf,
    group: &'static str,
    cluster: ExampleCluster,
    /// The state store of the next run. `None` if the next run reads the store of the disturbed run.
    next: Option<ExampleStore>,
    /// Certificates and keys: files that differ between two runs from equal trees.
    issued: BTreeSet<String>,
    /// Hashes that were in the agent's own files before the run, or that every run writes there.
    hashes: BTreeSet<String>,
}

#[derive(Debug)]
pub struct Ended {
    /// The exit code or the signal that ended the run.
    pub status: ExitStatus,
    pub pid: u32,
    pub stderr: String,
}

/// The result of a run, and of the second run if one was started.
#[derive(Debug)]
pub struct Run {
    pub ended: Ended,
    /// The result of the second run, which starts while the first run is stopped.
    pub second: Option<Ended>,
    pub disturbed: Disturbed,
}

impl Scenario {
    pub fn first_run(agent: &Path, folder: &Path, keysets: &[Keyset]) -> anyhow::Result<Scenario> {
        let folder = folder.join("first-run");
        let cluster = ExampleCluster::start(&folder.join("cluster"), keysets)?;
        let about = "a control plane's first run, on an empty root";
        Scenario::new("first-run", about, agent, folder, CONTROL_PLANE, cluster)
    }

    /// A run on a converged worker from which a program was removed. The new configuration changes kubelet's `maxPods`, adds a
    /// file and removes a file.
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
        scenario.begin_with(Tree::new(before.nodes().clone()))?;
        ensure!(
            scenario.restarts_of_kubelet(scenario.expected.wanted())
                > scenario.restarts_of_kubelet(&scenario.before),
            "another limit of pods does not restart the kubelet"
        );
        Ok(scenario)
    }

    /// The configuration of a converged worker gets an additional file and unit. After the disturbed run with this configuration, the
    /// next run has a configuration without the file and the unit.
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

    /// A run on a converged worker whose new configuration makes kubelet fail, so that the run rolls back.
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
        scenario.begin_with(Tree::new(before.nodes().clone()))?;
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
        // A clock jump strikes before an operation. After the last operation, there is no operation before which it could strike.
        jumps.remove(&mounted.done());
        Ok(jumps)
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn find_jumps(&self, _: &Tree) -> anyhow::Result<BTreeSet<usize>> {
        Ok(BTreeSet::new())
    }

    /// Like [`Scenario::expected`], but for a run with a wrong clock. Such a run may replace valid certificates.
    pub fn expected_by_any_clock(&self) -> Expected {
        self.expected.with_random(&self.issued)
    }

    /// Like [`Scenario::expected_next`], but after a run with a wrong clock.
    pub fn expected_next_by_any_clock(&self) -> Expected {
        self.expected_next.with_random(&self.issued)
    }

    /// Whether a run may write this file with new random content: a certificate or a key.
    pub fn is_issued(&self, path: &str) -> bool {
        self.issued.contains(path)
    }

    /// Whether `word` is a hash that was in the agent's own files before the run, or that every run writes there.
    pub fn is_lasting_hash(&self, word: &str) -> bool {
        self.hashes.contains(word)
    }

    fn undisturbed(&self, tree: &Tree) -> anyhow::Result<Disturbed> {
        let run = self.run(tree.clone(), None)?;
        ensure!(self.has_ended_well(&run.ended), "the agent fails undisturbed: {}", run.ended.stderr);
        ensure!(run.disturbed.shown.is_empty(), "keys are shown: {:?}", run.disturbed.shown);
        Ok(run.disturbed)
    }

    /// Whether a run ended with the result of an undisturbed run of this scenario.
    pub fn has_ended_well(&self, ended: &Ended) -> bool {
        match self.rolls_back {
            false => ended.is_code(0),
            true => {
                let is_noted = !ended.stderr.contains("could not be noted");
                ended.is_code(1) && ended.stderr.contains("rolled back") && is_noted
            }
        }
    }

    /// The number of restarts of kubelet, from the log of the stand-in for systemd.
    pub fn restarts_of_kubelet(&self, tree: &Tree) -> usize {
        let Ok(node) = tree.at(REQUESTS).and_then(|inode| tree.node(inode)) else { return 0 };
        match &node.body {
            Body::File(bytes) => {
                String::from_utf8_lossy(bytes).matches("systemd: restart kubelet.service\n").count()
            }
            Body::Directory(_) | Body::Symlink(_) => 0,
        }
    }

    /// Lets the agent converge on this tree. If the agent hangs, it is killed after `LONGEST_RUN`.
    pub fn run(&self, tree: Tree, fault: Option<(usize, Fault)>) -> anyhow::Result<Run> {
        self.run_from(&self.cluster.store, tree, fault)
    }

    /// Lets the agent converge undisturbed on the tree of an earlier run.
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

    /// The agent's command. It reads the state store from a folder, because other tests cover faults of servers.
    fn agent(&self, store: &ExampleStore, root: &Path) -> Command {
        let mut agent = self.cluster.agent(&self.agent, "converge", self.group, CONFIG_BASE);
        // This proxy blocks all HTTPS, so the agent cannot download from the publishers if the mirror fails.
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

pub(super) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty())
}

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

/// A copy of the tree with this value in a field of a JSON file.
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

/// Waits until a run ends, and calls `meanwhile` at each poll. Kills the run after `LONGEST_RUN`.
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
    pub fn is_code(&self, code: i32) -> bool {
        self.status.code() == Some(code)
    }

    pub fn is_killed(&self) -> bool {
        self.status.signal() == Some(Signal::SIGKILL as i32)
    }
}
