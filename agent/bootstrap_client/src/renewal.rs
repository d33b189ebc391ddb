//! A node that is at work, and so is answered 409, shows the certificate that its kubelet has and is given what it asks for
//! all the same. Upstream's kops-controller knows nothing of that; then all stays as it was (`docs/certificate-renewal.md`).

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

/// Where nodeup, and ours, write the certificate of the kubelet (upstream: `nodeup/pkg/model/kubelet.go`).
pub(super) const KUBECONFIG: &str = "var/lib/kubelet/kubeconfig";

impl KopsController {
    /// What each server in turn gives this node for its present certificate, and its URL. There are no retries: the
    /// certificate is good for months, and the next verification asks again.
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
                log::debug!("{what} cannot be renewed: there is no certificate in /{KUBECONFIG}");
                return None;
            }
            Err(problem) => {
                log::warn!("{what} cannot be renewed: {problem}");
                return None;
            }
        };
        let trust =
            tls::client_config_trusting_as(&self.authorities, &present.certificate, &present.private_key);
        let trust = match trust {
            Ok(trust) => trust,
            Err(error) => {
                log::warn!("{what} cannot be renewed with the certificate in /{KUBECONFIG}: {error}");
                return None;
            }
        };
        // One name may lead to several servers: some may still be kOps' own kops-controller, others ours.
        let servers: Vec<Server> = servers.iter().map(Server::renewing).collect();
        match asking.round(&servers, &trust, accept).await {
            Ok((server, given)) => {
                log::info!("{server} gives this node {what} for its present certificate");
                Some((server, given))
            }
            Err(failures) => {
                for (server, failure) in failures.each() {
                    match failure.is_unknown_path() {
                        true => log::debug!("{server} renews nothing, as kOps' own kops-controller does not"),
                        false => log::warn!("{server} does not renew {what}: {failure}"),
                    }
                }
                None
            }
        }
    }
}

/// The certificate with which the kubelet is a node now, and its key; `None` where it has none.
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
