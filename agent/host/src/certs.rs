//! The node's certificates: kept while they are good, and otherwise replaced.
//!
//! A certificate is not a file. It is read from the files that hold it: a `.crt` and a `.key`, or a kubeconfig with
//! both. It is then compared with the desired state. If a run was interrupted between two of these files, the next run
//! finds the certificate unfit and issues another one.

mod bootstrap;
mod keep;
mod serving;

use std::collections::BTreeMap;

use kops_agent_pki::{
    Authority, CertificateError, PemPair, first_pem, kubeconfig, lifetime, with_newline, with_others,
};
use kops_agent_plan::diff::{Observed, ObservedCertificate};
use kops_agent_plan::resource::{Certificate, Content, DesiredState, Issuer, Kubeconfig, Resource};
use kops_agent_spec::digest::sha256_hex;
use time::OffsetDateTime;

use crate::error::Result;
use crate::host::Host;
use crate::root::Root;
use crate::secrets::Secrets;
use keep::Reason;

/// The certificates of one node, and the CAs that sign them.
pub(crate) struct Certificates<'a> {
    secrets: &'a dyn Secrets,
    now: OffsetDateTime,
    /// The extra lifetime of this node's certificates, in hours. It differs from node to node, so that nodes renew at different times.
    extra_hours: u32,
    authorities: BTreeMap<(String, String), Authority>,
    entries: BTreeMap<&'a str, Entry<'a>>,
}

struct Entry<'a> {
    wanted: &'a Certificate,
    /// The existing certificate if it is good, or else the issued certificate. If no certificate can be issued now, this is the existing
    /// certificate, even if it is bad.
    pair: Option<PemPair>,
    /// Whether a desired file contains the certificate.
    is_used: bool,
    /// Why the existing certificate must be replaced. `None` if the certificate is good or missing.
    replace: Option<String>,
    /// Whether the only problem of the certificate is that it has expired or needs a renewal.
    is_due: bool,
    /// Why no certificate can be issued now, although a later run may be able to issue one.
    unissuable: Option<String>,
    /// Why the certificate is bad, if it is kept because no new certificate can be issued.
    stuck: Option<String>,
}

