//! A machine's token on Azure: the machine's resource id, and a document that Azure's metadata service signed for the machine. A nonce in
//! the document binds the document to the request.
//!
//! A machine requests a document with the [`nonce`] of its request body from its metadata service, and appends the document to its resource
//! id. On the server this module rejects everything that it can reject without another request and without checking a signature: machines
//! of other clusters, documents of other requests, old documents. [`Signer::has_signed`] checks the signature. The certificate chain shows
//! whether the signer is Microsoft. Azure Resource Manager reports to which cluster the machine belongs.
//!
//! Tokens of kOps 1.36 and before have no document, so only the call-back is a proof. kOps 1.35 and 1.36 send the resource id and the
//! machine's id. kOps 1.34 sends the machine's id, its scale set and its number in the scale set. kOps' kops-controller accepts only the
//! form of its own release. kops-agent's server accepts tokens without a document only if `KOPS_AGENT_AZURE_UNSIGNED_TOKENS` is `true`.
//!
//! Source: upstream's `upup/pkg/fi/cloudup/azure/authenticator.go` and `verifier.go` at v1.34.3, v1.35.2 and v1.36.2; later
//! `upup/pkg/fi/cloudup/azure/azuremetadata` (`authenticator.go`, `nonce.go`), `attest.go` and `verifier.go` beside it; Azure, "Azure
//! Instance Metadata Service", "Attested data".

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
use crate::identity::azure::{AzureCluster, MachinePath, scale_set_and_number};
use kops_agent_spec::digest::sha256_hex;
use signer::Statement;

/// The prefix of Azure's tokens in the header `Authorization`.
pub const PREFIX: &str = "x-azure-id ";
/// The signer's name in messages.
pub const SIGNER: &str = "Azure's metadata service";
const UNSIGNED: &str = "it has no document that Azure has signed; kOps 1.36 and older send such tokens, and \
                        KOPS_AGENT_AZURE_UNSIGNED_TOKENS=true accepts them";
/// The length of a nonce. The metadata service accepts at most 32 characters.
const NONCE_LENGTH: usize = 32;
/// The maximum age of a document in seconds, in addition to [`MAX_SKEW`].
const MAX_AGE: i64 = 300;
/// The maximum clock difference to a machine, in seconds.
const MAX_SKEW: i64 = 120;
/// The name in the signing certificate in Azure's public cloud. A region's certificate has a subdomain of this name. Names of other Azure
/// clouds (`metadata.azure.us`, `metadata.azure.cn`) are rejected, as in upstream.
const SIGNER_NAME: &str = "metadata.azure.com";
/// The format of times from the metadata service. Before parsing, their two-digit years are completed to four digits.
const TIME: &[BorrowedFormatItem<'_>] = format_description!(
    "[month]/[day]/[year] [hour]:[minute]:[second] [offset_hour sign:mandatory][offset_minute]"
);

/// The nonce of a request with this body: the first 32 hexadecimal digits of its SHA-256.
pub fn nonce(body: &[u8]) -> String {
    let mut hash = sha256_hex(body);
    hash.truncate(NONCE_LENGTH);
    hash
}

/// The token of a machine with this resource id. `document` is the signed document in base64.
pub fn token(resource_id: &str, document: &str) -> String {
    format!("{PREFIX}{resource_id} {document}")
}

/// The token without a document, in the form of kOps 1.35 and 1.36.
pub fn unsigned_token(resource_id: &str, vm_id: &str) -> String {
    format!("{PREFIX}{resource_id} {vm_id}")
}

/// The token without a document, in the form of kOps 1.34. `None` if the machine is not in a scale set.
pub fn unsigned_token_of_1_34(resource_id: &str, vm_id: &str) -> Option<String> {
    let (scale_set, number) = scale_set_and_number(resource_id)?;
    Some(format!("{PREFIX}{vm_id} {scale_set} {number}"))
}

/// The values against which a token is checked.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    pub cluster: &'a AzureCluster,
    /// Whether a token may have no document.
    pub may_be_unsigned: bool,
    /// Seconds since 1970.
    pub now: i64,
}

/// A token that passed all checks except the checks of the signer and of the signature.
#[derive(Clone, PartialEq, Eq)]
pub struct AzureToken {
    /// The machine that the token names.
    pub machine: MachinePath,
    /// The id of the machine in the signed document, or else the id that the machine claims.
    pub vm_id: String,
    /// The claimed signature. `None` if the token has no document.
    pub signed: Option<Signed>,
}

/// A document's claimed signature.
#[derive(Clone, PartialEq, Eq)]
pub struct Signed {
    /// The creation time of the document, in seconds since 1970.
    pub at: i64,
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
    /// Reads a token that came with this request body. `None` if the token is not from Azure.
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
            "its document is not signed data (CMS) with one signer, at most 8 KiB and at most 3 certificates",
        )
    })?;
    if !is_of_metadata_service(&statement.by.certificate) {
        return Err(TokenProblem::NotSigned("Azure's metadata service: its certificate has another name"));
    }
    let document: Document = serde_json::from_slice(&statement.content)
        .map_err(|_| TokenProblem::Malformed("the signed content is not the JSON of a document"))?;
    let at = check(&document, body, expected)?;
    Ok(AzureToken { machine, vm_id: document.vm_id, signed: Some(Signed { at, by: statement.by }) })
}

/// Whether a text is a machine's id. An id contains `-`, so it cannot be a document in base64.
fn is_id(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_hexdigit() || byte == b'-';
    text.len() == 36 && text.contains('-') && text.bytes().all(is_inner)
}

/// Checks that a document belongs to this request and this subscription, and is fresh. Returns its creation time.
fn check(document: &Document, body: &[u8], expected: &Expected<'_>) -> Result<i64, TokenProblem> {
    if document.vm_id.is_empty() {
        return Err(TokenProblem::Malformed("its document names no machine"));
    }
    if document.nonce != nonce(body) {
        return Err(TokenProblem::OtherRequest);
    }
    if !document.subscription_id.eq_ignore_ascii_case(&expected.cluster.subscription) {
        return Err(TokenProblem::Malformed("its document is for a machine of another subscription"));
    }
    let TimeStamp { created_on, expires_on } = &document.time_stamp;
    let created =
        time_of(created_on).ok_or(TokenProblem::Malformed("its document has no valid creation time"))?;
    let age = expected.now.saturating_sub(created);
    if !(-MAX_SKEW..=MAX_AGE + MAX_SKEW).contains(&age) {
        let max_skew = if age < 0 { MAX_SKEW } else { MAX_AGE + MAX_SKEW };
        return Err(TokenProblem::OtherTime { seconds: age.unsigned_abs(), max_skew });
    }
    if !expires_on.is_empty() {
        let expires =
            time_of(expires_on).ok_or(TokenProblem::Malformed("its document has no valid expiry time"))?;
        if expires < created {
            return Err(TokenProblem::Malformed("its document expires before its creation time"));
        }
        let past = expected.now.saturating_sub(expires);
        if past > MAX_SKEW {
            return Err(TokenProblem::OtherTime { seconds: past.unsigned_abs(), max_skew: MAX_SKEW });
        }
    }
    Ok(created)
}

/// Parses a time like `11/20/18 22:07:39 -0000` into seconds since 1970.
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
