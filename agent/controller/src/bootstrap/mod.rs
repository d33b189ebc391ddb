//! The bootstrap server: a machine that can prove its identity gets what it needs to be a node.
//!
//! A peer is unknown before it is verified, so all that comes before that has a bound: connections, times,
//! lengths, questions to the cloud. `answer.rs` reads top to bottom as what a request meets.

mod answer;
mod audit;
mod call_back;
pub mod connections;
mod control_planes;
mod derived_configs;
mod descriptors;
mod grants;
mod keystore;
mod no_node_config;
mod penalties;
mod rate;
mod renewal;
mod replay;
mod server;
mod slots;
#[cfg(test)]
mod tests;
mod threads;

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use kops_agent_spec::{KopsControllerOptions, KopsControllerServerOptions};
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::kubernetes;
use super::metrics::Metrics;
use super::node_api::Nodes;
use answer::Bootstrap;
use call_back::CallBack;
use grants::Grants;
use keystore::Keystore;
use kops_agent_cloud::ControlPlane;
use kops_agent_cloud::hosts::{Enrolled, HostVerifier};
use kops_agent_cloud::verify::Verifier;
use kops_agent_cloud::verify::admission::{self, Admission};
use kops_agent_plan::takeover::kops_writes_no_configurations;
use kops_agent_process::exit::WrongConfiguration;
use kops_agent_process::output::error_text;
use kops_agent_store::Store;
use renewal::{NODE_WITHIN, Renewal};
use replay::Taken;
use server::Server;
use slots::Slots;
use threads::Threads;

/// How often it is tried to serve, where that is not possible yet.
const TRIED_EVERY: Duration = Duration::from_secs(1);

/// A server that runs, or tries to, on threads of its own.
pub struct Serving {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
    #[cfg_attr(not(test), expect(dead_code, reason = "what counts is when it is dropped"))]
    threads: Threads,
}

/// What it takes to serve.
pub struct Setup {
    pub options: KopsControllerOptions,
    /// The cloud that identifies machines.
    pub cloud: Arc<dyn ControlPlane>,
    /// The machines that were enrolled.
    pub hosts: Arc<Enrolled>,
    /// How the API server is reached that has the Nodes: as a pod if there is no kubeconfig. The server has a client of its own, whose
    /// connections no other part of this process uses.
    pub kubeconfig: Option<PathBuf>,
    /// Where configurations are.
    pub store: Arc<Store>,
    pub metrics: Metrics,
}

impl Setup {
    /// Serves from now on, if the configuration has a server. Where that is not possible yet, it is tried again: kOps'
    /// own kops-controller may still have the port, the keys may not be there before the first node run, or the API server
    /// may not answer yet, or give no rights. Returns once it listens, or has tried to.
    ///
    /// # Errors
    /// If there are no threads to be had.
    pub async fn start(self) -> Result<Option<Serving>> {
        if self.options.server.is_none() {
            return Ok(None);
        }
        self.metrics.bootstrap.down.set(1);
        let (tried, first_try) = oneshot::channel();
        let serving = Serving::on_own_threads(|stopped| self.keep_trying(tried, stopped))?;
        // It is an error at any rate, because nothing is sent.
        let _ = first_try.await;
        Ok(Some(serving))
    }

    /// Drops `first_try` once the server listens, or has tried to.
    async fn keep_trying(self, first_try: oneshot::Sender<Infallible>, mut stopped: watch::Receiver<bool>) {
        let (mut first_try, mut said) = (Some(first_try), String::new());
        loop {
            match self.listen().await {
                Ok((server, keystore)) => {
                    let _up = Up::from_now(&self.metrics.bootstrap.down);
                    drop(first_try);
                    return serve(server, &keystore, stopped).await;
                }
                Err(error) => {
                    let problem = error_text(&error);
                    if problem != said {
                        log::error!(
                            "machines cannot bootstrap here; this is tried again until they can: {problem}"
                        );
                    }
                    said = problem;
                }
            }
            drop(first_try.take());
            if timeout(TRIED_EVERY, stopped.wait_for(|stopped| *stopped)).await.is_ok() {
                return;
            }
        }
    }

