//! A machine without access to the state store asks kops-controller for what it needs: its configuration, and
//! certificates for keys that it has made itself.
//!
//! Source: upstream's `pkg/kopscontrollerclient/client.go` and `getNodeConfigFromServers` in
//! `upup/pkg/fi/nodeup/command.go`. Unlike there, servers that refuse are asked again after a growing pause only.

#[cfg(test)]
mod release_tests;
mod renewal;
mod server;
mod slot;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kops_agent_cloud::Machine;
use kops_agent_cloud::authenticate::{AuthenticationError, Authenticator};
use kops_agent_plan::bootstrap::challenge;
use kops_agent_plan::bootstrap::message::{BootstrapRequest, BootstrapResponse, ServedNodeConfig};
use kops_agent_plan::bootstrap::{server_name, server_url};
use kops_agent_spec::facts::{CloudFacts, Facts};
use kops_agent_spec::{BootConfig, CloudProvider};
use thiserror::Error;

use kops_agent_cloud::callback::{CallbackServer, CallbackServerError};
use kops_agent_cloud::tpm::{KernelTpm, OpenTpm};
use kops_agent_net::http::HttpError;
use kops_agent_net::retry::{GaveUp, Retries};
use kops_agent_net::tls;

use server::{Failure, Failures, NoServer, Server, ask_each};
pub use slot::NoAnswer;

/// Between two rounds of asking, servers that cannot serve yet are given this time at first, and later this.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// The same for those that nothing answers for: a question costs them nothing and this machine a proof. A machine that boots with its
/// control plane would otherwise wait for longer than that takes to start.
const LONGEST_UNANSWERED_PAUSE: Duration = Duration::from_secs(1);

