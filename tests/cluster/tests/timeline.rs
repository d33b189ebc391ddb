//! Measures the time from power-on until Nodes are Ready, compared with machines that already have everything on their disks.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};

use kops_agent_machines::median;
use kops_agent_machines::network::Family;
use serde_json::Value;

use crate::cluster::{Cluster, MACHINES, Member};
use crate::scene;

/// The maximum of the ratio A / B. A is the time from power-on until the last Node of a new cluster is Ready. B is the same time for
/// machines that already have all files and images ([`floor`]).
pub const RATIO: f64 = 1.5;
/// The units of the agent and of the boot script. [`floor`] boots the machines without these units.
const OURS: [&str; 4] = [
    "kops-configuration.service",
    "kops-agent-controller.service",
    "kops-agent-addons.service",
    "user-data.service",
];

/// The times at which a machine reached each stage, in seconds since power-on.
pub struct Row {
    machine: String,
    /// The start of the agent's run, after the boot script has installed the agent.
    runs: f64,
    converged: f64,
    ready: f64,
}

impl Row {
    fn cells(&self) -> String {
        let Row { machine, runs, converged, ready } = self;
        format!("| {machine} | {runs:.1} | {converged:.1} | {ready:.1} |")
    }
}

/// One [`Row`] for each machine of a new cluster. `ready` has the times at which the Nodes became Ready. The other times come from the
/// machines' journals.
pub fn rows(cluster: &Cluster, ready: &[(&'static str, Duration)]) -> Vec<Row> {
    let row = |(member, (_, ready)): (&Member, &(&str, Duration))| {
        let entries = journal(member, "kops-configuration.service");
        let at = |entry: Option<&Value>| -> f64 {
            let entry = entry.unwrap_or_else(|| panic!("{} has no such entry", member.machine.name()));
            let microseconds: f64 = entry["__MONOTONIC_TIMESTAMP"].as_str().unwrap().parse().unwrap();
            microseconds / 1e6 - cluster.powered_on
        };
        let is_end =
            |entry: &&Value| entry["MESSAGE"].as_str().is_some_and(|text| text.starts_with("Converged: "));
        Row {
            machine: member.machine.name().to_owned(),
            runs: at(entries.first()),
            converged: at(entries.iter().find(is_end)),
            ready: ready.as_secs_f64(),
        }
    };
    cluster.members.iter().zip(ready).map(row).collect()
}

fn journal(member: &Member, unit: &str) -> Vec<Value> {
    let said = member.machine.run(&["journalctl", "--no-pager", "--output=json", "--unit", unit]);
    said.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Powers the machines off and on again, without the agent's units and with empty etcds. Every file, package and image is on the
/// disk, so only the kernel, systemd, containerd, kubelet and the control plane take time. Returns the time until each Node is
/// Ready.
pub fn floor(cluster: &Cluster) -> Vec<(&'static str, Duration)> {
    let before = cluster.uids();
    for member in &cluster.members {
        member.machine.power_off();
        let files = member.machine.files();
        for unit in OURS {
            let unit = files.join("etc/systemd/system").join(unit);
            let _ = fs::remove_file(&unit);
            symlink("/dev/null", unit).unwrap();
        }
        for etcd in ["main", "events"] {
            let data = files.join(format!("var/lib/etcd-{etcd}"));
            if data.exists() {
                fs::remove_dir_all(data).unwrap();
            }
        }
    }
    let since = Instant::now();
    for member in &cluster.members {
        member.machine.power_on_again();
    }
    let ready = scene::nodes_become_ready(cluster, since);
    let is_new = |uid: &String| !before.contains(uid);
    assert!(cluster.uids().iter().all(is_new), "Nodes are told Ready that were so before");
    ready
}

const HEADS: &str = "| machine | the agent runs, s | converged, s | Ready, s |";
const RULES: &str = "| --- | ---: | ---: | ---: |";

pub fn table(rows: &[Row]) -> String {
    let mut table = format!("{HEADS}\n{RULES}\n");
    rows.iter().for_each(|row| table.push_str(&format!("{}\n", row.cells())));
    table
}

/// Like [`table`], with one more column: the time that each machine took in [`floor`]. The line below the table shows when the last Node of
/// the new cluster was Ready, when the last Node was Ready in [`floor`], and the ratio of both times.
pub fn table_of_both(rows: &[Row], floor: &[(&'static str, Duration)]) -> String {
    let mut table = format!("{HEADS} Ready with all on its disk, s |\n{RULES} ---: |\n");
    for (row, (_, alone)) in rows.iter().zip(floor) {
        let _ = writeln!(table, "{} {:.1} |", row.cells(), alone.as_secs_f64());
    }
    let (ours, alone) = (last(rows.iter().map(|row| row.ready)), last_of(floor));
    let ratio = ours / alone;
    let _ = writeln!(
        table,
        "\nThe last Node is Ready {ours:.1} s after power-on, {ratio:.2} times as late as with all on the disks ({alone:.1} s); at most {RATIO} is promised."
    );
    table
}

/// The number of measured clusters. `KOPS_AGENT_CLUSTER_ROUNDS` overrides it.
const ROUNDS: usize = 5;

/// Measures several new clusters, and compares each cluster with its own [`floor`]. The test checks the median of the ratios,
/// because kubelet's back-off alone can be a third of one cluster's time.
#[test]
#[ignore = "measures: tests/bench/run cluster"]
#[allow(clippy::print_stdout)]
fn measured_time() {
    let rounds = std::env::var("KOPS_AGENT_CLUSTER_ROUNDS").map_or(ROUNDS, |rounds| rounds.parse().unwrap());
    let (mut ends, mut alone, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    println!(
        "| round | the last worker has converged, s | the last Node is Ready, s | with all on the disks, s | ratio |"
    );
    println!("| ---: | ---: | ---: | ---: | ---: |");
    for round in 1..=rounds {
        let cluster = Cluster::power_on("trixie", &MACHINES, Family::Ipv4);
        let ready = scene::nodes_become_ready(&cluster, cluster.since);
        let rows = rows(&cluster, &ready);
        let floor = floor(&cluster);
        let converged = last(rows.iter().map(|row| row.converged));
        let (end, floor) = (last(rows.iter().map(|row| row.ready)), last_of(&floor));
        println!("| {round} | {converged:.1} | {end:.1} | {floor:.1} | {:.2} |", end / floor);
        ends.push(end);
        alone.push(floor);
        ratios.push(end / floor);
    }
    let ratio = median(ratios);
    println!("| median | | {:.1} | {:.1} | {ratio:.2} |", median(ends), median(alone));
    assert!(ratio <= RATIO, "a cluster takes {ratio:.2} of its floor to come to be, and {RATIO} is promised");
}

fn last(ends: impl Iterator<Item = f64>) -> f64 {
    ends.fold(0.0, f64::max)
}

fn last_of(ready: &[(&str, Duration)]) -> f64 {
    last(ready.iter().map(|(_, ready)| ready.as_secs_f64()))
}

pub fn draw(rows: &[Row], floor: &[(&'static str, Duration)], file: &Path) {
    const SECOND: f64 = 24.0;
    const LEFT: f64 = 110.0;
    let end = last(rows.iter().map(|row| row.ready)).ceil() + 1.0;
    let height = 70 * rows.len() + 40;
    let width = LEFT + end * SECOND;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n"
    );
    for (number, (row, (_, alone))) in rows.iter().zip(floor).enumerate() {
        let top = 70 * number + 10;
        let _ = writeln!(svg, "<text x=\"4\" y=\"{}\">{}</text>", top + 16, row.machine);
        let parts = [
            (0.0, row.runs, "#b9c2cc", "boot"),
            (row.runs, row.converged, "#3b7dd8", "converge"),
            (row.converged, row.ready, "#79b66a", "kubelet"),
        ];
        for (from, to, colour, what) in parts {
            let (x, wide) = (LEFT + from * SECOND, (to - from).max(0.0) * SECOND);
            let _ = writeln!(
                svg,
                "<rect x=\"{x:.1}\" y=\"{top}\" width=\"{wide:.1}\" height=\"22\" fill=\"{colour}\"/><text x=\"{:.1}\" y=\"{}\" fill=\"#fff\">{what}</text>",
                x + 4.0,
                top + 15
            );
        }
        let (alone, below) = (alone.as_secs_f64() * SECOND, top + 26);
        let _ = writeln!(
            svg,
            "<rect x=\"{LEFT}\" y=\"{below}\" width=\"{alone:.1}\" height=\"14\" fill=\"#e0e4e8\"/><text x=\"{}\" y=\"{}\">all on its disk</text>",
            LEFT + 4.0,
            below + 11
        );
    }
    for second in (0..=end as u32).step_by(5) {
        let x = LEFT + f64::from(second) * SECOND;
        let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{}\">{second} s</text>", height - 12);
    }
    svg.push_str("</svg>\n");
    fs::write(file, svg).unwrap();
}
