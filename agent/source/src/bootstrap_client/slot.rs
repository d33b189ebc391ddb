//! Asks for a slot before a change that restarts components of the node. The node shows its kubelet's certificate
//! (`docs/pacing.md`). Upstream's kops-controller has no slots, so by default a node that asks it changes without a
//! slot.

use kops_agent_cluster::bootstrap::{server_name, server_url};
use kops_agent_cluster::pacing::API_SERVER_MANIFEST;
use kops_agent_cluster::pacing::message::{SlotAnswer, SlotRequest};
use kops_agent_net::tls;
use kops_agent_spec::invalid::Invalid;
use rustls::ClientConfig;
use time::OffsetDateTime;

use super::KopsController;
use super::identity::{KUBECONFIG, present};
use super::round::ask_each;
use super::server::{Failure, NoServer, Server};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoAnswer {
    /// The server is upstream's kops-controller, which has no slots.
    NotServed,
    /// Why the client could not find out whether the node has a slot.
    Unknown(String),
}

impl KopsController {
    /// Requests a slot, which permits this node to restart essential parts of itself. Asks each address of each server once, until a server
    /// answers with a decision.
    pub async fn slot(&self, request: SlotRequest) -> Result<SlotAnswer, NoAnswer> {
        let trust = self.showing_its_certificate().map_err(NoAnswer::Unknown)?;
        let servers = self.servers_of_slots().map_err(|error| NoAnswer::Unknown(error.to_string()))?;
        let body = serde_json::to_string(&request).map_err(|error| NoAnswer::Unknown(error.to_string()))?;
        let ask = async |server: &Server, address| {
            let answer = server.post(&trust, address, None, body.clone()).await?;
            serde_json::from_slice(&answer)
                .map_err(|error| Failure::Unusable(Invalid::new(format!("cannot be read: {error}"))))
        };
        match ask_each(&servers, ask).await {
            Ok((_, answer)) => Ok(answer),
            Err(failures) => {
                let mut outcomes = Outcomes::default();
                failures.each().for_each(|(server, failure)| outcomes.add(server, failure));
                Err(outcomes.into_answer())
            }
        }
    }

    /// The TLS configuration with kubelet's current certificate. It is made for each request, because a renewal replaces the certificate.
    fn showing_its_certificate(&self) -> Result<ClientConfig, String> {
        let present = present(&self.identity.root, OffsetDateTime::now_utc())
            .map_err(|problem| format!("cannot authenticate with kubelet's certificate: {problem}"))?
            .pair;
        tls::client_config_trusting_as(&self.authorities, &present.certificate, &present.private_key)
            .map_err(|error| format!("the certificate in /{KUBECONFIG} cannot be used: {error}"))
    }

    /// The servers to ask for a slot. A control plane also asks the server on its own machine, for two reasons: without DNS, it may not
    /// find other control planes, and the cluster may have no other control plane.
    fn servers_of_slots(&self) -> Result<Vec<Server>, NoServer> {
        let mut servers = Server::from_urls(&self.servers, &self.tls_server_name)?;
        if self.identity.root.join(API_SERVER_MANIFEST.trim_start_matches('/')).exists() {
            servers.extend(Server::from_urls(&[server_url("127.0.0.1")], &server_name(&self.cluster))?);
        }
        Ok(servers.iter().map(Server::pacing).collect())
    }
}

#[derive(Default)]
struct Outcomes {
    /// The failures of servers that support slots, but cannot decide about this node's request now.
    troubles: Vec<String>,
    /// The failures of servers that do not answer.
    silence: Vec<String>,
    is_upstream: bool,
}

impl Outcomes {
    fn add(&mut self, server: &str, failure: &Failure) {
        let told = format!("{server}: {failure}");
        match failure {
            failure if failure.is_unknown_path() => self.is_upstream = true,
            failure if failure.is_answer() => self.troubles.push(told),
            _ => self.silence.push(told),
        }
    }

    /// Combines the failures of all servers into one answer. A server that does not support slots answers 404 or 405. If all answers are
    /// 404 or 405, the result is [`NoAnswer::NotServed`], even if other servers do not answer.
    fn into_answer(self) -> NoAnswer {
        if self.is_upstream && self.troubles.is_empty() {
            return NoAnswer::NotServed;
        }
        NoAnswer::Unknown([self.troubles, self.silence].concat().join("; "))
    }
}
