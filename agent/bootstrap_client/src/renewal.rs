//! A node that has joined the cluster gets the answer 409. It then shows its kubelet's certificate to get the requested
//! data. Upstream's kops-controller does not support that, and then nothing changes (`docs/certificate-renewal.md`).

use std::io::ErrorKind;
use std::path::Path;

use kops_agent_pki::{PemPair, common_name_and_validity, kubeconfig};
use kops_agent_plan::bootstrap::message::BootstrapResponse;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use time::OffsetDateTime;

use crate::server::Server;
use crate::{Asking, KopsController};
use kops_agent_net::tls;

/// Path of kubelet's certificate, where nodeup and the agent write it (upstream: `nodeup/pkg/model/kubelet.go`).
pub(super) const KUBECONFIG: &str = "var/lib/kubelet/kubeconfig";

impl KopsController {
    /// Asks the servers with kubelet's current certificate. Returns the server's URL and its answer. There are
    /// no retries: the certificate is valid for months, and the next verification asks again.
    pub(super) async fn renewed<T>(
        &self,
        asking: &Asking,
        servers: &[Server],
        what: &str,
        accept: &impl Fn(BootstrapResponse) -> Result<T, String>,
    ) -> Option<(String, T)> {
        let present = match present(&self.root, OffsetDateTime::now_utc()) {
            Ok(Some(present)) => present,
            Ok(None) => {
                log::debug!("this node cannot renew {what}: /{KUBECONFIG} has no certificate");
                return None;
            }
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
        // The servers behind one name may be upstream's kops-controller or the agent's.
        let servers: Vec<Server> = servers.iter().map(Server::renewing).collect();
        match asking.round(&servers, &trust, accept).await {
            Ok((server, given)) => {
                log::info!("this node gets {what} from {server} with its current certificate");
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

/// kubelet's current certificate and its key; `None` if kubelet has none.
pub(super) fn present(root: &Path, now: OffsetDateTime) -> Result<Option<PemPair>, String> {
    let text = match std::fs::read_to_string(root.join(KUBECONFIG)) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("/{KUBECONFIG} cannot be read ({error})")),
    };
    let Some(pair) = kubeconfig::read(&text) else { return Ok(None) };
    let der = CertificateDer::from_pem_slice(pair.certificate.as_bytes()).ok();
    match der.and_then(|der| common_name_and_validity(&der, now)) {
        Some((_, true)) => Ok(Some(pair)),
        Some((name, false)) => Err(format!(
            "the certificate of {name} in /{KUBECONFIG} is not valid now; is this machine's clock right? If the \
             certificate has expired, replace this instance"
        )),
        None => Err(format!("the certificate in /{KUBECONFIG} cannot be read")),
    }
}
