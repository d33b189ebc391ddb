//! Control-plane mode: replaces kops-controller on kOps' control planes.
//!
//! `run` sets up, in order: the configuration, the API server, leader election, the node controller, the bootstrap server. If kOps' own
//! kops-controller has to stay, `left_to_upstream` leaves all of that to it.

// In this crate, `pub` means that other modules use an item. Only the binary uses the crate.
#![allow(unreachable_pub)]

pub mod addons;
pub mod bootstrap;
mod changed_files;
mod configuration;
pub mod fleet;
mod groups;
mod health;
mod hosts;
mod identify;
mod left_to_upstream;
mod metrics;
mod node_labels;
mod node_queue;
mod options;
mod pod_ranges;
pub mod rollout;
pub mod takeover;
#[cfg(test)]
mod test_log;

pub use node_labels::Found;
pub use options::{ControllerOptions, LabelsFrom};

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use kube::Client;
use parking_lot::Mutex;
use tokio::sync::watch;

use kops_agent_cloud::ControlPlane;
use kops_agent_cloud::hosts::Enrolled;
use kops_agent_cluster::takeover::{kops_writes_no_configurations, left_to_upstream};
use kops_agent_kube::ApiServers;
use kops_agent_kube::events::Events;
use kops_agent_kube::lease::{self, Election, Leadership, OF_CONTROLLERS};
use kops_agent_kube::node_api::Nodes;
use kops_agent_kube::node_watch::LIST_TIMEOUT;
use kops_agent_process::exit;
use kops_agent_process::{service_manager, stop};
use kops_agent_spec::KopsControllerOptions;
use kops_agent_spec::failure::{Failure, Kind};
use kops_agent_store::Store;

use bootstrap::Serving;
use changed_files::Watched;
use configuration::{changed_for_good, labels_from, options, reason_to_stop, store};
use groups::Groups;
use health::Health;
use hosts::ApiHosts;
use identify::Identifier;
use metrics::Metrics;
use node_labels::{Mode, NodeLabels};
use node_queue::NodeQueue;
use pod_ranges::PodRanges;
use rollout::Rollouts;

/// Runs control-plane mode until a signal comes or a file changes.
pub async fn run(given: &ControllerOptions) -> Result<u8> {
    let mut stopped = pin!(stop::signal_received()?);
    let mut files = Watched::new(std::iter::once(&given.conf).chain(&given.kubeconfig).cloned().collect());
    let options = options(&given.conf)?;
    if let Some(why) = left_to_upstream(&options) {
        return left_to_upstream::stand_by(given, &mut files, &mut stopped, &why).await;
    }
    let Some(parts) = Parts::connect(given, options, &mut stopped).await? else {
        return Ok(exit::CONVERGED);
    };
    let Parts { options, client, metrics, store, hosts, cloud, .. } = &parts;

    let election = Arc::new(Election::new(client.clone(), OF_CONTROLLERS, lease::identity()?));
    let node_labels = Arc::new(parts.node_labels(given.store_interval, Mode::Apply(election.leadership())));
    let state = Arc::new(State {
        election: election.clone(),
        node_labels: node_labels.clone(),
        metrics: metrics.clone(),
    });
    let rollouts = Rollouts::new(
        client.clone(),
        ApiServers::new(given.kubeconfig.as_deref())?,
        store.clone(),
        &options.config_base,
        metrics.rollout.clone(),
        election.leadership(),
    );
    let wanted_machines =
        fleet::Publisher::new(client.clone(), store.clone(), &options.config_base, election.leadership());
    let registry = Arc::new(metrics.registry(true));
    let setup = bootstrap::Setup {
        options: options.clone(),
        cloud: cloud.clone(),
        hosts: hosts.clone(),
        kubeconfig: given.kubeconfig.clone(),
        store: store.clone(),
        metrics: metrics.clone(),
    };
    let mut serving = setup.start().await?;
    let mut answering = pin!(health::listen_and_serve(&given.health_listen, state, registry));
    // If the probe port is free, listen before systemd is told that this service has started. So the service answers probes as soon as
    // systemd treats it as started.
    health::begin(&mut answering).await?;
    service_manager::serving("contending for the Lease");

    let changed = changed_for_good(&mut files, given, changed_files::LOOKED_AT_EVERY);
    tokio::select! {
        why = reason_to_stop(&mut stopped, changed) => {
            log::info!("stopping, because {why}");
            let drain = async {
                if let Some(serving) = serving {
                    serving.drain().await;
                }
            };
            tokio::join!(election.release(), drain);
            Ok(exit::CONVERGED)
        }
        // End this process, so that systemd restarts it. Otherwise the process would look healthy, but machines would find no server.
        error = ended(&mut serving) => Err(error),
        result = &mut answering => match result? {},
        () = election.run() => Ok(exit::FAILED),
        result = while_leading(election.leads(), &node_labels, &rollouts, &wanted_machines, metrics) => result,
    }
}

/// Labels every Node once. With `is_dry_run`, changes nothing and returns the patches. `None` if a signal stops it. Fails if the
/// configuration leaves the labels to kOps' kops-controller.
pub async fn label_once(given: &ControllerOptions, is_dry_run: bool) -> Result<Option<Found>> {
    let mut stopped = pin!(stop::signal_received()?);
    let options = options(&given.conf)?;
    if let Some(why) = left_to_upstream(&options) {
        return Err(Failure::new(
            Kind::ControlPlaneSettings,
            format!("{why}: leave the labels to kOps' kops-controller"),
        )
        .into());
    }
    let Some(parts) = Parts::connect(given, options, &mut stopped).await? else { return Ok(None) };
    let mode = if is_dry_run { Mode::Show } else { Mode::Apply(Leadership::uncontested()) };
    parts.node_labels(given.store_interval, mode).run_once().await.map(Some)
}

