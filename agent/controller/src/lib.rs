//! Control-plane mode: what kops-controller does on upstream's control planes.
//!
//! `run` reads top to bottom as what there is: the configuration, the API server, who leads, the controller of nodes, the bootstrap server.
//! Where kOps' own kops-controller has to stay, `left_to_upstream` leaves all of that to it.

// `pub` says here that other modules may use it: the one user of this crate is the binary, which runs it.
#![allow(unreachable_pub)]

mod args;
pub mod bootstrap;
mod changed_files;
mod events;
mod groups;
mod health;
mod identify;
mod kubernetes;
mod lease;
mod left_to_upstream;
mod metrics;
mod node_api;
mod node_labels;
mod once;
mod outage;
mod queue;
pub mod takeover;
#[cfg(test)]
mod test_log;

pub use args::{ControllerArgs, ControllerCommand, LabelsFrom, TakeoverArgs};

use std::future::{pending, ready};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum as _;
use kops_agent_plan::identity::aws::AwsCluster;
use kops_agent_plan::identity::gce::{GceCluster, is_project, is_resource_name};
use kops_agent_plan::spec::{CloudProvider, KopsControllerOptions};
use kops_agent_plan::takeover::left_to_upstream;
use kube::Client;
use tokio::sync::watch;

use kops_agent_cloud::aws::ec2::Ec2;
use kops_agent_cloud::aws::instances::Instances;
use kops_agent_cloud::gce::compute::Compute;
use kops_agent_cloud::gce::managed_groups::ManagedGroups;
use kops_agent_cloud::hetzner::servers::{HetznerError, HetznerServers};
use kops_agent_net::random;
use kops_agent_net::retry::Retries;
use kops_agent_process::exit::{self, WrongConfiguration};
use kops_agent_process::{output, service_manager, stop};
use kops_agent_store::Store;

use bootstrap::Serving;
use changed_files::Watched;
use events::Events;
use groups::Groups;
use health::Health;
use identify::{Cloud, Identifier};
use lease::{Election, Leadership};
use metrics::{BootstrapMetrics, Metrics};
use node_api::Nodes;
use node_labels::{LIST_PATIENCE, Mode, NodeLabels};
use outage::Pauses;

/// Says what decides the labels, where `--labels-from` does not.
const LABELS_FROM: &str = "KOPS_AGENT_LABELS_FROM";
/// How long the store is asked before the controller goes on without.
const STORE_PATIENCE: Duration = Duration::from_secs(10);

/// Does what `kops-agent controller` is asked to, until it is asked to stop.
///
/// # Errors
/// If the configuration is wrong, or something that it cannot do without fails for good.
pub async fn run(args: &ControllerArgs) -> Result<u8> {
    let mut stopped = pin!(stop::asked()?);
    let mut files = Watched::new(std::iter::once(&args.conf).chain(&args.kubeconfig).cloned().collect());
    let options = options(&args.conf)?;
    if let Some(why) = left_to_upstream(&options) {
        return match args.once {
            true => {
                Err(WrongConfiguration(format!("{why}: leave the labels to kOps' kops-controller")).into())
            }
            false => left_to_upstream::stand_by(args, &mut files, &mut stopped, &why).await,
        };
    }
    let labels_from = labels_from(args)?;
    let client = kubernetes::client(args.kubeconfig.as_deref()).await?;
    let metrics = Metrics::new();
    let store = store(&args.store_mirror)?;
    let cloud = tokio::select! {
        cloud = cloud(&options, &metrics) => Arc::new(cloud?),
        // The cloud may be asked for long.
        signal = &mut stopped => {
            log::info!("stopping, because {signal} came");
            return Ok(if args.once { exit::FAILED } else { exit::CONVERGED });
        }
    };
    let node_labels =
        |mode| node_labels(args, labels_from, &options, &client, &metrics, &store, &cloud, mode);
    if args.once {
        let mode = if args.dry_run { Mode::Show } else { Mode::Apply(Leadership::uncontested()) };
        return once::print(&node_labels(mode).run_once().await?);
    }

    let election = Arc::new(Election::new(client.clone(), identity()?));
    let mode = Mode::Apply(election.leadership());
    let node_labels = Arc::new(node_labels(mode));
    let state = Arc::new(State {
        election: election.clone(),
        node_labels: node_labels.clone(),
        bootstrap: metrics.bootstrap.clone(),
    });
    let registry = Arc::new(metrics.registry(true));
    let nodes = Nodes::of(client.clone());
    let setup = bootstrap::Setup {
        options: options.clone(),
        cloud: cloud.clone(),
        nodes,
        store: store.clone(),
        metrics: metrics.clone(),
    };
    let mut serving = setup.start().await;
    let mut answering = pin!(async {
        let listener = health::listen(&args.health_listen).await?;
        health::serve(listener, state, registry).await
    });
    // Whatever waits for this service finds it: its probes answer, for which one step of that is enough, and machines are served
    // where that is possible at all.
    tokio::select! {
        biased;
        result = &mut answering => match result? {},
        () = ready(()) => {}
    }
    service_manager::serving("contending for the Lease");

    let over = async {
        tokio::select! {
            signal = &mut stopped => format!("{signal} came"),
            file = changed_for_good(&mut files, args, changed_files::LOOKED_AT_EVERY) => {
                format!("{} has changed: systemd, or whoever runs this, starts it anew with it", file.display())
            }
        }
    };
    tokio::select! {
        why = over => {
            log::info!("stopping, because {why}");
            let drain = async {
                if let Some(serving) = serving {
                    serving.drain().await;
                }
            };
            tokio::join!(election.release(), drain);
            Ok(exit::CONVERGED)
        }
        // Whoever starts this starts it anew; machines would find nobody otherwise, though all seems well.
        error = ended(&mut serving) => Err(error),
        result = &mut answering => match result? {},
        () = election.run() => Ok(exit::FAILED),
        result = while_leading(election.leads(), &node_labels, &metrics) => result,
    }
}

