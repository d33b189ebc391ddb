//! Measures how long a machine takes to become a node, compared with a floor: the packages, downloads and unit starts that
//! every node needs. Also measures a run with nothing to do.
//! `tests/bench/run boot` runs this.
//!
//! In each round, the machines of a cluster boot twice. After the first boot, the agent converges on the control plane.
//! After the second boot, without a longer wait, apt alone installs the same packages there, and curl alone fetches the
//! same bytes over the same link. To measure the start of the agent's units alone, the round starts them again with all
//! files in place.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::Value;

use crate::STATIC_PODS;
use crate::cluster::{AGENT, BOOT_CONFIG, CONTROL_PLANE_NAME, Cluster};
use kops_agent_machines::containers::static_pod_runs;
use kops_agent_machines::machine::Machine;
use kops_agent_machines::{median, step};

/// The number of measured rounds. `KOPS_AGENT_BOOT_ROUNDS` overrides it. An additional first round, which is not measured,
/// warms the host's caches.
const ROUNDS: usize = 15;
/// The number of runs without changes. The test takes the median of their durations.
const IDLE_RUNS: usize = 9;
/// The limit for the median of the rounds' ratios. The ratio of a round is the duration of `converge` divided by the round's
/// floor: the time that apt, curl and systemd alone take.
const RATIO: f64 = 1.15;
/// The limit for a run without changes, in milliseconds.
const IDLE_MS: f64 = 100.0;
/// The rate limit of each machine's network link.
const LINK: &str = "1gbit";

