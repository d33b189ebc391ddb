//! A node asks for a slot before a change that restarts what it is made of, by its kubelet's certificate (`docs/pacing.md`).
//! Upstream's kops-controller knows nothing of that, and its nodes are changed without.

use kops_agent_net::tls;
use kops_agent_plan::pacing::message::{SlotAnswer, SlotRequest};
use time::OffsetDateTime;

use super::renewal::{KUBECONFIG, MOST_ADDRESSES, present};
use super::server::Server;
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
    /// None knows. Servers that do not answer at all are no reason to take another's 404 for less than it says, while one that
    /// has slots and cannot tell of them now is.
    pub async fn slot(&self, request: SlotRequest) -> Result<SlotAnswer, NoAnswer> {
        let unknown = |problem: String| NoAnswer::Unknown(problem);
        let present = present(&self.root, OffsetDateTime::now_utc()).map_err(unknown)?;
        let present =
            present.ok_or_else(|| unknown(format!("kubelet has no certificate in /{KUBECONFIG}")))?;
        let trust =
            tls::client_config_trusting_as(&self.authorities, &present.certificate, &present.private_key)
                .map_err(|error| {
                    unknown(format!("the certificate in /{KUBECONFIG} cannot be used: {error}"))
                })?;
        let body = serde_json::to_string(&request).map_err(|error| unknown(error.to_string()))?;
        let servers =
            Server::all(&self.servers, &self.tls_server_name).map_err(|error| unknown(error.to_string()))?;
        let (mut troubles, mut unreached, mut is_upstream) = (Vec::new(), Vec::new(), false);
        for server in servers {
            let server = server.pacing();
            let addresses = match server.addresses().await {
                Ok(addresses) => addresses,
                Err(failure) => {
                    unreached.push(format!("{}: {failure}", server.url()));
                    continue;
                }
            };
            for address in addresses.into_iter().take(MOST_ADDRESSES) {
                let failure = match server.post(&trust, &[address], None, body.clone()).await {
                    Ok(answer) => match serde_json::from_slice(&answer) {
                        Ok(answer) => return Ok(answer),
                        Err(error) => {
                            troubles.push(format!(
                                "{} at {address}: its answer cannot be read: {error}",
                                server.url()
                            ));
                            continue;
                        }
                    },
                    Err(failure) => failure,
                };
                let told = format!("{} at {address}: {failure}", server.url());
                match () {
                    () if failure.is_unknown_path() => is_upstream = true,
                    () if failure.is_answer() => troubles.push(told),
                    () => unreached.push(told),
                }
            }
        }
        match (troubles.is_empty(), is_upstream) {
            (true, true) => Err(NoAnswer::NotServed),
            _ => {
                troubles.append(&mut unreached);
                Err(NoAnswer::Unknown(troubles.join("; ")))
            }
        }
    }
}
