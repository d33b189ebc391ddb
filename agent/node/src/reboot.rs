//! Reboots this machine for an order of a rollout. The order names the boot that shall end. If the process is
//! killed, the same boot starts the order again. A later boot only uncordons the node and releases the slot.

use std::convert::Infallible;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use kops_agent_cluster::pacing::message::{MOST_SLOTS, SlotAction, SlotRequest};
use kops_agent_cluster::rollout::{DrainMode, Order, Standing};
use kops_agent_host::{Applied, Host};
use kops_agent_kube::own_node::Orders;
use kops_agent_plan::following::{Follow, Followed};
use kops_agent_plan::resolve::KUBERNETES_CA;
use kops_agent_process::service_manager;
use kops_agent_source::bootstrap_client::KopsController;
use kops_agent_spec::BootConfig;
use kops_agent_spec::failure::{Failure, Kind};
use thiserror::Error;
use tokio::time::sleep;

use super::options::Pacing;
use super::pacing::Paced;
use super::{facts, machine, pacing};
use kops_agent_source::{StoreOptions, boot_config};

/// How long the run waits for a slot. Another node of the group may have the slot when the order arrives.
const SLOT_TIMEOUT: Duration = Duration::from_secs(1800);
/// How long pods may take to leave, as for `converge --drain`.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(300);
/// How long systemd may take to stop this process after the request. A unit stops within 90 s by default, and many units stop
/// one after another.
const ENDED_WITHIN: Duration = Duration::from_secs(900);
/// How long the node retries to uncordon itself while the API server does not answer, after the reboot of a control plane.
const UNCORDONED_WITHIN: Duration = Duration::from_secs(1800);
/// The pause between two tries to read the own Node.
const PAUSE: Duration = Duration::from_secs(2);
/// The timeout of questions about this machine's boot config and facts, and about its order.
const ASKED_WITHIN: Duration = Duration::from_secs(60);

/// The Node no longer has the order. The controller no longer waits for the order's outcome.
#[derive(Debug, Error)]
#[error("the order was withdrawn")]
pub struct Withdrawn;

/// Carries an order out. In the boot that the order names, this function reboots the machine, and returns only with an
/// error. In a later boot, it returns once the node is uncordoned.
///
/// # Errors
/// The order is [`Withdrawn`] or has expired, no slot is free, pods do not leave, systemd refuses the reboot, or the API server does
/// not answer in time.
pub async fn carry_out(conf: &Path, root: &Path, order: &Order, orders: &Orders) -> Result<()> {
    let host = machine::open(root)?;
    let boot_id = host.boot_id().context("asking the kernel which boot this is")?;
    if boot_id != order.boot_id {
        return settle(conf, root, &host, order).await;
    }
    // No run begins a change that the reboot would cut short.
    let _lock = machine::lock(true, &host).await?;
    confirm(orders, order, Kind::NoReboot).await?;
    let pacing = paces(order, root);
    let mut paced = match pacing.needs_slot {
        true => pacing::begin_reboot(&pacing, &host, &controller(conf, root, &host).await?).await?,
        false => Paced::default(),
    };
    let Err(error) = reboot(root, &host, (order, orders), &mut paced).await;
    paced.end().await;
    Err(error)
}

/// Drains the node, and reboots. systemd ends this process.
async fn reboot(
    root: &Path,
    host: &Host,
    (order, orders): (&Order, &Orders),
    paced: &mut Paced,
) -> Result<Infallible> {
    let pacing = paces(order, root);
    if pacing.drain != DrainMode::Never {
        // A node may wait half an hour for its slot.
        confirm(orders, order, Kind::NoReboot).await?;
        paced.drain(&pacing, root, host).await?;
    }
    confirm(orders, order, Kind::NoReboot).await?;
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

/// Reads the own Node again, and fails unless the order is still in force. The controller may have withdrawn the order,
/// or may be gone. `kind` is the kind of an error about an expired or unreadable order.
pub(super) async fn confirm(orders: &Orders, order: &Order, kind: Kind) -> Result<()> {
    let begun = Instant::now();
    loop {
        match orders.standing(order).await {
            Ok(Standing::InForce) => return Ok(()),
            Ok(Standing::Withdrawn) => return Err(Withdrawn.into()),
            Ok(Standing::Expired(why)) => return Err(Failure::new(kind, why).into()),
            Err(untold) if untold.may_pass() && begun.elapsed() < ASKED_WITHIN => sleep(PAUSE).await,
            Err(untold) => {
                let problem =
                    format!("this machine does nothing, because its order cannot be read again: {untold}");
                return Err(Failure::new(kind, problem).into());
            }
        }
    }
}

/// Completes the order in a later boot: uncordons the node, and releases its slot. The controller waits until the node
/// is Ready.
async fn settle(conf: &Path, root: &Path, host: &Host, order: &Order) -> Result<()> {
    service_manager::doing("uncordoning this node after its reboot");
    // A cordon of an operator stays.
    pacing::uncordon_once_alone(root, UNCORDONED_WITHIN).await.context("uncordoning this node")?;
    if has_slot(root) {
        // No other run may take the slot meanwhile.
        let _lock = machine::lock(true, host).await?;
        release(conf, root, host, order).await;
    }
    Ok(())
}

/// Releases the slot that this node had before its reboot. Otherwise the next node waits until the slot expires.
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

/// A machine takes a slot even if its kubelet does not run: kubelet may be restarting, and an etcd member or an API
/// server may run on the machine. A scratch root has no slot.
fn has_slot(root: &Path) -> bool {
    root == Path::new("/")
}

fn paces(order: &Order, root: &Path) -> Pacing {
    Pacing {
        // With 0, the reboot would take no slot. An order must not ask for that.
        max_unavailable: order.max_unavailable.clamp(1, MOST_SLOTS),
        slot_timeout: SLOT_TIMEOUT,
        // A reboot ends all pods, so the rule `auto` drains.
        drain: if order.drain == DrainMode::Never { DrainMode::Never } else { DrainMode::Always },
        drain_timeout: DRAIN_TIMEOUT,
        is_asked_for: true,
        needs_slot: has_slot(root),
    }
}

/// The servers that give slots, by the last applied configuration.
pub(super) async fn controller(conf: &Path, root: &Path, host: &Host) -> Result<KopsController> {
    let (applied, boot) = in_effect(conf, host).await?;
    let facts = facts::given(None, &boot).await?;
    let authorities = applied.trusted_certificates(KUBERNETES_CA);
    Ok(KopsController::new(&boot, authorities, &facts, ASKED_WITHIN).for_node_at(root))
}

/// The last applied configuration, and the boot config that is in effect.
pub(super) async fn in_effect(conf: &Path, host: &Host) -> Result<(Applied, BootConfig)> {
    let applied = host.applied().context("reading the last applied configuration")?;
    let applied = applied.context("no run of kops-agent has converged this machine")?;
    let user_data = boot_config(conf, &store_options()).await?;
    let boot = Followed::in_effect(applied.followed.as_ref(), &user_data, &Follow::Stay).clone();
    Ok((applied, boot))
}

pub(super) fn store_options() -> StoreOptions {
    StoreOptions { mirrors: Vec::new(), timeout: ASKED_WITHIN }
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
    }
}
