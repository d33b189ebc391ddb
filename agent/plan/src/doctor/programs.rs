//! Checks the running programs: systemd, which a node needs, and programs that conflict with a node.

use super::finding::{Finding, Seen};

const SYSTEMD: &str = "systemd";
const SWAP: &str = "swap";
const PROGRAMS: &str = "programs";

/// The process names of programs that bring their own kubelet or container runtime.
const OTHERS: [&str; 8] =
    ["k3s-server", "k3s-agent", "k3s", "rke2", "k0s", "kubelite", "crio", "cri-dockerd"];

/// The observations about programs and swap of the machine.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Whether the machine booted with systemd.
    pub runs_systemd: Seen<bool>,
    /// The devices and files that are in use as swap.
    pub swap: Seen<Vec<String>>,
    /// Whether kubelet starts despite swap. `None` if kubelet's configuration is unknown.
    pub allows_swap: Option<bool>,
    /// The reason why a program that the node will download cannot start on this machine, and the remedy. `None` if no such reason is
    /// known.
    pub unfit: Option<(String, String)>,
    /// The processes of the node's own programs, and of programs that may conflict with a node.
    pub processes: Seen<Vec<Process>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    pub name: String,
    pub number: u32,
    /// The systemd unit of the process. `None` if the process has no unit, or its unit is unknown.
    pub unit: Option<String>,
}

impl Process {
    /// Whether the checks look for a process of this name.
    pub fn is_of_interest(name: &str) -> bool {
        matches!(name, "kubelet" | "nodeup" | "dockerd") || OTHERS.contains(&name)
    }
}

pub(super) fn findings(machine: &Machine) -> Vec<Finding> {
    let mut findings = vec![of_systemd(&machine.runs_systemd), of_swap(&machine.swap, machine.allows_swap)];
    findings.extend(of_processes(&machine.processes));
    findings.extend(
        machine.unfit.as_ref().map(|(what, advice)| Finding::problem(PROGRAMS, what, advice.as_str())),
    );
    findings
}

fn of_systemd(runs_systemd: &Seen<bool>) -> Finding {
    match runs_systemd {
        Ok(true) => Finding::ok(SYSTEMD, "systemd runs this machine"),
        Ok(false) => Finding::problem(
            SYSTEMD,
            "systemd does not run this machine, but a node consists of systemd units",
            "run on a machine that was booted with systemd, not in a container or chroot",
        ),
        Err(why) => Finding::unknown(
            SYSTEMD,
            format!("cannot tell whether systemd runs this machine: {why}"),
            "check /run/systemd/system",
        ),
    }
}

fn of_swap(swap: &Seen<Vec<String>>, allows_swap: Option<bool>) -> Finding {
    match swap {
        Ok(used) if used.is_empty() => Finding::ok(SWAP, "there is no swap"),
        Ok(_) if allows_swap == Some(true) => {
            Finding::ok(SWAP, "there is swap, and kubelet is configured to start with swap")
        }
        Ok(used) if allows_swap.is_none() => Finding::unknown(
            SWAP,
            format!(
                "{} is used as swap, and it is unknown whether kubelet is configured to start with swap",
                used.join(", ")
            ),
            "check the findings about the configuration; with spec.kubelet.failSwapOn: false, kubelet starts with swap",
        ),
        Ok(used) => Finding::problem(
            SWAP,
            format!("{} is used as swap, and kubelet does not start with swap", used.join(", ")),
            "`swapoff --all`, and remove it from /etc/fstab; or set spec.kubelet.failSwapOn: false",
        ),
        Err(why) => Finding::unknown(
            SWAP,
            format!("cannot tell whether there is swap: {why}"),
            "check with `swapon --show`",
        ),
    }
}

fn of_processes(processes: &Seen<Vec<Process>>) -> Vec<Finding> {
    let processes = match processes {
        Ok(processes) => processes,
        Err(why) => {
            let what = format!("cannot tell which programs run: {why}");
            return vec![Finding::unknown(PROGRAMS, what, "check with `ps -e`")];
        }
    };
    let findings: Vec<Finding> = processes.iter().filter_map(of_process).collect();
    if findings.is_empty() {
        vec![Finding::ok(PROGRAMS, "no program conflicts with this node")]
    } else {
        findings
    }
}

fn of_process(process: &Process) -> Option<Finding> {
    let Process { name, number, unit } = process;
    let in_unit = unit.as_deref().map(|unit| format!(", of {unit}")).unwrap_or_default();
    match name.as_str() {
        "kubelet" if unit.as_deref() == Some("kubelet.service") => None,
        "kubelet" => Some(Finding::problem(
            PROGRAMS,
            format!("a kubelet runs outside kubelet.service (process {number}{in_unit})"),
            "stop it, and make sure that it does not start at boot",
        )),
        "nodeup" => Some(Finding::warning(
            PROGRAMS,
            format!("nodeup runs (process {number}): nodeup and kops-agent would write the same files"),
            "wait until nodeup has finished; then `kops-agent plan` shows the changes of a takeover, and `kops-agent converge` makes them",
        )),
        "dockerd" => Some(Finding::warning(
            PROGRAMS,
            format!(
                "Docker runs (process {number}{in_unit}): it has its own containerd, and its firewall drops forwarded packets"
            ),
            "remove Docker; kOps installs containerd on nodes",
        )),
        other if OTHERS.contains(&other) => Some(Finding::problem(
            PROGRAMS,
            format!(
                "{other} runs (process {number}{in_unit}): it belongs to another cluster, or is another container runtime"
            ),
            format!("remove {other}"),
        )),
        _ => None,
    }
}
