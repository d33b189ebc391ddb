//! The bootstrap server: gives a machine its configuration and certificates, once the machine has proved its identity.
//!
//! An unverified peer can use only bounded resources: connections, time, lengths, calls to the cloud. `answer.rs` shows the checks of
//! a request from top to bottom.

mod answer;
mod audit;
mod boot_configs;
mod cached;
mod call_back;
pub mod connections;
mod control_planes;
mod derived_configs;
mod descriptors;
mod grants;
mod keystore;
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

use anyhow::{Context, Result};
use kops_agent_spec::{KopsControllerOptions, KopsControllerServerOptions};
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::metrics::Metrics;
use answer::Bootstrap;
use call_back::CallBack;
use grants::Grants;
use keystore::Keystore;
use kops_agent_cloud::ControlPlane;
use kops_agent_cloud::hosts::{Enrolled, HostVerifier};
use kops_agent_cloud::verify::Verifier;
use kops_agent_cloud::verify::admission::{self, Admission};
use kops_agent_cluster::takeover::kops_writes_no_configurations;
use kops_agent_kube::ApiServers;
use kops_agent_kube::node_api::Nodes;
use kops_agent_process::output::error_text;
use kops_agent_spec::failure::{Failure, Kind};
use kops_agent_store::Store;
use renewal::{NODE_WITHIN, Renewal};
use replay::Taken;
use server::Server;
use slots::Slots;
use threads::Threads;

/// The pause between attempts to start the server.
const TRIED_EVERY: Duration = Duration::from_secs(1);

/// The bootstrap server, which runs or tries to start. It has threads of its own.
pub struct Serving {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
    #[cfg_attr(not(test), expect(dead_code, reason = "what counts is when it is dropped"))]
    threads: Threads,
}

pub struct Setup {
    pub options: KopsControllerOptions,
    /// The API of the cloud, which identifies machines.
    pub cloud: Arc<dyn ControlPlane>,
    pub hosts: Arc<Enrolled>,
    /// The kubeconfig for the API server that has the Nodes; `None` in a pod. The bootstrap server has a client of its own, so it shares no
    /// connections with the rest of this process.
    pub kubeconfig: Option<PathBuf>,
    /// The state store, which contains the configurations of instance groups.
    pub store: Arc<Store>,
    pub metrics: Metrics,
}

impl Setup {
    /// Starts the server if the configuration has a server, and retries until it can serve. Returns after the first attempt. Retries are
    /// necessary for several reasons: kOps' own kops-controller may still have the port, the first node run may not have written the keys
    /// yet, or the API server may be down or grant no rights.
    pub async fn start(self) -> Result<Option<Serving>> {
        if self.options.server.is_none() {
            return Ok(None);
        }
        self.metrics.bootstrap.down.set(1);
        let (tried, first_try) = oneshot::channel();
        let serving = Serving::on_own_threads(|stopped| self.keep_trying(tried, stopped))?;
        // The sender never sends, so this returns an error when the sender is dropped.
        let _ = first_try.await;
        Ok(Some(serving))
    }

    /// Retries until the server can serve, and then serves. Drops `first_try` after the first attempt.
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
                        log::error!("machines cannot bootstrap here; retrying: {problem}");
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
        let without_server =
            || Failure::new(Kind::ControlPlaneSettings, "there is no server in the configuration");
        let server = options.server.as_ref().ok_or_else(without_server)?;
        let keystore = Arc::new(Keystore::load(server)?);
        // Bind before any other preparation or request. During a takeover, another program may have the port for days, and each attempt
        // would send useless requests. A socket that is bound but does not listen refuses connections.
        let bound = server::bind(&server.listen).await?;
        let nodes = Nodes::new(kops_agent_kube::client(self.kubeconfig.as_deref())?);
        api_server_answers(&nodes).await?;
        let listener = bound.listen()?;
        let metrics = self.metrics.bootstrap.clone();
        let bootstrap = Arc::new(Bootstrap {
            verifiers: verifiers(server, &*self.cloud, &self.hosts).await?,
            taken: Taken::since(Instant::now()),
            admission: Admission::new(admission::Limits::default(), metrics.waiting.clone()),
            call_back: CallBack::new(&options.cluster_name, keystore.clone()),
            renewal: Renewal::default(),
            slots: Slots::new(&nodes, ApiServers::new(self.kubeconfig.as_deref())?),
            nodes,
            grants: Grants::new(
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
        let server = Server::new(listener, keystore.clone(), bootstrap, server::Limits::default())?;
        log::info!("machines bootstrap at https://{}/bootstrap", server.address()?);
        Ok((server, keystore))
    }
}

/// Checks access to Nodes before the server listens, because the server reads a Node for every answer. If a connection is refused, a
/// machine retries within seconds, also at another control plane. After an internal error, in contrast, the machine waits for a backoff and
/// needs a new proof of identity.
async fn api_server_answers(nodes: &Nodes) -> Result<()> {
    timeout(NODE_WITHIN, nodes.can_be_read())
        .await
        .context("the API server does not answer in time")
        .and_then(|answered| Ok(answered?))
        .context("checking access to Nodes (required to serve machines)")
}

async fn serve(server: Server, keystore: &Keystore, stopped: watch::Receiver<bool>) {
    tokio::select! {
        () = server.serve(stopped) => {}
        () = keystore.watch() => {}
    }
}

/// Creates the verifiers for machines of this cloud and for enrolled machines.
async fn verifiers(
    server: &KopsControllerServerOptions,
    cloud: &dyn ControlPlane,
    hosts: &Arc<Enrolled>,
) -> Result<Vec<Box<dyn Verifier>>> {
    let of_cloud = cloud.verifier(server).await?;
    let of_hosts = server
        .pki
        .as_ref()
        .map(|pki| Box::new(HostVerifier::new(hosts.clone(), pki.max_time_skew)) as Box<dyn Verifier>);
    let verifiers: Vec<_> = of_cloud.into_iter().chain(of_hosts).collect();
    if verifiers.is_empty() {
        let problem = "server.provider does not name the cluster's cloud, and server.pki is missing: check that the \
                       configuration is this cluster's";
        return Err(Failure::new(Kind::ControlPlaneSettings, problem).into());
    }
    Ok(verifiers)
}

/// Sets the metric `down` to 0 while this value exists. When this value is dropped for any reason, the metric becomes 1.
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
    /// Runs a task on threads of its own. The task must end when the value in its receiver becomes true.
    fn on_own_threads<F: Future<Output = ()> + Send + 'static>(
        task: impl FnOnce(watch::Receiver<bool>) -> F,
    ) -> Result<Serving> {
        let (stop, stopped) = watch::channel(false);
        let threads = Threads::start()?;
        let ended = || Failure::new(Kind::Ended, "the threads for machines that bootstrap have ended");
        let handle = threads.handle().ok_or_else(ended)?;
        let task = handle.spawn(task(stopped));
        Ok(Serving { stop, task, threads })
    }

    /// Waits until the server ends without a request to stop. Returns the cause.
    pub async fn ended(&mut self) -> anyhow::Error {
        match (&mut self.task).await {
            Ok(()) => Failure::new(Kind::Ended, "the bootstrap server has ended unexpectedly").into(),
            Err(error) => anyhow::Error::from(error).context("serving machines that bootstrap"),
        }
    }

    /// Stops accepting connections, and waits until the open connections are done.
    pub async fn drain(mut self) {
        let _ = self.stop.send(true);
        // The task ends because `stop` is true.
        let _ = (&mut self.task).await;
    }
}