impl<'a> Certificates<'a> {
    /// Reads and checks the certificates in the files below a root.
    pub(crate) fn observe(
        root: &Root,
        desired: &'a DesiredState,
        secrets: &'a dyn Secrets,
        now: OffsetDateTime,
        extra_hours: u32,
    ) -> Result<Certificates<'a>> {
        let mut all = Certificates {
            secrets,
            now,
            extra_hours,
            authorities: BTreeMap::new(),
            entries: BTreeMap::new(),
        };
        for (_, resource) in desired.iter() {
            if let Resource::Certificate(wanted) = resource {
                all.load_authority(wanted)?;
                let entry = all.examine(wanted, found(root, desired, &wanted.name)?)?;
                all.entries.insert(&wanted.name, entry);
            }
        }
        Ok(all)
    }

    /// Loads and checks an available CA, even if the CA has nothing to sign now. So a problem of the CA is reported before a certificate
    /// expires.
    fn load_authority(&mut self, wanted: &Certificate) -> Result<()> {
        let id = (wanted.signer.clone(), wanted.keypair_id.clone());
        if self.authorities.contains_key(&id) {
            return Ok(());
        }
        match self.secrets.keyset_item(&wanted.signer, &wanted.keypair_id) {
            Some(item) => {
                let authority = Authority::load(&wanted.signer, &wanted.keypair_id, item, self.now)?;
                self.authorities.insert(id, authority);
                Ok(())
            }
            None if wanted.issuer == Issuer::Bootstrap => Ok(()),
            None if self.secrets.why_unissuable(wanted).is_some() => Ok(()),
            None => Err(no_authority(wanted).into()),
        }
    }

    fn authority(&self, wanted: &Certificate) -> Option<&Authority> {
        self.authorities.get(&(wanted.signer.clone(), wanted.keypair_id.clone()))
    }

    fn examine(&self, wanted: &'a Certificate, found: Found) -> Result<Entry<'a>> {
        let unissuable = match self.authority(wanted) {
            Some(_) => None,
            None => self.secrets.why_unissuable(wanted),
        };
        let signers = match (self.signer_pem(wanted), &unissuable) {
            (Some(signer), _) => signer,
            (None, None) => trusted(self.secrets, wanted)?,
            (None, Some(_)) => self.secrets.trusted_certificates(&wanted.signer).unwrap_or_default(),
        };
        let mut replace: Option<Reason> = None;
        let first = found.pairs.first().cloned();
        for pair in found.pairs {
            match keep::why_replace(&pair, wanted, &signers, self.now) {
                Some(Reason::Renewal(_)) if self.secrets.keeps_certificate(&wanted.name) => {}
                Some(why) => {
                    replace = replace.or(Some(why));
                    continue;
                }
                None => {}
            }
            let is_used = found.is_used;
            return Ok(Entry {
                wanted,
                pair: Some(pair),
                is_used,
                replace: None,
                is_due: false,
                unissuable,
                stuck: None,
            });
        }
        let is_due = replace.as_ref().is_some_and(Reason::is_due);
        let mut replace = replace.map(Reason::text);
        if replace.is_none() && found.is_partial {
            replace = Some("its certificate or its key is missing".into());
        }
        if let Some(why) = &unissuable {
            let wrong = replace.take().unwrap_or_else(|| "it is missing".into());
            let stuck = found.is_used.then(|| format!("{wrong}; no certificate can be issued now: {why}"));
            return Ok(Entry {
                wanted,
                pair: first,
                is_used: found.is_used,
                replace: None,
                is_due: false,
                unissuable,
                stuck,
            });
        }
        let is_used = found.is_used;
        Ok(Entry { wanted, pair: None, is_used, replace, is_due, unissuable: None, stuck: None })
    }

    /// The observed state of a certificate. `None` if there is no such certificate.
    pub(crate) fn observed(&self, name: &str) -> Option<Observed> {
        let entry = self.entries.get(name)?;
        let fingerprint = match &entry.pair {
            Some(pair) => sha256_hex(first_pem(&pair.certificate).as_bytes()),
            None => "none".into(),
        };
        let is_there =
            entry.pair.is_some() || entry.replace.is_some() || entry.unissuable.is_some() || !entry.is_used;
        let (replace, is_due, stuck) = (entry.replace.clone(), entry.is_due, entry.stuck.clone());
        is_there.then_some(Observed::Certificate(ObservedCertificate { fingerprint, replace, is_due, stuck }))
    }

    /// Issues a certificate, or takes the certificate from the bootstrap server.
    pub(crate) fn issue(&mut self, name: &str) -> Result<()> {
        let Some(entry) = self.entries.get(name) else {
            return Err(CertificateError::Changed { name: name.into() }.into());
        };
        let wanted = entry.wanted;
        let bootstrapped = match wanted.issuer {
            Issuer::Bootstrap => self.secrets.bootstrap_certificate(name),
            Issuer::Local => None,
        };
        let pair = match (bootstrapped, self.authority(wanted)) {
            (Some(pair), _) => pair,
            (None, Some(authority)) => authority.issue(wanted, self.now, lifetime(self.extra_hours))?,
            (None, None) => {
                return Err(CertificateError::NoBootstrap {
                    name: name.into(),
                    keyset: wanted.signer.clone(),
                }
                .into());
            }
        };
        if let Some(entry) = self.entries.get_mut(name) {
            entry.pair = Some(pair);
            entry.replace = None;
        }
        Ok(())
    }

    fn pair(&self, name: &str) -> Option<(&PemPair, &Certificate)> {
        let entry = self.entries.get(name)?;
        Some((entry.pair.as_ref()?, entry.wanted))
    }

    /// The certificate `name` in PEM, followed by its CA if `include_root` is set. `None` until the certificate is issued.
    pub(crate) fn certificate(&self, name: &str) -> Option<String> {
        let (pair, wanted) = self.pair(name)?;
        let leaf = first_pem(&pair.certificate);
        Some(if wanted.include_root { leaf + &self.signer(name)? } else { leaf })
    }

    /// The private key of the certificate `name`, in PEM. `None` until the certificate is issued.
    pub(crate) fn private_key(&self, name: &str) -> Option<String> {
        Some(self.pair(name)?.0.private_key.clone())
    }

    /// The certificate, in PEM, of the CA that signs the certificate `name`.
    pub(crate) fn signer(&self, name: &str) -> Option<String> {
        self.signer_pem(self.entries.get(name)?.wanted)
    }

    /// The certificate of the signing CA, even if this node does not have the CA's key.
    fn signer_pem(&self, wanted: &Certificate) -> Option<String> {
        match self.authority(wanted) {
            Some(authority) => Some(authority.pem().to_owned()),
            None if wanted.issuer == Issuer::Local => {
                let certificate = self.secrets.item_certificate(&wanted.signer, &wanted.keypair_id)?;
                Some(with_newline(&certificate))
            }
            None => None,
        }
    }

    /// Why no new certificate of this name can be issued now, although a later run may be able to issue one.
    pub(crate) fn why_unissuable(&self, name: &str) -> Option<&str> {
        self.entries.get(name)?.unissuable.as_deref()
    }

    /// The content of a file with the CAs of a certificate. It contains all trusted CAs. If this node signs the certificate itself, the
    /// signing CA comes first.
    ///
    /// On upstream's control planes, a component trusts only the signing CA (nodeup/pkg/model/context.go, `BuildIssuedKubeconfig`). So when
    /// another CA begins to sign there, restarted components cannot connect to components that have not restarted yet.
    pub(crate) fn ca(&self, name: &str) -> Option<String> {
        let wanted = self.entries.get(name)?.wanted;
        let trusted = self.secrets.trusted_certificates(&wanted.signer);
        match (wanted.issuer, self.signer_pem(wanted)) {
            (Issuer::Local, signer) => Some(with_others(&signer?, &trusted.unwrap_or_default())),
            (Issuer::Bootstrap, signer) => trusted.or(signer),
        }
    }

    /// The content of a kubeconfig. `None` until the kubeconfig's certificate is issued.
    pub(crate) fn kubeconfig(&self, kubeconfig: &Kubeconfig) -> Option<String> {
        let (pair, _) = self.pair(&kubeconfig.certificate)?;
        let certificate = first_pem(&pair.certificate);
        Some(kubeconfig::write(
            &kubeconfig.server,
            &kubeconfig.certificate,
            &self.ca(&kubeconfig.certificate)?,
            &certificate,
            &pair.private_key,
        ))
    }
}