/// Waits until the bootstrap server has ended that is to serve; for ever where there is none.
async fn ended(serving: &mut Option<Serving>) -> anyhow::Error {
    match serving {
        Some(serving) => serving.ended().await,
        None => pending().await,
    }
}

/// Waits until a file that was read at the start is another, and nothing is wrong with it. Whoever ended for one that cannot be
/// used would not come back, though it is mended.
async fn changed_for_good(files: &mut Watched, args: &ControllerArgs, every: Duration) -> PathBuf {
    loop {
        let file = files.changed(every).await;
        match can_be_used(args) {
            Ok(()) => return file,
            Err(error) => log::error!(
                "{} has changed, and cannot be used; what was read of it at the start holds: {}",
                file.display(),
                output::error_text(&error)
            ),
        }
    }
}

/// # Errors
/// What is wrong with the files, as far as they tell.
fn can_be_used(args: &ControllerArgs) -> Result<()> {
    options(&args.conf)?;
    args.kubeconfig.as_deref().map_or(Ok(()), |path| kubernetes::read(path).map(drop))
}

/// Labels nodes whenever this process leads.
async fn while_leading(
    mut leads: watch::Receiver<bool>,
    node_labels: &NodeLabels,
    metrics: &Metrics,
) -> Result<u8> {
    loop {
        leads.wait_for(|leads| *leads).await.context("contending for the Lease")?;
        metrics.leads.set(1);
        tokio::select! {
            result = node_labels.run() => result?,
            result = leads.wait_for(|leads| !*leads) => drop(result.context("contending for the Lease")?),
        }
        node_labels.is_synced.store(false, Ordering::Relaxed);
        metrics.leads.set(0);
        metrics.queued(0, 0);
    }
}

/// What probes are told.
struct State {
    election: Arc<Election>,
    node_labels: Arc<NodeLabels>,
    bootstrap: BootstrapMetrics,
}

impl Health for State {
    fn live(&self) -> Result<(), String> {
        match self.election.is_alive() {
            true => Ok(()),
            false => Err("it does not contend for the Lease any more".into()),
        }
    }

    fn ready(&self) -> Result<(), String> {
        if self.bootstrap.down.get() != 0 {
            return Err("machines cannot bootstrap here: its log says why".into());
        }
        let leads = self.election.leadership().remaining().is_some();
        match !leads || self.node_labels.is_synced.load(Ordering::Relaxed) {
            true => self.live(),
            false => Err("it leads, and does not know all Nodes yet".into()),
        }
    }
}

fn options(conf: &Path) -> Result<KopsControllerOptions> {
    let name = conf.display().to_string();
    let text =
        std::fs::read(conf).with_context(|| format!("reading kops-controller's configuration {name}"))?;
    Ok(KopsControllerOptions::parse(&text, &name)?)
}

fn store(mirrors: &[String]) -> Result<Arc<Store>> {
    let patience = Retries { deadline: STORE_PATIENCE, attempt: STORE_PATIENCE / 2, ..Retries::default() };
    Ok(Arc::new(Store::new(mirrors)?.with_retries(patience)))
}

