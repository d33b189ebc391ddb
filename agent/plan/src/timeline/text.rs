//! Formats a timeline as a table with bars, and as a short summary at the end of a boot.

use std::fmt::Write as _;

use kops_agent_spec::terminal::cell;

use super::{TimedStep, Timeline, Timelines, longest};

/// The width of the bars, in characters.
const WIDTH: u64 = 40;

/// Formats each recorded run as a table of its steps.
pub fn table(timelines: &Timelines) -> String {
    let runs = timelines.runs.iter().map(table_of);
    runs.collect::<Vec<_>>().join("\n")
}

fn table_of(timeline: &Timeline) -> String {
    let Timeline { ended_at, took_us, floor_us, changes, succeeded, steps } = timeline;
    let what = match (succeeded, changes) {
        (false, _) => "failed".to_owned(),
        (true, 0) => "nothing to do".to_owned(),
        (true, 1) => "1 change".to_owned(),
        (true, changes) => format!("{changes} changes"),
    };
    let mut text = format!("run that ended at {ended_at}: {} s, {what}\n", in_seconds(*took_us));
    let width = steps.iter().map(|step| cell(&step.name).chars().count()).max().unwrap_or_default();
    for step in steps {
        let after = match &step.waited_for {
            Some(before) => format!("  after {before}"),
            None => String::new(),
        };
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "  {:width$}  {:>8} {:>8}  |{}|{after}",
            cell(&step.name),
            in_seconds(step.begin_us),
            in_seconds(step.took_us()),
            bar(step, *took_us),
        );
    }
    if *floor_us > 0 {
        let _ = writeln!(
            text,
            "  lower bound: {} s (packages and downloads in parallel, then the units)",
            in_seconds(*floor_us)
        );
    }
    text
}

/// A bar that shows when a step ran within the run.
fn bar(step: &TimedStep, whole_us: u64) -> String {
    let at = |us: u64| us.saturating_mul(WIDTH).checked_div(whole_us).unwrap_or_default().min(WIDTH);
    let begin = at(step.begin_us).min(WIDTH - 1);
    // The bar of a step has at least one character.
    let end = at(step.end_us).max(begin + 1);
    (0..WIDTH).map(|place| if (begin..end).contains(&place) { '#' } else { ' ' }).collect()
}

/// The summary of a boot: a line with the longest steps, and a line with the lower bound for the boot's
/// duration.
pub fn summary(timeline: &Timeline) -> Vec<String> {
    let parts: Vec<String> = longest(&timeline.steps)
        .into_iter()
        .map(|step| format!("{} {} s", step.name, in_seconds(step.took_us())))
        .collect();
    vec![
        format!("run took {} s; longest steps: {}", in_seconds(timeline.took_us), parts.join(", ")),
        format!(
            "lower bound: {} s with these packages, downloads and units; `kops-agent status --timeline` shows every step",
            in_seconds(timeline.floor_us)
        ),
    ]
}

/// Formats microseconds as seconds with three decimals.
pub fn in_seconds(us: u64) -> String {
    let ms = us.saturating_add(500) / 1000;
    format!("{}.{:03}", ms / 1000, ms % 1000)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{boot, step};
    use super::super::{Timeline, Timelines, Work};
    use super::*;

    #[test]
    fn a_boot_is_shown_as_bars() {
        let idle = Timeline { took_us: 46_000, floor_us: 0, changes: 0, steps: vec![], ..boot() };
        let shown = table(&Timelines { runs: vec![idle, boot()] });
        assert_eq!(
            shown,
            "\
run that ended at 2026-01-02T03:04:05Z: 0.046 s, nothing to do

run that ended at 2026-01-02T03:04:05Z: 5.100 s, 70 changes
  observing this machine       0.040    0.060  |#                                       |
  packages                     0.100    4.000  |################################        |  after observing this machine
  downloads                    0.101    1.399  |###########                             |  after observing this machine
  files                        4.100    0.100  |                                #       |  after packages
  start containerd.service     4.200    0.500  |                                ####    |  after files
  start kubelet.service        4.700    0.300  |                                    ### |  after start containerd.service
  lower bound: 4.800 s (packages and downloads in parallel, then the units)
"
        );
    }

    #[test]
    fn the_summary_names_the_longest_steps() {
        assert_eq!(
            summary(&boot()),
            [
                "run took 5.100 s; longest steps: packages 4.000 s, downloads 1.399 s, start containerd.service 0.500 s",
                "lower bound: 4.800 s with these packages, downloads and units; `kops-agent status --timeline` shows every step",
            ]
        );
    }

    #[test]
    fn a_bar_stays_within_its_line() {
        for (begin, end, whole) in [(0, 0, 0), (0, 0, 10), (10, 10, 10), (9, 30, 10), (30, 40, 10)] {
            assert_eq!(bar(&step("x", Work::Other, begin, end), whole * 1000).chars().count(), 40);
        }
    }

    #[test]
    fn seconds_are_rounded_to_milliseconds() {
        assert_eq!([0, 499, 500, 1_999_600].map(in_seconds), ["0.000", "0.000", "0.001", "2.000"]);
    }
}
