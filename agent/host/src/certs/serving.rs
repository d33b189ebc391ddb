//! Which certificates, keys and bundles do for a program as well as those that it has read, so that it need not be restarted.
//!
//! A certificate serves as well as another that the same authority has signed for the same names and uses. A bundle of
//! authorities serves as well without those that do not sign yet: upstream's control planes trust only the one that signs
//! (nodeup/pkg/model/context.go, `BuildIssuedKubeconfig`), and once another signs, its certificates have everything
//! restarted that must trust it.

use kops_agent_pki::{PemPair, ders};
use kops_agent_plan::diff::{Serves, meaning};
use kops_agent_plan::digest::sha256_hex;
use kops_agent_plan::resource::{Content, File};

use super::{Certificates, keep};

impl Certificates<'_> {
    /// How the content of a file that holds a certificate, or what belongs to one, serves what reads it, compared with what
    /// is wanted there; `None` where it has to be read anew.
    pub(crate) fn serves(&self, file: &File, found: &[u8], wanted: &[u8]) -> Option<Serves> {
        let (found, wanted) = (std::str::from_utf8(found).ok()?, std::str::from_utf8(wanted).ok()?);
        let with = |what: &str, (identity, due): (String, u64)| Serves {
            digest: sha256_hex(format!("{what}\n{identity}").as_bytes()),
            due: Some(due),
        };
        match &file.content {
            Content::Certificate(name) if meaning::is_same_pem(found, wanted) => {
                Some(with("certificate", self.identity(name)?))
            }
            Content::PrivateKey(name) if meaning::is_same_pem(found, wanted) => {
                Some(with("private key", self.identity(name)?))
            }
            Content::Ca(name) => {
                let least = self.least_trusted(name)?;
                let digest = sha256_hex(authorities(&least).as_bytes());
                meaning::serve_as_authorities(found, wanted, &least).then_some(Serves { digest, due: None })
            }
            Content::Kubeconfig(kubeconfig) => {
                let name = &kubeconfig.certificate;
                let least = self.least_trusted(name)?;
                let what = format!("kubeconfig {} {}", kubeconfig.server, authorities(&least));
                let identity = self.identity(name)?;
                meaning::serves_as_kubeconfig(found, wanted, &least).then(|| with(&what, identity))
            }
            _ => None,
        }
    }

    /// What a good certificate has in common with all that serve as well, and when it is due to be renewed.
    fn identity(&self, name: &str) -> Option<(String, u64)> {
        let entry = self.entries.get(name)?;
        let pair: &PemPair = entry.pair.as_ref().filter(|_| entry.stuck.is_none())?;
        let signers = self
            .signer_pem(entry.wanted)
            .or_else(|| self.secrets.trusted_certificates(&entry.wanted.signer))?;
        keep::identity(&pair.certificate, &signers)
    }

    /// The authorities of a certificate without those that are younger than the one that signs: they have not begun to.
    fn least_trusted(&self, name: &str) -> Option<String> {
        let all = self.ca(name)?;
        match self.signer_pem(self.entries.get(name)?.wanted) {
            Some(signer) => Some(keep::not_younger(&all, &signer)),
            None => Some(all),
        }
    }
}

/// Authorities in PEM as one text, whatever their order.
fn authorities(pem: &str) -> String {
    let mut digests: Vec<String> = ders(pem).iter().map(|der| sha256_hex(der)).collect();
    digests.sort();
    digests.join(" ")
}
