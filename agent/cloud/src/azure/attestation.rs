//! Verifies that Microsoft issued the certificate that signed a machine's document. The certificate must chain to an authority
//! that this host trusts, as any program trusts Azure's own servers.
//!
//! Azure's documents lack the intermediate certificates, which Microsoft publishes. Each certificate contains the URL of its issuer's
//! certificate. An unverified peer may have written this URL. So issuers' certificates are fetched only from one folder of one server, and
//! only when the request has its turn ([`crate::verify::claims`]). If the cache is full, only issuers that have led to a trusted authority
//! stay cached.
//!
//! Source: upstream's `upup/pkg/fi/cloudup/azure/attest.go`; Azure, "Azure Instance Metadata Service", "Validating that the VM is
//! running in Azure".

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kops_agent_cluster::bootstrap::azure_token::{SIGNER, Signer};
use kops_agent_net::http::{self, HttpError, innermost_cause};
use kops_agent_net::tls::chains::{MOST_OF_DOCUMENT, signer_leads_to};
use kops_agent_net::tls::{self, CaBundle};
use kops_agent_spec::invalid::Invalid;
use parking_lot::Mutex;
use reqwest::header::LOCATION;
use reqwest::{Client, StatusCode, Url};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use thiserror::Error;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use x509_parser::prelude::{FromDer as _, GeneralName, ParsedExtension, X509Certificate};

use crate::api::ApiError;
use crate::singleflight::Singleflight;
use crate::verify::claims::Claims;
use crate::verify::{Origin, Refusal};

/// Where Microsoft publishes the certificates of its authorities (upstream: `microsoftIntermediateCertBaseURL`).
const ISSUERS: &str = "https://www.microsoft.com/pkiops/certs/";
/// The maximum size of a certificate, in bytes.
const LARGEST: usize = 16 * 1024;
/// The maximum number of URLs that are tried for one issuer.
const MOST_PLACES: usize = 3;
/// The timeout of the download of one certificate. The timeout is short, because a machine waits only 15 seconds for its whole bootstrap
/// request.
const TIMEOUT: Duration = Duration::from_secs(4);
/// How long issuers are cached. A new issuer has a new name, so a cached issuer never becomes wrong.
const REMEMBERED_FOR: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// The maximum number of concurrent checks of signers. Each check verifies at most a dozen signatures, which takes some
/// milliseconds.
const CHECKED_AT_ONCE: usize = 2;
/// The maximum number of cached issuers, including issuers that attackers make up. Microsoft has a few dozen issuers.
const MOST_REMEMBERED: usize = 64;
/// The access method with which a certificate locates its issuer's certificate (RFC 5280, section 4.2.2.1).
const CA_ISSUERS: &str = "1.3.6.1.5.5.7.48.2";

pub struct Attestation {
    roots: Arc<RootCertStore>,
    client: Client,
    /// The URL of the folder with the issuers' certificates.
    folder: Url,
    issuers: Mutex<BTreeMap<Issuer, Remembered>>,
    claims: Claims,
    checks: Arc<Semaphore>,
}

/// The issuer that a certificate names (name and key id), and the URLs of the issuer's certificate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Issuer {
    name: Vec<u8>,
    key: Vec<u8>,
    places: Vec<Url>,
}

#[derive(Default)]
struct Remembered {
    asked: Arc<Singleflight<Vec<CertificateDer<'static>>, NoIssuer>>,
    /// Whether a chain through this issuer has ended at a trusted authority.
    is_trusted: bool,
}

/// Why the certificate of an issuer is missing.
#[derive(Clone, Debug, Error)]
enum NoIssuer {
    /// The download failed. The certificate may exist.
    #[error("{place}: {cause}")]
    Unavailable { place: Url, cause: String },
    /// None of the URLs has the certificate of this issuer.
    #[error("none of the issuer URLs in the signing certificate returns the issuer's certificate")]
    None,
}

impl Attestation {
    /// Trusts the authorities of this host.
    pub fn of_this_host() -> Result<Attestation, ApiError> {
        Attestation::new(CaBundle::of_this_host()?.roots(), ISSUERS)
    }

    /// Trusts these authorities, and fetches the issuers' certificates from a folder.
    pub fn new(roots: Arc<RootCertStore>, folder: &str) -> Result<Attestation, ApiError> {
        let bad = || ApiError::NoRequest { endpoint: folder.to_owned(), cause: "it is not a URL".into() };
        // The HTTP client follows no redirect, because a redirect may lead to any server. `get` follows one redirect on the same server.
        let client = http::client_with(tls::client_config().map_err(HttpError::from)?)?;
        let folder = Url::parse(folder).map_err(|_| bad())?;
        let checks = Arc::new(Semaphore::new(CHECKED_AT_ONCE));
        Ok(Attestation {
            roots,
            client,
            folder,
            issuers: Mutex::default(),
            claims: Claims::default(),
            checks,
        })
    }

