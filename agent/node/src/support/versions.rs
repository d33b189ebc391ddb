//! The versions of the programs of a node.

use std::path::Path;
use std::time::Duration;

use kops_agent_host::Reader;
use kops_agent_host::system::programs;

use super::part::Part;
use kops_agent_process::version::VERSION;

use crate::doctor::deadline::run_in_thread;
use crate::options::NodeOptions;

/// Commands that print the version of a program.
const PROGRAMS: [&[&str]; 5] = [
    &["systemctl", "--version"],
    &["containerd", "--version"],
    &["runc", "--version"],
    &["/usr/local/bin/kubelet", "--version"],
    &["uname", "-a"],
];
/// Maximum size of `os-release`, in bytes.
const LONGEST: u64 = 64 << 10;
const WITHIN: Duration = Duration::from_secs(10);

/// The versions of the operating system and of the node's programs, in one file.
pub async fn part(look: &NodeOptions) -> Part {
    let (root, is_this_machine) = (look.source.node_root.clone(), look.is_this_machine());
    let text = run_in_thread(WITHIN * 6, move || text(&root, is_this_machine)).await;
    Part::text("versions.txt", text)
}

fn text(root: &Path, is_this_machine: bool) -> String {
    let mut text = format!("kops-agent {VERSION}\n");
    let os_release = Reader::open(root).and_then(|reader| reader.text("/etc/os-release", LONGEST));
    let os_release = os_release.map(|text| text.unwrap_or_else(|| "it is not on this machine".to_owned()));
    text.push_str(&format!("\n/etc/os-release:\n{}\n", os_release.unwrap_or_else(|error| error.to_string())));
    // If the root is not this machine's root, no command runs, because it would print a version of this machine.
    for command in PROGRAMS.into_iter().filter(|_| is_this_machine) {
        let said = match programs::ask(command, WITHIN) {
            Ok(answer) if answer.is_success => answer.stdout,
            Ok(answer) => answer.stderr,
            Err(failure) => failure.to_string(),
        };
        text.push_str(&format!("\n{}:\n{}\n", command.join(" "), said.trim_end()));
    }
    text
}
