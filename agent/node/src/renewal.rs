//! `kops-agent verify --renew`: renews certificates before they expire, and changes nothing else. By default, a timer
//! runs this command on each machine. So the command makes no change that an operator has not decided on.

use std::time::SystemTime;

use anyhow::Result;
use kops_agent_cluster::fleet::FEW_DAYS;
use kops_agent_host::{Downloads, Host, Progress, Renewing, Report, Scope};
use kops_agent_net::LocationClient;
use kops_agent_plan::diff::{Interrupted, Plan, renewal};
use kops_agent_spec::failure::Kind;

use super::certificates::to_renew;
use super::decide::Decision;
use super::machine::lock;
use super::options::RunOptions;
use super::pacing;
use super::plan::plan;
use crate::failure::kind_of;
use crate::redaction::error_text;

/// Renews the certificates that are due, and restarts the components that read them. `None` if nothing is due, or if
/// renewal is not possible now; the log says why. If a certificate cannot be obtained or written, or a component does
/// not become healthy again, everything is rolled back.
pub async fn renew(options: &RunOptions, host: &Host, decision: &Decision) -> Result<Option<Report>> {
    let _lock = match lock(options.waits_for_lock, host).await {
        Ok(lock) => lock,
        Err(error) if kind_of(&error) == Kind::Locked => {
            log::info!("certificates are not renewed during another run: {}", error_text(&error));
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let whole = plan(host, decision)?;
    let (interrupted, config_hash) = match host.renewing()? {
        Renewing::Free(interrupted, config_hash) => (interrupted, config_hash),
        Renewing::PutOff(why) => {
            if !renewal(&whole, &decision.desired, Interrupted::No).is_empty() {
                log::warn!("certificates are due for renewal, but are not renewed now: {why}");
            }
            return Ok(None);
        }
    };
    let plan = renewal(&whole, &decision.desired, interrupted);
    if plan.is_empty() {
        return Ok(None);
    }
    // Renewal needs no drain. It restarts kubelet, but pods do not notice a restart of kubelet.
    let undrained = options.clone().without_drain();
    let paced = match Box::pin(pacing::begin(&undrained, host, decision, &plan)).await {
        Ok(paced) => paced,
        Err(error) => match kind_of(&error) {
            // An expired certificate is worse than several kubelets that restart together, so the renewal continues
            // without a slot.
            Kind::SlotsUnknown => {
                log::warn!("certificates are renewed without a slot: {}", error_text(&error));
                None
            }
            Kind::NoSlot | Kind::AnotherNotReady if ends_soon(host)? => {
                log::warn!(
                    "certificates expire soon, so they are renewed without a slot: {}",
                    error_text(&error)
                );
                None
            }
            Kind::NoSlot | Kind::AnotherNotReady | Kind::NotDrained => {
                log::warn!(
                    "certificates are due for renewal, but are not renewed now: {}",
                    error_text(&error)
                );
                return Ok(None);
            }
            _ => return Err(error),
        },
    };
    let renewed = Box::pin(carry_out(host, decision, &plan, &config_hash, &*(options.progress)())).await;
    if let Some(paced) = paced {
        Box::pin(paced.end()).await;
    }
    renewed
}

/// Whether a certificate of this node expires within `FEW_DAYS`.
fn ends_soon(host: &Host) -> Result<bool> {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs();
    let last = i64::try_from(now).unwrap_or(i64::MAX).saturating_add(FEW_DAYS * 24 * 60 * 60);
    Ok(host.certificates()?.iter().any(|certificate| certificate.expires.is_some_and(|end| end < last)))
}

async fn carry_out(
    host: &Host,
    decision: &Decision,
    plan: &Plan,
    config_hash: &str,
    progress: &dyn Progress,
) -> Result<Option<Report>> {
    let Some(materials) = to_renew(host, decision, plan).await? else { return Ok(None) };
    let downloads = Downloads::new(LocationClient::new()?);
    let scope = Scope::Renewal { config_hash };
    Ok(Some(host.apply(plan, &decision.desired, &materials, &downloads, progress, scope).await?))
}
