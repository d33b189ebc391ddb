//! The service that replaces kOps' channels pod.
//!
//! [`run`] sets up, in order: settings, API server, leader election, probes. The leader runs one [`round`] per interval. [`backoff`]
//! delays failed add-ons. [`telling`] and [`metrics`] report the results. Each process labels its own machine's [`node`].

mod backoff;
pub mod metrics;
mod node;
mod round;
mod telling;

use std::convert::Infallible;
use std::future::pending;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use kops_agent_cluster::addons::AddonSettings;
use kops_agent_kube::lease::{self, Contest, Election};
use kops_agent_process::{exit, service_manager, stop};

use super::channels::{self, ChannelOptions};
use super::objects::Objects;
use crate::changed_files::{LOOKED_AT_EVERY, Watched};
use crate::configuration::{self, changed_to_usable, reason_to_stop};
use crate::health::{self, Health};
use backoff::next_look;
use metrics::AddonMetrics;
use node::ThisNode;
use round::Rounds;
use telling::{Readiness, Telling};

/// The Lease that lets one process at a time apply add-ons. Upstream's channels pods ignore this Lease, so they may apply add-ons at the
/// same time.
const CONTEST: Contest = Contest { lease: "kops-agent-addons", doing: "this process applies add-ons" };

#[derive(Clone, Debug)]
pub struct ServiceOptions {
    pub channels: ChannelOptions,
    /// The interval between checks of the channels, the installed add-ons and the Node's labels.
    pub interval: Duration,
    /// The Node that gets the labels of a control plane. `None` means the Node that the settings file names. If the file names no Node, no
    /// Node is labelled.
    pub node_name: Option<String>,
    /// Additional labels for the Node `node_name`, such as `a,b=c`.
    pub node_labels: String,
    /// The address at which the service answers probes.
    pub health_listen: String,
}

/// Applies due add-ons until the process gets a stop signal or one of its files changes.
pub async fn run(options: &ServiceOptions) -> Result<u8> {
    let mut stopped = pin!(stop::signal_received()?);
    let ServiceOptions { channels, interval, health_listen, .. } = options;
    let mut files = Watched::new(files(channels));
    let settings = settings(options)?;
    let client = kops_agent_kube::client_of(&channels.kubeconfig)?;
    let store = configuration::store(&channels.store_mirrors)?.reading_in_clear();
    let interval = *interval;
    log::info!("checking the add-ons of {} every {interval:?}", settings.channels.join(" and "));

    let metrics = AddonMetrics::default();
    let readiness = Arc::<Readiness>::default();
    let election = Arc::new(Election::new(client.clone(), CONTEST, lease::identity()?));
    let node = ThisNode::new(client.clone(), &settings);
    let registry = Arc::new(metrics.registry(node.is_some()));
    let leadership = election.leadership();
    let mut applying = Applying {
        rounds: Rounds::new(settings.channels, store, Objects::new(client), leadership),
        telling: Telling::default(),
        metrics: metrics.clone(),
        readiness: readiness.clone(),
        interval,
    };
    let state = Arc::new(State { election: election.clone(), readiness: readiness.clone() });
    let mut answering = pin!(health::listen_and_serve(health_listen, state, registry));
    // The service answers probes from its start, unless another program, such as kOps' pod, has the port.
    health::begin(&mut answering).await?;
    service_manager::serving("contending for the Lease");

    let labelling = async {
        match &node {
            Some(node) => node.keep(interval, &metrics, &readiness).await,
            None => pending().await,
        }
    };
    let changed = changed_to_usable(&mut files, LOOKED_AT_EVERY, || can_be_used(options));
    tokio::select! {
        why = reason_to_stop(&mut stopped, changed) => {
            log::info!("stopping, because {why}");
            election.release().await;
            Ok(exit::CONVERGED)
        }
        result = &mut answering => match result? {},
        never = labelling => match never {},
        () = election.run() => Ok(exit::FAILED),
        result = applying.while_leading(election.leads()) => result,
    }
}

fn settings(options: &ServiceOptions) -> Result<AddonSettings> {
    let settings = channels::settings(&options.channels)?;
    Ok(match &options.node_name {
        Some(node) => settings.labelling(node, &options.node_labels),
        None => settings,
    })
}

/// The files that this process reads at its start. If one of them changes, the process ends.
fn files(options: &ChannelOptions) -> Vec<PathBuf> {
    channels::files(options).into_iter().chain(options.kubeconfig.files.iter().cloned()).collect()
}

fn can_be_used(options: &ServiceOptions) -> Result<()> {
    settings(options)?;
    // Creating a client finds errors in the kubeconfig that parsing does not find. It sends no request.
    kops_agent_kube::client_of(&options.channels.kubeconfig).map(drop)
}

struct Applying {
    rounds: Rounds,
    telling: Telling,
    metrics: AddonMetrics,
    readiness: Arc<Readiness>,
    interval: Duration,
}

impl Applying {
    /// Applies add-ons while this process leads.
    async fn while_leading(&mut self, mut leads: watch::Receiver<bool>) -> Result<u8> {
        loop {
            leads.wait_for(|leads| *leads).await.context("contending for the Lease")?;
            self.metrics.leads.set(1);
            self.readiness
                .applies(Some("this process leads, but has not checked the add-ons yet".to_owned()));
            self.rounds.begin();
            // If this process loses the Lease, it stops mid-round. The next leader does this round's work again.
            tokio::select! {
                never = self.again_and_again() => match never {},
                result = leads.wait_for(|leads| !*leads) => drop(result.context("contending for the Lease")?),
            }
            self.readiness.applies(None);
            self.metrics.clear();
            self.metrics.leads.set(0);
        }
    }

    async fn again_and_again(&mut self) -> Infallible {
        // The number of consecutive rounds that could not read all channels and records.
        let mut unread_rounds = 0;
        loop {
            let round = self.rounds.round().await;
            self.metrics.note(&round, OffsetDateTime::now_utc().unix_timestamp());
            self.readiness.note(&round);
            self.telling.tell(&round, self.rounds.events()).await;
            unread_rounds = if round.is_complete() { 0 } else { unread_rounds + 1 };
            let pause_ends = self.rounds.next_attempt();
            sleep_until(next_look(Instant::now(), self.interval, unread_rounds, pause_ends)).await;
        }
    }
}

struct State {
    election: Arc<Election>,
    readiness: Arc<Readiness>,
}

impl Health for State {
    fn not_live(&self) -> Option<String> {
        self.election.not_live()
    }

    fn not_ready(&self) -> Option<String> {
        self.not_live().or_else(|| self.readiness.problems())
    }
}
