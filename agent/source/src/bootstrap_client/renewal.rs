//! A node that has joined the cluster gets the answer 409. The node then shows its kubelet's certificate to get the
//! requested data. Upstream's kops-controller does not support this request, and the node keeps its data
//! (`docs/certificate-renewal.md`).

use kops_agent_cluster::bootstrap::message::BootstrapResponse;
use kops_agent_spec::invalid::Invalid;
use time::OffsetDateTime;

use super::identity::KUBECONFIG;
use super::server::Server;
use super::{Asking, KopsController};
use kops_agent_net::tls;

impl KopsController {
    /// Sends the request to the servers, with kubelet's current certificate as the client certificate. Returns the URL of the server that
    /// answered, and the answer. A failed request is not retried: the certificate is valid for months, and the next
    /// `kops-agent verify --renew` sends a new request.
    pub(super) async fn renewed<T>(
        &self,
        asking: &Asking,
        servers: &[Server],
        what: &str,
        accept: &impl Fn(BootstrapResponse) -> Result<T, Invalid>,
    ) -> Option<(String, T)> {
        let present = match asking.identity.proof(OffsetDateTime::now_utc()) {
            Ok(present) => present,
            Err(problem) => {
                log::warn!("this node cannot renew {what}: {problem}");
                return None;
            }
        };
        let trust =
            tls::client_config_trusting_as(&self.authorities, &present.certificate, &present.private_key);
        let trust = match trust {
            Ok(trust) => trust,
            Err(error) => {
                log::warn!("this node cannot renew {what} with the certificate in /{KUBECONFIG}: {error}");
                return None;
            }
        };
        // Some addresses of a DNS name may belong to upstream's kops-controller, which does not support renewals. So the request goes to
        // one address after another until a server answers with the data.
        let servers: Vec<Server> = servers.iter().map(Server::renewing).collect();
        match asking.round(&servers, &trust, accept).await {
            Ok((server, given)) => {
                log::info!("with its current certificate, this node gets {what} from {server}");
                Some((server, given))
            }
            Err(failures) => {
                for (server, failure) in failures.each() {
                    match failure.is_unknown_path() {
                        true => log::debug!(
                            "{server} does not support renewals, which is normal for kOps' own kops-controller"
                        ),
                        false => log::warn!("this node cannot renew {what} at {server}: {failure}"),
                    }
                }
                None
            }
        }
    }
}
