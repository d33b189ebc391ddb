//! The timeline of a run: its steps with start, end and dependency, its longest steps, and the lower bound for its duration. Times are in
//! microseconds since the process started. `agent/host` measures them, and `kops-agent status --timeline` shows them.

mod text;

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

pub use text::{in_seconds, summary, table};

/// The maximum number of steps that a summary shows. It shows the longest steps.
const LONGEST: usize = 3;

/// The kind of work that a step does. The lower bound of a run's duration depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Work {
    /// A package manager installs packages.
    Packages,
    /// Files are downloaded, verified and unpacked.
    Downloads,
    /// A unit starts or stops, or a component becomes healthy.
    Units,
    Other,
}

#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TimedStep {
    /// The step's name for people. It never contains a URL or a secret.
    pub name: String,
    pub work: Work,
    /// Start, in microseconds since the process started.
    pub begin_us: u64,
    /// End, in microseconds since the process started.
    pub end_us: u64,
    /// The name of the last step that ended before this step started. `None` if no step ended before this step started.
    pub waited_for: Option<String>,
}

impl TimedStep {
    pub fn took_us(&self) -> u64 {
        self.end_us.saturating_sub(self.begin_us)
    }
}

/// The recorded times and steps of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Timeline {
    /// End of the run, in RFC 3339.
    pub ended_at: String,
    /// Microseconds from the start of the process to the end of the run.
    pub took_us: u64,
    /// The lower bound for the run's duration, in microseconds ([`floor_us`]). It follows from the run's packages, downloads and units.
    pub floor_us: u64,
    /// The number of resources that the plan creates, changes or removes.
    pub changes: usize,
    pub succeeded: bool,
    /// The run's steps, sorted by start.
    pub steps: Vec<TimedStep>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Timelines {
    /// The last run. If the last run had no changes, the last run with changes is the second item.
    pub runs: Vec<Timeline>,
}

impl Timelines {
    /// Adds a run and removes older runs. If the new run had no changes, the last run with changes stays.
    #[must_use]
    pub fn with(self, run: Timeline) -> Timelines {
        let changing = match run.changes {
            0 => self.runs.into_iter().find(|run| run.changes > 0),
            _ => None,
        };
        Timelines { runs: std::iter::once(run).chain(changing).collect() }
    }
}

/// Sorts steps by start. Sets each step's `waited_for` to the name of the last step that ended before this step started.
pub fn in_order(mut steps: Vec<TimedStep>) -> Vec<TimedStep> {
    steps.sort_by_key(|step| (step.begin_us, step.end_us));
    let waited_for = |step: &TimedStep| {
        let ended =
            steps.iter().filter(|before| !std::ptr::eq(*before, step) && before.end_us <= step.begin_us);
        ended.max_by_key(|before| (before.end_us, before.begin_us)).map(|before| before.name.clone())
    };
    let waited_for: Vec<Option<String>> = steps.iter().map(waited_for).collect();
    for (step, waited_for) in steps.iter_mut().zip(waited_for) {
        step.waited_for = waited_for;
    }
    steps
}

/// The lower bound for a run's duration, in microseconds. Packages and downloads can run in parallel. Units need both, and start one after
/// another.
pub fn floor_us(steps: &[TimedStep]) -> u64 {
    let of =
        |work: Work| -> u64 { steps.iter().filter(|step| step.work == work).map(TimedStep::took_us).sum() };
    of(Work::Packages).max(of(Work::Downloads)) + of(Work::Units)
}

pub fn longest(steps: &[TimedStep]) -> Vec<&TimedStep> {
    let mut longest: Vec<&TimedStep> = steps.iter().collect();
    longest.sort_by_key(|step| std::cmp::Reverse(step.took_us()));
    longest.truncate(LONGEST);
    longest
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn step(name: &str, work: Work, begin_ms: u64, end_ms: u64) -> TimedStep {
        let (begin_us, end_us) = (begin_ms * 1000, end_ms * 1000);
        TimedStep { name: name.into(), work, begin_us, end_us, waited_for: None }
    }

    /// The timeline of a first boot: packages and downloads in parallel, then units.
    pub(crate) fn boot() -> Timeline {
        let steps = in_order(vec![
            step("downloads", Work::Downloads, 101, 1500),
            step("files", Work::Other, 4100, 4200),
            step("observing this machine", Work::Other, 40, 100),
            step("packages", Work::Packages, 100, 4100),
            step("start kubelet.service", Work::Units, 4700, 5000),
            step("start containerd.service", Work::Units, 4200, 4700),
        ]);
        let floor_us = floor_us(&steps);
        let ended_at = "2026-01-02T03:04:05Z".into();
        Timeline { ended_at, took_us: 5_100_000, floor_us, changes: 70, succeeded: true, steps }
    }

    #[test]
    fn a_step_waited_for_the_last_step_that_ended_before_it() {
        let waited: Vec<_> =
            boot().steps.into_iter().map(|step| (step.name, step.waited_for.unwrap_or_default())).collect();
        let waited: Vec<(&str, &str)> = waited.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        assert_eq!(
            waited,
            [
                ("observing this machine", ""),
                ("packages", "observing this machine"),
                ("downloads", "observing this machine"),
                ("files", "packages"),
                ("start containerd.service", "files"),
                ("start kubelet.service", "start containerd.service"),
            ]
        );
    }

    #[test]
    fn the_lower_bound_is_the_longer_of_packages_and_downloads_plus_units() {
        assert_eq!(boot().floor_us, 4_000_000 + 800_000);
        let slow = [step("downloads", Work::Downloads, 0, 9000), step("packages", Work::Packages, 0, 4000)];
        assert_eq!(floor_us(&slow), 9_000_000);
        assert_eq!(floor_us(&[]), 0);
    }

    #[test]
    fn the_longest_steps_come_first() {
        let boot = boot();
        let names: Vec<&str> = longest(&boot.steps).iter().map(|step| step.name.as_str()).collect();
        assert_eq!(names, ["packages", "downloads", "start containerd.service"]);
    }

    #[test]
    fn the_last_run_and_the_last_run_with_changes_are_recorded() {
        let idle = |at: &str| Timeline { ended_at: at.into(), changes: 0, steps: vec![], ..boot() };
        let runs = Timelines::default().with(boot());
        assert_eq!(runs.runs, [boot()]);
        let runs = runs.with(idle("1")).with(idle("2"));
        assert_eq!(runs.runs, [idle("2"), boot()]);
        assert_eq!(runs.with(boot()).runs, [boot()]);
        assert_eq!(Timelines::default().with(idle("1")).with(idle("2")).runs, [idle("2")]);
    }

    #[test]
    fn a_timeline_reads_back() {
        let runs = Timelines::default().with(boot());
        let json = serde_json::to_string(&runs).unwrap();
        assert!(
            json.contains(r#""waitedFor":"packages""#) && json.contains(r#""beginUs":4100000"#),
            "{json}"
        );
        assert_eq!(serde_json::from_str::<Timelines>(&json).unwrap(), runs);
    }
}
