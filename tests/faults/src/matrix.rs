//! Tries every fault at every operation of each scenario, and finds the problems that follow.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{Hash as _, Hasher as _};

use anyhow::Context;
use parking_lot::Mutex;

use super::check::{Expected, apart, form, is_own, is_temporary};
use super::fault::{FAULTS, Fault};
use super::filesystem::Struck;
use super::power::{Disk, SURVIVES, Survives};
use super::scenario::{Ended, Run, Scenario, words};
use super::tree::{Body, Tree};

/// The message about a timeline that still has its temporary name. On a read-only file system, the run cannot remove
/// the temporary file, so the message is not a problem there.
const TIMELINE_LEFT_BEHIND: &str = "/var/lib/kops-agent/.timeline.json.kops-agent is left behind";

/// A disturbance of a run: a fault during the run, or a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Disturbance {
    Fault(Fault),
    Cut(Survives),
}

impl Disturbance {
    /// The name in output and for `--case`.
    pub fn name(self) -> &'static str {
        match self {
            Disturbance::Fault(Fault::Full) => "ENOSPC",
            Disturbance::Fault(Fault::Unreadable) => "EIO",
            Disturbance::Fault(Fault::ReadOnly) => "EROFS",
            Disturbance::Fault(Fault::NoDescriptors) => "EMFILE",
            Disturbance::Fault(Fault::Killed) => "SIGKILL",
            Disturbance::Fault(Fault::Terminated) => "SIGTERM",
            Disturbance::Fault(Fault::Stopped) => "second-run",
            Disturbance::Fault(Fault::ClockBack) => "clock-back",
            Disturbance::Fault(Fault::ClockAhead) => "clock-ahead",
            Disturbance::Cut(Survives::Everything) => "power-all",
            Disturbance::Cut(Survives::OnlyWhatIsSynced) => "power-synced",
            Disturbance::Cut(Survives::NamesButNoData) => "power-names",
        }
    }

    pub fn all() -> Vec<Disturbance> {
        let faults = FAULTS.iter().copied().map(Disturbance::Fault);
        faults.chain(SURVIVES.into_iter().map(Disturbance::Cut)).collect()
    }
}

/// A disturbance of a scenario, and the operation at which it strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    pub scenario: usize,
    pub disturbance: Disturbance,
    /// The number of the operation, from 0. The disturbance strikes before this operation.
    pub number: usize,
}

/// The outcome of a run with a disturbance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// The run ended early: it failed with a reason, or a signal or a power cut ended it.
    Stopped,
    /// The run succeeded in spite of the fault.
    Finished,
    /// The run ended before the fault could strike, because the number of operations differs between runs.
    Unreached,
}

/// The result of a case.
#[derive(Debug)]
pub struct Verdict {
    pub outcome: Outcome,
    /// The operation at which the disturbance struck. `None` if it struck after the last operation or not at all.
    pub struck: Option<Struck>,
    pub problems: Vec<String>,
}

pub struct Matrix {
    scenarios: Vec<Scenario>,
    /// The results of the runs that followed disturbed runs. The key has three parts: the scenario's index, whether the clock
    /// of the disturbed run was wrong, and the [`likeness`] of the tree after the disturbed run.
    recovered: Mutex<BTreeMap<(usize, bool, u64), Recovered>>,
}

/// The result of the run after a disturbed run.
#[derive(Clone, Default)]
struct Recovered {
    problems: Vec<String>,
    restarts_of_kubelet: usize,
}

impl Matrix {
    pub fn new(scenarios: Vec<Scenario>) -> Matrix {
        Matrix { scenarios, recovered: Mutex::default() }
    }

    /// The number of trees on which the agent has run again after a disturbed run. Trees with the same `likeness` count as one.
    pub fn recoveries(&self) -> usize {
        self.recovered.lock().len()
    }

    /// All cases. If power cuts of a scenario result in equal trees, they count as one case.
    pub fn cases(&self) -> anyhow::Result<Vec<Case>> {
        let mut cases = Vec::new();
        for (scenario, of) in self.scenarios.iter().enumerate() {
            for number in 0..of.log.len() {
                let strikes = |fault: &Fault| fault.jump().is_none() || of.jumps.contains(&number);
                let faults = FAULTS.iter().copied().filter(strikes).map(Disturbance::Fault);
                cases.extend(faults.map(|disturbance| Case { scenario, disturbance, number }));
            }
            let mut disk = Disk::new(&of.before);
            let mut known = BTreeSet::new();
            for number in 0..=of.log.len() {
                for survives in SURVIVES {
                    if known.insert(fingerprint(&disk.after_cut(survives))) {
                        cases.push(Case { scenario, disturbance: Disturbance::Cut(survives), number });
                    }
                }
                if let Some(next) = of.log.get(number) {
                    disk.replay(next).context("replaying a run")?;
                }
            }
        }
        Ok(cases)
    }

