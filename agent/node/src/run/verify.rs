//! The run of `verify`. It shows drift from the last applied state, for which it needs no state store, and differences from
//! the wanted state, for which it needs the store or kops-controller. With `--repair`, it repairs both.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use kops_agent_host::system::{sandbox, systemd::run_outside};
use kops_agent_host::{Depth, Drift, Error as HostError, Host};
use kops_agent_plan::diff::{Keeping, Plan};
use kops_agent_process::{exit, program, service_manager};
use kops_agent_source::asset_hashes::HashSource;
use kops_agent_source::bootstrap_client;

use super::{Printer, until_stopped_or_told};
use crate::condition::{self, Compared};
use crate::decide::{self, Decision};
use crate::last_applied::{self, Instead, StandIn};
use crate::machine::{self, noted};
use crate::next::next;
use crate::options::{HostSettings, NodeOptions, RunOptions};
use crate::plan::plan;
use crate::redaction::error_text;
use crate::{convergence, pacing, renewal};

/// The unit that repairs the machine if the sandbox of this process's own unit forbids repairs.
const REPAIR: &str = "kops-agent-repair.service";
/// The maximum wait for the repair unit. After this time, this process no longer reports to systemd that it is alive.
/// The run in the unit has its own, shorter timeouts.
const REPAIRED_WITHIN: Duration = Duration::from_secs(24 * 60 * 60);

/// Whether the sandbox of this process's unit prevents a repair of the machine with this root.
pub fn is_in_sandbox(root: &Path) -> bool {
    root == Path::new("/") && sandbox::is_read_only_here("/etc")
}

/// Makes systemd run this program with these flags, outside the sandbox of this process's unit. Waits until the program ends.
pub fn repair_outside(flags: impl Iterator<Item = String>) -> Result<u8> {
    let program = program::path().context("finding the path of this program")?;
    let mut command = vec![program.display().to_string()];
    command.extend(flags);
    log::info!(
        "this unit has no right to repair the machine, so the unit {REPAIR} repairs it: \
         `journalctl -u {REPAIR}` has the messages"
    );
    service_manager::waiting(format_args!("waiting for {REPAIR}"), REPAIRED_WITHIN);
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    run_outside(REPAIR, &command)?;
    Ok(exit::CONVERGED)
}

/// A run of `kops-agent verify`, with the values of its flags.
pub struct Verify<'a> {
    pub options: NodeOptions,
    pub on: RunOptions,
    pub settings: HostSettings,
    pub depth: Depth,
    pub renew: bool,
    pub repair: bool,
    /// If not empty, only these resources may be repaired.
    pub only: &'a [String],
    pub printer: &'a dyn Printer,
}

