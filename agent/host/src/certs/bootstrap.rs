//! Checks a certificate that kops-controller has issued.

use kops_agent_pki::{CertificateError, PemPair};
use kops_agent_plan::resource::Certificate;

use super::keep::{Reason, why_replace};
use super::trusted;
use crate::host::Host;
use crate::secrets::Secrets;

impl Host {
    /// Why a certificate from a bootstrap server does not fit `wanted`. `None` if it fits. Fails if the trusted CAs are unknown.
    pub fn why_unfit(
        &self,
        issued: &PemPair,
        wanted: &Certificate,
        secrets: &dyn Secrets,
    ) -> Result<Option<String>, CertificateError> {
        match why_replace(issued, wanted, &trusted(secrets, wanted)?, self.now()) {
            Some(why @ (Reason::Unfit(_) | Reason::Expired)) => Ok(Some(why.text())),
            // Accept a certificate that is already due for renewal, because kops-controller issues none with a longer lifetime.
            Some(Reason::Renewal(_)) | None => Ok(None),
        }
    }
}
