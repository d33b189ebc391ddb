//! Asks kops-controller for the configuration of a machine without access to the state store, and for certificates. The
//! machine makes the keys of the certificates itself.
//!
//! Source: upstream's `pkg/kopscontrollerclient/client.go` and `getNodeConfigFromServers` in
//! `upup/pkg/fi/nodeup/command.go`. Unlike upstream, the pause between requests grows while servers refuse.

mod identity;
#[cfg(test)]
mod release_tests;
mod renewal;
mod round;
mod server;
mod slot;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kops_agent_cloud::Machine;
use kops_agent_cloud::authenticate::{AuthenticationError, Authenticator};
use kops_agent_cluster::bootstrap::challenge;
use kops_agent_cluster::bootstrap::message::{BootstrapRequest, BootstrapResponse, ServedNodeConfig};
use kops_agent_cluster::bootstrap::{server_name, server_url};
use kops_agent_plan::resolve::possible_node_names;
use kops_agent_spec::facts::{CloudFacts, Facts};
use kops_agent_spec::failure::{Failing, Kind};
use kops_agent_spec::invalid::Invalid;
use kops_agent_spec::{BootConfig, CloudProvider};
use thiserror::Error;
use time::OffsetDateTime;

use kops_agent_cloud::callback::{CallbackServer, CallbackServerError};
use kops_agent_cloud::tpm::{KernelTpm, OpenTpm};
use kops_agent_net::http::HttpError;
use kops_agent_net::retry::{GaveUp, Pauses, Retries};
use kops_agent_net::tls;

use crate::failure::kind_of;
use identity::Identity;
pub use identity::LeftBy;
use round::{Failures, ask_each};
use server::{Failure, NoServer, Server};
pub use slot::NoAnswer;

/// The first pause between two rounds of requests to all servers, if a server answers that it cannot serve yet. The pauses grow up to
/// [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// The longest pause between two rounds of requests if nothing listens at any address. The pause can be short, because such a round causes
/// no load on a server: this machine only makes a new proof of its identity. With a longer pause, a machine that boots together with its
/// control plane would join late.
const LONGEST_UNANSWERED_PAUSE: Duration = Duration::from_secs(1);