    /// Verifies that the signer signed its document, and that Microsoft issued the signer's certificate. The caller has already checked
    /// that the certificate names the metadata service.
    pub async fn verify(&self, signer: Signer, origin: Origin) -> Result<(), Refusal> {
        let signer = Arc::new(signer);
        let judged = self.judge(&signer, Arc::default()).await?;
        let Err(problem) = judged else { return Ok(()) };
        let issuer = {
            let unreadable = || refused("its certificate cannot be read");
            let (_, certificate) =
                X509Certificate::from_der(&signer.certificate).map_err(|_| unreadable())?;
            // The document includes the issuer's certificate, so a download does not help.
            if signer.others.iter().any(|other| is_issuer_of(&certificate, other)) {
                return Err(refused(problem));
            }
            Issuer::from_certificate(&certificate, &self.folder)
        };
        if issuer.places.is_empty() {
            return Err(refused("its certificate has no URL at Microsoft for its issuer's certificate"));
        }
        let asked = self.remembered(&issuer);
        let mut claim = None;
        let issuers = match asked.cached(REMEMBERED_FOR).await {
            Some(known) => known,
            None => {
                self.claims.enter(origin, &mut claim).await?;
                let (client, folder) = (self.client.clone(), self.folder.clone());
                let certificate = signer.certificate.clone();
                let fetching = move || fetch(client, folder, certificate);
                asked.get(REMEMBERED_FOR, fetching).await.map_err(|error| match &*error {
                    NoIssuer::None => refused(&error),
                    NoIssuer::Unavailable { .. } => Refusal::unavailable("IssuerUnavailable", &error),
                })?
            }
        };
        self.judge(&signer, issuers).await?.map_err(refused)?;
        if let Some(remembered) = self.issuers.lock().get_mut(&issuer) {
            remembered.is_trusted = true;
        }
        if let Some(claim) = claim {
            claim.believed();
        }
        Ok(())
    }

    /// Whether a signer's chain ends at a trusted authority. The chain may contain the certificates in the signer's document and `issuers`.
    /// The inner error says why the chain is invalid. The outer error means that the signer has not signed its document, or that the check
    /// cannot run. A blocking thread verifies the signatures, for at most [`CHECKED_AT_ONCE`] signers at a time.
    async fn judge(
        &self,
        signer: &Arc<Signer>,
        issuers: Arc<Vec<CertificateDer<'static>>>,
    ) -> Result<Result<(), Invalid>, Refusal> {
        let unavailable =
            |problem: &dyn std::fmt::Display| Refusal::unavailable("SignatureUnchecked", problem);
        let turn = self.checks.clone().acquire_owned().await.map_err(|error| unavailable(&error))?;
        let (signer, roots) = (signer.clone(), self.roots.clone());
        let checking = spawn_blocking(move || {
            // The check continues even if the connection closes. Therefore the permit is held until the end of the check.
            let _turn = turn;
            if !signer.has_signed() {
                return Err(refused("the key of its certificate has not signed it"));
            }
            let came_along = signer.others.iter().map(|der| CertificateDer::from(der.as_slice()));
            let all: Vec<_> = came_along.chain(issuers.iter().cloned()).collect();
            Ok(signer_leads_to(&roots, &signer.certificate, &one_after_the_other(&signer.certificate, &all)))
        });
        checking.await.map_err(|error| unavailable(&error))?
    }

    /// The cache entry of an issuer: the cached certificates, or the running request for the certificates.
    fn remembered(&self, issuer: &Issuer) -> Arc<Singleflight<Vec<CertificateDer<'static>>, NoIssuer>> {
        let mut issuers = self.issuers.lock();
        if issuers.len() >= MOST_REMEMBERED && !issuers.contains_key(issuer) {
            // The cache is full, so only the issuers of verified chains stay cached.
            issuers.retain(|_, remembered| remembered.is_trusted);
        }
        issuers.entry(issuer.clone()).or_default().asked.clone()
    }
}

fn refused(problem: impl std::fmt::Display) -> Refusal {
    Refusal::not_verified("WrongSignature", format!("the token is not signed by {SIGNER}: {problem}"))
}

impl Issuer {
    fn from_certificate(certificate: &X509Certificate<'_>, folder: &Url) -> Issuer {
        Issuer {
            name: certificate.issuer().as_raw().to_vec(),
            key: key_of_issuer(certificate).unwrap_or_default().to_vec(),
            places: places_of_issuer(certificate, folder),
        }
    }
}

/// Returns the chain of issuers of `certificate`, taken from `all`. If several certificates match an issuer, only the first one is tried.
fn one_after_the_other<'a>(certificate: &[u8], all: &[CertificateDer<'a>]) -> Vec<CertificateDer<'a>> {
    let mut chain: Vec<CertificateDer<'a>> = Vec::new();
    while chain.len() < MOST_OF_DOCUMENT {
        let last = chain.last().map_or(certificate, |last| last);
        let Ok((_, last)) = X509Certificate::from_der(last) else { break };
        let next = all.iter().find(|other| !chain.contains(other) && is_issuer_of(&last, other));
        let Some(next) = next.cloned() else { break };
        chain.push(next);
    }
    chain
}

