//! Finds the units that wait for the end of this run: the units ordered after the unit that runs the agent. For
//! example, cloud-init's last stage runs the agent, and a hook has `After=cloud-final.service`. Until the run ends,
//! systemd keeps such units in its queue, and also all units after them (systemd.unit(5), `Before=`, `After=`).

use std::collections::BTreeSet;

use super::systemctl::{property, run};
use crate::error::Result;

/// Whether the start of a unit waits for this run, directly or through a unit in `left`. The units in `left` already wait
/// for this run.
pub(super) fn is_waited_for_by(unit: &str, left: &BTreeSet<String>) -> Result<bool> {
    let Some(own) = own_unit() else { return Ok(false) };
    let shown = run(&["systemctl", "show", "--property=ActiveState", "--", &own])?;
    // Once the agent's own unit has started, the units that are ordered after it no longer wait.
    if property(&shown, "ActiveState") != "activating" {
        return Ok(false);
    }
    let jobs = queued(&run(&["systemctl", "list-jobs", "--no-legend", "--no-pager", "--plain"])?);
    let after = |unit: &str| {
        let shown = run(&["systemctl", "show", "--property=After", "--", unit])?;
        Ok(property(&shown, "After").split_whitespace().map(str::to_owned).collect())
    };
    leads_to(unit, &own, left, &jobs, after)
}

/// The service that this process belongs to.
pub(super) fn own_unit() -> Option<String> {
    std::fs::read_to_string("/proc/self/cgroup").ok().and_then(|text| unit_of(&text))
}

/// The service in a process's `/proc/PID/cgroup` (cgroups(7)).
fn unit_of(cgroup: &str) -> Option<String> {
    let is_systemds = |line: &&str| line.starts_with("0::") || line.contains(":name=systemd:");
    let paths = cgroup.lines().filter(is_systemds).filter_map(|line| line.splitn(3, ':').nth(2));
    let services = paths.filter_map(|path| path.rsplit('/').find(|part| part.ends_with(".service")));
    services.map(str::to_owned).next()
}

/// The units with jobs, from the output of `systemctl list-jobs`.
fn queued(listed: &str) -> BTreeSet<String> {
    listed.lines().filter_map(|line| line.split_whitespace().nth(1)).map(str::to_owned).collect()
}

/// Whether `unit` is ordered after `own` or after a unit in `left`, directly or through other units. Only units with
/// jobs count, because systemd does not wait for a unit without a job.
fn leads_to(
    unit: &str,
    own: &str,
    left: &BTreeSet<String>,
    jobs: &BTreeSet<String>,
    after: impl Fn(&str) -> Result<BTreeSet<String>>,
) -> Result<bool> {
    let (mut seen, mut next) = (BTreeSet::from([unit.to_owned()]), vec![unit.to_owned()]);
    while let Some(unit) = next.pop() {
        for earlier in after(&unit)? {
            if earlier == own || left.contains(&earlier) {
                return Ok(true);
            }
            if jobs.contains(&earlier) && seen.insert(earlier.clone()) {
                next.push(earlier);
            }
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn the_unit_of_a_process_is_read_from_its_cgroup() {
        for (cgroup, unit) in [
            ("0::/system.slice/cloud-final.service\n", Some("cloud-final.service")),
            ("12:pids:/x.service\n1:name=systemd:/system.slice/a.service/sub\n0::/\n", Some("a.service")),
            ("0::/user.slice/user-0.slice/session-1.scope\n", None),
            ("", None),
        ] {
            assert_eq!(unit_of(cgroup).as_deref(), unit, "{cgroup}");
        }
    }

    #[test]
    fn a_start_waits_for_this_run_through_queued_units() {
        let after = |unit: &str| {
            Ok(set(match unit {
                "hook.service" => &["cloud-init.target", "sysinit.target"],
                "cloud-init.target" => &["cloud-final.service"],
                "kubelet.service" => &["containerd.service", "hook.service"],
                _ => &[],
            }))
        };
        let leads = |unit: &str, left: &[&str], jobs: &[&str]| {
            leads_to(unit, "cloud-final.service", &set(left), &set(jobs), after).unwrap()
        };
        let jobs = queued("  1 cloud-init.target   start waiting\n  2 cloud-final.service start running\n");
        assert_eq!(jobs, set(&["cloud-final.service", "cloud-init.target"]));
        assert!(leads("hook.service", &[], &["cloud-init.target", "cloud-final.service"]));
        assert!(!leads("hook.service", &[], &["cloud-final.service"]), "a reached target delays nothing");
        assert!(leads("kubelet.service", &["hook.service"], &["cloud-final.service"]));
        assert!(!leads("containerd.service", &["hook.service"], &["cloud-final.service"]));
    }
}
