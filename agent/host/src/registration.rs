//! Registers with the cluster's discovery service, which publishes the keys that sign the node's tokens.
//!
//! The service is hosted, and the node works without it. If the service is unreachable, the next run retries. The
//! service keeps registrations only in memory, so every run registers, even without changes.
//!
//! Source: upup/pkg/fi/nodeup/nodetasks/discovery_service_register.go. In nodeup, an unreachable service blocks the
//! setup of a control plane.

use kops_agent_plan::resource::{DesiredState, DiscoveryRegistration, Kind, Resource, ResourceId};
use kops_agent_spec::digest::sha256_hex;

use crate::assets::Progress;
use crate::certs::Certificates;
use crate::error::Result;
use crate::host::Host;
use crate::secrets::Secrets;
use crate::stamps::Stamp;
use kops_agent_pki::PemPair;

pub(crate) fn digest(registration: &DiscoveryRegistration) -> String {
    sha256_hex(format!("{}\n{}", registration.url, registration.object).as_bytes())
}

impl Host {
    /// Makes every desired registration. If a registration fails, only warns, because the node works without it.
    pub(crate) async fn register(
        &self,
        desired: &DesiredState,
        secrets: &dyn Secrets,
        progress: &dyn Progress,
    ) -> Result<()> {
        for (_, resource) in desired.iter() {
            let Resource::DiscoveryRegistration(registration) = resource else { continue };
            let certificate = desired.get(&ResourceId::new(Kind::Certificate, &registration.certificate));
            if let Some(Resource::Certificate(certificate)) = certificate
                && let Some(why) = secrets.why_unissuable(certificate)
                && secrets.keyset_item(&certificate.signer, &certificate.keypair_id).is_none()
            {
                progress.warned(&format!(
                    "not registering with the discovery service {}: {why}",
                    registration.url
                ));
                continue;
            }
            let identity = self.identity(desired, secrets, &registration.certificate)?;
            match self.remote.register(registration, &identity).await {
                Ok(()) => {
                    let digest = digest(registration);
                    if Stamp::Remote.read(&self.root, &registration.name)?.as_ref() != Some(&digest) {
                        Stamp::Remote.write(&self.root, &registration.name, &digest)?;
                    }
                }
                Err(why) => progress.warned(&format!(
                    "cannot register with the discovery service {}: {why}; the node works without it, and the next run \
                     tries again",
                    registration.url
                )),
            }
        }
        Ok(())
    }

    /// Issues a client certificate for the discovery service. The agent writes it to no file. The service requires that the chain ends with
    /// the CA certificate.
    fn identity(&self, desired: &DesiredState, secrets: &dyn Secrets, name: &str) -> Result<PemPair> {
        let mut certificates =
            Certificates::observe(&self.root, desired, secrets, self.now(), self.extra_hours)?;
        certificates.issue(name)?;
        let authority = certificates.signer(name).unwrap_or_default();
        Ok(PemPair {
            certificate: certificates.certificate(name).unwrap_or_default() + &authority,
            private_key: certificates.private_key(name).unwrap_or_default(),
        })
    }
}
