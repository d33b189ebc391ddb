//! Waits for orders of a rollout to this machine, carries them out, and reports the outcomes.
//!
//! A change is a process of its own: `kops-agent converge --follow=HASH`. So an order has the same effect as an
//! operator's command on the machine, and the change survives a restart of this service. An order without an outcome is
//! carried out again.

use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use kops_agent_cluster::pacing::message::MOST_SLOTS;
use kops_agent_cluster::rollout::{DrainMode, Order, Task};
use kops_agent_kube::own_node::{Orders, Untold, retried};
use kops_agent_process::{exit, program, service_manager};
use kops_agent_spec::failure::{Failure, Kind};
use tokio::process::Command;
use tokio::time::sleep;

use super::condition::trusted_authorities;
use super::orders::Handled;
use super::redaction::error_text;
use super::{machine, reboot, upgrade};

/// The pause between two tries, when a watch of the Node or the report of an outcome fails.
const PAUSE: Duration = Duration::from_secs(5);
/// How long [`check`] retries while the API server does not answer.
const RETRIED_FOR: Duration = Duration::from_secs(30);
/// The timeout of each request of [`check`].
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a change waits for a slot, in seconds. The controller gives orders to only as many nodes at a time as the
/// group has slots. But a timer or an operator may have started a run on another node, and this node then holds a slot.
const SLOT_TIMEOUT: &str = "1800";

/// Checks that this program can follow rollouts: reads this machine's Node once, with the credentials that
/// [`until_replaced`] uses.
pub async fn check(root: &Path) -> Result<()> {
    let orders = Orders::new(&machine::kubeconfig(root))?;
    let read = retried(RETRIED_FOR, PAUSE, async || orders.check(CHECK_TIMEOUT).await).await;
    read.context("reading this machine's Node")
}

/// Follows rollouts. Returns when another version has replaced this program.
pub async fn until_replaced(conf: &Path, root: &Path) {
    let began = SystemTime::now();
    let mut said = String::new();
    loop {
        let Err(untold) = follow_one_watch(conf, root, began).await else { return };
        let problem = untold.to_string();
        if problem != said {
            // An expected error is not a warning: a machine that is not a node yet has no kubeconfig, or no Node.
            let level = if untold.is_expected() { log::Level::Debug } else { log::Level::Warn };
            log::log!(level, "cannot wait for orders of a rollout: {problem}; trying again");
        }
        said = problem;
        sleep(PAUSE).await;
    }
}

/// Executes the orders of rollouts to this node. Returns when another version has replaced this program. `began` is the start time of this
/// process.
async fn follow_one_watch(conf: &Path, root: &Path, began: SystemTime) -> Result<(), Untold> {
    let mut orders = Orders::new(&machine::kubeconfig(root))?;
    loop {
        let order = orders.next().await?;
        let what = match order.task() {
            Task::Configuration => format!("the change to the configuration {}", order.hash),
            Task::Reboot => format!("a reboot (boot ID before the reboot: {})", order.boot_id),
            Task::Program => format!("the change to the kops-agent of the program file {}", order.hash),
        };
        log::info!("the rollout {} orders {what} (attempt {})", order.rollout, order.attempt);
        let handled = match order.task() {
            Task::Configuration => carry_out(conf, root, &order).await.map(|()| Handled::Completed),
            Task::Reboot => Box::pin(reboot::carry_out(conf, root, &order, &orders)).await,
            Task::Program => Box::pin(upgrade::carry_out(conf, root, &order, &orders, began)).await,
        };
        let problem = match handled.map_err(|error| error_text(&error)) {
            Ok(Handled::ProgramInPlace) => return Ok(()),
            Ok(Handled::Withdrawn) => {
                log::info!("this node does not carry out {what}: the order was withdrawn");
                continue;
            }
            Ok(Handled::Completed) => {
                log::info!("this node has carried out {what}");
                String::new()
            }
            Err(problem) => {
                log::error!("this node did not carry out {what}: {problem}");
                Box::pin(upgrade::tell_if_unchecked(root)).await;
                problem
            }
        };
        let outcome = order.outcome(&problem);
        // The change may have restarted the API server, so the report is retried. Without a reported outcome, the
        // order would be executed again.
        while let Err(untold) = orders.report(&outcome).await {
            if !untold.may_pass() {
                return Err(untold);
            }
            log::debug!("reporting the outcome again: {untold}");
            sleep(PAUSE).await;
        }
    }
}

/// Makes this machine take the configuration in an order.
async fn carry_out(conf: &Path, root: &Path, order: &Order) -> Result<()> {
    let program = program::path().context("finding the path of this program")?;
    let mut command = Command::new(program);
    command
        .arg("converge")
        .arg("--conf")
        .arg(conf)
        .arg("--root")
        .arg(root)
        .args(["--wait", "--slot-timeout", SLOT_TIMEOUT])
        .args(arguments(order));
    service_manager::keep_from_reporting(command.as_std_mut());
    let status = command.status().await.context("starting the run")?;
    ended(root, order, status.code())
}

