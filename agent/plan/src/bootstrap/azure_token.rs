//! A machine's token on Azure: its resource id, and a document that Azure's metadata service has signed for it, with a nonce that
//! names the request.
//!
//! A machine asks its metadata service for a document with the [`nonce`] of the request's body, and puts that behind its resource
//! id. On the other side all that can be refused without a question and without a signature is refused here: another cluster's machine, a
//! document of another request, an old one. Whether the document is signed says [`Signer::has_signed`], whether the signer is Microsoft's
//! its chain, and whose machine it is Azure Resource Manager.
//!
//! Tokens of kOps 1.36 and before have no document, and only the call-back proves anything: kOps 1.35 and 1.36 send the resource id and the
//! machine's id, kOps 1.34 the machine's id, its scale set and its number there. A kops-controller of a release takes that release's
//! form alone. Ours takes the forms without a document only where it is told to.
//!
//! Source: upstream's `upup/pkg/fi/cloudup/azure/authenticator.go` and `verifier.go` at v1.34.3, v1.35.2 and v1.36.2; later
//! `upup/pkg/fi/cloudup/azure/azuremetadata` (`authenticator.go`, `nonce.go`), `attest.go` and `verifier.go` beside it; Azure, "Azure Instance
//! Metadata Service", "Attested data".

mod signer;
#[cfg(test)]
mod tests;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use time::OffsetDateTime;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;
use x509_parser::prelude::{FromDer as _, GeneralName, ParsedExtension, X509Certificate};

pub use self::signer::Signer;
pub use super::signed_claim::TokenProblem;
use crate::digest::sha256_hex;
use crate::identity::azure::{AzureCluster, MachinePath, scale_set_and_number};
use signer::Statement;

/// What a token begins with.
pub const PREFIX: &str = "x-azure-id ";
/// The signer, in messages.
pub const SIGNER: &str = "Azure's metadata service";
const UNSIGNED: &str = "it has no document that Azure has signed, as those of kOps 1.36 and before; KOPS_AGENT_AZURE_UNSIGNED_TOKENS=true \
                        lets them in";
/// The characters of a nonce, of 32 that the metadata service takes.
const NONCE_LENGTH: usize = 32;
/// How many seconds ago a document may have been made, beside [`MAX_SKEW`].
const MAX_AGE: i64 = 300;
/// By how many seconds the machine's clock may differ.
const MAX_SKEW: i64 = 120;
/// The name in the certificate that signs, in Azure's public cloud; or one below it, a region's. Those of other clouds of Azure
/// (`metadata.azure.us`, `metadata.azure.cn`) upstream does not take either.
const SIGNER_NAME: &str = "metadata.azure.com";
/// How the metadata service writes times, with four digits of the year.
const TIME: &[BorrowedFormatItem<'_>] = format_description!(
    "[month]/[day]/[year] [hour]:[minute]:[second] [offset_hour sign:mandatory][offset_minute]"
);

/// The nonce of a request with this body.
pub fn nonce(body: &[u8]) -> String {
    let mut hash = sha256_hex(body);
    hash.truncate(NONCE_LENGTH);
    hash
}

/// The token of a machine with this resource id, and of the document that was signed for it, in base64.
pub fn token(resource_id: &str, document: &str) -> String {
    format!("{PREFIX}{resource_id} {document}")
}

/// The token of a machine with this resource id and id, as kOps 1.35 and 1.36 make it.
pub fn unsigned_token(resource_id: &str, vm_id: &str) -> String {
    format!("{PREFIX}{resource_id} {vm_id}")
}

/// The token of a machine with this resource id and id, as kOps 1.34 makes it; `None` where the machine is in no scale set.
pub fn unsigned_token_of_1_34(resource_id: &str, vm_id: &str) -> Option<String> {
    let (scale_set, number) = scale_set_and_number(resource_id)?;
    Some(format!("{PREFIX}{vm_id} {scale_set} {number}"))
}

/// What a token must fit.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    pub cluster: &'a AzureCluster,
    /// Whether it may have no document.
    pub may_be_unsigned: bool,
    /// Seconds since 1970.
    pub now: i64,
}

/// A token that says nothing wrong, of whose signer and signature nothing is known yet.
#[derive(Clone, PartialEq, Eq)]
pub struct AzureToken {
    /// The machine that it says it is of.
    pub machine: MachinePath,
    /// The id of the machine that the document was signed for; or the one that it says it has.
    pub vm_id: String,
    /// What is said to be signed, if anything is.
    pub signed: Option<Signed>,
}

/// That a document is said to be signed.
#[derive(Clone, PartialEq, Eq)]
pub struct Signed {
    /// When it was made, in seconds since 1970.
    pub at: i64,
    /// By what.
    pub by: Signer,
}

