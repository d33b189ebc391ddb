//! Disturbs the agent at every operation of a run, or at a sample of operations, and reports the results.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, ensure};
use clap::Parser;
use kops_agent_faults::filesystem::Mounted;
use kops_agent_faults::matrix::{Case, Matrix, Verdict};
use kops_agent_faults::scenario::Scenario;
use kops_agent_faults::table::Table;
use kops_agent_faults::tree::Tree;
use kops_agent_tests::example_keys::make_keysets;
use parking_lot::Mutex;

/// The number of cases between two progress messages.
const PROGRESS: usize = 500;

#[derive(Parser)]
struct Arguments {
    /// The kops-agent program to test.
    #[arg(long)]
    agent: PathBuf,
    /// Try every case instead of a sample.
    #[arg(long)]
    all: bool,
    /// Number of cases in the sample, for all kinds of faults together.
    #[arg(long, default_value_t = 60)]
    cases: usize,
    /// Seed of the random sample. Default: from the time of day.
    #[arg(long)]
    seed: Option<u64>,
    /// Try only cases whose name, as a failure prints it, begins with this text.
    #[arg(long, value_name = "SCENARIO/FAULT/NUMBER")]
    case: Vec<String>,
    /// Number of concurrent runs of the agent.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Markdown file to update: the results replace the table between its `begin` and `end` markers.
    #[arg(long, value_name = "README")]
    write: Option<PathBuf>,
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    let folder = tempfile::tempdir().context("making a folder")?;
    let mut output = io::stdout();
    if let Err(error) = can_mount(folder.path()) {
        writeln!(output, "skipped: faults, because no FUSE file system can be mounted here: {error:#}")?;
        return Ok(ExitCode::SUCCESS);
    }
    let prlimit = Command::new("prlimit").arg("--version").stdout(Stdio::null()).status();
    ensure!(prlimit.is_ok_and(|status| status.success()), "prlimit of util-linux is missing");

    let keysets = make_keysets()?;
    let scenarios = vec![
        Scenario::first_run(&arguments.agent, folder.path(), &keysets)?,
        Scenario::changed(&arguments.agent, folder.path(), &keysets)?,
        Scenario::rolled_back(&arguments.agent, folder.path(), &keysets)?,
        Scenario::withdrawn(&arguments.agent, folder.path(), &keysets)?,
    ];
    for scenario in &scenarios {
        let random = scenario.expected.random().len();
        writeln!(
            output,
            "{}: {}: {} operations, {random} files anew; the time is asked for at {} steps",
            scenario.name,
            scenario.about,
            scenario.log.len(),
            scenario.jumps.len()
        )?;
    }
    let matrix = Matrix::new(scenarios);
    let all = matrix.cases()?;
    let in_all = all.len();
    writeln!(output, "{in_all} cases in all")?;
    let seed = arguments.seed.unwrap_or_else(now);
    let cases: Vec<Case> = if !arguments.case.is_empty() {
        let is_asked = |name: &str| arguments.case.iter().any(|asked| name.starts_with(asked));
        all.into_iter().filter(|case| is_asked(&matrix.name(*case))).collect()
    } else if arguments.all {
        all
    } else {
        writeln!(output, "a sample of {}, seed {seed} (KOPS_AGENT_FAULTS_SEED)", arguments.cases)?;
        sample(all, arguments.cases, seed)
    };
    ensure!(!cases.is_empty(), "there are no such cases");

    let table = try_all(&matrix, &cases, arguments.jobs, &mut output)?;
    let recoveries = matrix.recoveries();
    let text = format!(
        "{} of {in_all} cases, which left {recoveries} trees that are not alike.\n\n{}",
        cases.len(),
        table.markdown()
    );
    writeln!(output, "\n{text}")?;
    if let Some(readme) = arguments.write {
        write_between_markers(&readme, &text)?;
    }
    Ok(if table.broken() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn can_mount(folder: &Path) -> anyhow::Result<()> {
    let at = tempfile::tempdir_in(folder)?;
    Mounted::mount(Tree::empty(SystemTime::now()), None, at.path())?.unmount();
    Ok(())
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Draws a random sample of `count` cases. The seed decides the sample. Each pair of scenario and disturbance has an equal share.
fn sample(all: Vec<Case>, count: usize, seed: u64) -> Vec<Case> {
    let mut state = seed;
    let mut drawn: Vec<(u64, Case)> = all.into_iter().map(|case| (random(&mut state), case)).collect();
    drawn.sort_by_key(|(number, _)| *number);
    let mut turns = std::collections::BTreeMap::new();
    let mut ranked: Vec<(usize, Case)> = drawn
        .into_iter()
        .map(|(_, case)| {
            let turn: &mut usize = turns.entry((case.scenario, case.disturbance)).or_default();
            *turn += 1;
            (*turn, case)
        })
        .collect();
    ranked.sort_by_key(|(turn, _)| *turn);
    ranked.into_iter().take(count).map(|(_, case)| case).collect()
}

/// The SplitMix64 generator (Steele, Lea, Flood 2014).
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn try_all(matrix: &Matrix, cases: &[Case], jobs: usize, output: &mut impl Write) -> anyhow::Result<Table> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let verdict = matrix.try_case(*case);
                    tell(&matrix.name(*case), &verdict);
                    let mut done = done.lock();
                    done.push((*case, verdict));
                    if done.len() % PROGRESS == 0 {
                        let _ =
                            writeln!(io::stderr(), "{} cases in {} s", done.len(), start.elapsed().as_secs());
                    }
                }
            });
        }
    });
    let mut table = Table::default();
    for (case, verdict) in done.into_inner() {
        table.add(case.disturbance, &verdict.with_context(|| matrix.name(case))?);
    }
    writeln!(output, "{} cases in {} s, {} broken", cases.len(), start.elapsed().as_secs(), table.broken())?;
    Ok(table)
}

/// Prints problems as soon as they are found, because a run of all cases takes hours.
fn tell(name: &str, verdict: &anyhow::Result<Verdict>) {
    let mut errors = io::stderr().lock();
    let _ = match verdict {
        Ok(verdict) if verdict.problems.is_empty() => Ok(()),
        Ok(verdict) => {
            let Verdict { outcome, struck, problems } = verdict;
            writeln!(errors, "BROKEN {name}: {outcome}, at {struck:?}\n  {}", problems.join("\n  "))
        }
        Err(error) => writeln!(errors, "BROKEN {name}: {error:#}"),
    };
}

fn write_between_markers(readme: &Path, table: &str) -> anyhow::Result<()> {
    const BEGIN: &str = "<!-- begin: written by tests/run --faults all -->\n";
    const END: &str = "<!-- end -->";
    let text = std::fs::read_to_string(readme).with_context(|| format!("reading {}", readme.display()))?;
    let (before, rest) = text.split_once(BEGIN).context("no begin marker")?;
    let (_, after) = rest.split_once(END).context("no end marker")?;
    std::fs::write(readme, format!("{before}{BEGIN}{table}{END}{after}")).context("writing the table")
}
