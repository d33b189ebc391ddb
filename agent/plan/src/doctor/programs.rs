//! Checks the running programs: systemd, which a node needs, and programs that conflict with a node.

use super::finding::{Finding, Seen};

const SYSTEMD: &str = "systemd";
const SWAP: &str = "swap";
const PROGRAMS: &str = "programs";

/// The process names of programs that bring their own kubelet or container runtime.
const OTHERS: [&str; 8] =
    ["k3s-server", "k3s-agent", "k3s", "rke2", "k0s", "kubelite", "crio", "cri-dockerd"];

/// The programs and swap of the machine.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Whether the machine booted with systemd.
    pub runs_systemd: Seen<bool>,
    /// The devices and files in use as swap.
    pub swap: Seen<Vec<String>>,
    /// Whether kubelet starts despite swap. `None` if its configuration is unknown.
    pub allows_swap: Option<bool>,
    /// Why a program that the node will download cannot start here, and the remedy. `None` if no such problem is known.
    pub unfit: Option<(String, String)>,
    /// The node's own processes, and those that may conflict with a node.
    pub processes: Seen<Vec<Process>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    pub name: String,
    pub number: u32,
    /// The systemd unit of the process. `None` if it has no unit, or the unit is unknown.
    pub unit: Option<String>,
}

impl Process {
    /// Whether the check looks for a process of this name.
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
            "systemd does not run this machine, and a node is made of its units",
            "run on a machine that was booted with systemd, not in a container or chroot",
        ),
        Err(why) => Finding::unknown(
            SYSTEMD,
            format!("whether systemd runs this machine is not known: {why}"),
            "look at /run/systemd/system",
        ),
    }
}

fn of_swap(swap: &Seen<Vec<String>>, allows_swap: Option<bool>) -> Finding {
    match swap {
        Ok(used) if used.is_empty() => Finding::ok(SWAP, "there is no swap"),
        Ok(_) if allows_swap == Some(true) => {
            Finding::ok(SWAP, "there is swap, and kubelet is to start all the same")
        }
        Ok(used) if allows_swap.is_none() => Finding::unknown(
            SWAP,
            format!(
                "{} is used as swap, and whether kubelet is to start with it is not known",
                used.join(", ")
            ),
            "see what else is said here of the configuration; spec.kubelet.failSwapOn: false has kubelet start with swap",
        ),
        Ok(used) => Finding::problem(
            SWAP,
            format!("{} is used as swap, and kubelet does not start with swap", used.join(", ")),
            "`swapoff --all`, and take it out of /etc/fstab; or set spec.kubelet.failSwapOn: false",
        ),
        Err(why) => Finding::unknown(
            SWAP,
            format!("whether there is swap is not known: {why}"),
            "look with `swapon --show`",
        ),
    }
}

fn of_processes(processes: &Seen<Vec<Process>>) -> Vec<Finding> {
    let processes = match processes {
        Ok(processes) => processes,
        Err(why) => {
            let what = format!("which programs run is not known: {why}");
            return vec![Finding::unknown(PROGRAMS, what, "look with `ps -e`")];
        }
    };
    let findings: Vec<Finding> = processes.iter().filter_map(of_process).collect();
    if findings.is_empty() { vec![Finding::ok(PROGRAMS, "no program is in the way")] } else { findings }
}

fn of_process(process: &Process) -> Option<Finding> {
    let Process { name, number, unit } = process;
    let in_unit = unit.as_deref().map(|unit| format!(", of {unit}")).unwrap_or_default();
    match name.as_str() {
        "kubelet" if unit.as_deref() == Some("kubelet.service") => None,
        "kubelet" => Some(Finding::problem(
            PROGRAMS,
            format!("a kubelet runs that is not of kubelet.service (process {number}{in_unit})"),
            "stop it, and see to it that it does not start at boot",
        )),
        "nodeup" => Some(Finding::warning(
            PROGRAMS,
            format!("nodeup is at work (process {number}): it and kops-agent would write the same files"),
            "wait until it has finished; then `kops-agent plan` shows what taking the node over changes, and `kops-agent converge` does it",
        )),
        "dockerd" => Some(Finding::warning(
            PROGRAMS,
            format!(
                "Docker runs (process {number}{in_unit}): it brings a containerd of its own, and drops forwarded packets by its firewall"
            ),
            "remove Docker; a node has containerd from kOps",
        )),
        other if OTHERS.contains(&other) => Some(Finding::problem(
            PROGRAMS,
            format!(
                "{other} runs (process {number}{in_unit}), which is a node of another cluster or another container runtime"
            ),
            format!("remove {other}"),
        )),
        _ => None,
    }
}