    /// The name of a case in output and for `--case`.
    pub fn name(&self, case: Case) -> String {
        format!("{}/{}/{}", self.scenarios[case.scenario].name, case.disturbance.name(), case.number)
    }

    /// Runs one case. Fails only if the agent cannot be run at all.
    pub fn try_case(&self, case: Case) -> anyhow::Result<Verdict> {
        let scenario = &self.scenarios[case.scenario];
        match case.disturbance {
            Disturbance::Fault(fault) => self.with_fault(case.scenario, scenario, fault, case.number),
            Disturbance::Cut(survives) => self.with_cut(case.scenario, scenario, survives, case.number),
        }
    }

    fn with_cut(
        &self,
        id: usize,
        scenario: &Scenario,
        survives: Survives,
        number: usize,
    ) -> anyhow::Result<Verdict> {
        let mut disk = Disk::new(&scenario.before);
        let mut tree = scenario.before.clone();
        let mut struck = None;
        for (at, logged) in scenario.log.iter().take(number + 1).enumerate() {
            if at == number {
                let (kind, path) = (logged.operation.kind(&tree), logged.operation.path(&tree));
                struck = Some(Struck { kind, path });
                break;
            }
            disk.replay(logged).context("replaying a run")?;
            tree.apply(logged).context("replaying a run")?;
        }
        let after = disk.after_cut(survives);
        let mut problems = named("after the cut", scenario.expected.half_done(&after));
        problems.extend(self.recovered(id, false, after)?.problems);
        Ok(Verdict { outcome: Outcome::Stopped, struck, problems })
    }

    fn with_fault(
        &self,
        id: usize,
        scenario: &Scenario,
        fault: Fault,
        number: usize,
    ) -> anyhow::Result<Verdict> {
        let Run { ended, second, disturbed } =
            scenario.run(scenario.before.clone(), Some((number, fault)))?;
        if disturbed.struck.is_none() {
            let problems = match scenario.has_ended_well(&ended) {
                true => vec![],
                false => vec![format!("failed undisturbed: {ended:?}")],
            };
            return Ok(Verdict { outcome: Outcome::Unreached, struck: None, problems });
        }
        let any_clock = fault.jump().is_some();
        let expected = if any_clock { &scenario.expected_by_any_clock() } else { &scenario.expected };
        let mut problems = named("shown", disturbed.shown);
        problems.extend(wrong_end(scenario, fault, &ended, second.as_ref()));
        problems.extend(named("after the fault", expected.half_done(&disturbed.tree)));
        let outcome = if scenario.has_ended_well(&ended) { Outcome::Finished } else { Outcome::Stopped };
        if outcome == Outcome::Finished {
            let mut wrong = expected.not_converged(&disturbed.tree);
            // A run writes its timeline last, and does not fail if it cannot write the timeline. On a read-only file system,
            // the run cannot remove its temporary file. The next run removes it.
            wrong.retain(|wrong| !matches!(fault, Fault::ReadOnly) || wrong != TIMELINE_LEFT_BEHIND);
            problems.extend(named("though it said that it had converged", wrong));
        }
        let recovered = self.recovered(id, any_clock, disturbed.tree)?;
        problems.extend(recovered.problems);
        let before = scenario.restarts_of_kubelet(&scenario.before);
        if scenario.restarts_of_kubelet(scenario.expected.wanted()) > before
            && recovered.restarts_of_kubelet <= before
        {
            problems.push("the kubelet was never restarted".into());
        }
        Ok(Verdict { outcome, struck: disturbed.struck, problems })
    }

    /// Runs the agent on the tree of a disturbed run. Trees with equal `likeness` share the result of one run.
    fn recovered(&self, id: usize, any_clock: bool, tree: Tree) -> anyhow::Result<Recovered> {
        let scenario = &self.scenarios[id];
        let key = (id, any_clock, likeness(scenario, &tree));
        let known = |matrix: &Matrix| matrix.recovered.lock().get(&key).cloned();
        if let Some(known) = known(self) {
            return Ok(known);
        }
        let expected =
            if any_clock { &scenario.expected_next_by_any_clock() } else { &scenario.expected_next };
        let mut recovered = Recovered::default();
        let after = recover(scenario, expected, tree, &mut recovered.problems)?;
        recovered.restarts_of_kubelet = scenario.restarts_of_kubelet(&after);
        if any_clock {
            // The next run may replace files that were made with a wrong clock. The run after the next must change nothing.
            let again = recover(scenario, expected, after.clone(), &mut recovered.problems)?;
            recovered.problems.extend(named("the run after the next", Expected::differences(&after, &again)));
        }
        self.recovered.lock().insert(key, recovered.clone());
        Ok(recovered)
    }
}

