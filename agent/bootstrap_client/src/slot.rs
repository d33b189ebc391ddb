//! A node asks for a slot before a change that restarts what it is made of, by its kubelet's certificate (`docs/pacing.md`).
//! Upstream's kops-controller knows nothing of that, and its nodes are changed without.

use kops_agent_net::tls;
use kops_agent_plan::bootstrap::{server_name, server_url};
use kops_agent_plan::pacing::API_SERVER_MANIFEST;
use kops_agent_plan::pacing::message::{SlotAnswer, SlotRequest};
use rustls::ClientConfig;
use time::OffsetDateTime;

use super::renewal::{KUBECONFIG, present};
use super::server::{Failure, NoServer, Server, ask_each};
use crate::KopsController;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoAnswer {
    /// What answers is kOps' own kops-controller, which has no slots.
    NotServed,
    /// Whether there is a slot is not known, because of this.
    Unknown(String),
}

impl KopsController {
    /// What the servers say of a slot of this node. Each is asked once, at each of its addresses, until one knows.
    ///
    /// # Errors
    /// None knows.
    pub async fn slot(&self, request: SlotRequest) -> Result<SlotAnswer, NoAnswer> {
        let trust = self.showing_its_certificate().map_err(NoAnswer::Unknown)?;
        let servers = self.servers_of_slots().map_err(|error| NoAnswer::Unknown(error.to_string()))?;
        let body = serde_json::to_string(&request).map_err(|error| NoAnswer::Unknown(error.to_string()))?;
        let ask = async |server: &Server, address| {
            let answer = server.post(&trust, address, None, body.clone()).await?;
            serde_json::from_slice(&answer)
                .map_err(|error| Failure::Unusable(format!("cannot be read: {error}")))
        };
        match ask_each(&servers, ask).await {
            Ok((_, answer)) => Ok(answer),
            Err(failures) => {
                let mut heard = Heard::default();
                failures.each().for_each(|(server, failure)| heard.of(server, failure));
                Err(heard.told())
            }
        }
    }

    /// TLS with the present certificate of this node's kubelet, which is another one after it was renewed.
    fn showing_its_certificate(&self) -> Result<ClientConfig, String> {
        let present = present(&self.root, OffsetDateTime::now_utc())?;
        let present = present.ok_or_else(|| format!("kubelet has no certificate in /{KUBECONFIG}"))?;
        tls::client_config_trusting_as(&self.authorities, &present.certificate, &present.private_key)
            .map_err(|error| format!("the certificate in /{KUBECONFIG} cannot be used: {error}"))
    }

    /// The servers, and after them that of this machine itself, where it is a control plane: in a cluster without DNS it need not find
    /// the others, and where there is one control plane there are none.
    fn servers_of_slots(&self) -> Result<Vec<Server>, NoServer> {
        let mut servers = Server::all(&self.servers, &self.tls_server_name)?;
        if self.root.join(API_SERVER_MANIFEST.trim_start_matches('/')).exists() {
            servers.extend(Server::all(&[server_url("127.0.0.1")], &server_name(&self.cluster))?);
        }
        Ok(servers.iter().map(Server::pacing).collect())
    }
}

/// What came of each server.
#[derive(Default)]
struct Heard {
    /// Those that have slots, and cannot tell of them now.
    troubles: Vec<String>,
    /// Those that do not answer.
    silence: Vec<String>,
    is_upstream: bool,
}

impl Heard {
    fn of(&mut self, server: &str, failure: &Failure) {
        let told = format!("{server}: {failure}");
        match failure {
            failure if failure.is_unknown_path() => self.is_upstream = true,
            failure if failure.is_answer() => self.troubles.push(told),
            _ => self.silence.push(told),
        }
    }

    /// Beside one that has slots another's 404 says nothing, while a control plane that is down makes no other one's 404 doubtful.
    fn told(self) -> NoAnswer {
        if self.is_upstream && self.troubles.is_empty() {
            return NoAnswer::NotServed;
        }
        NoAnswer::Unknown([self.troubles, self.silence].concat().join("; "))
    }
}