impl Host {
    /// Why a keyset item cannot sign certificates now. `None` if the item can sign.
    pub fn why_cannot_sign(&self, keyset: &str, id: &str, item: PemPair) -> Option<String> {
        Authority::load(keyset, id, item, self.now()).err().map(|error| error.to_string())
    }
}

/// The CAs, in PEM, that may have signed a certificate.
pub(crate) fn trusted(secrets: &dyn Secrets, wanted: &Certificate) -> Result<String, CertificateError> {
    secrets.trusted_certificates(&wanted.signer).ok_or_else(|| no_authority(wanted))
}

fn no_authority(wanted: &Certificate) -> CertificateError {
    CertificateError::NoAuthority {
        name: wanted.name.clone(),
        keyset: wanted.signer.clone(),
        id: wanted.keypair_id.clone(),
    }
}

/// The certificates and keys that the files below a root contain for one desired certificate.
struct Found {
    pairs: Vec<PemPair>,
    /// Whether the certificate or the key is missing, but not both.
    is_partial: bool,
    /// Whether a desired file contains the certificate.
    is_used: bool,
}

fn found(root: &Root, desired: &DesiredState, name: &str) -> Result<Found> {
    let (mut certificates, mut keys, mut pairs) = (vec![], vec![], vec![]);
    let mut is_used = false;
    for (_, resource) in desired.iter() {
        let Resource::File(file) = resource else { continue };
        let kind = match &file.content {
            Content::Certificate(of) | Content::PrivateKey(of) if of == name => &file.content,
            Content::Kubeconfig(kubeconfig) if kubeconfig.certificate == name => &file.content,
            _ => continue,
        };
        is_used = true;
        let Some(text) = root.read(&file.path)?.and_then(|bytes| String::from_utf8(bytes).ok()) else {
            continue;
        };
        match kind {
            Content::Certificate(_) => certificates.push(text),
            Content::PrivateKey(_) => keys.push(text),
            _ => pairs.extend(kubeconfig::read(&text)),
        }
    }
    let is_partial = certificates.is_empty() != keys.is_empty();
    for certificate in &certificates {
        for key in &keys {
            pairs.push(PemPair { certificate: certificate.clone(), private_key: key.clone() });
        }
    }
    Ok(Found { pairs, is_partial, is_used })
}

#[cfg(test)]
mod rotation_tests;
#[cfg(test)]
mod tests;
