//! Reboots this machine for an order of a rollout. The order has the id of the boot that the reboot ends. If the process
//! is killed during this boot, the next process carries the order out again. A later boot only uncordons the node and
//! releases the slot.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use kops_agent_cluster::pacing::message::{MOST_SLOTS, SlotAction, SlotRequest};
use kops_agent_cluster::rollout::{DrainMode, Order};
use kops_agent_host::Host;
use kops_agent_kube::own_node::Orders;
use kops_agent_process::service_manager;
use kops_agent_spec::failure::{Failure, Kind};
use tokio::time::sleep;

use super::options::Pacing;
use super::orders::{Handled, controller, is_in_force};
use super::pacing::Paced;
use super::{machine, pacing};

/// How long the run waits for a slot. Another node of the group may have the slot when the order arrives.
const SLOT_TIMEOUT: Duration = Duration::from_secs(1800);
/// How long pods may take to leave. The default of `converge --drain-timeout` is equal.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(300);
/// How long systemd may take to stop this process after the request to reboot. A unit stops within 90 s by default, and many units stop one
/// after another.
const ENDED_WITHIN: Duration = Duration::from_secs(900);
/// How long the node retries to uncordon itself while the API server does not answer, after the reboot of a control plane.
const UNCORDONED_WITHIN: Duration = Duration::from_secs(1800);

/// Carries an order out. If the present boot is the boot that the order names, this function reboots the machine. systemd then ends this
/// process, so the function returns only if the order was withdrawn or the reboot failed. If the machine has booted since, the function
/// uncordons the node and returns.
pub async fn carry_out(conf: &Path, root: &Path, order: &Order, orders: &Orders) -> Result<Handled> {
    let host = machine::open(root)?;
    let boot_id = host.boot_id().context("reading the boot ID of the kernel")?;
    if boot_id != order.boot_id {
        settle(conf, root, &host, order).await?;
        return Ok(Handled::Completed);
    }
    // With the lock, no other run begins a change that the reboot would interrupt.
    let _lock = machine::lock(true, &host).await?;
    if !is_in_force(orders, order, Kind::NoReboot).await? {
        return Ok(Handled::Withdrawn);
    }
    let pacing = paces(order, root);
    let mut paced = match pacing.needs_slot {
        true => pacing::begin_reboot(&pacing, &host, &controller(conf, root, &host).await?).await?,
        false => Paced::default(),
    };
    let withdrawn = reboot(root, &host, (order, orders), &mut paced).await;
    paced.end().await;
    withdrawn.map(|Withdrawn| Handled::Withdrawn)
}

/// The outcome of a reboot that did not begin, because its order was withdrawn.
struct Withdrawn;

/// Drains the node, and reboots. systemd then ends this process, so this function returns only if the order was withdrawn or the reboot
/// failed.
async fn reboot(
    root: &Path,
    host: &Host,
    (order, orders): (&Order, &Orders),
    paced: &mut Paced,
) -> Result<Withdrawn> {
    let pacing = paces(order, root);
    if pacing.drain != DrainMode::Never {
        // The node may have waited half an hour for its slot, so the order may no longer be valid.
        if !is_in_force(orders, order, Kind::NoReboot).await? {
            return Ok(Withdrawn);
        }
        paced.drain(&pacing, root, host).await?;
    }
    if !is_in_force(orders, order, Kind::NoReboot).await? {
        return Ok(Withdrawn);
    }
    if !paced.has_its_slot() {
        return Err(
            not_rebooted("this node has lost its slot while it was drained, so it does not reboot").into()
        );
    }
    log::info!("rebooting this machine for the rollout {}", order.rollout);
    service_manager::doing("rebooting this machine");
    pacing::stay_cordoned(host);
    host.reboot().map_err(|error| not_rebooted(format!("systemd does not reboot this machine: {error}")))?;
    // The slot is renewed until systemd ends this process, and expires while the machine boots.
    sleep(ENDED_WITHIN).await;
    let after = ENDED_WITHIN.as_secs();
    Err(not_rebooted(format!("systemd accepted the reboot, but this boot has not ended after {after} s"))
        .into())
}

