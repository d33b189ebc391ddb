//! Errors of certificate authorities, and of issuing certificates.

use kops_agent_spec::failure::{Failing, Kind};

/// Why a certificate cannot be issued.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    #[error(
        "certificate {name}: the item {id:?} of keyset {keyset} is not in the state store, or this node may not read its private key"
    )]
    NoAuthority { name: String, keyset: String, id: String },
    #[error("the certificate authority {keyset} (item {id:?}) {what}")]
    BadAuthority {
        keyset: String,
        id: String,
        /// The cause and the remedy.
        what: String,
    },
    /// By this machine's clock, the signer is not valid yet or has expired. The clock may be wrong.
    #[error("the certificate authority {keyset} (item {id:?}) {what}")]
    NotValidNow {
        keyset: String,
        id: String,
        /// When the signer is valid, and the remedy.
        what: String,
    },
    /// Only kops-controller can issue this certificate to this node, and the node has not requested it.
    #[error(
        "certificate {name}: this run has not requested the certificate from kops-controller, and this node \
         may not read the private key of keyset {keyset}; run again"
    )]
    NoBootstrap { name: String, keyset: String },
    /// A file needs this certificate, but the certificate is not usable and the plan does not issue a new one.
    #[error("certificate {name} has changed since the plan was made; run again")]
    Changed { name: String },
    #[error("certificate {name}: {reason}")]
    Invalid { name: String, reason: String },
}

impl Failing for CertificateError {
    fn kind(&self) -> Kind {
        match self {
            CertificateError::NoAuthority { .. } => Kind::NoAuthority,
            CertificateError::BadAuthority { .. } => Kind::BadAuthority,
            CertificateError::NotValidNow { .. } => Kind::AuthorityNotValidNow,
            CertificateError::NoBootstrap { .. } | CertificateError::Changed { .. } => {
                Kind::CertificateChanged
            }
            CertificateError::Invalid { .. } => Kind::CertificateInvalid,
        }
    }
}