    async fn listen(&self) -> Result<(Server, Arc<Keystore>)> {
        let options = &self.options;
        let server = options.server.as_ref().context("there is no server in the configuration")?;
        let keystore = Arc::new(Keystore::load(server)?);
        // Another may have the port for days, while one takes over from the other: nothing is made ready for that, and nothing is
        // asked. What is bound and does not listen refuses connections.
        let bound = server::bind(&server.listen).await?;
        let nodes = Nodes::of(kubernetes::client(self.kubeconfig.as_deref())?);
        api_server_answers(&nodes).await?;
        let listener = bound.listen()?;
        let metrics = self.metrics.bootstrap.clone();
        let bootstrap = Arc::new(Bootstrap {
            verifiers: verifiers(server, &*self.cloud, &self.hosts).await?,
            taken: Taken::since(Instant::now()),
            admission: Admission::new(admission::Limits::default(), metrics.waiting.clone()),
            call_back: CallBack::of(&options.cluster_name, keystore.clone()),
            renewal: Renewal::default(),
            slots: Slots::of(&nodes),
            nodes,
            grants: Grants::of(
                self.store.clone(),
                &options.config_base,
                &options.secret_store,
                &server.cert_names,
                keystore.clone(),
            )
            .deriving_configs(kops_writes_no_configurations(options)),
            machines: self.cloud.machine_prefix(),
            load_balancing: self.cloud.load_balancing(),
            metrics,
        });
        let server = Server::of(listener, keystore.clone(), bootstrap, server::Limits::default())?;
        log::info!("machines bootstrap at https://{}/bootstrap", server.address()?);
        Ok((server, keystore))
    }
}

/// Every answer takes a look at the machine's Node. A refused connection is retried within seconds, at another control plane too;
/// an internal error has cost a proof of identity, and is retried with backoff.
async fn api_server_answers(nodes: &Nodes) -> Result<()> {
    timeout(NODE_WITHIN, nodes.can_be_read())
        .await
        .context("the API server takes too long")
        .and_then(|answered| Ok(answered?))
        .context("looking whether Nodes can be read, without which no machine is answered")
}

async fn serve(server: Server, keystore: &Keystore, stopped: watch::Receiver<bool>) {
    tokio::select! {
        () = server.serve(stopped) => {}
        () = keystore.watch() => {}
    }
}

/// What verifies machines: those of this cloud, and those that were enrolled.
async fn verifiers(
    server: &KopsControllerServerOptions,
    cloud: &dyn ControlPlane,
    hosts: &Arc<Enrolled>,
) -> Result<Vec<Box<dyn Verifier>>> {
    let of_cloud = cloud.verifier(server).await?;
    let of_hosts = server
        .pki
        .as_ref()
        .map(|pki| Box::new(HostVerifier::of(hosts.clone(), pki.max_time_skew)) as Box<dyn Verifier>);
    let verifiers: Vec<_> = of_cloud.into_iter().chain(of_hosts).collect();
    if verifiers.is_empty() {
        let problem = "server.provider names no cloud whose machines can be verified, and there is no server.pki: is this \
                       another cloud's file?";
        return Err(WrongConfiguration(problem.into()).into());
    }
    Ok(verifiers)
}

/// Machines can bootstrap for as long as this lives, whatever ends it.
struct Up<'a> {
    down: &'a Gauge,
}

impl Up<'_> {
    fn from_now(down: &Gauge) -> Up<'_> {
        down.set(0);
        Up { down }
    }
}

impl Drop for Up<'_> {
    fn drop(&mut self) {
        self.down.set(1);
    }
}

impl Serving {
    /// Has this task serve until it is told to stop.
    fn on_own_threads<F: Future<Output = ()> + Send + 'static>(
        task: impl FnOnce(watch::Receiver<bool>) -> F,
    ) -> Result<Serving> {
        let (stop, stopped) = watch::channel(false);
        let threads = Threads::start()?;
        let handle = threads.handle().context("the threads for machines that bootstrap have ended")?;
        let task = handle.spawn(task(stopped));
        Ok(Serving { stop, task, threads })
    }

    /// Waits until the server has ended though it was not told to stop, and says why.
    pub async fn ended(&mut self) -> anyhow::Error {
        match (&mut self.task).await {
            Ok(()) => anyhow!("the bootstrap server has ended by itself, which it never should"),
            Err(error) => anyhow::Error::from(error).context("serving machines that bootstrap"),
        }
    }

    /// Accepts no connection any more, and lets those that are open finish.
    pub async fn drain(mut self) {
        let _ = self.stop.send(true);
        // It ends by itself, in time.
        let _ = (&mut self.task).await;
    }
}
