//! Decides whether a new certificate, key or CA bundle serves a program as well as the version that the program has
//! read. If so, the program needs no restart.
//!
//! A certificate serves as well as another certificate of the same CA with the same names and uses. A bundle that
//! lacks CAs which do not sign yet serves as well as the complete bundle. Upstream's control planes trust only the
//! signing CA (nodeup/pkg/model/context.go, `BuildIssuedKubeconfig`). Once another CA signs, every program that must
//! trust it gets new certificates, which restart the program.

use kops_agent_pki::{PemPair, ders};
use kops_agent_plan::diff::{Serves, meaning};
use kops_agent_plan::resource::{Content, File};
use kops_agent_spec::digest::sha256_hex;

use super::{Certificates, keep};

impl Certificates<'_> {
    /// Checks whether programs can keep using the found content of a certificate, key, bundle or kubeconfig instead of the wanted content.
    /// If so, describes the found content. `None` if programs must read the file again.
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

    /// The identity of a good certificate, and when it is due for renewal. Certificates with equal identities can replace each other.
    fn identity(&self, name: &str) -> Option<(String, u64)> {
        let entry = self.entries.get(name)?;
        let pair: &PemPair = entry.pair.as_ref().filter(|_| entry.stuck.is_none())?;
        let signers = self
            .signer_pem(entry.wanted)
            .or_else(|| self.secrets.trusted_certificates(&entry.wanted.signer))?;
        keep::identity(&pair.certificate, &signers)
    }

    /// The CAs of a certificate, except CAs that are younger than the signing CA. Younger CAs do not sign certificates yet.
    fn least_trusted(&self, name: &str) -> Option<String> {
        let all = self.ca(name)?;
        match self.signer_pem(self.entries.get(name)?.wanted) {
            Some(signer) => Some(keep::not_younger(&all, &signer)),
            None => Some(all),
        }
    }
}

/// A text that identifies a set of CAs in PEM, independent of their order.
fn authorities(pem: &str) -> String {
    let mut digests: Vec<String> = ders(pem).iter().map(|der| sha256_hex(der)).collect();
    digests.sort();
    digests.join(" ")
}
