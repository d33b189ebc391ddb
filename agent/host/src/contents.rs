//! Resolves the bytes of files that are not downloaded, with their references to certificates and secrets.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kops_agent_plan::resource::{Content, File, Kind, ResourceId, SecretPiece};

use crate::certs::Certificates;
use crate::error::{Error, Result};
use crate::secrets::{Material, Secrets};

/// The bytes that `file` should contain. `None` for a download, and for content with a certificate that is not issued yet.
pub(crate) fn bytes(
    file: &File,
    certificates: &Certificates<'_>,
    secrets: &dyn Secrets,
) -> Result<Option<Vec<u8>>> {
    Ok(match &file.content {
        Content::Text(text) => Some(text.clone().into_bytes()),
        Content::Base64(encoded) => Some(STANDARD.decode(encoded).map_err(|error| Error::Invalid {
            id: id(file),
            reason: format!("the content is not base64: {error}"),
        })?),
        Content::Asset(_) => None,
        Content::Certificate(name) => certificates.certificate(name).map(String::into_bytes),
        Content::PrivateKey(name) => certificates.private_key(name).map(String::into_bytes),
        Content::Ca(name) => certificates.ca(name).map(String::into_bytes),
        Content::Kubeconfig(kubeconfig) => certificates.kubeconfig(kubeconfig).map(String::into_bytes),
        Content::SecretText(pieces) => Some(secret_text(file, pieces, secrets)?),
    })
}

/// Why the content of `file` is unknown now; `None` if it is known.
pub(crate) fn why_unknown(
    file: &File,
    certificates: &Certificates<'_>,
    secrets: &dyn Secrets,
) -> Result<Option<String>> {
    let certificate = match &file.content {
        Content::SecretText(pieces) => {
            return Ok(pieces.iter().find_map(|piece| unknown_piece(piece, secrets)));
        }
        Content::Certificate(name) | Content::PrivateKey(name) | Content::Ca(name) => name,
        Content::Kubeconfig(kubeconfig) => &kubeconfig.certificate,
        Content::Text(_) | Content::Base64(_) | Content::Asset(_) => return Ok(None),
    };
    match certificates.why_unissuable(certificate) {
        Some(why) if bytes(file, certificates, secrets)?.is_none() => Ok(Some(why.to_owned())),
        _ => Ok(None),
    }
}

fn unknown_piece(piece: &SecretPiece, secrets: &dyn Secrets) -> Option<String> {
    match piece {
        SecretPiece::Secret(name) if secrets.secret(name).is_none() => {
            secrets.why_unknown(Material::Secret(name))
        }
        SecretPiece::KeysetPrivateKey { keyset, id } if secrets.keyset_item(keyset, id).is_none() => {
            secrets.why_unknown(Material::Keyset(keyset))
        }
        SecretPiece::Environment(names) if secrets.environment(names).is_none() => {
            secrets.why_unknown(Material::Environment(names))
        }
        _ => None,
    }
}

/// Whether the content of `file` needs environment variables that are unknown.
pub(crate) fn lacks_environment(file: &File, secrets: &dyn Secrets) -> bool {
    let Content::SecretText(pieces) = &file.content else { return false };
    pieces
        .iter()
        .any(|piece| matches!(piece, SecretPiece::Environment(names) if secrets.environment(names).is_none()))
}

/// Joins the pieces of a file's secret text.
pub fn secret_text(file: &File, pieces: &[SecretPiece], secrets: &dyn Secrets) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for piece in pieces {
        bytes.extend(resolve(file, piece, secrets)?);
    }
    Ok(bytes)
}

fn resolve(file: &File, piece: &SecretPiece, secrets: &dyn Secrets) -> Result<Vec<u8>> {
    let missing = |secret: String| Error::MissingSecret { file: id(file), secret };
    match piece {
        SecretPiece::Text(text) => Ok(text.clone().into_bytes()),
        SecretPiece::Secret(name) => {
            secrets.secret(name).ok_or_else(|| missing(format!("the secret {name}")))
        }
        SecretPiece::Environment(names) => match secrets.environment(names) {
            Some(value) => Ok(value.into_bytes()),
            None => Err(Error::UnknownEnvironment {
                file: id(file),
                why: secrets.why_unknown(Material::Environment(names)).unwrap_or_else(|| names.join(", ")),
            }),
        },
        SecretPiece::EnvironmentLine { name, given } => match secrets.variable(given) {
            Some(_) => Ok(format!("{name}={}\n", secrets.variable(name).unwrap_or_default()).into_bytes()),
            None => Ok(Vec::new()),
        },
        SecretPiece::KeysetPrivateKey { keyset, id } => {
            let item = secrets
                .keyset_item(keyset, id)
                .ok_or_else(|| missing(format!("the private key {id} of keyset {keyset}")))?;
            Ok(item.private_key.into_bytes())
        }
    }
}

pub(crate) fn id(file: &File) -> ResourceId {
    ResourceId::new(Kind::File, &file.path)
}
