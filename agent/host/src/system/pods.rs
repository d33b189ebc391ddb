//! Static pods. kubelet runs them and restarts their containers after these end.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use kops_agent_plan::health::{self, Check, StaticPod};
use kops_agent_spec::failure::Failure;
use nix::unistd::{SysconfVar, sysconf};

use super::clock::Clock;
use super::commands::refused;
use super::ctr;
use crate::error::{Error, Result};

/// Ends and inspects the containers of static pods.
pub trait Pods: Send + Sync {
    /// Ends all containers of a static pod, and kills them after the grace period. kubelet then starts new
    /// containers. Does nothing if no container runs, or `ctr` is missing.
    fn end_containers(&self, pod: &StaticPod, socket: &str) -> Result<()>;

    /// When the oldest running container of a static pod started. `None` if no container runs, or `ctr` is missing.
    fn started(&self, pod: &StaticPod, socket: &str) -> Result<Option<SystemTime>> {
        let _ = (pod, socket);
        Ok(None)
    }
}

/// Ends the containers of a manifest's static pod, so that kubelet restarts them.
pub(crate) fn end_containers_of(pods: &dyn Pods, manifest: &str, texts: health::Texts<'_>) -> Result<()> {
    let Some(component) = health::of_manifest(manifest, texts) else { return Ok(()) };
    component.checks.iter().try_for_each(|check| match check {
        Check::Pod { pod, socket } => pods.end_containers(pod, socket),
        _ => Ok(()),
    })
}

/// This machine's containerd, accessed through `ctr`.
pub struct Ctr;

const ASK_EVERY: Duration = Duration::from_millis(250);
/// Maximum time between the kill of a container and its end.
const GONE_WITHIN: Duration = Duration::from_secs(20);

impl Pods for Ctr {
    fn end_containers(&self, pod: &StaticPod, socket: &str) -> Result<()> {
        let failed = |outcome| Error::Command { command: format!("ctr --address {socket}"), outcome };
        let of_ctr = |failure: Failure| failed(failure.to_string());
        let Some(containers) = ctr::running(pod, socket).map_err(of_ctr)? else { return Ok(()) };
        let ids: Vec<String> = containers.into_iter().map(|container| container.id).collect();
        let grace = Duration::from_secs(pod.termination_grace_period_seconds);
        for (signal, within) in [("SIGTERM", grace), ("SIGKILL", GONE_WITHIN)] {
            let running = ctr::running_tasks(socket).map_err(of_ctr)?;
            for id in ids.iter().filter(|id| running.contains(*id)) {
                signalled(socket, id, signal)?;
            }
            let since = Instant::now();
            while since.elapsed() < within {
                let running = ctr::running_tasks(socket).map_err(of_ctr)?;
                if !ids.iter().any(|id| running.contains(id)) {
                    return Ok(());
                }
                sleep(ASK_EVERY);
            }
        }
        let running = ctr::running_tasks(socket).map_err(of_ctr)?;
        match ids.iter().find(|id| running.contains(*id)) {
            None => Ok(()),
            Some(id) => Err(failed(format!(
                "has killed the container {id} of the pod {}/{}, but the container still runs",
                pod.namespace, pod.name
            ))),
        }
    }

    fn started(&self, pod: &StaticPod, socket: &str) -> Result<Option<SystemTime>> {
        let of_ctr = |failure: Failure| Error::Command {
            command: format!("ctr --address {socket}"),
            outcome: failure.to_string(),
        };
        let Some(containers) = ctr::running(pod, socket).map_err(of_ctr)? else { return Ok(None) };
        if containers.is_empty() {
            return Ok(None);
        }
        let processes = ctr::processes(socket).map_err(of_ctr)?;
        let clock = Clock::now();
        let started = containers.iter().filter_map(|container| {
            // A container that has ended since it was listed is skipped. Its replacement is younger, and only the
            // oldest container matters.
            let stat = fs::read_to_string(format!("/proc/{}/stat", processes.get(&container.id)?)).ok()?;
            clock.of_boot(started_after_boot(&stat)?)
        });
        Ok(started.min())
    }
}

/// Time from boot to the start of a process (proc_pid_stat(5), `starttime`).
fn started_after_boot(stat: &str) -> Option<Duration> {
    // The program's name is in parentheses and may itself contain `) `. So the last `) ` in the text ends the name.
    let (_, fields) = stat.rsplit_once(") ")?;
    let ticks: u64 = fields.split_whitespace().nth(19)?.parse().ok()?;
    let per_second = u64::try_from(sysconf(SysconfVar::CLK_TCK).ok()??).ok().filter(|ticks| *ticks > 0)?;
    // The kernel rounds down to whole ticks, so one tick is added.
    Some(Duration::from_micros((ticks + 1) * 1_000_000 / per_second))
}

fn signalled(socket: &str, id: &str, signal: &str) -> Result<()> {
    let command = ["tasks", "kill", "--signal", signal, id];
    match ctr::ask(socket, &command) {
        // The container may have ended since it was listed.
        Some(outcome)
            if !outcome.status.success()
                && !outcome.says("not found")
                && !outcome.says("already finished") =>
        {
            Err(refused(&[&["ctr"], &command[..]].concat(), &outcome))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_time_of_a_process_is_parsed() {
        let fields = "S 1 12 12 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 9 0 12345 1000 10";
        let started = started_after_boot(&format!("12 (a) b) {fields}")).unwrap();
        assert_eq!(started, Duration::from_millis(123_460));
        assert_eq!(started_after_boot("12 (a) S 1"), None);
        let own = started_after_boot(&fs::read_to_string("/proc/self/stat").unwrap()).unwrap();
        let clock = Clock::now();
        let age = clock.wall.duration_since(clock.of_boot(own).unwrap()).unwrap();
        assert!(age < Duration::from_secs(3600), "{age:?}");
    }
}