impl Verify<'_> {
    /// Prints the differences, and repairs them if asked. Records a failed repair for `kops-agent status`, because no person reads the
    /// output of a run that a timer started.
    pub async fn run(&self) -> Result<u8> {
        if !self.repair && !self.renew {
            // This run changes nothing, and may use a different store than the machine's own store. So the run reports
            // nothing to the cluster.
            return Box::pin(self.verify()).await;
        }
        let root = self.on.root.as_path();
        let tell = async |outcome: &Result<u8>| {
            let differs = matches!(outcome, Ok(exit::DIFFERENT));
            condition::tell(root, if differs { Compared::Differs } else { Compared::AsLeft }).await;
        };
        let run = async {
            let outcome = Box::pin(self.verify()).await;
            if self.repair { noted(root, convergence::tell(root, false, outcome).await) } else { outcome }
        };
        until_stopped_or_told(root, run, tell).await
    }

    fn is_limited(&self) -> bool {
        !self.only.is_empty()
    }

    /// The first resource not listed in `only` that the plan would change or adopt, or that cannot be repaired. `None` if there is no such
    /// resource, or if this run may repair all resources.
    fn beside(&self, plan: &Plan) -> Option<String> {
        let steps = plan.steps.iter().map(|step| &step.resource);
        let unmended = plan.kept.iter().filter(|kept| kept.keeping == Keeping::Unmended);
        let all = steps.chain(&plan.adopted).chain(unmended.map(|kept| &kept.resource));
        all.map(ToString::to_string).find(|resource| self.is_limited() && !self.only.contains(resource))
    }

    async fn verify(&self) -> Result<u8> {
        let Verify { options, on, .. } = self;
        let host = self.settings.applied_to(machine::open(&on.root)?.with_depth(self.depth));
        let host = host.timed_by(on.stopwatch.clone());
        // With the lock, no other run can change the machine between the comparison and the limited repair.
        let _lock = if self.is_limited() { Some(machine::lock(true, &host).await?) } else { None };
        if self.is_limited() && host.is_rolling_back()? {
            log::warn!(
                "this run repairs nothing, because an earlier run was interrupted while it rolled back a change; `kops-agent converge` finishes \
                 the rollback"
            );
            return Ok(exit::DIFFERENT);
        }
        let changed = host.drift()?;
        let decided = async {
            let hashes = HashSource::publishers(host.record()?.known_hashes);
            let decision = decide::decide(options, hashes, &machine::before_on(&host)?).await?;
            let plan = plan(&host, &decision)?;
            match host.refusal(&plan, &decision.desired, &decision.config_hash)? {
                Some(refused) => Err(HostError::FailedBefore(Box::new(refused)).into()),
                None => Ok::<_, anyhow::Error>((decision, plan)),
            }
        };
        let (decision, plan, mut instead) = match Box::pin(decided).await {
            Ok((decision, plan)) => (decision, plan, None),
            Err(error) => match Box::pin(compared_instead(options, &host, error)).await {
                // Without the wanted configuration, this run cannot tell whether resources outside `only` differ.
                Ok((StandIn { instead: Instead::Failed, error, .. }, _)) if self.is_limited() => {
                    return self.not_compared(&changed, error);
                }
                Ok((StandIn { instead, decision, error }, plan)) => (decision, plan, Some((instead, error))),
                Err(error) => return self.not_compared(&changed, error),
            },
        };
        let superseded = match &instead {
            Some((Instead::Superseded(by), _)) => Some(by.as_str()),
            Some((Instead::Refused, error)) => {
                log::warn!(
                    "the wanted configuration is refused, so this node is compared with its last applied configuration: {}",
                    error_text(error)
                );
                None
            }
            Some((Instead::Registered | Instead::Failed, error)) => {
                log::warn!(
                    "the wanted configuration is not known, so this node is compared with its last applied configuration: {}",
                    error_text(error)
                );
                None
            }
            None => None,
        };
        self.printer.verification(&changed, Some(&plan), superseded)?;
        if let Some(other) = self.beside(&plan) {
            log::warn!("this run repairs nothing, because it may not repair {other}");
            return Ok(exit::DIFFERENT);
        }
        let is_unchanged = changed.is_empty();
        let code = match self.repair {
            true => match (Box::pin(self.repair(&host, &decision, &plan, is_unchanged)).await, instead) {
                (Ok(code), kept) => {
                    instead = kept;
                    code
                }
                (Err(other), Some((_, error))) => return Err(last_applied::both(error, &other)),
                // A repair to the last applied configuration may change resources that are not in `only`, so a limited run fails instead.
                (Err(error), None) if self.is_limited() => return Err(error),
                (Err(error), None) => {
                    return Err(Box::pin(last_applied::mend(options, on, &host, error)).await);
                }
            },
            false if self.renew => Box::pin(self.renew(&host, &decision, plan, changed)).await?,
            false if plan.is_as_wanted() && is_unchanged => exit::CONVERGED,
            false => exit::DIFFERENT,
        };
        match instead {
            Some((Instead::Superseded(by), _)) => {
                // A plain `verify` reports nothing to the cluster, because it may use a different store than the machine's own store.
                let next = match self.repair || self.renew {
                    true => Some(Box::pin(next(options, &host, &by)).await),
                    false => None,
                };
                // A user without write access may run `verify` too, so a failed write of the record is not a warning.
                let noting = host.note_superseded(&by, next, self.repair && code == exit::CONVERGED);
                noting.unwrap_or_else(|error| {
                    log::debug!("cannot record for `kops-agent status` that this node is superseded: {error}")
                });
                Ok(code)
            }
            // The wanted state is known (an earlier run rolled it back), and this machine differs from it.
            Some((Instead::Refused, _)) if !self.repair || self.is_limited() => Ok(exit::DIFFERENT),
            Some((Instead::Refused | Instead::Failed, error)) => Err(error),
            Some((Instead::Registered, _)) => Ok(code),
            None => {
                if self.repair || self.renew {
                    host.note_current(&decision.config_hash).unwrap_or_else(|error| {
                        log::warn!(
                            "cannot record for `kops-agent status` that this node has the group's current configuration again: {error}"
                        )
                    });
                }
                Ok(code)
            }
        }
    }

    /// Prints only the drift, because there is no state to compare this machine with.
    fn not_compared(&self, changed: &[Drift], error: anyhow::Error) -> Result<u8> {
        let is_registered = bootstrap_client::is_already_registered(&error);
        if is_registered {
            log::warn!("the wanted configuration of this node is not known: {}", error_text(&error));
        }
        self.printer.verification(changed, None, None)?;
        match is_registered {
            true if changed.is_empty() => Ok(exit::CONVERGED),
            true => Ok(exit::DIFFERENT),
            false => Err(error),
        }
    }

    /// Renews certificates. The exit code says whether any difference remains.
    async fn renew(&self, host: &Host, decision: &Decision, whole: Plan, changed: Vec<Drift>) -> Result<u8> {
        // Only certificates are renewed. Everything else stays as last applied, even the other content of a file with a certificate.
        let applied = match whole.is_empty() || decision.is_last_applied {
            true => None,
            false => Box::pin(last_applied::as_applied(&self.options, host, decision)).await?,
        };
        let renewed = Box::pin(renewal::renew(&self.on, host, applied.as_ref().unwrap_or(decision))).await;
        let renewed = renewed.context(Host::RENEWING);
        let (plan, changed) = match noted(&self.on.root, renewed)? {
            Some(report) => {
                self.printer.report(&report)?;
                (plan(host, decision)?, host.drift()?)
            }
            None => (whole, changed),
        };
        Ok(if plan.is_as_wanted() && changed.is_empty() { exit::CONVERGED } else { exit::DIFFERENT })
    }

    async fn repair(&self, host: &Host, decision: &Decision, plan: &Plan, is_unchanged: bool) -> Result<u8> {
        // Only a successful repair clears a recorded failure, so the repair also runs if there is nothing to change.
        let has_recorded_failure = host.record()?.failure.is_some();
        let is_unmended = plan.kept.iter().any(|kept| kept.keeping == Keeping::Unmended);
        // If another program has reissued certificates, the run continues, because it must record the new certificates.
        let is_reissued = !is_unchanged && plan.kept.iter().any(|kept| kept.keeping == Keeping::Loaded);
        if plan.is_empty() && !has_recorded_failure && !is_unmended && !is_reissued {
            return Ok(if is_unchanged { exit::CONVERGED } else { exit::DIFFERENT });
        }
        match Box::pin(convergence::converge(&self.on, host, decision)).await {
            Ok(report) => {
                self.printer.report(&report)?;
                last_applied::unmended(&report).map_or(Ok(exit::CONVERGED), Err)
            }
            Err(error) if bootstrap_client::is_already_registered(&error) => {
                log::warn!("the differences stay: {}", error_text(&error));
                Ok(exit::DIFFERENT)
            }
            Err(error) if pacing::is_not_paced(&error) => {
                log::warn!("the differences stay until the next run: {}", error_text(&error));
                // This run has already waited for a slot, and certificates that expire must not wait longer. So the renewal asks only once.
                let on = self.on.clone().without_waiting_for_a_slot();
                if self.renew && Box::pin(renewal::renew(&on, host, decision)).await?.is_some() {
                    log::info!("the certificates that were due are renewed; all other differences stay");
                }
                Ok(exit::DIFFERENT)
            }
            Err(error) => Err(error),
        }
    }
}

/// Chooses another state to compare this machine with, because the comparison with the wanted state failed with `error`. Returns that
/// state, and the plan that changes the machine to it.
async fn compared_instead(
    options: &NodeOptions,
    host: &Host,
    error: anyhow::Error,
) -> Result<(StandIn, Plan)> {
    let stand_in = last_applied::stand_in(options, host, error).await?;
    match plan(host, &stand_in.decision) {
        Ok(plan) => Ok((stand_in, plan)),
        Err(other) => Err(last_applied::both(stand_in.error, &other)),
    }
}
