//! Measures what a run takes its time for, and keeps that for `status --timeline`.
//!
//! What is measured is a [`kops_agent_plan::timeline::Timeline`]; names of steps are of resources, and never of URLs, which may let one in.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use kops_agent_plan::timeline::{TimedStep, Timeline, Timelines, Work, floor_us, in_order};

use crate::error::{Error, Result};
use crate::host::Host;
use crate::places::TIMELINE;
use crate::staged::{Staged, place, place_loosely};

/// Measures the steps of a run; clones measure the same one, also on other threads.
#[derive(Clone, Debug)]
pub struct Stopwatch {
    started: Instant,
    steps: Arc<Mutex<Vec<TimedStep>>>,
}

/// A step that is under way; dropping it ends it.
#[derive(Debug)]
pub struct Running {
    watch: Stopwatch,
    name: String,
    work: Work,
    begin_us: u64,
}

impl Default for Stopwatch {
    fn default() -> Stopwatch {
        Stopwatch::since(Instant::now())
    }
}

impl Stopwatch {
    /// Measures a process that was started then.
    pub fn since(started: Instant) -> Stopwatch {
        Stopwatch { started, steps: Arc::default() }
    }

    /// Begins a step.
    #[must_use = "dropping it ends the step"]
    pub fn begin(&self, work: Work, name: impl Into<String>) -> Running {
        Running { watch: self.clone(), name: name.into(), work, begin_us: self.now_us() }
    }

    /// Has all that was measured so far be one step: a try that failed, and the pause after it.
    pub fn start_over(&self) {
        let end_us = self.now_us();
        let name = "tries that failed".into();
        *self.steps() = vec![TimedStep { name, work: Work::Other, begin_us: 0, end_us, waited_for: None }];
    }

    /// What was measured of a run that has ended now.
    fn timeline(&self, ended_at: String, changes: usize, succeeded: bool) -> Timeline {
        let steps = in_order(self.steps().clone());
        Timeline { ended_at, took_us: self.now_us(), floor_us: floor_us(&steps), changes, succeeded, steps }
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    fn steps(&self) -> MutexGuard<'_, Vec<TimedStep>> {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let end_us = self.watch.now_us();
        let name = std::mem::take(&mut self.name);
        let step = TimedStep { name, work: self.work, begin_us: self.begin_us, end_us, waited_for: None };
        self.watch.steps().push(step);
    }
}

impl Host {
    /// Begins a step of the run that is measured.
    #[must_use = "dropping it ends the step"]
    pub fn measure(&self, work: Work, name: impl Into<String>) -> Running {
        self.stopwatch.begin(work, name)
    }

    /// Keeps what was measured of the run that ends now, and returns it. The lock must be held.
    ///
    /// # Errors
    /// It cannot be written; nothing else depends on it.
    pub fn keep_timeline(&self, changes: usize, succeeded: bool) -> Result<Timeline> {
        let timeline = self.stopwatch.timeline(self.timestamp(), changes, succeeded);
        // What is there and cannot be read is as good as nothing.
        let kept = self.timelines().unwrap_or_default().with(timeline.clone());
        let json = serde_json::to_vec(&kept)
            .map_err(|error| Error::path("write", self.root.shown(TIMELINE), error))?;
        let mut staged = Staged::new(&self.root, TIMELINE, 0o600, None)?;
        staged.write(&json)?;
        match changes {
            // A run with nothing to do is not to wait for the disk.
            0 => place_loosely(staged.seal_loosely())?,
            _ => place(vec![staged.seal()?])?,
        }
        Ok(timeline)
    }

    /// The timelines of the runs that are remembered; none before the first run has ended.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn timelines(&self) -> Result<Timelines> {
        let Some(bytes) = self.root.read(TIMELINE)? else { return Ok(Timelines::default()) };
        serde_json::from_slice(&bytes).map_err(|error| Error::Path {
            doing: "read",
            path: self.root.shown(TIMELINE),
            reason: format!("{error}; the next run writes it anew"),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn steps_are_kept_for_root_alone() {
        let folder = tempfile::tempdir().unwrap();
        let watch = Stopwatch::default();
        let host = Host::scratch(folder.path()).unwrap().timed_by(watch.clone());
        assert!(host.timelines().unwrap().runs.is_empty());
        let outer = watch.begin(Work::Other, "outer");
        drop(watch.begin(Work::Packages, "inner"));
        drop(outer);
        let kept = host.keep_timeline(3, true).unwrap();
        let mut names: Vec<&str> = kept.steps.iter().map(|step| step.name.as_str()).collect();
        // Both may begin and end within the same microsecond.
        names.sort_unstable();
        assert_eq!(names, ["inner", "outer"]);
        assert!(kept.steps.iter().all(|step| step.begin_us <= step.end_us && step.end_us <= kept.took_us));
        assert_eq!(host.timelines().unwrap().runs.as_slice(), std::slice::from_ref(&kept));
        let file = folder.path().join(TIMELINE.trim_start_matches('/'));
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);

        let idle = host.keep_timeline(0, true).unwrap();
        assert_eq!(host.timelines().unwrap().runs, [idle, kept]);

        std::fs::write(&file, "{").unwrap();
        assert!(host.timelines().unwrap_err().to_string().contains("the next run writes it anew"));
        let again = host.keep_timeline(0, false).unwrap();
        assert_eq!(host.timelines().unwrap().runs, [again]);
    }

    #[test]
    fn tries_that_failed_are_one_step() {
        let watch = Stopwatch::default();
        drop(watch.begin(Work::Downloads, "downloads"));
        watch.start_over();
        drop(watch.begin(Work::Downloads, "downloads"));
        let steps = watch.timeline(String::new(), 1, true).steps;
        let names: Vec<&str> = steps.iter().map(|step| step.name.as_str()).collect();
        assert_eq!(names, ["tries that failed", "downloads"]);
        assert!(steps[0].end_us <= steps[1].begin_us);
        assert_eq!(steps[1].waited_for.as_deref(), Some("tries that failed"));
    }
}
