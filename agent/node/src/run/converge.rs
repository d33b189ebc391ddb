//! A run that makes this machine the node that it must be.

use std::time::Duration;

use anyhow::Result;
use kops_agent_host::{Host, Report, Waits};
use kops_agent_net::retry::Pauses;
use kops_agent_net::tls::CaBundle;
use kops_agent_process::{exit, service_manager};
use kops_agent_source::asset_hashes::HashSource;
use kops_agent_source::bootstrap_client;
use kops_agent_spec::failure::Kind;

use super::{PAUSES, Printer};
use crate::condition::{self, Compared};
use crate::convergence;
use crate::failure::kind_of;
use crate::last_applied::{self, Instead, StandIn};
use crate::machine::{self, noted};
use crate::next::next;
use crate::options::{HostSettings, NodeOptions, RunOptions};
use crate::redaction::error_text;

/// The pause between two tries after a rollback. The pause is long, because a retry succeeds only once the cluster has
/// a different configuration. Jitter makes the pause up to twice as long.
const PAUSE_AFTER_ROLLBACK: Duration = Duration::from_secs(15 * 60);
/// How long a run at boot waits for the API server of a new control plane. After this time, the run also starts pods that exit without an
/// API server. etcd-manager takes a minute or more to find its volumes and peers. The wait also delays the systemd units that start after
/// this run's unit.
const API_SERVER_TIMEOUT: Duration = Duration::from_secs(2 * 60);

/// The number of archives whose contents determine the node's files: containerd's archive, and the archive of the CNI plugins.
const MOST_ARCHIVES: usize = 2;

/// A run of `kops-agent converge`, with the values of its flags.
pub struct Converge<'a> {
    pub options: NodeOptions,
    pub on: RunOptions,
    pub settings: HostSettings,
    /// How often the run retries after a failure; -1 retries without limit. Only a run at boot retries.
    pub retries: i64,
    /// Whether the agent adopts resources that other programs made and that are correct.
    pub adopt: bool,
    pub printer: &'a dyn Printer,
}

