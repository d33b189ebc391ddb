//! Static pods, which kubelet runs, and whose containers it starts anew when they have ended.

use std::thread::sleep;
use std::time::{Duration, Instant};

use kops_agent_plan::health::StaticPod;

use super::commands::refused;
use super::ctr;
use crate::error::{Error, Result};

/// Whoever can end the containers of static pods.
pub trait Pods: Send + Sync {
    /// Ends all containers of a static pod, by force once its grace period is over; kubelet then starts them anew. Where
    /// none runs, or nobody can tell, there is nothing to do.
    ///
    /// # Errors
    /// The runtime cannot be asked, or they do not end.
    fn end_containers(&self, pod: &StaticPod, socket: &str) -> Result<()>;
}

/// This machine's containerd, asked by `ctr`.
pub struct Ctr;

const ASK_EVERY: Duration = Duration::from_millis(250);
/// How long what is killed may take to be gone.
const GONE_WITHIN: Duration = Duration::from_secs(20);

impl Pods for Ctr {
    fn end_containers(&self, pod: &StaticPod, socket: &str) -> Result<()> {
        let failed = |outcome| Error::Command { command: format!("ctr --address {socket}"), outcome };
        let Some(containers) = ctr::running(pod, socket).map_err(failed)? else { return Ok(()) };
        let ids: Vec<String> = containers.into_iter().map(|container| container.id).collect();
        let grace = Duration::from_secs(pod.termination_grace_period_seconds);
        for (signal, within) in [("SIGTERM", grace), ("SIGKILL", GONE_WITHIN)] {
            let running = ctr::running_tasks(socket).map_err(failed)?;
            for id in ids.iter().filter(|id| running.contains(*id)) {
                signalled(socket, id, signal)?;
            }
            let since = Instant::now();
            while since.elapsed() < within {
                let running = ctr::running_tasks(socket).map_err(failed)?;
                if !ids.iter().any(|id| running.contains(id)) {
                    return Ok(());
                }
                sleep(ASK_EVERY);
            }
        }
        let running = ctr::running_tasks(socket).map_err(failed)?;
        match ids.iter().find(|id| running.contains(*id)) {
            None => Ok(()),
            Some(id) => Err(failed(format!(
                "has killed the container {id} of the pod {}/{}, and it still runs",
                pod.namespace, pod.name
            ))),
        }
    }
}

fn signalled(socket: &str, id: &str, signal: &str) -> Result<()> {
    let command = ["tasks", "kill", "--signal", signal, id];
    match ctr::ask(socket, &command) {
        // It may have ended since.
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