impl std::fmt::Debug for AzureToken {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let AzureToken { machine, vm_id, signed } = self;
        let signed_at = signed.as_ref().map(|signed| signed.at);
        let mut debug = formatter.debug_struct("AzureToken");
        debug
            .field("machine", machine)
            .field("vm_id", vm_id)
            .field("signed_at", &signed_at)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Document {
    vm_id: String,
    subscription_id: String,
    nonce: String,
    time_stamp: TimeStamp,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct TimeStamp {
    created_on: String,
    expires_on: String,
}

impl AzureToken {
    /// Reads a token that came with a request's body; `None` if it is none of Azure's.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(
        token: &str,
        body: &[u8],
        expected: &Expected<'_>,
    ) -> Option<Result<AzureToken, TokenProblem>> {
        Some(parse(token.strip_prefix(PREFIX)?, body, expected))
    }
}

fn parse(payload: &str, body: &[u8], expected: &Expected<'_>) -> Result<AzureToken, TokenProblem> {
    const NO_MACHINE: TokenProblem = TokenProblem::Malformed("it names no machine of a scale set");
    let (first, rest) =
        payload.split_once(' ').ok_or(TokenProblem::Malformed("it has no resource id and document"))?;
    let unsigned = |machine, vm_id: &str| match expected.may_be_unsigned {
        true => Ok(AzureToken { machine, vm_id: vm_id.to_owned(), signed: None }),
        false => Err(TokenProblem::Malformed(UNSIGNED)),
    };
    if is_id(first) {
        let (scale_set, number) = rest.split_once(' ').ok_or(NO_MACHINE)?;
        let machine = expected.cluster.machine_of_scale_set(scale_set, number).ok_or(NO_MACHINE)??;
        return unsigned(machine, first);
    }
    let (resource_id, document) = (first, rest);
    let machine = expected.cluster.machine_of_resource(resource_id).ok_or(NO_MACHINE)??;
    if is_id(document) {
        return unsigned(machine, document);
    }
    let der = STANDARD.decode(document).map_err(|_| TokenProblem::Malformed("its document is not base64"))?;
    let statement = Statement::parse(&der).map_err(|_| {
        TokenProblem::Malformed(
            "its document is no signed data (CMS) of one signer, of 8 KiB and 3 certificates at most",
        )
    })?;
    if !is_of_metadata_service(&statement.by.certificate) {
        return Err(TokenProblem::NotSigned("Azure's metadata service: its certificate has another name"));
    }
    let document: Document = serde_json::from_slice(&statement.content)
        .map_err(|_| TokenProblem::Malformed("what it signs is not the JSON of a document"))?;
    let at = check(&document, body, expected)?;
    Ok(AzureToken { machine, vm_id: document.vm_id, signed: Some(Signed { at, by: statement.by }) })
}

/// Whether it is the id of a machine, which is no base64.
fn is_id(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_hexdigit() || byte == b'-';
    text.len() == 36 && text.contains('-') && text.bytes().all(is_inner)
}

/// When a document was made, if it is this request's, of this subscription, and fresh.
fn check(document: &Document, body: &[u8], expected: &Expected<'_>) -> Result<i64, TokenProblem> {
    if document.vm_id.is_empty() {
        return Err(TokenProblem::Malformed("its document names no machine"));
    }
    if document.nonce != nonce(body) {
        return Err(TokenProblem::OtherRequest);
    }
    if !document.subscription_id.eq_ignore_ascii_case(&expected.cluster.subscription) {
        return Err(TokenProblem::Malformed("its document is of a machine of another subscription"));
    }
    let TimeStamp { created_on, expires_on } = &document.time_stamp;
    let created = time_of(created_on).ok_or(TokenProblem::Malformed("its document has no time"))?;
    let age = expected.now.saturating_sub(created);
    if !(-MAX_SKEW..=MAX_AGE + MAX_SKEW).contains(&age) {
        let max_skew = if age < 0 { MAX_SKEW } else { MAX_AGE + MAX_SKEW };
        return Err(TokenProblem::OtherTime { seconds: age.unsigned_abs(), max_skew });
    }
    if !expires_on.is_empty() {
        let expires = time_of(expires_on).ok_or(TokenProblem::Malformed("its document has no end"))?;
        if expires < created {
            return Err(TokenProblem::Malformed("its document ends before it was made"));
        }
        let past = expected.now.saturating_sub(expires);
        if past > MAX_SKEW {
            return Err(TokenProblem::OtherTime { seconds: past.unsigned_abs(), max_skew: MAX_SKEW });
        }
    }
    Ok(created)
}

/// `11/20/18 22:07:39 -0000` in seconds since 1970.
fn time_of(text: &str) -> Option<i64> {
    let (date, rest) = (text.get(..6)?, text.get(6..)?);
    OffsetDateTime::parse(&format!("{date}20{rest}"), TIME).ok().map(OffsetDateTime::unix_timestamp)
}

/// Whether a certificate (DER) has the name of Azure's metadata service.
fn is_of_metadata_service(certificate: &[u8]) -> bool {
    let is_own = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => {
            *name == SIGNER_NAME || name.strip_suffix(SIGNER_NAME).is_some_and(|rest| rest.ends_with('.'))
        }
        _ => false,
    };
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return false };
    certificate.extensions().iter().any(|extension| match extension.parsed_extension() {
        ParsedExtension::SubjectAlternativeName(names) => names.general_names.iter().any(is_own),
        _ => false,
    })
}
