//! Measures the steps of a run, for `status --timeline`.
//!
//! The result is a [`kops_agent_plan::timeline::Timeline`]. Names of steps are names of resources, never URLs, which
//! may contain credentials.

use std::sync::Arc;
use std::time::Instant;

use kops_agent_plan::timeline::{TimedStep, Timeline, Work, floor_us, in_order};
use parking_lot::Mutex;

/// Measures how long the steps of a run take. All clones add to one list of steps, also across threads.
#[derive(Clone, Debug)]
pub struct Stopwatch {
    started: Instant,
    steps: Arc<Mutex<Vec<TimedStep>>>,
}

/// A running step. Dropping it ends the step.
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
    pub fn since(started: Instant) -> Stopwatch {
        Stopwatch { started, steps: Arc::default() }
    }

    #[must_use = "dropping it ends the step"]
    pub fn begin(&self, work: Work, name: impl Into<String>) -> Running {
        Running { watch: self.clone(), name: name.into(), work, begin_us: self.now_us() }
    }

    /// Merges all measured steps into one step. The merged step stands for the failed tries of the run and the pauses
    /// after them.
    pub fn start_over(&self) {
        let end_us = self.now_us();
        let name = "tries that failed".into();
        *self.steps.lock() =
            vec![TimedStep { name, work: Work::Other, begin_us: 0, end_us, waited_for: None }];
    }

    pub(crate) fn timeline(&self, ended_at: String, changes: usize, succeeded: bool) -> Timeline {
        let steps = in_order(self.steps.lock().clone());
        Timeline { ended_at, took_us: self.now_us(), floor_us: floor_us(&steps), changes, succeeded, steps }
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let end_us = self.watch.now_us();
        let name = std::mem::take(&mut self.name);
        let step = TimedStep { name, work: self.work, begin_us: self.begin_us, end_us, waited_for: None };
        self.watch.steps.lock().push(step);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