/// Why kops-controller did not give what it was asked for.
#[derive(Debug, Error)]
pub enum BootstrapError {
    /// It gives nothing to a node that has joined the cluster already.
    #[error(
        "{server} answers that this machine's Node is registered and ready; kops-controller then gives out neither \
         configuration nor certificates, so nothing of them was changed{missing}"
    )]
    AlreadyRegistered {
        /// The server that says so.
        server: String,
        /// What this machine needed all the same; begins with punctuation.
        missing: String,
    },
    /// No server gave it.
    #[error(
        "no kops-controller gives this machine {what}, in {attempts} tries within {seconds} seconds:{failures}"
    )]
    NotGiven {
        what: String,
        /// How often each was asked.
        attempts: u32,
        seconds: u64,
        /// What each said in the end; begins with a space or a line break.
        failures: String,
    },
    /// There is no server to ask.
    #[error(transparent)]
    NoServer(#[from] NoServer),
    /// This machine cannot prove its identity.
    #[error("cannot show kops-controller which machine this is: {0}")]
    Authentication(#[from] AuthenticationError),
    /// kops-controller would call back in vain.
    #[error(transparent)]
    Callback(#[from] CallbackServerError),
    /// No server can be asked.
    #[error("cannot ask kops-controller: {0}")]
    Http(#[from] HttpError),
    /// A key or a certificate could not be dealt with.
    #[error(transparent)]
    Certificate(#[from] kops_agent_pki::CertificateError),
}

impl BootstrapError {
    /// Whether the configuration has to be changed before another attempt can help.
    pub fn is_configuration(&self) -> bool {
        match self {
            BootstrapError::NoServer(_) => true,
            BootstrapError::Authentication(error) => error.is_configuration(),
            _ => false,
        }
    }
}

/// Whether a run ended because this machine is a node already, which is nothing to worry about.
pub fn is_already_registered(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| matches!(cause.downcast_ref(), Some(BootstrapError::AlreadyRegistered { .. })))
}

/// The kops-controllers of a cluster, for one of its machines.
#[derive(Clone, Debug)]
pub struct KopsController {
    /// URLs, each as good as the others.
    servers: Vec<String>,
    /// The name that their certificates bear; empty where it is the one in the URL.
    tls_server_name: String,
    /// PEM of the authorities that sign their certificates.
    authorities: String,
    cluster: String,
    provider: CloudProvider,
    /// What the cloud says of this machine.
    cloud: CloudFacts,
    /// Where to listen for the call-back; and where, if that is not to be had.
    called_back_at: [SocketAddr; 2],
    /// What this machine is called.
    hostname: String,
    /// What signs for this machine, where that is the proof.
    tpm: Arc<dyn OpenTpm>,
    /// Where the files of the node are, its present certificates among them.
    root: PathBuf,
    /// Whether these files are another machine's: an image may be made of a node's disk.
    is_of_another: bool,
    retries: Retries,
}

impl KopsController {
    /// Where the boot config says, or else at its usual name or, in a cluster without DNS, at the addresses of the
    /// API server; `authorities` is what is known of `kubernetes-ca` beside the boot config.
    pub fn of(
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
            // Where the kernel has no IPv6 there is IPv4 only.
            called_back_at: [
                (Ipv6Addr::UNSPECIFIED, challenge::PORT).into(),
                (Ipv4Addr::UNSPECIFIED, challenge::PORT).into(),
            ],
            tpm: Arc::new(KernelTpm::default()),
            root: PathBuf::from("/"),
            is_of_another: false,
            retries: Retries {
                deadline: timeout,
                attempt: server::REQUEST_TIMEOUT,
                first_pause: FIRST_PAUSE,
                longest_pause: LONGEST_PAUSE,
            },
        }
    }

    /// The same for the node whose files are below this root, which can show its present certificate.
    pub fn for_node_at(self, root: &Path) -> KopsController {
        KopsController { root: root.to_owned(), ..self }
    }

    /// The same, whose files another machine has left if `is_of_another`: this machine was never a node then.
    pub fn with_files_of_another(self, is_of_another: bool) -> KopsController {
        KopsController { is_of_another, ..self }
    }

    /// The same, called back at this address, since a test shares its machine with others.
    pub fn called_back_at(self, address: SocketAddr) -> KopsController {
        KopsController { called_back_at: [address; 2], ..self }
    }

    /// The same with another TPM, since tests share a machine that need not have one.
    pub fn with_tpm(self, tpm: Arc<dyn OpenTpm>) -> KopsController {
        KopsController { tpm, ..self }
    }

    /// The configuration of this machine, and the server that has given it.
    ///
    /// # Errors
    /// If no server gives it in time, or there is none to ask.
    pub async fn node_config(&self) -> Result<(String, ServedNodeConfig), BootstrapError> {
        let accept = |answer: BootstrapResponse| match answer.node_config {
            Some(config) if !config.nodeup_config.is_empty() => Ok(config),
            _ => Err("has no configuration in it (nodeConfig.nodeupConfig)".to_owned()),
        };
        self.ask("its configuration", &BootstrapRequest::for_node_config(), accept).await
    }

    /// Certificates for these public keys, by name, and what `accept` makes of them.
    ///
    /// # Errors
    /// If no server gives them in time, or there is none to ask.
    pub async fn certificates<T>(
        &self,
        public_keys: BTreeMap<String, String>,
        keypair_ids: BTreeMap<String, String>,
        accept: impl Fn(BTreeMap<String, String>) -> Result<T, String>,
    ) -> Result<T, BootstrapError> {
        let names: Vec<&str> = public_keys.keys().map(String::as_str).collect();
        let what = format!("its certificates ({})", names.join(", "));
        let request = BootstrapRequest::for_certs(public_keys.clone(), keypair_ids);
        let (_, given) = self.ask(&what, &request, |answer| accept(answer.certs)).await?;
        Ok(given)
    }

    /// Asks one server after the other, each at each of its addresses, and all of them again after a pause, for an answer that is
    /// accepted.
    async fn ask<T>(
        &self,
        what: &str,
        request: &BootstrapRequest,
        accept: impl Fn(BootstrapResponse) -> Result<T, String>,
    ) -> Result<(String, T), BootstrapError> {
        let servers = Server::all(&self.servers, &self.tls_server_name)?;
        let machine =
            Machine { facts: &self.cloud, tpm: &self.tpm, hostname: &self.hostname, root: &self.root };
        let cloud = kops_agent_cloud::of(self.provider);
        let asking = Asking {
            authenticator: cloud.authenticator(machine).await?,
            trust: tls::client_config_trusting(&self.authorities).map_err(|_| NoServer::NoAuthority)?,
            callback: match cloud.calls_back() {
                true => Some(self.listen().await?),
                false => None,
            },
            request: request.clone(),
            is_node: !self.is_of_another && self.root.join(renewal::KUBECONFIG).exists(),
        };
        let retried_for = |failed: &Failures| match failed.registered() {
            Some(_) => Duration::ZERO,
            None => Duration::MAX,
        };
        let round = || asking.round(&servers, &asking.trust, &accept);
        let (mut growing, mut short) = (self.retries.pauses(), self.unanswered().pauses());
        let pause = |failed: &Failures| if failed.is_unanswered() { short.next() } else { growing.next() };
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

    /// The pauses between rounds that no server answers in.
    fn unanswered(&self) -> Retries {
        let longest_pause = self.retries.longest_pause.min(LONGEST_UNANSWERED_PAUSE);
        Retries { longest_pause, ..self.retries }
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

/// A request, and all that it takes to make it.
struct Asking {
    authenticator: Box<dyn Authenticator>,
    trust: rustls::ClientConfig,
    /// The server that answers kops-controller's call-back, where it calls back.
    callback: Option<CallbackServer>,
    request: BootstrapRequest,
    /// Whether this machine has been a node. Of one that never was, a Node of its name that is Ready is another machine's.
    is_node: bool,
}

impl Asking {
    /// Asks each server at each of its addresses until one gives what is accepted, or says that this machine is registered.
    async fn round<T>(
        &self,
        servers: &[Server],
        trust: &rustls::ClientConfig,
        accept: impl Fn(BootstrapResponse) -> Result<T, String>,
    ) -> Result<(String, T), Failures> {
        let ask = async |server: &Server, address| self.try_at(server, address, trust, &accept).await;
        let asked = ask_each(servers, ask).await;
        // The servers behind one name may run several kOps releases, so the form changes only after all of them were asked.
        if asked.as_ref().is_err_and(Failures::has_refused_token) {
            self.authenticator.refused();
        }
        asked
    }

    /// Asks with a proof of its own: the one of an earlier try may be too old, or have been used.
    async fn try_at<T>(
        &self,
        server: &Server,
        address: SocketAddr,
        trust: &rustls::ClientConfig,
        accept: impl Fn(BootstrapResponse) -> Result<T, String>,
    ) -> Result<T, Failure> {
        let body = self.body()?;
        let token = self.authenticator.token(body.as_bytes()).await?;
        let answer =
            server.post(trust, address, Some(token), body).await.map_err(|failure| match failure {
                Failure::AlreadyRegistered if !self.is_node => Failure::NameInUse,
                other => other,
            })?;
        let answer = BootstrapResponse::parse(&answer)
            .map_err(|error| Failure::Unusable(format!("cannot be read: {error}")))?;
        accept(answer).map_err(Failure::Unusable)
    }

    /// The request as JSON. A challenge is good for one try.
    fn body(&self) -> Result<String, Failure> {
        let challenge = self.callback.as_ref().map(CallbackServer::challenge).transpose()?;
        let request = BootstrapRequest { challenge, ..self.request.clone() };
        serde_json::to_string(&request).map_err(|error| {
            AuthenticationError::NotSigned(format!("the request cannot be written: {error}")).into()
        })
    }
}