struct Parts {
    options: KopsControllerOptions,
    labels_from: LabelsFrom,
    client: Client,
    metrics: Metrics,
    store: Arc<Store>,
    hosts: Arc<Enrolled>,
    cloud: Arc<dyn ControlPlane>,
}

impl Parts {
    /// Connects to the API server and the cloud. `None` if a stop signal comes first.
    async fn connect(
        given: &ControllerOptions,
        options: KopsControllerOptions,
        stopped: &mut (impl Future<Output = &'static str> + Unpin),
    ) -> Result<Option<Parts>> {
        let labels_from = labels_from(given.labels_from)?;
        let client = kops_agent_kube::client(given.kubeconfig.as_deref())?;
        let metrics = Metrics::new();
        let store = Arc::new(store(&given.store_mirrors)?);
        // The bootstrap server looks up `Host`s by a client of its own, which shares no connection with the renewal of the Lease.
        let hosts = kops_agent_kube::client(given.kubeconfig.as_deref())?;
        let hosts = Arc::new(Enrolled::new(Arc::new(ApiHosts::new(hosts))));
        let cloud = tokio::select! {
            cloud = cloud(&options, &metrics, &hosts) => cloud?,
            // A request to the cloud may last until its timeout. A signal ends the process earlier.
            signal = stopped => {
                log::info!("stopping because of {signal}");
                return Ok(None);
            }
        };
        Ok(Some(Parts { options, labels_from, client, metrics, store, hosts, cloud }))
    }

    /// Prepares the node controller, which reads the groups again at each `interval`.
    fn node_labels(&self, interval: Duration, mode: Mode) -> NodeLabels {
        let Parts { options, labels_from, client, metrics, store, cloud, .. } = self;
        let known = Arc::<Mutex<NodeQueue>>::default();
        NodeLabels {
            nodes: Nodes::new(client.clone()),
            known: known.clone(),
            identifier: Identifier::new(cloud.clone(), known, metrics.cache_hits.clone()),
            pod_ranges: PodRanges::new(options.enable_cloud_ipam.then(|| cloud.clone())),
            groups: Groups::new(store.clone(), &options.config_base, interval)
                .saved_too(kops_writes_no_configurations(options)),
            events: Events::new(client.clone()),
            metrics: metrics.clone(),
            mode,
            is_synced: AtomicBool::new(false),
            list_timeout: LIST_TIMEOUT,
            cloud_pauses: node_queue::CLOUD_PAUSES,
            // On clouds where upstream labels no Node, `Tags` would give no labels.
            labels_from: if cloud.is_labelled_by_upstream() { *labels_from } else { LabelsFrom::Store },
        }
    }
}

/// Waits until the bootstrap server ends. Without a server, waits forever.
async fn ended(serving: &mut Option<Serving>) -> anyhow::Error {
    match serving {
        Some(serving) => serving.ended().await,
        None => pending().await,
    }
}

/// Labels nodes, leads rollouts, and publishes which machines the instance groups specify, while this process leads.
async fn while_leading(
    mut leads: watch::Receiver<bool>,
    node_labels: &NodeLabels,
    rollouts: &Rollouts,
    wanted_machines: &fleet::Publisher,
    metrics: &Metrics,
) -> Result<u8> {
    loop {
        leads.wait_for(|leads| *leads).await.context("contending for the Lease")?;
        metrics.leads.set(1);
        tokio::select! {
            result = node_labels.run() => result?,
            never = rollouts.run() => match never {},
            never = wanted_machines.run() => match never {},
            result = leads.wait_for(|leads| !*leads) => drop(result.context("contending for the Lease")?),
        }
        node_labels.is_synced.store(false, Ordering::Relaxed);
        metrics.leads.set(0);
        metrics.queued(0, 0);
        metrics.rollout.clear();
    }
}

struct State {
    election: Arc<Election>,
    node_labels: Arc<NodeLabels>,
    metrics: Metrics,
}

impl Health for State {
    fn not_live(&self) -> Option<String> {
        self.election.not_live()
    }

    fn not_ready(&self) -> Option<String> {
        if self.metrics.bootstrap.down.get() != 0 {
            return Some("machines cannot bootstrap here: see the log of this service".into());
        }
        if let Some(silent) = self.metrics.cloud_calls.silent() {
            return Some(format!("{silent}: see the log of this service"));
        }
        let leads = self.election.leadership().remaining().is_some();
        match !leads || self.node_labels.is_synced.load(Ordering::Relaxed) {
            true => self.not_live(),
            false => Some("this process leads, but has not listed all Nodes yet".into()),
        }
    }
}

/// Connects to the cloud that has the cluster's machines.
async fn cloud(
    options: &KopsControllerOptions,
    metrics: &Metrics,
    hosts: &Arc<Enrolled>,
) -> Result<Arc<dyn ControlPlane>> {
    let calls = metrics.cloud_calls.clone();
    let asked = kops_agent_cloud::for_provider(options.cloud).for_control_plane(options, calls, hosts);
    Ok(asked.await?)
}