/// A Python script that runs a command and prints its duration in seconds. The command's output goes to `/root/timed.log`.
const TIMED: &str = r#"
import subprocess, sys, time
with open("/root/timed.log", "wb") as log:
    start = time.monotonic()
    code = subprocess.call(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    took = time.monotonic() - start
if code != 0:
    sys.exit(open("/root/timed.log").read()[-4000:] + f"ended with {code}")
print(took)
"#;

/// The measurements of one round, in seconds.
struct Round {
    apt: f64,
    curl: f64,
    units: f64,
    converge: f64,
    /// The seconds that the agent spent on packages, according to `status --timeline`. `downloads` has the same source.
    packages: f64,
    downloads: f64,
    /// The median duration of the runs right after the first run. They change nothing, and kubelet still starts the control plane.
    /// `idle` is the median duration of runs that change nothing when the control plane is ready.
    at_once: f64,
    idle: f64,
}

impl Round {
    fn floor(&self) -> f64 {
        self.apt.max(self.curl) + self.units
    }

    fn ratio(&self) -> f64 {
        self.converge / self.floor()
    }
}

/// The amount of work in a round.
struct Size {
    packages: usize,
    files: usize,
    megabytes: u64,
    units: usize,
}

fn timed(machine: &Machine, command: &[&str]) -> f64 {
    machine.run(&[&["python3", "-c", TIMED], command].concat()).trim().parse().unwrap()
}

/// The command that runs the agent's `converge` with these environment variables.
fn agent<'a>(environment: &'a [String], more: &[&'a str]) -> Vec<&'a str> {
    let mut command = vec!["env"];
    command.extend(more);
    command.extend(environment.iter().map(String::as_str));
    command.extend([AGENT, "converge", "--conf", BOOT_CONFIG]);
    command
}

fn json(machine: &Machine, command: &[&str]) -> Value {
    serde_json::from_str(&machine.run(command)).unwrap()
}

/// The packages that the agent plans to install on a machine.
fn missing_packages(cluster: &Cluster, machine: &Machine) -> Vec<String> {
    let plan = cluster.agent(machine, "plan", &["--output", "json"]);
    let plan: Value =
        serde_json::from_str(&plan.stdout).unwrap_or_else(|_| panic!("{}", machine.explain(&plan)));
    let names = plan["steps"].as_array().unwrap().iter();
    names.filter_map(|step| step["resource"].as_str()?.strip_prefix("package ").map(str::to_owned)).collect()
}

fn apt_alone(machine: &Machine, packages: &[String]) -> f64 {
    let script = "export DEBIAN_FRONTEND=noninteractive; apt-get update && exec apt-get --yes -o \
                  Dpkg::Options::=--force-confold install --no-install-recommends -- \"$@\"";
    let mut command = vec!["sh", "-c", script, "sh"];
    command.extend(packages.iter().map(String::as_str));
    timed(machine, &command)
}

/// The URL paths of the downloads that a run has requested, without the `.sha256` files.
fn downloaded(cluster: &Cluster) -> Vec<String> {
    let requests = cluster.downloads.requests();
    let paths = requests.iter().filter_map(|request| request.strip_prefix("GET ")?.split(' ').next());
    let paths: BTreeSet<&str> = paths.filter(|path| !path.ends_with(".sha256")).collect();
    paths.into_iter().map(str::to_owned).collect()
}

/// Downloads `urls` with the host's curl, through the machine's network link. The downloads are written to the disk that has the machine's
/// files. Returns the duration in seconds and the size in megabytes.
fn curl_alone(machine: &Machine, urls: &[String]) -> (f64, u64) {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let mut command = vec!["curl", "--silent", "--show-error", "--fail", "--parallel"];
    let at = folder.path().display().to_string();
    let files: Vec<String> = (0..urls.len()).map(|number| format!("{at}/{number}")).collect();
    for (file, url) in files.iter().zip(urls) {
        command.extend(["--output", file, url]);
    }
    let seconds = machine.run_beside(&[&["python3", "-c", TIMED_ON_HOST], &command[..]].concat());
    let bytes: u64 = files.iter().map(|file| std::fs::metadata(file).unwrap().len()).sum();
    (seconds.trim().parse().unwrap(), bytes / 1_000_000)
}

/// Like [`TIMED`], but for a command on the host. The command's output is discarded.
const TIMED_ON_HOST: &str = r#"
import subprocess, sys, time
start = time.monotonic()
subprocess.run(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
print(time.monotonic() - start)
"#;

/// Reads the timeline of the last run. Returns the started units in order, the seconds for packages, and the seconds for
/// downloads.
fn timeline(machine: &Machine) -> (Vec<String>, f64, f64) {
    let timelines = json(machine, &[AGENT, "status", "--timeline", "--output", "json"]);
    let steps = timelines["runs"][0]["steps"].as_array().unwrap().clone();
    let took = |work: &str| -> f64 {
        let its = steps.iter().filter(|step| step["work"] == work);
        its.map(|step| step["endUs"].as_f64().unwrap() - step["beginUs"].as_f64().unwrap()).sum::<f64>() / 1e6
    };
    let started = steps.iter().filter_map(|step| step["name"].as_str()?.strip_prefix("start "));
    (started.map(str::to_owned).collect(), took("packages"), took("downloads"))
}

/// The seconds that systemd needs to reload its unit files and to start `units` one after another, in this order.
fn units_alone(machine: &Machine, units: &[String]) -> f64 {
    for unit in units.iter().rev() {
        machine.run(&["systemctl", "stop", unit]);
    }
    let script = "systemctl daemon-reload && for unit; do systemctl start \"$unit\" || exit; done";
    let mut command = vec!["sh", "-c", script, "sh"];
    command.extend(units.iter().map(String::as_str));
    timed(machine, &command)
}

/// The median duration of runs without changes, in seconds.
fn idle(cluster: &Cluster, machine: &Machine) -> f64 {
    let environment = cluster.environment();
    let run = |_| {
        let took = timed(machine, &agent(&environment, &[]));
        let said = machine.read("/root/timed.log");
        assert!(said.contains("Nothing to do"), "{said}");
        took
    };
    median((0..IDLE_RUNS).map(run).collect())
}

/// Waits until the control plane is ready. During its start, the control plane uses both cores, which would slow down the next
/// measured runs.
fn settles(machine: &Machine) {
    for component in STATIC_PODS {
        static_pod_runs(machine, &format!("{component}-{CONTROL_PLANE_NAME}"));
    }
    let ready = ["kubectl", "--kubeconfig", "/root/.kube/config", "get", "--raw=/readyz"];
    machine.until("the API server is ready", || (machine.try_run(&ready).stdout == "ok").then_some(()));
}

fn round() -> (Round, Size) {
    let (cluster, packages) = just_booted();
    let control_plane = &cluster.control_plane;
    let environment = cluster.environment();
    let converge = timed(control_plane, &agent(&environment, &["RUST_BACKTRACE=0"]));
    let (units, packages_took, downloads_took) = timeline(control_plane);
    let urls = downloaded(&cluster);
    let at_once = idle(&cluster, control_plane);
    settles(control_plane);
    let idle = idle(&cluster, control_plane);
    if std::env::var_os("KOPS_AGENT_SHOW_TIMELINE").is_some() {
        step(&control_plane.run(&[AGENT, "status", "--timeline"]));
    }
    let units_took = units_alone(control_plane, &units);
    drop(cluster);
    let (apt, (curl, megabytes)) = apt_and_curl_alone(&packages, &urls);
    let size = Size { packages: packages.len(), files: urls.len(), megabytes, units: units.len() };
    let round = Round {
        apt,
        curl,
        units: units_took,
        converge,
        packages: packages_took,
        downloads: downloads_took,
        at_once,
        idle,
    };
    (round, size)
}

/// Boots a cluster. Returns it with the packages that the agent plans to install on the control plane.
fn just_booted() -> (Cluster, Vec<String>) {
    let cluster = Cluster::boot("bookworm");
    cluster.limit_links(LINK);
    let packages = missing_packages(&cluster, &cluster.control_plane);
    assert!(!packages.is_empty());
    (cluster, packages)
}

/// Measures apt and curl without the agent. The machines are newly booted, as they were for the agent, so units that start at boot slow down
/// apt, curl and the agent alike.
fn apt_and_curl_alone(packages: &[String], urls: &[String]) -> (f64, (f64, u64)) {
    let (cluster, its) = just_booted();
    assert_eq!(its, packages, "both control planes must get the same packages");
    let apt = apt_alone(&cluster.control_plane, packages);
    let urls: Vec<String> = urls.iter().map(|path| format!("{}{path}", cluster.downloads.url())).collect();
    (apt, curl_alone(&cluster.control_plane, &urls))
}

/// A table with one row for each round. The floor of a round is the time that apt, curl and systemd alone take. The ratio is the
/// duration of `converge` divided by the floor.
fn table_of_rounds(rounds: &[Round]) -> String {
    let mut table = "| round | floor, s | converge, s | ratio |\n| --- | --- | --- | --- |\n".to_owned();
    for (number, round) in rounds.iter().enumerate() {
        let (floor, converge, ratio) = (round.floor(), round.converge, round.ratio());
        let _ = writeln!(table, "| {} | {floor:.3} | {converge:.3} | {ratio:.2} |", number + 1);
    }
    table
}

fn table_of_medians(rounds: &[Round], size: &Size) -> String {
    let Size { packages, files, megabytes, units } = size;
    let of = |what: fn(&Round) -> f64| median(rounds.iter().map(what).collect());
    let (apt, curl) = (of(|round| round.apt), of(|round| round.curl));
    let (of_units, floor, converge) = (of(|round| round.units), of(Round::floor), of(|round| round.converge));
    let (packages_took, downloads_took) = (of(|round| round.packages), of(|round| round.downloads));
    let ratio = of(Round::ratio);
    let (at_once, idle) = (1000.0 * of(|round| round.at_once), 1000.0 * of(|round| round.idle));
    format!(
        "| what | median of {} | promised |
| --- | --- | --- |
| `apt-get update` and `apt-get install` alone, {packages} packages, s | {apt:.3} | |
| `curl --parallel` alone, {files} files, {megabytes} MB over 1 Gbit/s, s | {curl:.3} | |
| `daemon-reload` and `systemctl start` of {units} units, one after another, s | {of_units:.3} | |
| the floor: the longer of apt and curl, and the units, s | {floor:.3} | |
| `kops-agent converge` of a machine that has just booted, s | {converge:.3} | |
| by its timeline: packages, downloads, s | {packages_took:.3}, {downloads_took:.3} | |
| its ratio to the floor, of the rounds' own ratios | {ratio:.2} | at most {RATIO} |
| `converge` with nothing to do, ms (median of {IDLE_RUNS}) | {idle:.0} | at most {IDLE_MS:.0} |
| the same right after the first, while kubelet starts the control plane, ms | {at_once:.0} | |
",
        rounds.len()
    )
}

#[test]
#[ignore = "measures: tests/bench/run boot"]
#[allow(clippy::print_stdout)]
fn measured_boot() {
    let wanted = std::env::var("KOPS_AGENT_BOOT_ROUNDS").map_or(ROUNDS, |rounds| rounds.parse().unwrap());
    let mut rounds = Vec::new();
    let mut size = None;
    for number in 0..=wanted {
        let (round, its) = round();
        step(&format!(
            "round {number}: apt {:.3}, curl {:.3}, units {:.3}: floor {:.3}; converge {:.3} (packages {:.3}, downloads \
             {:.3}); idle {:.3}, \
             {:.3} at once",
            round.apt,
            round.curl,
            round.units,
            round.floor(),
            round.converge,
            round.packages,
            round.downloads,
            round.idle,
            round.at_once
        ));
        if number > 0 {
            rounds.push(round);
        }
        size = Some(its);
    }
    println!("{}", table_of_rounds(&rounds));
    println!("{}", table_of_medians(&rounds, &size.unwrap()));
    let ratio = median(rounds.iter().map(Round::ratio).collect());
    let idle = 1000.0 * median(rounds.iter().map(|round| round.idle).collect());
    assert!(ratio <= RATIO, "a boot takes {ratio:.2} of its floor");
    assert!(idle <= IDLE_MS, "a run with nothing to do takes {idle:.0} ms");
}

#[test]
fn a_boot_is_judged_by_the_rounds_own_ratios() {
    let round = |apt, converge| Round {
        apt,
        curl: 2.0,
        units: 1.0,
        converge,
        packages: 0.0,
        downloads: 0.0,
        at_once: 0.07,
        idle: 0.05,
    };
    // The ratio of the medians is 1.09 (6.0 s to 5.5 s), within the limit. The median of the ratios is 1.20, above the limit.
    let rounds = [round(1.0, 6.0), round(5.0, 3.0), round(4.0, 6.0), round(9.0, 12.0)];
    assert_eq!(
        table_of_rounds(&rounds),
        "| round | floor, s | converge, s | ratio |\n| --- | --- | --- | --- |\n\
         | 1 | 3.000 | 6.000 | 2.00 |\n| 2 | 6.000 | 3.000 | 0.50 |\n\
         | 3 | 5.000 | 6.000 | 1.20 |\n| 4 | 10.000 | 12.000 | 1.20 |\n"
    );
    let size = Size { packages: 4, files: 6, megabytes: 249, units: 2 };
    let said = table_of_medians(&rounds, &size);
    for row in [
        "| what | median of 4 | promised |",
        "and the units, s | 5.500 | |",
        "has just booted, s | 6.000 | |",
        "of the rounds' own ratios | 1.20 | at most 1.15 |",
        "ms (median of 9) | 50 | at most 100 |",
        "starts the control plane, ms | 70 | |",
    ] {
        assert!(said.contains(row), "{row}: {said}");
    }
    assert_eq!([median(vec![3.0, 1.0, 2.0]), median(vec![4.0, 1.0])], [2.0, 2.5]);
}
