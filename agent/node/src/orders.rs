//! The common part of orders to reboot and orders to run another version. Both orders count only for a while. Before the node carries one
//! out, it asks its server or the state store, which it finds by its last applied configuration.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use kops_agent_cluster::rollout::{Order, OrderValidity};
use kops_agent_host::{Applied, Host};
use kops_agent_kube::own_node::{Orders, retried};
use kops_agent_plan::following::{Follow, Followed};
use kops_agent_plan::resolve::KUBERNETES_CA;
use kops_agent_source::bootstrap_client::KopsController;
use kops_agent_source::{StoreOptions, boot_config};
use kops_agent_spec::BootConfig;
use kops_agent_spec::failure::{Failure, Kind};

use super::facts;

/// The pause between two tries to read this machine's Node.
const PAUSE: Duration = Duration::from_secs(2);
/// The timeout for reading the boot config, for a request to kops-controller, and for reading the rollout's order again.
const ASKED_WITHIN: Duration = Duration::from_secs(60);

/// How the execution of an order ended without a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handled {
    /// The node has carried the order out.
    Completed,
    /// The Node no longer has the order, so the controller does not wait for an outcome.
    Withdrawn,
    /// The ordered version of kops-agent is in place. This process must exit, so that the next process runs this version and reports it.
    ProgramInPlace,
}

/// Reads this machine's Node again. Returns `true` if the order is still in force, and `false` if the controller has withdrawn it. Fails
/// with `kind` if the Node cannot be read or the order has expired. An order expires, because its controller may have stopped.
pub(super) async fn is_in_force(orders: &Orders, order: &Order, kind: Kind) -> Result<bool> {
    match retried(ASKED_WITHIN, PAUSE, async || orders.validity(order).await).await {
        Ok(OrderValidity::InForce) => Ok(true),
        Ok(OrderValidity::Withdrawn) => Ok(false),
        Ok(OrderValidity::Expired(why)) => Err(Failure::new(kind, why).into()),
        Err(untold) => {
            let problem = format!(
                "this machine does not carry out its order, because it cannot read the order again: {untold}"
            );
            Err(Failure::new(kind, problem).into())
        }
    }
}

/// The servers that give slots, from the last applied configuration.
pub(super) async fn controller(conf: &Path, root: &Path, host: &Host) -> Result<KopsController> {
    let (applied, boot) = in_effect(conf, host).await?;
    let facts = facts::given(None, &boot).await?;
    let authorities = applied.trusted_certificates(KUBERNETES_CA);
    Ok(KopsController::new(&boot, authorities, &facts, ASKED_WITHIN).for_node_at(root))
}

/// The last applied configuration, and the boot config that is in effect.
pub(super) async fn in_effect(conf: &Path, host: &Host) -> Result<(Applied, BootConfig)> {
    let applied = host.applied().context("reading the last applied configuration")?;
    let unrecorded = || Failure::new(Kind::NotRecorded, "no run of kops-agent has converged this machine");
    let applied = applied.ok_or_else(unrecorded)?;
    let user_data = boot_config(conf, &store_options()).await?;
    let boot = Followed::in_effect(applied.followed.as_ref(), &user_data, &Follow::Stay).clone();
    Ok((applied, boot))
}

pub(super) fn store_options() -> StoreOptions {
    StoreOptions { mirrors: Vec::new(), timeout: ASKED_WITHIN }
}
