//! Stores how long the steps of runs took, for `status --timeline`.

use kops_agent_plan::timeline::{Timeline, Timelines, Work};

use crate::error::{Error, Result};
use crate::host::Host;
use crate::places::TIMELINE;
use crate::staged::{Staged, place, place_loosely};
use crate::stopwatch::Running;

impl Host {
    /// Begins a measured step of the run.
    #[must_use = "dropping it ends the step"]
    pub fn measure(&self, work: Work, name: impl Into<String>) -> Running {
        self.stopwatch.begin(work, name)
    }

    /// Stores and returns the measurements of the run that ends now. The caller holds the agent's lock. A failed
    /// write does no harm, because nothing depends on the stored file.
    pub fn keep_timeline(&self, changes: usize, succeeded: bool) -> Result<Timeline> {
        let timeline = self.stopwatch.timeline(self.timestamp(), changes, succeeded);
        // An unreadable file is treated as empty.
        let kept = self.timelines().unwrap_or_default().with(timeline.clone());
        let json = serde_json::to_vec(&kept)
            .map_err(|error| Error::path("write", self.root.shown(TIMELINE), error))?;
        let mut staged = Staged::new(&self.root, TIMELINE, 0o600, None)?;
        staged.write(&json)?;
        match changes {
            // A run without changes does not wait for the disk. A power cut may lose its timeline.
            0 => place_loosely(staged.seal_loosely())?,
            _ => place(vec![staged.seal()?])?,
        }
        Ok(timeline)
    }

    /// The stored timelines. Empty before the first run has ended.
    pub fn timelines(&self) -> Result<Timelines> {
        let Some(bytes) = self.root.read(TIMELINE)? else { return Ok(Timelines::default()) };
        serde_json::from_slice(&bytes).map_err(|error| Error::Path {
            doing: "read",
            path: self.root.shown(TIMELINE),
            reason: format!("{error}; the next run writes a new file"),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::stopwatch::Stopwatch;

    #[test]
    fn only_root_can_read_the_stored_steps() {
        let folder = tempfile::tempdir().unwrap();
        let watch = Stopwatch::default();
        let host = Host::scratch(folder.path()).unwrap().timed_by(watch.clone());
        assert!(host.timelines().unwrap().runs.is_empty());
        let outer = watch.begin(Work::Other, "outer");
        drop(watch.begin(Work::Packages, "inner"));
        drop(outer);
        let kept = host.keep_timeline(3, true).unwrap();
        let mut names: Vec<&str> = kept.steps.iter().map(|step| step.name.as_str()).collect();
        // The two steps may begin and end within the same microsecond, so their order is undefined.
        names.sort_unstable();
        assert_eq!(names, ["inner", "outer"]);
        assert!(kept.steps.iter().all(|step| step.begin_us <= step.end_us && step.end_us <= kept.took_us));
        assert_eq!(host.timelines().unwrap().runs.as_slice(), std::slice::from_ref(&kept));
        let file = folder.path().join(TIMELINE.trim_start_matches('/'));
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);

        let idle = host.keep_timeline(0, true).unwrap();
        assert_eq!(host.timelines().unwrap().runs, [idle, kept]);

        std::fs::write(&file, "{").unwrap();
        assert!(host.timelines().unwrap_err().to_string().contains("the next run writes a new file"));
        let again = host.keep_timeline(0, false).unwrap();
        assert_eq!(host.timelines().unwrap().runs, [again]);
    }
}
