//! The journal of the units that make a node, as far back as a report needs.

use std::path::Path;
use std::time::Duration;

use futures_util::future::join_all;
use kops_agent_host::system::programs;

use super::part::Part;
use super::units::{CONTAINERD, KUBELET, OF_AGENT, OF_BOOT_SCRIPT};
use crate::cli::LookArgs;
use crate::doctor::deadline::looked;

/// The units, by what their files are called in the bundle. Each by its name: journalctl fails where a pattern fits none.
const UNITS: [(&str, &[&str]); 4] = [
    ("kops-agent", &OF_AGENT),
    ("kops-configuration", &[OF_BOOT_SCRIPT]),
    ("kubelet", &[KUBELET]),
    ("containerd", &[CONTAINERD]),
];
/// Of each.
const LINES: &str = "--lines=5000";
const SINCE: &str = "--since=-2d";
/// How long journalctl may take over a journal of gigabytes.
const WITHIN: Duration = Duration::from_secs(30);

/// The journal of each.
pub async fn parts(look: &LookArgs) -> Vec<Part> {
    let reading = UNITS.into_iter().map(|(name, units)| {
        let arguments = arguments(&look.root, units);
        async move {
            let read = looked(2 * WITHIN, move || read(&arguments)).await.and_then(|read| read);
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

fn read(arguments: &[String]) -> Result<String, String> {
    let command: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let answer = programs::ask(&command, WITHIN)?;
    match answer.is_success {
        true => Ok(answer.stdout),
        // It fails where nothing of a unit is in the journal, too, and says nothing then.
        false if answer.stderr.trim().is_empty() => Ok(answer.stdout),
        false => Err(answer.stderr.trim().to_owned()),
    }
}