/// Fetches the certificates of `certificate`'s issuer, of that issuer's issuer, and so on. Stops if the folder lacks the certificate of
/// the next issuer, or after `MOST_OF_DOCUMENT` certificates.
async fn fetch(
    client: Client,
    folder: Url,
    certificate: Vec<u8>,
) -> Result<Vec<CertificateDer<'static>>, NoIssuer> {
    let mut found: Vec<Vec<u8>> = Vec::new();
    for _ in 0..MOST_OF_DOCUMENT {
        let last = found.last().unwrap_or(&certificate).clone();
        let Ok((_, last)) = X509Certificate::from_der(&last) else { break };
        let mut issuer = None;
        for place in places_of_issuer(&last, &folder) {
            let der = get(&client, &place).await?;
            issuer = der.filter(|der| is_issuer_of(&last, der));
            if issuer.is_some() {
                break;
            }
        }
        match issuer {
            Some(issuer) if !found.contains(&issuer) => found.push(issuer),
            _ => break,
        }
    }
    match found.is_empty() {
        true => Err(NoIssuer::None),
        false => Ok(found.into_iter().map(CertificateDer::from).collect()),
    }
}

/// Downloads a certificate, with one redirect on the same server. `None` if the server has no certificate, or if the certificate is too
/// large.
async fn get(client: &Client, place: &Url) -> Result<Option<Vec<u8>>, NoIssuer> {
    let unavailable = |cause: String| NoIssuer::Unavailable { place: place.clone(), cause };
    let ask = async |at: Url| {
        let answer = client.get(at).timeout(TIMEOUT).send().await;
        answer.map_err(|error| unavailable(innermost_cause(error)))
    };
    let mut answer = ask(place.clone()).await?;
    if answer.status().is_redirection() {
        let location = answer.headers().get(LOCATION).and_then(|location| location.to_str().ok());
        let moved = location.and_then(|location| place.join(location).ok());
        let is_there = |moved: &Url| moved.origin() == place.origin();
        let moved =
            moved.filter(is_there).ok_or_else(|| unavailable("it redirects to another server".into()))?;
        answer = ask(moved).await?;
    }
    match answer.status() {
        StatusCode::OK => {
            http::body(answer, LARGEST).await.map_err(|error| unavailable(innermost_cause(error)))
        }
        StatusCode::NOT_FOUND | StatusCode::GONE | StatusCode::BAD_REQUEST => Ok(None),
        status => Err(unavailable(format!("it answers {status}"))),
    }
}

/// Whether `der` is an authority's certificate whose name and key id match the issuer's name and key id in `certificate`.
fn is_issuer_of(certificate: &X509Certificate<'_>, der: &[u8]) -> bool {
    let Ok((_, issuer)) = X509Certificate::from_der(der) else { return false };
    let own_key = issuer.extensions().iter().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::SubjectKeyIdentifier(key) => Some(key.0),
        _ => None,
    });
    let has_key = key_of_issuer(certificate).is_none_or(|key| own_key == Some(key));
    issuer.is_ca() && issuer.subject().as_raw() == certificate.issuer().as_raw() && has_key
}

fn key_of_issuer<'a>(certificate: &'a X509Certificate<'_>) -> Option<&'a [u8]> {
    certificate.extensions().iter().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::AuthorityKeyIdentifier(authority) => {
            authority.key_identifier.as_ref().map(|key| key.0)
        }
        _ => None,
    })
}

/// The URLs in `certificate` at which its issuer's certificate can be downloaded. URLs outside `folder` are omitted. A URL may have the
/// scheme `http` or `https`, but the result always has the scheme of `folder`.
fn places_of_issuer(certificate: &X509Certificate<'_>, folder: &Url) -> Vec<Url> {
    let mut places = Vec::new();
    for extension in certificate.extensions() {
        let ParsedExtension::AuthorityInfoAccess(access) = extension.parsed_extension() else { continue };
        for description in &access.accessdescs {
            if let GeneralName::URI(uri) = description.access_location
                && description.access_method.to_id_string() == CA_ISSUERS
                && let Some(place) = place(uri, folder)
                && !places.contains(&place)
                && places.len() < MOST_PLACES
            {
                places.push(place);
            }
        }
    }
    places
}

fn place(uri: &str, folder: &Url) -> Option<Url> {
    let said = Url::parse(uri).ok()?;
    let is_plain = said.username().is_empty()
        && said.password().is_none()
        && said.query().is_none()
        && said.fragment().is_none();
    let is_there = matches!(said.scheme(), "http" | "https")
        && said.host() == folder.host()
        && said.port() == folder.port()
        && said.path().len() > folder.path().len()
        && said.path().starts_with(folder.path());
    let mut place = folder.clone();
    place.set_path(said.path());
    (is_plain && is_there).then_some(place)
}

#[cfg(test)]
mod tests;