fn not_rebooted(problem: impl Into<String>) -> Failure {
    Failure::new(Kind::NoReboot, problem)
}

/// Completes the order to reboot, in a later boot: uncordons the node, and releases its slot. Does not wait until the
/// node is Ready, because the controller waits for that.
async fn settle(conf: &Path, root: &Path, host: &Host, order: &Order) -> Result<()> {
    service_manager::doing("uncordoning this node after its reboot");
    // This call does not uncordon a node that an operator has cordoned.
    pacing::uncordon_once_alone(root, UNCORDONED_WITHIN).await.context("uncordoning this node")?;
    if has_slot(root) {
        // With the lock, no other run takes the slot before this run releases it.
        let _lock = machine::lock(true, host).await?;
        release(conf, root, host, order).await;
    }
    Ok(())
}

/// Releases the slot that this node had before its reboot, so that the next node need not wait until the slot expires.
async fn release(conf: &Path, root: &Path, host: &Host, order: &Order) {
    let request =
        SlotRequest { action: SlotAction::Release, max_unavailable: paces(order, root).max_unavailable };
    let released = async { Ok::<_, anyhow::Error>(controller(conf, root, host).await?.slot(request).await) };
    match released.await {
        Ok(Ok(_)) => {}
        Ok(Err(why)) => log::debug!("this node's slot is not released, and expires by itself: {why:?}"),
        Err(error) => log::debug!("this node's slot is not released, and expires by itself: {error:#}"),
    }
}

/// Whether a reboot of the machine below `root` needs a slot. A machine needs a slot even if its kubelet does not run, because kubelet may
/// be restarting, and an etcd member or an API server may run on the machine. A scratch root needs no slot.
fn has_slot(root: &Path) -> bool {
    root == Path::new("/")
}

fn paces(order: &Order, root: &Path) -> Pacing {
    Pacing {
        // With `max_unavailable: 0`, the reboot would take no slot. An order must not ask for a reboot without a slot.
        max_unavailable: order.max_unavailable.clamp(1, MOST_SLOTS),
        slot_timeout: SLOT_TIMEOUT,
        // A reboot ends all pods, so the mode `auto` means `always`.
        drain: if order.drain == DrainMode::Never { DrainMode::Never } else { DrainMode::Always },
        drain_timeout: DRAIN_TIMEOUT,
        is_asked_for: true,
        needs_slot: has_slot(root),
        ordered: order.time(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_order_reboots_without_a_slot() {
        let order = |max_unavailable| Order {
            rollout: "r".into(),
            attempt: 1,
            hash: "rebooted".into(),
            authorities: String::new(),
            drain: DrainMode::Auto,
            max_unavailable,
            health_timeout: 300,
            may_go_back: false,
            boot_id: "b".into(),
            program: false,
            at: "t".into(),
            until: "t".into(),
        };
        let paces = |max_unavailable, root| paces(&order(max_unavailable), Path::new(root));
        let slots = |max_unavailable| paces(max_unavailable, "/").max_unavailable;
        assert_eq!([slots(0), slots(2), slots(u32::MAX)], [1, 2, MOST_SLOTS]);
        assert_eq!(paces(1, "/").drain, DrainMode::Always);
        assert!(paces(1, "/").needs_slot && !paces(1, "/tmp/machine").needs_slot);
        let drain = |drain| super::paces(&Order { drain, ..order(1) }, Path::new("/")).drain;
        assert_eq!([DrainMode::Always, DrainMode::Never].map(drain), [DrainMode::Always, DrainMode::Never]);
        let at = Order { at: "1970-01-01T00:00:00Z".into(), ..order(1) };
        let ordered = super::paces(&at, Path::new("/")).ordered;
        assert_eq!(ordered, at.time());
        assert!(ordered.is_some(), "the cordon is never earlier than the order");
    }
}
