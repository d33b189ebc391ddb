//! The journal of the units that make a node, as far back as a report needs.

use std::path::Path;
use std::time::Duration;

use futures_util::future::join_all;
use kops_agent_host::system::programs;
use kops_agent_plan::doctor::{Seen, Unseen};

use super::part::Part;
use super::units::{CLOUD_FINAL, CONTAINERD, KUBELET, OF_AGENT, OF_BOOT_SCRIPT};
use crate::doctor::deadline::run_in_thread;
use crate::options::NodeOptions;

/// The units, by the name of their file in the bundle. The list has full names of units, because journalctl fails if a
/// pattern matches no unit.
const UNITS: [(&str, &[&str]); 5] = [
    ("kops-agent", &OF_AGENT),
    ("kops-configuration", &[OF_BOOT_SCRIPT]),
    (CLOUD_INIT, &[CLOUD_FINAL]),
    ("kubelet", &[KUBELET]),
    ("containerd", &[CONTAINERD]),
];
/// The journal of cloud-init. The bundle contains only the lines of the boot script and of its download programs.
/// Scripts of the operator write to this journal, too, and the secrets of these scripts are unknown.
const CLOUD_INIT: &str = "cloud-init";
const OF_BOOT_SCRIPT_ITSELF: [&str; 3] = [": kops-agent: ", ": curl: (", ": wget: "];
const LINES: &str = "--lines=5000";
const SINCE: &str = "--since=-2d";
/// How long journalctl may take. The journal may have gigabytes.
const WITHIN: Duration = Duration::from_secs(30);

pub async fn parts(look: &NodeOptions) -> Vec<Part> {
    let reading = UNITS.into_iter().map(|(name, units)| {
        let arguments = arguments(&look.source.node_root, units);
        async move {
            let read = run_in_thread(2 * WITHIN, move || read(&arguments)).await.and_then(|read| read);
            let read = if name == CLOUD_INIT { read.map(|text| of_boot_script(&text)) } else { read };
            Part::text(format!("journal/{name}.txt"), read)
        }
    });
    join_all(reading).await
}

fn arguments(root: &Path, units: &[&str]) -> Vec<String> {
    let fixed = ["journalctl", "--quiet", "--no-pager", "--utc", "--output=short-iso-precise", LINES, SINCE];
    let mut arguments: Vec<String> = fixed.map(str::to_owned).into();
    if root != Path::new("/") {
        arguments.push(format!("--root={}", root.display()));
    }
    arguments.extend(units.iter().map(|unit| format!("--unit={unit}")));
    arguments
}

/// The lines of the boot script, among all lines that cloud-init's unit wrote.
fn of_boot_script(text: &str) -> String {
    let is_of_script = |line: &&str| OF_BOOT_SCRIPT_ITSELF.iter().any(|mark| line.contains(mark));
    text.lines().filter(is_of_script).map(|line| format!("{line}\n")).collect()
}

fn read(arguments: &[String]) -> Seen<String> {
    let command: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let answer = programs::ask(&command, WITHIN).map_err(Unseen::new)?;
    match answer.is_success {
        true => Ok(answer.stdout),
        // If the journal has no entry of a unit, journalctl fails and prints nothing.
        false if answer.stderr.trim().is_empty() => Ok(answer.stdout),
        false => Err(Unseen::new(answer.stderr.trim())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_cloud_init_only_lines_of_the_boot_script_are_kept() {
        let line = |said: &str| format!("2026-11-25T10:00:00.000001+0000 node cloud-init[612]: {said}\n");
        let script = [
            "kops-agent: downloading https://m/nodeup",
            "curl: (7) Failed to connect",
            "wget: bad address 'm'",
        ];
        let others = ["+ export TOKEN=of-the-operator", "kops-agentless", "Cloud-init v. 22.4.2 finished"];
        let all: String = script.iter().chain(&others).map(|said| line(said)).collect();
        assert_eq!(of_boot_script(&all), script.map(line).concat());
    }
}