impl Converge<'_> {
    /// Converges, and retries after a failure as often as `retries` says. Operators grant permissions, fill stores and
    /// correct configurations while machines wait. So every failure is retried, unless the run's own flags or
    /// environment are wrong, or the node works despite the failure (`helps_to_try_again`).
    pub async fn until_done(&self) -> Result<u8> {
        let mut retries = self.retries;
        let mut next_pause = PAUSES.jittered();
        let mut next_after_rollback =
            Pauses { first: PAUSE_AFTER_ROLLBACK, longest: PAUSE_AFTER_ROLLBACK }.jittered();
        loop {
            let error = match self.converge().await {
                // If this machine is already a node, the run ends, as upstream's nodeup does. The operator decides what
                // to do next.
                Err(error) if bootstrap_client::is_already_registered(&error) => {
                    log::warn!("{}", error_text(&error));
                    service_manager::ready("nothing changed: this machine is a node already");
                    return Ok(exit::CONVERGED);
                }
                Err(error) if retries != 0 && helps_to_try_again(kind_of(&error)) => error,
                result => return result,
            };
            let pause = match kind_of(&error).is_rolled_back() {
                true => next_after_rollback(),
                false => next_pause(),
            };
            let why = error_text(&error);
            log::error!("{why}");
            log::info!("trying again in {} seconds", pause.as_secs());
            service_manager::waiting(
                format_args!(
                    "trying again in {} seconds, because the last try failed: {why}",
                    pause.as_secs()
                ),
                pause + service_manager::TIMEOUT,
            );
            tokio::join!(tokio::time::sleep(pause), condition::tell(&self.on.root, Compared::AsLeft));
            // Another part of the user-data may have installed the missing CA certificate.
            CaBundle::forget();
            retries -= i64::from(retries > 0);
            self.on.stopwatch.start_over();
        }
    }

    /// Converges this machine, and tells its cloud that the machine is a node.
    async fn converge(&self) -> Result<u8> {
        let root = self.on.root.as_path();
        let outcome = Box::pin(self.converge_machine()).await;
        let what = convergence::tell(root, self.retries != 0, outcome).await?;
        service_manager::ready(what);
        Ok(exit::CONVERGED)
    }

    /// Converges this machine to the wanted state. If that state is unknown or may not be applied, repairs the last
    /// applied state instead. Returns a status for systemd.
    async fn converge_machine(&self) -> Result<&'static str> {
        let root = self.on.root.as_path();
        let error = match Box::pin(self.converge_to_wanted()).await {
            Ok(report) => return self.converged(&report, "converged"),
            Err(error) => error,
        };
        if !machine::has_record(root) {
            return noted(root, Err(error));
        }
        let host = self.host()?;
        match last_applied::stands_in_for(&error, &host) {
            Ok(true) => {}
            Ok(false) => return noted(root, Err(error)),
            Err(other) => return noted(root, Err(last_applied::both(error, &other))),
        }
        let stand_in = Box::pin(last_applied::stand_in(&self.options, &host, error)).await;
        let StandIn { instead, decision, error } = noted(root, stand_in)?;
        let report = Box::pin(last_applied::converge(&self.on, &host, &decision)).await;
        match instead {
            Instead::Superseded(by) => {
                let report = noted(root, report)?;
                noted(root, convergence::remember_ready(&self.on).await)?;
                // At boot, other units wait for this run. So this run does not plan the change to the group's current
                // configuration. The timer's `verify` plans this change later.
                let next = match self.retries {
                    0 => Some(Box::pin(next(&self.options, &host, &by)).await),
                    _ => None,
                };
                let noting = host.note_superseded(&by, next, last_applied::unmended(&report).is_none());
                noting.unwrap_or_else(|error| {
                    log::warn!("cannot record for `kops-agent status` that this node is superseded: {error}")
                });
                log::info!("{}", last_applied::superseded(&by));
                self.converged(&report, "superseded; the last applied configuration is in place")
            }
            Instead::Registered => {
                log::warn!("{}", error_text(&error));
                self.converged(
                    &noted(root, report)?,
                    "a node already; the last applied configuration is in place",
                )
            }
            Instead::Refused | Instead::Failed => {
                let why = error_text(&error);
                match report.and_then(|report| last_applied::unmended(&report).map_or(Ok(report), Err)) {
                    Ok(report) => {
                        self.printer.report(&report)?;
                        // The node works with its last applied configuration, so units that wait for this run may start.
                        service_manager::serving(format_args!(
                            "the last applied configuration is in place; the wanted one is not: {why}"
                        ));
                    }
                    Err(error) => log::error!("{}", error_text(&error)),
                }
                noted(root, Err(error.context("this machine keeps its last applied configuration")))
            }
        }
    }

    /// Converges to the current configuration. The agent expects certain files in each release of an archive. If an archive has other
    /// files, the run stops before its first change. Then the agent derives the node's state again with the files that the archive has.
    async fn converge_to_wanted(&self) -> Result<Report> {
        for _ in 0..MOST_ARCHIVES {
            match Box::pin(self.converge_to_decided()).await {
                Err(error) if kind_of(&error) == Kind::OtherFiles => {
                    log::info!(
                        "an archive does not have the files that kops-agent expected in it; this run plans \
                         again with the files of the archive"
                    );
                }
                outcome => return outcome,
            }
        }
        Box::pin(self.converge_to_decided()).await
    }

    async fn converge_to_decided(&self) -> Result<Report> {
        let root = self.on.root.as_path();
        let hashes = HashSource::publishers(machine::remembered_hashes(root)?);
        let decision =
            Box::pin(convergence::decide(&self.options, &self.on, hashes, &machine::before(root)?)).await?;
        let host = self.host()?.adopting(self.adopt);
        Box::pin(convergence::converge(&self.on, &host, &decision)).await
    }

    /// This machine, with the settings of this run.
    fn host(&self) -> Result<Host> {
        let host = self.settings.applied_to(machine::open(&self.on.root)?);
        Ok(host.timed_by(self.on.stopwatch.clone()).with_waits(self.waits()))
    }

    /// Only a run at boot waits for the API server. Other runs start all pods together.
    fn waits(&self) -> Waits {
        let is_boot = self.retries != 0;
        Waits { api_server: if is_boot { API_SERVER_TIMEOUT } else { Duration::ZERO }, ..Waits::default() }
    }

    /// Prints the report of a completed run. Fails if the run could not repair some resources.
    fn converged(&self, report: &Report, what: &'static str) -> Result<&'static str> {
        self.printer.report(report)?;
        if let Some(unmended) = last_applied::unmended(report) {
            return noted(self.on.root.as_path(), Err(unmended));
        }
        Ok(what)
    }
}

fn helps_to_try_again(kind: Kind) -> bool {
    !kind.is_final() && (!kind.leaves_a_working_node() || kind.misses_images())
}
