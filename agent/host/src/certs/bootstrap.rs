//! A look at a certificate that kops-controller has signed.

use kops_agent_pki::{CertificateError, PemPair};
use kops_agent_plan::resource::Certificate;

use super::keep::{Reason, why_replace};
use super::trusted;
use crate::host::Host;
use crate::secrets::Secrets;

impl Host {
    /// Why a certificate that a bootstrap server has issued is not the one that is wanted; `None` where it is.
    ///
    /// # Errors
    /// If it is not known which authority may sign it.
    pub fn why_unfit(
        &self,
        issued: &PemPair,
        wanted: &Certificate,
        secrets: &dyn Secrets,
    ) -> Result<Option<String>, CertificateError> {
        match why_replace(issued, wanted, &trusted(secrets, wanted)?, self.now()) {
            Some(why @ (Reason::Unfit(_) | Reason::Expired)) => Ok(Some(why.text())),
            // However long it lives, there is no better one to be had.
            Some(Reason::Renewal(_)) | None => Ok(None),
        }
    }
}