/// # Errors
/// If the environment says something that there is not.
fn labels_from(args: &ControllerArgs) -> Result<LabelsFrom, WrongConfiguration> {
    let said = std::env::var(LABELS_FROM).ok().filter(|said| !said.is_empty());
    match (args.labels_from, said) {
        (Some(given), _) => Ok(given),
        (None, None) => Ok(LabelsFrom::default()),
        (None, Some(said)) => LabelsFrom::from_str(&said, false).map_err(|_| {
            WrongConfiguration(format!(
                "{LABELS_FROM} is {said:?}: set it to store or to tags, or not at all"
            ))
        }),
    }
}

#[allow(clippy::too_many_arguments)]
fn node_labels(
    args: &ControllerArgs,
    labels_from: LabelsFrom,
    options: &KopsControllerOptions,
    client: &Client,
    metrics: &Metrics,
    store: &Arc<Store>,
    cloud: &Arc<Cloud>,
    mode: Mode,
) -> NodeLabels {
    let interval = Duration::from_secs(args.store_interval);
    NodeLabels {
        nodes: Nodes::of(client.clone()),
        identifier: Identifier::of(cloud.clone(), metrics.cache_hits.clone()),
        groups: Groups::of(store.clone(), &options.config_base, interval),
        events: Events::of(client.clone()),
        metrics: metrics.clone(),
        mode,
        is_synced: AtomicBool::new(false),
        list_patience: LIST_PATIENCE,
        cloud_pauses: Pauses::default(),
        labels_from,
    }
}

async fn cloud(options: &KopsControllerOptions, metrics: &Metrics) -> Result<Cloud> {
    match options.cloud {
        CloudProvider::Aws => {
            let verifier = options.server.as_ref().and_then(|server| server.provider.aws.as_ref());
            let region = match verifier.map(|aws| aws.region.clone()).filter(|region| !region.is_empty()) {
                Some(region) => region,
                None => kops_agent_cloud::aws_region().await.context(
                    "finding out in which region of AWS this is, which neither server.provider.aws.Region of the \
                     configuration says nor AWS_REGION",
                )?,
            };
            let cluster = AwsCluster {
                name: options.cluster_name.clone(),
                region: region.clone(),
                use_ip_based_node_names: verifier.is_some_and(|aws| aws.use_ip_based_node_names),
            };
            let ec2 = Ec2::of_region(&region).await?;
            Ok(Cloud::Aws { cluster, instances: Instances::of(ec2, metrics.cloud_calls.clone()) })
        }
        CloudProvider::Gce => {
            let cluster = gce_cluster(options).await?;
            let compute = Compute::of_environment(&cluster.project, metrics.cloud_calls.clone())?;
            Ok(Cloud::Gce(ManagedGroups::of(compute, cluster)))
        }
        CloudProvider::Hetzner => {
            let servers = HetznerServers::of_environment(&options.cluster_name, metrics.cloud_calls.clone());
            Ok(Cloud::Hetzner(Arc::new(servers.map_err(hetzner_failed)?)))
        }
        other => {
            Err(WrongConfiguration(format!("nodes of the cloud {other} cannot be identified yet")).into())
        }
    }
}

fn hetzner_failed(error: HetznerError) -> anyhow::Error {
    match error.is_configuration() {
        true => WrongConfiguration(error.to_string()).into(),
        false => anyhow::Error::from(error).context("preparing to ask Hetzner Cloud who machines are"),
    }
}

/// The cluster's project and region, as kOps has written them down, or else those of this machine.
async fn gce_cluster(options: &KopsControllerOptions) -> Result<GceCluster> {
    let verifier = options.server.as_ref().and_then(|server| server.provider.gce.as_ref());
    let written = verifier.map(|gce| (gce.project_id.clone(), gce.region.clone())).unwrap_or_default();
    let (project, region) = match written {
        (project, region) if !project.is_empty() && !region.is_empty() => (project, region),
        (project, region) => {
            let place = kops_agent_cloud::gce::place()
                .await
                .context("finding out in which project of GCE this is")?;
            let own_region = place.zone.rsplit_once('-').map(|(region, _)| region.to_owned());
            let or = |written: String, own: String| if written.is_empty() { own } else { written };
            (or(project, place.project), or(region, own_region.unwrap_or_default()))
        }
    };
    if !is_project(&project) || !is_resource_name(&region) {
        return Err(WrongConfiguration(format!(
            "server.provider.gce says that the cluster is in the project {project:?} and the region {region:?}: write \
             them as Google does, or leave both out where this machine is in the same"
        ))
        .into());
    }
    Ok(GceCluster { name: options.cluster_name.clone(), project, region })
}

/// A name that no other contender has.
fn identity() -> Result<String> {
    let host = nix::unistd::gethostname().context("reading this machine's name")?;
    let unique = random::name().context("making a unique name")?;
    Ok(format!("{}_{unique}", host.to_string_lossy()))
}

#[cfg(test)]
mod tests;