/// A hash that is equal for trees that differ only in new keys, times and inode numbers.
fn likeness(scenario: &Scenario, tree: &Tree) -> u64 {
    let mut hasher = DefaultHasher::new();
    let entries = tree.entries();
    for (path, node) in &entries {
        (path, node.mode, node.owner).hash(&mut hasher);
        match &node.body {
            Body::File(bytes) if is_own(path) && !bytes.contains(&0) => {
                lasting(scenario, bytes).hash(&mut hasher)
            }
            Body::File(bytes) if is_temporary(path) || scenario.is_issued(path) => {
                form(bytes).hash(&mut hasher)
            }
            Body::File(bytes) => bytes.hash(&mut hasher),
            Body::Symlink(target) => target.hash(&mut hasher),
            Body::Directory(_) => {}
        }
        if scenario.is_issued(path) {
            apart(path, &entries).hash(&mut hasher);
        }
    }
    hasher.finish()
}

/// The words of a file in the agent's state folder. Omits words that differ between runs: times, numbers, and the hashes of files that get
/// new content in every run.
fn lasting(scenario: &Scenario, bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let is_lasting =
        |word: &&str| !word.contains(|c: char| c.is_ascii_digit()) || scenario.is_lasting_hash(word);
    words(&text).filter(is_lasting).collect::<Vec<_>>().join(" ")
}

fn fingerprint(tree: &Tree) -> u64 {
    let mut hasher = DefaultHasher::new();
    for (path, node) in tree.entries() {
        (path, node.mode, node.owner).hash(&mut hasher);
        match &node.body {
            Body::File(bytes) => bytes.hash(&mut hasher),
            Body::Symlink(target) => target.hash(&mut hasher),
            Body::Directory(_) => {}
        }
    }
    hasher.finish()
}

/// Lets the agent converge undisturbed on `tree`. Adds the problems of the run to `problems`. Returns the tree after the run.
fn recover(
    scenario: &Scenario,
    expected: &Expected,
    tree: Tree,
    problems: &mut Vec<String>,
) -> anyhow::Result<Tree> {
    let next = scenario.run_next(tree)?;
    if !scenario.has_ended_well(&next.ended) {
        problems.push(format!("the next run fails: {:?}", next.ended));
    }
    problems.extend(named("shown by the next run", next.disturbed.shown));
    problems.extend(named("after the next run", expected.not_converged(&next.disturbed.tree)));
    Ok(next.disturbed.tree)
}

fn named(when: &'static str, problems: Vec<String>) -> Vec<String> {
    problems.into_iter().map(|problem| format!("{when}: {problem}")).collect()
}

/// Checks how a run with a fault ended. Returns the problem, or `None` if the run ended correctly.
fn wrong_end(scenario: &Scenario, fault: Fault, ended: &Ended, second: Option<&Ended>) -> Option<String> {
    let says = |what: &str| ended.stderr.contains(what);
    let succeeded = |ended: &Ended| scenario.has_ended_well(ended);
    let is_right = match fault {
        Fault::Killed => ended.is_killed(),
        Fault::Terminated => succeeded(ended) || (ended.is_code(1) && says("SIGTERM")),
        Fault::Full => succeeded(ended) || (ended.is_code(1) && says("No space left on device")),
        Fault::Unreadable => succeeded(ended) || (ended.is_code(1) && says("Input/output error")),
        Fault::ReadOnly => succeeded(ended) || (ended.is_code(1) && says("Read-only file system")),
        Fault::NoDescriptors => succeeded(ended) || (ended.is_code(1) && says("Too many open files")),
        // After the clock jumps, certificates may be expired or not valid yet. Then the agent fails.
        Fault::ClockBack | Fault::ClockAhead => succeeded(ended) || (ended.is_code(1) && says("clock")),
        Fault::Stopped => second.is_some_and(|second| {
            let process = format!("process {}", ended.pid);
            let was_refused = second.is_code(1)
                && second.stderr.contains("another kops-agent is running")
                && second.stderr.contains(&process);
            // The second run is rejected only while the first run holds the lock.
            succeeded(ended) && (was_refused || succeeded(second))
        }),
    };
    if is_right { None } else { Some(format!("it ended wrongly: {ended:?}, second: {second:?}")) }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Outcome::Stopped => "stopped",
            Outcome::Finished => "finished all the same",
            Outcome::Unreached => "did not come as far",
        })
    }
}