/// Why kops-controller did not give the requested data.
#[derive(Debug, Error)]
pub enum BootstrapError {
    /// kops-controller gives no data to a node that has already joined the cluster.
    #[error(
        "{server} answers that this machine's Node is registered and ready; kops-controller gives such a machine no \
         configuration and no certificates, so both stay unchanged{missing}"
    )]
    AlreadyRegistered {
        server: String,
        /// The data that this machine still lacks. The text begins with punctuation.
        missing: String,
    },
    /// This node is ready. No server gives a ready node the current configuration or the program file.
    #[error(
        "cannot follow: {server} gives nothing to a node that is ready, and no server answers /renew with {what}; check \
         that `kops-agent controller` of this version serves port 3988, and that kubelet's certificate is valid"
    )]
    NotFollowed { server: String, what: &'static str },
    #[error(
        "no kops-controller gives this machine {what}, in {attempts} tries within {seconds} seconds:{failures}"
    )]
    NotGiven {
        what: String,
        /// Number of requests to each server.
        attempts: u32,
        seconds: u64,
        /// The last failure of each server. The text begins with a space or a line break.
        failures: String,
    },
    #[error(transparent)]
    NoServer(#[from] NoServer),
    #[error("cannot prove this machine's identity to kops-controller: {0}")]
    Authentication(#[from] AuthenticationError),
    /// This machine cannot start the server that kops-controller calls back.
    #[error(transparent)]
    Callback(#[from] CallbackServerError),
    #[error("cannot ask kops-controller: {0}")]
    Http(#[from] HttpError),
    /// An operation on a key or certificate failed.
    #[error(transparent)]
    Certificate(#[from] kops_agent_pki::CertificateError),
}

impl Failing for BootstrapError {
    fn kind(&self) -> Kind {
        match self {
            BootstrapError::AlreadyRegistered { .. } => Kind::AlreadyRegistered,
            BootstrapError::NotFollowed { .. } => Kind::FollowNotServed,
            BootstrapError::NotGiven { .. } => Kind::NotGiven,
            BootstrapError::NoServer(error) => error.kind(),
            BootstrapError::Authentication(error) => error.kind(),
            BootstrapError::Callback(error) => error.kind(),
            BootstrapError::Http(error) => error.kind(),
            BootstrapError::Certificate(_) => Kind::KeyUnusable,
        }
    }
}

impl BootstrapError {
    /// Converts `AlreadyRegistered` into `NotFollowed`, because no server gives `what` to a registered node. Other errors stay unchanged.
    fn not_followed(self, what: &'static str) -> BootstrapError {
        match self {
            BootstrapError::AlreadyRegistered { server, .. } => BootstrapError::NotFollowed { server, what },
            other => other,
        }
    }
}

/// Whether a run ended only because this machine is already a node.
pub fn is_already_registered(error: &anyhow::Error) -> bool {
    kind_of(error) == Kind::AlreadyRegistered
}

pub struct Current {
    /// The text of the group's boot config, which contains the hash of `config`.
    pub boot_config: String,
    pub config: ServedNodeConfig,
}

fn configuration_of(answer: BootstrapResponse) -> Result<ServedNodeConfig, Invalid> {
    match answer.node_config {
        Some(config) if !config.nodeup_config.is_empty() => Ok(config),
        _ => Err(Invalid::new("has no configuration in it (nodeConfig.nodeupConfig)")),
    }
}

/// A client with which one machine sends requests to the kops-controllers of the machine's cluster.
#[derive(Clone, Debug)]
pub struct KopsController {
    /// The URLs of the servers. All servers give equivalent answers.
    servers: Vec<String>,
    /// The name in the servers' certificates. Empty if the name is the host of the URL.
    tls_server_name: String,
    /// The PEM certificates of the authorities that sign the servers' certificates.
    authorities: String,
    cluster: String,
    provider: CloudProvider,
    /// The facts about this machine that the cloud reports.
    cloud: CloudFacts,
    /// The address at which this machine listens for kops-controller's call-back, and a fallback address.
    called_back_at: [SocketAddr; 2],
    hostname: String,
    /// Signs requests of this machine, if the cloud's proof needs a TPM.
    tpm: Arc<dyn OpenTpm>,
    /// The proof that this machine is already a node.
    identity: Identity,
    retries: Retries,
}

impl KopsController {
    /// A client for the servers in the boot config. If the boot config names no server, the client uses kops-controller's usual DNS name,
    /// or in a cluster without DNS the addresses of the API server. If the boot config has no certificates of `kubernetes-ca`, the client
    /// trusts `authorities`.
    pub fn new(
        boot: &BootConfig,
        authorities: Option<&str>,
        facts: &Facts,
        timeout: Duration,
    ) -> KopsController {
        let named = boot.config_server.clone().unwrap_or_default();
        let usual_name = server_name(&boot.cluster_name);
        let (servers, tls_server_name) = match boot.api_server_ips.as_slice() {
            _ if !named.servers.is_empty() => (named.servers, named.tls_server_name),
            [] => (vec![server_url(&usual_name)], String::new()),
            addresses => (addresses.iter().map(|address| server_url(address)).collect(), usual_name),
        };
        let authorities = match named.ca_certificates {
            given if !given.is_empty() => given,
            _ => authorities.unwrap_or_default().to_owned(),
        };
        KopsController {
            servers,
            tls_server_name,
            authorities,
            cluster: boot.cluster_name.clone(),
            provider: boot.cloud_provider,
            cloud: facts.cloud.clone(),
            hostname: facts.hostname.clone(),
            // The second address is for a kernel without IPv6.
            called_back_at: [
                (Ipv6Addr::UNSPECIFIED, challenge::PORT).into(),
                (Ipv4Addr::UNSPECIFIED, challenge::PORT).into(),
            ],
            tpm: Arc::new(KernelTpm::default()),
            identity: Identity {
                root: PathBuf::from("/"),
                names: possible_node_names(boot.cloud_provider, facts),
                left_by: LeftBy::Unknown,
            },
            retries: Retries {
                deadline: timeout,
                attempt: server::REQUEST_TIMEOUT,
                pauses: Pauses { first: FIRST_PAUSE, longest: LONGEST_PAUSE },
            },
        }
    }

    /// Sets the root of the node's files. Below the root is the node's current certificate.
    pub fn for_node_at(self, root: &Path) -> KopsController {
        let identity = Identity { root: root.to_owned(), ..self.identity };
        KopsController { identity, ..self }
    }

    /// Sets which machine wrote the files below the root. Files that another machine wrote do not prove that this machine is a node.
    pub fn with_files_left_by(self, left_by: LeftBy) -> KopsController {
        let identity = Identity { left_by, ..self.identity };
        KopsController { identity, ..self }
    }

    /// Sets the address for the call-back. Each test needs its own address, because several tests listen on one machine.
    pub fn called_back_at(self, address: SocketAddr) -> KopsController {
        KopsController { called_back_at: [address; 2], ..self }
    }

    /// Replaces the TPM, because the machine that runs the tests may have none.
    pub fn with_tpm(self, tpm: Arc<dyn OpenTpm>) -> KopsController {
        KopsController { tpm, ..self }
    }

    /// The URL of the server that answered, and this machine's configuration.
    pub async fn node_config(&self) -> Result<(String, ServedNodeConfig), BootstrapError> {
        self.ask("its configuration", &BootstrapRequest::for_node_config(), configuration_of).await
    }

    /// The current configuration of this machine's group, the boot config that pins it, and the URL of the server that gave both. Fails
    /// with kOps' own kops-controller, because it gives no boot config.
    pub async fn current(&self) -> Result<(String, Current), BootstrapError> {
        let accept = |mut answer: BootstrapResponse| match answer.boot_config.take() {
            Some(boot_config) => Ok(Current { boot_config, config: configuration_of(answer)? }),
            None => Err(Invalid::new(
                "has no boot config in it (bootConfig): only the server of kops-agent gives one to a node that follows",
            )),
        };
        let request = BootstrapRequest::for_node_config().with_boot_config(true);
        let asked = self.ask("the current configuration of its group", &request, accept).await;
        asked.map_err(|error| error.not_followed("the current configuration"))
    }

    /// The URL of the server that answered, and the text of the state store's program file, which names a kops-agent program. Fails if the
    /// server is kOps' own kops-controller or an older kops-agent, because such a server does not give the file.
    pub async fn program_file(&self) -> Result<(String, String), BootstrapError> {
        let accept = |answer: BootstrapResponse| {
            answer.program.ok_or_else(|| {
                Invalid::new("has no program file in it (program): only the server of kops-agent of this version gives one")
            })
        };
        let asked = self.ask("the program file", &BootstrapRequest::for_program(), accept).await;
        asked.map_err(|error| error.not_followed("the program file"))
    }

    /// Requests a certificate for each public key. `public_keys` has the keys by the name of their certificate. `accept` validates and
    /// converts the certificates that a server returns, which it also gets by name.
    pub async fn certificates<T>(
        &self,
        public_keys: BTreeMap<String, String>,
        keypair_ids: BTreeMap<String, String>,
        accept: impl Fn(BTreeMap<String, String>) -> Result<T, Invalid>,
    ) -> Result<T, BootstrapError> {
        let names: Vec<&str> = public_keys.keys().map(String::as_str).collect();
        let what = format!("its certificates ({})", names.join(", "));
        let request = BootstrapRequest::for_certs(public_keys.clone(), keypair_ids);
        let (_, given) = self.ask(&what, &request, |answer| accept(answer.certs)).await?;
        Ok(given)
    }

    /// Asks every address of every server until `accept` accepts an answer. If no answer is accepted, pauses and asks all addresses again.
    async fn ask<T>(
        &self,
        what: &str,
        request: &BootstrapRequest,
        accept: impl Fn(BootstrapResponse) -> Result<T, Invalid>,
    ) -> Result<(String, T), BootstrapError> {
        let servers = Server::from_urls(&self.servers, &self.tls_server_name)?;
        let root = &self.identity.root;
        let machine = Machine { facts: &self.cloud, tpm: &self.tpm, hostname: &self.hostname, root };
        let cloud = kops_agent_cloud::for_provider(self.provider);
        let asking = Asking {
            authenticator: cloud.authenticator(machine).await?,
            trust: tls::client_config_trusting(&self.authorities).map_err(|_| NoServer::NoAuthority)?,
            callback: match cloud.calls_back() {
                true => Some(self.listen().await?),
                false => None,
            },
            request: request.clone(),
            identity: self.identity.clone(),
        };
        let retried_for = |failed: &Failures| match failed.registered() {
            Some(_) => Duration::ZERO,
            None => Duration::MAX,
        };
        let round = || asking.round(&servers, &asking.trust, &accept);
        let (mut growing, mut short) = (self.retries.pauses.jittered(), self.unanswered().jittered());
        let pause = |failed: &Failures| if failed.is_unanswered() { short() } else { growing() };
        let mut asked =
            self.retries.run_pausing(&format!("asking for {what}"), round, retried_for, pause).await;
        if asked.as_ref().is_err_and(|gave_up| gave_up.error.registered().is_some())
            && let Some(given) = self.renewed(&asking, &servers, what, &accept).await
        {
            asked = Ok(given);
        }
        if let Some(callback) = asking.callback {
            callback.stop().await;
        }
        let GaveUp { error, attempts, waited } = match asked {
            Ok(given) => return Ok(given),
            Err(gave_up) => gave_up,
        };
        Err(match error.registered() {
            Some(server) => {
                BootstrapError::AlreadyRegistered { server: server.to_owned(), missing: String::new() }
            }
            None => BootstrapError::NotGiven {
                what: what.to_owned(),
                attempts,
                seconds: waited.as_secs(),
                failures: error.to_string(),
            },
        })
    }

    /// The pauses to use while no server answers.
    fn unanswered(&self) -> Pauses {
        let Pauses { first, longest } = self.retries.pauses;
        Pauses { first, longest: longest.min(LONGEST_UNANSWERED_PAUSE) }
    }

    async fn listen(&self) -> Result<CallbackServer, BootstrapError> {
        let start = |address| CallbackServer::start(&self.cluster, &self.authorities, address);
        let [first, second] = self.called_back_at;
        match start(first).await {
            Err(CallbackServerError::Listen { .. }) => Ok(start(second).await?),
            started => Ok(started?),
        }
    }
}

struct Asking {
    authenticator: Box<dyn Authenticator>,
    trust: rustls::ClientConfig,
    /// Answers the call-back with which kops-controller verifies this machine. `None` on clouds without a call-back.
    callback: Option<CallbackServer>,
    request: BootstrapRequest,
    /// The proof that this machine is already a node. Without this proof, a Ready Node with this machine's name may belong to another
    /// machine.
    identity: Identity,
}

impl Asking {
    /// Asks every address of every server. Stops when a server gives an accepted answer, or answers that this machine is registered.
    async fn round<T>(
        &self,
        servers: &[Server],
        trust: &rustls::ClientConfig,
        accept: impl Fn(BootstrapResponse) -> Result<T, Invalid>,
    ) -> Result<(String, T), Failures> {
        let ask = async |server: &Server, address| self.try_at(server, address, trust, &accept).await;
        let asked = ask_each(servers, ask).await;
        // kOps releases expect different forms of the token, and servers with one DNS name may run different releases. So the form changes
        // only after a whole round.
        if asked.as_ref().is_err_and(Failures::has_refused_token) {
            self.authenticator.refused();
        }
        // kOps releases also expect different forms of the proof for the call-back, and the servers may run different releases. So this
        // form, too, changes only after a whole round.
        if let (Some(callback), Err(failed)) = (&self.callback, &asked)
            && failed.has_failed_call_back()
        {
            callback.refused();
        }
        asked
    }

    /// Sends a request with a new proof, because the proof of an earlier request may be too old or already used.
    async fn try_at<T>(
        &self,
        server: &Server,
        address: SocketAddr,
        trust: &rustls::ClientConfig,
        accept: impl Fn(BootstrapResponse) -> Result<T, Invalid>,
    ) -> Result<T, Failure> {
        let body = self.body()?;
        let token = self.authenticator.token(body.as_bytes()).await?;
        let answer =
            server.post(trust, address, Some(token), body).await.map_err(|failure| match failure {
                Failure::AlreadyRegistered => match self.identity.proof(OffsetDateTime::now_utc()) {
                    Ok(_) => Failure::AlreadyRegistered,
                    Err(no_proof) => Failure::NameInUse(no_proof),
                },
                other => other,
            })?;
        let answer = BootstrapResponse::parse(&answer)
            .map_err(|error| Invalid::new(format!("cannot be read: {error}")))?;
        Ok(accept(answer)?)
    }

    /// The request as JSON, with a new challenge, because a challenge is valid for only one request.
    fn body(&self) -> Result<String, Failure> {
        let challenge = self.callback.as_ref().map(CallbackServer::challenge).transpose()?;
        let request = BootstrapRequest { challenge, ..self.request.clone() };
        serde_json::to_string(&request).map_err(|error| {
            AuthenticationError::NotSigned(format!("the request cannot be written: {error}")).into()
        })
    }
}
