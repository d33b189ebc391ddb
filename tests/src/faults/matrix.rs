//! Every fault at every step, and what comes of it.

use std::collections::BTreeSet;
use std::collections::hash_map::DefaultHasher;
use std::fmt;
use std::hash::{Hash as _, Hasher as _};

use anyhow::Context;

use super::check::Expected;
use super::fault::{FAULTS, Fault};
use super::filesystem::Struck;
use super::power::{Disk, SURVIVES, Survives};
use super::scenario::{Ended, Run, Scenario};
use super::tree::{Body, Tree};

/// What is done to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Disturbance {
    /// A fault strikes.
    Fault(Fault),
    /// The power goes.
    Cut(Survives),
}

impl Disturbance {
    /// Its name, for people and for `--case`.
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

    /// All of them.
    pub fn all() -> Vec<Disturbance> {
        let faults = FAULTS.iter().copied().map(Disturbance::Fault);
        faults.chain(SURVIVES.into_iter().map(Disturbance::Cut)).collect()
    }
}

/// One disturbance of one run at one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// Which scenario.
    pub scenario: usize,
    /// What happens.
    pub disturbance: Disturbance,
    /// Before which operation, from 0.
    pub number: usize,
}

/// What a run under a fault did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// It ended early: it failed and said why, or was ended, and the next run went on.
    Stopped,
    /// It did all the same what it had to.
    Finished,
    /// It did not come as far: runs differ by a few operations.
    Unreached,
}

/// What came of a case.
#[derive(Debug)]
pub struct Verdict {
    /// What the run did.
    pub outcome: Outcome,
    /// Where it was struck.
    pub struck: Option<Struck>,
    /// What is wrong.
    pub problems: Vec<String>,
}

/// Scenarios by number.
pub struct Matrix(pub Vec<Scenario>);

impl Matrix {
    /// Every case. Cuts that leave the same tree as the cut before are one.
    ///
    /// # Errors
    /// If a log cannot be replayed.
    pub fn cases(&self) -> anyhow::Result<Vec<Case>> {
        let mut cases = Vec::new();
        for (scenario, of) in self.0.iter().enumerate() {
            for number in 0..of.log.len() {
                let faults = FAULTS.iter().copied().map(Disturbance::Fault);
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

    /// The name of a case, by which it can be asked for.
    pub fn name(&self, case: Case) -> String {
        format!("{}/{}/{}", self.0[case.scenario].name, case.disturbance.name(), case.number)
    }

    /// Tries one.
    ///
    /// # Errors
    /// If the agent cannot be run at all.
    pub fn try_case(&self, case: Case) -> anyhow::Result<Verdict> {
        let scenario = &self.0[case.scenario];
        match case.disturbance {
            Disturbance::Fault(fault) => with_fault(scenario, fault, case.number),
            Disturbance::Cut(survives) => with_cut(scenario, survives, case.number),
        }
    }
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

fn with_cut(scenario: &Scenario, survives: Survives, number: usize) -> anyhow::Result<Verdict> {
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
    recover(scenario, &scenario.expected_next, after, &mut problems)?;
    Ok(Verdict { outcome: Outcome::Stopped, struck, problems })
}

fn with_fault(scenario: &Scenario, fault: Fault, number: usize) -> anyhow::Result<Verdict> {
    let Run { ended, second, disturbed } = scenario.run(scenario.before.clone(), Some((number, fault)))?;
    if disturbed.struck.is_none() {
        let problems = if ended.is_code(0) { vec![] } else { vec![format!("failed undisturbed: {ended:?}")] };
        return Ok(Verdict { outcome: Outcome::Unreached, struck: None, problems });
    }
    let (expected, expected_next) = match fault.jump() {
        Some(_) => (&scenario.expected_by_any_clock(), &scenario.expected_next_by_any_clock()),
        None => (&scenario.expected, &scenario.expected_next),
    };
    let mut problems = named("shown", disturbed.shown);
    problems.extend(wrong_end(fault, &ended, second.as_ref()));
    problems.extend(named("after the fault", expected.half_done(&disturbed.tree)));
    let outcome = if ended.is_code(0) { Outcome::Finished } else { Outcome::Stopped };
    if outcome == Outcome::Finished {
        let wrong = expected.not_converged(&disturbed.tree);
        problems.extend(named("though it said that it had converged", wrong));
    }
    let after = recover(scenario, expected_next, disturbed.tree, &mut problems)?;
    let restarts = |tree| scenario.restarts_of_kubelet(tree);
    if restarts(scenario.expected.wanted()) > restarts(&scenario.before)
        && restarts(&after) <= restarts(&scenario.before)
    {
        problems.push("the kubelet was never restarted".into());
    }
    if fault.jump().is_some() {
        // What was made by a clock that was wrong is made anew once, and no more.
        let again = recover(scenario, expected_next, after.clone(), &mut problems)?;
        problems.extend(named("the run after the next", Expected::differences(&after, &again)));
    }
    Ok(Verdict { outcome, struck: disturbed.struck, problems })
}

/// The next run, which nothing disturbs.
fn recover(
    scenario: &Scenario,
    expected: &Expected,
    tree: Tree,
    problems: &mut Vec<String>,
) -> anyhow::Result<Tree> {
    let next = scenario.run_next(tree)?;
    if !next.ended.is_code(0) {
        problems.push(format!("the next run fails: {:?}", next.ended));
    }
    problems.extend(named("shown by the next run", next.disturbed.shown));
    problems.extend(named("after the next run", expected.not_converged(&next.disturbed.tree)));
    Ok(next.disturbed.tree)
}

fn named(when: &'static str, problems: Vec<String>) -> Vec<String> {
    problems.into_iter().map(|problem| format!("{when}: {problem}")).collect()
}

/// What is wrong with how a run under a fault ended.
fn wrong_end(fault: Fault, ended: &Ended, second: Option<&Ended>) -> Option<String> {
    let says = |what: &str| ended.stderr.contains(what);
    let is_right = match fault {
        Fault::Killed => ended.is_killed(),
        Fault::Terminated => ended.is_code(0) || (ended.is_code(1) && says("SIGTERM")),
        Fault::Full => ended.is_code(0) || (ended.is_code(1) && says("No space left on device")),
        Fault::Unreadable => ended.is_code(0) || (ended.is_code(1) && says("Input/output error")),
        Fault::ReadOnly => ended.is_code(0) || (ended.is_code(1) && says("Read-only file system")),
        Fault::NoDescriptors => ended.is_code(0) || (ended.is_code(1) && says("Too many open files")),
        // Certificates that are not valid yet, or not any more, are nothing to go on with.
        Fault::ClockBack | Fault::ClockAhead => ended.is_code(0) || (ended.is_code(1) && says("clock")),
        Fault::Stopped => second.is_some_and(|second| {
            let process = format!("process {}", ended.pid);
            let was_refused = second.is_code(1)
                && second.stderr.contains("another kops-agent is at work")
                && second.stderr.contains(&process);
            // Before the lock is taken, or after it is given back, nobody is in anybody's way.
            ended.is_code(0) && (was_refused || second.is_code(0))
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
