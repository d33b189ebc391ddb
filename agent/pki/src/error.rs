//! What can be wrong with an authority, or with a certificate that it should issue.

/// Why a certificate cannot be issued.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The signer is not in the store.
    #[error(
        "certificate {name}: the item {id:?} of keyset {keyset} is not in the state store, or this node may not read its private key"
    )]
    NoAuthority { name: String, keyset: String, id: String },
    #[error("the certificate authority {keyset} (item {id:?}) {what}")]
    BadAuthority {
        keyset: String,
        id: String,
        /// What is wrong, and what to do.
        what: String,
    },
    /// The signer is not valid now, by this machine's clock, which may be wrong.
    #[error("the certificate authority {keyset} (item {id:?}) {what}")]
    NotValidNow {
        keyset: String,
        id: String,
        /// When it is, and what to do.
        what: String,
    },
    /// The bootstrap server should have issued it.
    #[error(
        "certificate {name}: kops-controller issues it to this node, which may not read the private key of keyset {keyset}, and has not been asked for it; run again"
    )]
    NoBootstrap { name: String, keyset: String },
    /// A file needs a certificate that is neither good nor being issued.
    #[error("certificate {name} has changed since the plan was made; run again")]
    Changed { name: String },
    /// What the certificate should say cannot be written into one.
    #[error("certificate {name}: {reason}")]
    Invalid { name: String, reason: String },
}

impl CertificateError {
    /// Whether trying again can help only after the configuration has changed. A clock is no part of the configuration, and an
    /// error that says to run again means that.
    pub fn is_configuration(&self) -> bool {
        match self {
            CertificateError::NoAuthority { .. }
            | CertificateError::BadAuthority { .. }
            | CertificateError::Invalid { .. } => true,
            CertificateError::NotValidNow { .. }
            | CertificateError::NoBootstrap { .. }
            | CertificateError::Changed { .. } => false,
        }
    }
}
