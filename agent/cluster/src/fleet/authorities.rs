//! The authorities that a node trusts, as a digest in an annotation of its own Node. A worker gets them with its boot config, so the hash of
//! its configuration does not change with them.

use kops_agent_spec::certificate::certificates;
use kops_agent_spec::digest::{is_sha256_hex, sha256_hex};

/// The annotation with the digest of the `kubernetes-ca` authorities that the node trusts.
pub const AUTHORITIES: &str = "kops-agent/authorities";

/// The digest of the certificates in a PEM bundle, whatever their order and white space. `None` if the bundle has no certificate.
pub fn authorities_digest(bundle: &str) -> Option<String> {
    let mut certificates = certificates(bundle);
    certificates.sort();
    certificates.dedup();
    (!certificates.is_empty()).then(|| sha256_hex(certificates.concat().as_bytes()))
}

/// Parses an annotation's value; `None` if it is not a digest. A kubelet can write any value into its own Node.
pub fn read_authorities(value: &str) -> Option<String> {
    is_sha256_hex(value).then(|| value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(content: &str) -> String {
        format!("-----BEGIN CERTIFICATE-----\n{content}\n-----END CERTIFICATE-----\n")
    }

    #[test]
    fn the_same_authorities_have_one_digest_in_any_order() {
        let (a, b) = (certificate("a"), certificate("b"));
        let digest = authorities_digest(&format!("{a}{b}"));
        assert!(digest.is_some());
        assert_eq!(authorities_digest(&format!("{b}\n  {a}{a}")), digest);
        assert_ne!(authorities_digest(&a), digest);
        assert_eq!(authorities_digest("\n"), None);
        assert_eq!(read_authorities(&digest.clone().unwrap_or_default()), digest);
        assert_eq!(read_authorities("not a digest"), None);
    }
}