/// The arguments of `converge` with the values from the rollout's order to this node.
fn arguments(order: &Order) -> Vec<String> {
    // An order must not switch off slots or rollbacks: `--max-unavailable=0` takes no slot, and `--health-timeout=0`
    // never rolls back.
    let mut arguments = vec![
        format!("--max-unavailable={}", order.max_unavailable.clamp(1, MOST_SLOTS)),
        format!("--health-timeout={}", order.health_timeout.max(1)),
        format!("--follow={}", order.hash),
    ];
    if !order.may_go_back {
        arguments.push("--only-newer".to_owned());
    }
    if !order.authorities.is_empty() {
        arguments.push(format!("--authorities={}", order.authorities));
    }
    match order.drain {
        DrainMode::Auto => arguments.push("--drain=auto".to_owned()),
        DrainMode::Always => arguments.push("--drain".to_owned()),
        DrainMode::Never => {}
    }
    if order.attempt > 1 {
        arguments.push("--retry-failed".to_owned());
    }
    arguments
}

/// The outcome of a run, from its exit code and the state of the node.
fn ended(root: &Path, order: &Order, code: Option<i32>) -> Result<()> {
    let host = machine::open(root)?;
    let record = host.record().context("reading the record of the run")?;
    let applied = host.applied().context("reading the last applied configuration")?;
    let authorities = applied.as_ref().and_then(trusted_authorities);
    let lacks = lacks(order, &record.config_hash, authorities.as_deref());
    let is_converged = code == Some(exit::CONVERGED.into());
    if is_converged && lacks.is_none() {
        return Ok(());
    }
    let how = code.map_or_else(|| "a signal".to_owned(), |code| code.to_string());
    let failure = match record.failure {
        Some(failure) if !is_converged => Failure::new(kind_of_code(&failure.code), failure.problem),
        _ => Failure::new(
            Kind::FollowRefused,
            format!(
                "the run ended with {how}, and the node {}; `journalctl -u kops-agent-follow.service` on the node shows why",
                lacks.unwrap_or("may lack a part of the configuration")
            ),
        ),
    };
    Err(failure.into())
}

/// The kind of a recorded failure. `Other` if the code is missing or unknown, because another version of kops-agent
/// may have written the record.
fn kind_of_code(code: &str) -> Kind {
    Kind::ALL.iter().copied().find(|kind| kind.code() == code).unwrap_or(Kind::Other)
}

/// What the order requires and the node lacks after its run. `None` if the node lacks nothing. The hash alone is no
/// proof: if the run could not reach its server, it only repaired the last applied configuration, which may have the
/// same hash.
fn lacks(order: &Order, config_hash: &str, authorities: Option<&str>) -> Option<&'static str> {
    match () {
        () if config_hash != order.hash => Some("does not run this configuration"),
        () if !order.authorities.is_empty() && authorities != Some(order.authorities.as_str()) => {
            Some("does not trust the ordered authorities of kubernetes-ca")
        }
        () => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn order(authorities: &str) -> Order {
        let text = format!(
            r#"{{"rollout": "r", "attempt": 1, "hash": "b=", "authorities": {authorities:?}, "drain": "auto", "maxUnavailable": 1, "at": "t"}}"#
        );
        Order::read(&text).unwrap()
    }

    #[test]
    fn the_run_drains_as_the_order_says() {
        let first = Order { drain: DrainMode::Never, ..order("") };
        let common = ["--max-unavailable=1", "--health-timeout=300", "--follow=b=", "--only-newer"];
        assert_eq!(arguments(&first), common);
        for (drain, flag) in [(DrainMode::Auto, "--drain=auto"), (DrainMode::Always, "--drain")] {
            let order = Order { drain, ..first.clone() };
            assert_eq!(arguments(&order), [&common[..], &[flag]].concat());
        }
    }

    #[test]
    fn a_run_takes_a_slot_and_may_roll_back_whatever_the_order_says() {
        let order = Order {
            max_unavailable: 0,
            health_timeout: 0,
            may_go_back: true,
            attempt: 2,
            drain: DrainMode::Never,
            ..order("B")
        };
        let expected =
            ["--max-unavailable=1", "--health-timeout=1", "--follow=b=", "--authorities=B", "--retry-failed"];
        assert_eq!(arguments(&order), expected);
        let most = arguments(&Order { max_unavailable: u32::MAX, ..order });
        assert_eq!(most[0], format!("--max-unavailable={MOST_SLOTS}"));
    }

    #[test]
    fn a_recorded_failure_keeps_its_kind() {
        assert_eq!(kind_of_code("KA5013"), Kind::RolledBack);
        for unknown in ["", "KA9999"] {
            assert_eq!(kind_of_code(unknown), Kind::Other);
        }
    }

    #[test]
    fn a_run_that_keeps_the_authorities_has_not_carried_out_its_order() {
        assert_eq!(lacks(&order(""), "b=", None), None);
        assert_eq!(lacks(&order("B"), "b=", Some("B")), None);
        assert!(lacks(&order("B"), "a=", Some("B")).is_some_and(|lacks| lacks.contains("configuration")));
        for trusted in [Some("A"), None] {
            let lacks = lacks(&order("B"), "b=", trusted);
            assert!(lacks.is_some_and(|lacks| lacks.contains("authorities")), "{lacks:?}");
        }
    }
}
