//! The bootstrap server: a machine that can prove who it is gets what it needs to be a node.
//!
//! Nobody is known here before they are verified, so whatever comes before that has a bound: connections, times,
//! lengths, questions to the cloud. [`Bootstrap::answer`] reads top to bottom as what a request meets.

pub mod addresses;
mod admission;
mod audit;
mod aws;
mod call_back;
mod claims;
mod clients;
pub mod connections;
mod descriptors;
mod gce;
mod grants;
mod hetzner;
mod keystore;
mod rate;
mod renewal;
mod replay;
mod server;
#[cfg(test)]
mod tests;
pub mod verifier;
mod wasted;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow};
use kops_agent_plan::bootstrap::message::BootstrapRequest;
use kops_agent_plan::bootstrap::node_config::is_dns_name;
use kops_agent_plan::spec::{KopsControllerOptions, KopsControllerServerOptions};
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::identify::Cloud;
use super::metrics::{BootstrapMetrics, Metrics};
use super::node_api::Nodes;
use addresses::{MachinePrefix, WhoConnects};
use admission::Admission;
use audit::Record;
use aws::AwsVerifier;
use call_back::CallBack;
use gce::GceVerifier;
use grants::Grants;
use hetzner::HetznerVerifier;
use keystore::Keystore;
use kops_agent_cloud::aws::sts::Sts;
use kops_agent_process::exit::WrongConfiguration;
use kops_agent_process::output::error_text;
use kops_agent_store::Store;
use renewal::Renewal;
use replay::{Taken, Token};
use server::Server;
use verifier::{Answer, Examined, Presented, Proof, Refusal, Verifier, examine};

/// How long the cloud may take to say who a machine is; and the API server, to say whether its Node is at work.
const VERIFIED_WITHIN: Duration = Duration::from_secs(8);
const NODE_WITHIN: Duration = Duration::from_secs(4);
/// How often it is tried to serve, where that is not possible yet.
const TRIED_EVERY: Duration = Duration::from_secs(1);

/// Who serves.
pub struct Serving {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

/// Answers machines.
pub struct Bootstrap {
    verifiers: Vec<Box<dyn Verifier>>,
    taken: Taken,
    admission: Arc<Admission>,
    call_back: CallBack,
    renewal: Renewal,
    nodes: Nodes,
    grants: Grants,
    /// What tells machines apart that ask.
    machines: MachinePrefix,
    /// Whether they have addresses of their own here.
    who_connects: WhoConnects,
    metrics: BootstrapMetrics,
}

/// What a request says, as far as it matters.
pub struct Asked<'a> {
    /// The header `Authorization`; empty where there is none, or more than one.
    pub token: &'a str,
    /// The body.
    pub body: &'a [u8],
    /// As whom.
    pub door: Door<'a>,
}

/// As whom a machine asks.
#[derive(Clone, Copy, Debug)]
pub enum Door<'a> {
    /// As one that is to become a node.
    Bootstrap,
    /// As one that is a node, with this certificate (DER) if it has shown one, which TLS has found good.
    Renewal(Option<&'a [u8]>),
}

/// What it takes to serve.
pub struct Setup {
    /// The configuration.
    pub options: KopsControllerOptions,
    /// Whom to ask who machines are.
    pub cloud: Arc<Cloud>,
    /// The Nodes that are there already.
    pub nodes: Nodes,
    /// Where configurations are.
    pub store: Arc<Store>,
    /// What is counted.
    pub metrics: Metrics,
}

impl Setup {
    /// Serves from now on, if the configuration has a server. Where that is not possible yet, it is tried again: kOps'
    /// own kops-controller may still have the port, or the keys may not be there before the first node run. Returns once
    /// it listens, or has tried to.
    pub async fn start(self) -> Option<Serving> {
        self.options.server.as_ref()?;
        self.metrics.bootstrap.down.set(1);
        let (stop, stopped) = watch::channel(false);
        let first = self.listen().await;
        Some(Serving { stop, task: tokio::spawn(self.keep_trying(first, stopped)) })
    }

