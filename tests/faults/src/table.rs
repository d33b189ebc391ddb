//! The results of all cases, as a table for people.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::filesystem::Struck;
use super::matrix::{Disturbance, Outcome, Verdict};

/// The number of cases with each result. The outer key is the group of files that the operation affects (such as the cache of downloads),
/// and the kind of operation. The inner key is the disturbance.
#[derive(Default)]
pub struct Table {
    cells: BTreeMap<(&'static str, &'static str), BTreeMap<Disturbance, Cell>>,
    unreached: usize,
    broken: usize,
}

#[derive(Clone, Copy, Default)]
struct Cell {
    stopped: usize,
    finished: usize,
    broken: usize,
}

fn whose(path: &str) -> &'static str {
    const PLACES: [(&str, &str); 3] = [
        ("var/cache/nodeup", "cache of downloads"),
        ("var/lib/kops-agent/recorded", "stand-in for systemd and dpkg"),
        ("var/lib/kops-agent", "record and notes"),
    ];
    PLACES
        .into_iter()
        .find(|(place, _)| path.starts_with(place))
        .map_or("the node's files", |(_, whose)| whose)
}

impl Table {
    pub fn add(&mut self, disturbance: Disturbance, verdict: &Verdict) {
        let is_broken = !verdict.problems.is_empty();
        self.broken += usize::from(is_broken);
        if verdict.outcome == Outcome::Unreached {
            self.unreached += 1;
            return;
        }
        let row = match &verdict.struck {
            Some(Struck { kind, path }) => (whose(path), *kind),
            None => ("", "after the last"),
        };
        let cell = self.cells.entry(row).or_default().entry(disturbance).or_default();
        match (is_broken, verdict.outcome) {
            (true, _) => cell.broken += 1,
            (false, Outcome::Finished) => cell.finished += 1,
            (false, _) => cell.stopped += 1,
        }
    }

    pub fn broken(&self) -> usize {
        self.broken
    }

    pub fn markdown(&self) -> String {
        let all = Disturbance::all();
        let mut text = String::from("| where | step |");
        all.iter().for_each(|disturbance| _ = write!(text, " {} |", disturbance.name()));
        text.push_str("\n|---|---|");
        all.iter().for_each(|_| text.push_str("---|"));
        text.push('\n');
        let mut sums: BTreeMap<Disturbance, Cell> = BTreeMap::new();
        for ((place, kind), cells) in &self.cells {
            _ = write!(text, "| {place} | {kind} |");
            for disturbance in &all {
                let cell = cells.get(disturbance).copied().unwrap_or_default();
                let sum = sums.entry(*disturbance).or_default();
                sum.stopped += cell.stopped;
                sum.finished += cell.finished;
                sum.broken += cell.broken;
                _ = write!(text, " {} |", cell.shown());
            }
            text.push('\n');
        }
        text.push_str("| **all** | |");
        for disturbance in &all {
            _ = write!(text, " {} |", sums.get(disturbance).copied().unwrap_or_default().shown());
        }
        _ = write!(
            text,
            "\n\nNot reached, because runs differ by a few steps: {}. Broken: {}.\n",
            self.unreached, self.broken
        );
        text
    }
}

impl Cell {
    fn shown(self) -> String {
        let mut parts = Vec::new();
        if self.stopped > 0 {
            parts.push(self.stopped.to_string());
        }
        if self.finished > 0 {
            parts.push(format!("{} ✓", self.finished));
        }
        if self.broken > 0 {
            parts.push(format!("**{} BROKEN**", self.broken));
        }
        parts.join(" + ")
    }
}