    async fn keep_trying(
        self,
        mut listening: Result<(Server, Arc<Keystore>)>,
        mut stopped: watch::Receiver<bool>,
    ) {
        let mut said = String::new();
        loop {
            match listening {
                Ok((server, keystore)) => {
                    let _up = Up::from_now(&self.metrics.bootstrap.down);
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
            if timeout(TRIED_EVERY, stopped.wait_for(|stopped| *stopped)).await.is_ok() {
                return;
            }
            listening = self.listen().await;
        }
    }

    async fn listen(&self) -> Result<(Server, Arc<Keystore>)> {
        let options = &self.options;
        let server = options.server.as_ref().context("there is no server in the configuration")?;
        let keystore = Arc::new(Keystore::load(server)?);
        // Another may have the port for days, while one takes over from the other: nothing is made ready for that.
        let listener = server::listen(&server.listen).await?;
        let metrics = self.metrics.bootstrap.clone();
        let bootstrap = Arc::new(Bootstrap {
            verifiers: verifiers(server, &self.cloud, &self.metrics).await?,
            taken: Taken::since(Instant::now()),
            admission: Admission::new(admission::Limits::default(), metrics.waiting.clone()),
            call_back: CallBack::of(&options.cluster_name, keystore.clone()),
            renewal: Renewal::default(),
            nodes: self.nodes.clone(),
            grants: Grants::of(
                self.store.clone(),
                &options.config_base,
                &options.secret_store,
                &server.cert_names,
                keystore.clone(),
            ),
            machines: MachinePrefix::of(&self.cloud),
            who_connects: WhoConnects::of(&self.cloud),
            metrics,
        });
        let server = Server::of(listener, keystore.clone(), bootstrap, server::Limits::default())?;
        log::info!("machines bootstrap at https://{}/bootstrap", server.address()?);
        Ok((server, keystore))
    }
}

async fn serve(server: Server, keystore: &Keystore, stopped: watch::Receiver<bool>) {
    tokio::select! {
        () = server.serve(stopped) => {}
        () = keystore.watch() => {}
    }
}

/// Who vouches for machines.
async fn verifiers(
    server: &KopsControllerServerOptions,
    cloud: &Cloud,
    metrics: &Metrics,
) -> Result<Vec<Box<dyn Verifier>>> {
    let mut verifiers: Vec<Box<dyn Verifier>> = Vec::new();
    match (cloud, &server.provider.aws, &server.provider.gce) {
        (Cloud::Aws { cluster, instances }, Some(aws), _) => verifiers.push(Box::new(AwsVerifier {
            cluster: cluster.clone(),
            nodes_roles: aws.nodes_roles.clone(),
            sts: Sts::of_region(&cluster.region, metrics.cloud_calls.clone()).await?,
            instances: instances.clone(),
        })),
        (Cloud::Gce(groups), _, Some(gce)) => {
            verifiers.push(Box::new(GceVerifier::of(groups.clone(), gce.max_time_skew)));
        }
        (Cloud::Hetzner(servers), _, _) if server.provider.others.contains_key("hetzner") => {
            verifiers.push(Box::new(HetznerVerifier { servers: servers.clone() }));
        }
        (Cloud::Aws { .. } | Cloud::Gce(_) | Cloud::Hetzner(_), _, _) => {}
    }
    if verifiers.is_empty() {
        let problem =
            "server.provider names no cloud whose machines can be verified: is this another cloud's file?";
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
    /// Waits until nobody serves any more, though nobody was told to stop, and says why.
    pub async fn ended(&mut self) -> anyhow::Error {
        match (&mut self.task).await {
            Ok(()) => anyhow!("the bootstrap server has ended by itself, which it never should"),
            Err(error) => anyhow::Error::from(error).context("serving machines that bootstrap"),
        }
    }

    /// Takes nobody on any more, and lets those who are connected finish.
    pub async fn drain(self) {
        let _ = self.stop.send(true);
        // It ends by itself, in time.
        let _ = self.task.await;
    }
}

impl Bootstrap {
    /// What a machine is answered: JSON, or why not. Either is written down.
    ///
    /// # Errors
    /// Why it is refused.
    pub async fn answer(
        &self,
        mut record: Record<'_>,
        asked: &Asked<'_>,
        within: Duration,
    ) -> Result<String, Refusal> {
        let answered = timeout(within, self.give(asked, &mut record))
            .await
            .unwrap_or_else(|_| Err(Refusal::unavailable("Deadline", "it takes too long")));
        record.answered(answered)
    }

    async fn give(&self, asked: &Asked<'_>, known: &mut Record<'_>) -> Result<String, Refusal> {
        // What costs nothing comes first.
        let (now, at) = (SystemTime::now(), Instant::now());
        let origin = self.machines.origin(known.remote.ip());
        let holder = match asked.door {
            Door::Bootstrap => None,
            Door::Renewal(certificate) => Some(self.renewal.holder(certificate, origin, at, known)?),
        };
        let presented = Presented { token: asked.token, body: asked.body, origin, now: seconds(now) };
        let Examined { fingerprint, signed_at, proof, verification } = examine(&self.verifiers, &presented)?;
        let token = Token { fingerprint, age: signed_at.map(|signed_at| age(signed_at, now)) };
        let request = BootstrapRequest::parse(asked.body)
            .map_err(|error| bad_request("RequestMalformed", format!("failed to decode: {error}")))?;
        let challenge = match proof {
            Proof::Token => None,
            Proof::CallBack { .. } => Some(request.challenge.as_ref().ok_or_else(call_back::no_challenge)?),
        };
        let under_way = self.taken.take(token, at)?;

        let verification = async {
            let late = |_| Err(Refusal::unavailable("CloudTooSlow", "its cloud takes too long"));
            timeout(VERIFIED_WITHIN, verification).await.unwrap_or_else(late)
        };
        let _admitted = match proof {
            Proof::Token => {
                let admitted = self.admission.enter(origin).await?;
                known.node = verification.await?;
                admitted
            }
            // That there is such a machine costs one list for all that ask. What is made up has no turn of its own.
            Proof::CallBack { claimed } => {
                known.node = verification.await?;
                self.admission.enter(origin.claiming(claimed)).await?
            }
        };
        let name = known.node.node_name.clone();
        if !is_dns_name(&name) {
            return Err(Refusal::not_verified("NoNodeName", format!("{name:?} is no name of a Node")));
        }
        if let Some(holder) = &holder {
            renewal::refuse_holders_of_others(holder, &name)?;
        }
        if let Some(challenge) = challenge {
            self.call_back.prove(&known.node, challenge).await?;
        }
        match &holder {
            None => self.refuse_the_registered(&name).await?,
            Some(holder) => {
                renewal::refuse_replaced(&known.node, &self.nodes).await?;
                // By what it asks the call-back, too, where that is the proof.
                self.renewal.verified(holder, origin);
            }
        }

        let response = self.grants.give(&known.node, &request).await?;
        // Not before: who is given nothing, because somebody cannot be asked now, comes again and again.
        under_way.used_by(&name)?;
        known.given = given(&request);
        let mut json = serde_json::to_string(&response)
            .map_err(|error| Refusal::unavailable("AnswerNotWritten", error))?;
        json.push('\n');
        Ok(json)
    }

    /// A Node that is at work has its certificates: who asks for them once more may be a pod on it.
    async fn refuse_the_registered(&self, name: &str) -> Result<(), Refusal> {
        let unavailable = |problem: String| Refusal::unavailable("ApiServerUnavailable", problem);
        match timeout(NODE_WITHIN, self.nodes.is_ready(name)).await {
            Ok(Ok(false)) => Ok(()),
            Ok(Ok(true)) => Err(Refusal {
                answer: Answer::AlreadyRegistered,
                reason: "AlreadyRegistered",
                message: format!("the Node {name} is registered and Ready"),
            }),
            Ok(Err(error)) => Err(unavailable(format!(
                "the API server does not tell about the Node {name}: {}",
                error_text(&error.into())
            ))),
            Err(_) => Err(unavailable(format!("the API server does not tell about the Node {name} in time"))),
        }
    }
}

fn bad_request(reason: &'static str, message: String) -> Refusal {
    Refusal { answer: Answer::BadRequest, reason, message }
}

/// What a request asks for, in words.
fn given(request: &BootstrapRequest) -> String {
    let certs = request.certs.iter().flatten().map(|(name, _)| name.as_str());
    let config = request.include_node_config.then_some("its configuration");
    let all: Vec<&str> = config.into_iter().chain(certs).collect();
    if all.is_empty() { "nothing".into() } else { all.join(", ") }
}

/// Seconds since 1970.
fn seconds(now: SystemTime) -> i64 {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// How long ago it was signed at least, by this clock: tokens tell the second, and that may have been its end.
fn age(signed_at: i64, now: SystemTime) -> Duration {
    let no_later_than = Duration::from_secs(u64::try_from(signed_at.saturating_add(1)).unwrap_or_default());
    now.duration_since(UNIX_EPOCH).unwrap_or_default().saturating_sub(no_later_than)
}
