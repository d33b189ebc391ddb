//! The proof of an enrolled machine: the machine's key signs the machine's name and request.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kops_agent_cluster::bootstrap::host_token::{self, KEY_FILE};
use kops_agent_net::http;
use reqwest::header::HeaderValue;
use rustls::SignatureScheme;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::sign::SigningKey;

use crate::authenticate::{AuthenticationError, Authenticator};

/// Signs with a machine's key.
#[derive(Debug)]
pub struct HostAuthenticator {
    host: String,
    key: Arc<dyn SigningKey>,
    /// The machine's public key, in PEM.
    public_key: String,
}

impl HostAuthenticator {
    /// Creates the authenticator for the machine with this name, with the key below `root`.
    pub fn new(root: &Path, hostname: &str) -> Result<HostAuthenticator, AuthenticationError> {
        let file = root.join(KEY_FILE.trim_start_matches('/'));
        let unusable =
            |why: String| AuthenticationError::MachineKey { file: file.display().to_string(), why };
        let pem = fs::read(&file).map_err(|error| unusable(error.to_string()))?;
        // The parser's error may repeat a part of the key, so the message does not show this error.
        let key = PrivateKeyDer::from_pem_slice(&pem)
            .map_err(|_| unusable("it is not a private key in PEM".into()))?;
        let key = rustls::crypto::aws_lc_rs::sign::any_supported_type(&key)
            .map_err(|_| unusable("its type of private key is not supported".into()))?;
        let public_key = match key.public_key() {
            Some(public_key) if key.choose_scheme(&[SCHEME]).is_some() => public_key_pem(&public_key),
            _ => return Err(unusable("it is not an EC key of P-256, which tokens need".into())),
        };
        // The name of a `Host` is in lower case, like the name of a Node.
        Ok(HostAuthenticator { host: hostname.trim().to_lowercase(), key, public_key })
    }

    fn sign(&self, body: &[u8]) -> Result<String, String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        let data = host_token::data(&self.host, &self.public_key, body, now);
        let signer = self.key.choose_scheme(&[SCHEME]).ok_or("the machine's key cannot sign tokens")?;
        let signature =
            signer.sign(&data).map_err(|error| format!("cannot sign with the machine's key: {error}"))?;
        Ok(host_token::token(data, signature))
    }
}

/// ECDSA with SHA-256, in ASN.1. Upstream's server accepts this scheme, and `kops toolbox enroll` makes the matching kind of key.
const SCHEME: SignatureScheme = SignatureScheme::ECDSA_NISTP256_SHA256;

/// Encodes a SubjectPublicKeyInfo (DER) in PEM, in the same form as Go's `encoding/pem`.
fn public_key_pem(der: &[u8]) -> String {
    let encoded = STANDARD.encode(der);
    let mut pem = "-----BEGIN PUBLIC KEY-----\n".to_owned();
    let mut rest = encoded.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(64));
        pem.extend([line, "\n"]);
        rest = after;
    }
    pem + "-----END PUBLIC KEY-----\n"
}

#[async_trait::async_trait]
impl Authenticator for HostAuthenticator {
    async fn token(&self, body: &[u8]) -> Result<HeaderValue, AuthenticationError> {
        let token = self.sign(body).map_err(AuthenticationError::NotSigned)?;
        http::secret(&token).map_err(|error| {
            AuthenticationError::NotSigned(format!("a token is not a valid HTTP header: {error}"))
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use kops_agent_cluster::bootstrap::host_token::HostToken;
    use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519};

    use super::*;
    use kops_agent_spec::failure::Failing as _;

    /// A key as `openssl ecparam -genkey` writes it (SEC1). kOps creates machine keys with this command.
    const SEC1: &str = include_str!("testdata/key.pem");
    const SEC1_PUBLIC: &str = include_str!("testdata/key.pub.pem");

    fn root_with(pem: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join(KEY_FILE.trim_start_matches('/'));
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, pem).unwrap();
        root
    }

    #[tokio::test]
    async fn a_token_has_the_machines_name_and_its_signature() {
        let pkcs8 = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        for (pem, public_key) in
            [(SEC1.to_owned(), SEC1_PUBLIC.to_owned()), (pkcs8.serialize_pem(), pkcs8.public_key_pem())]
        {
            let authenticator = HostAuthenticator::new(root_with(&pem).path(), "VM1\n").unwrap();
            assert_eq!(authenticator.public_key, public_key.replace('\r', ""));
            let token = authenticator.token(b"{}").await.unwrap();
            assert!(token.is_sensitive());
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
            let read = HostToken::parse(token.to_str().unwrap(), b"{}", 60, i64::try_from(now).unwrap());
            let read = read.unwrap().unwrap();
            assert_eq!(read.host, "vm1");
            read.verify(&public_key).unwrap();
            let debug = format!("{authenticator:?}");
            assert!(pem.lines().nth(1).is_some_and(|secret| !debug.contains(secret)), "{debug}");
        }
    }

    #[test]
    fn an_unusable_key_is_an_error_that_does_not_show_it() {
        let other = |algorithm| KeyPair::generate_for(algorithm).unwrap().serialize_pem();
        let halved = &SEC1[..SEC1.len() / 2];
        for (pem, why) in [
            (String::new(), "not a private key in PEM"),
            (halved.to_owned(), "not a private key in PEM"),
            (other(&PKCS_ECDSA_P384_SHA384), "not an EC key of P-256"),
            (other(&PKCS_ED25519), "not an EC key of P-256"),
        ] {
            let error = HostAuthenticator::new(root_with(&pem).path(), "vm1").unwrap_err();
            let text = error.to_string();
            assert!(text.contains(why) && text.contains("machine/private.pem"), "{text}");
            assert!(!error.kind().is_configuration(), "it may be enrolled later");
        }
        let root = tempfile::tempdir().unwrap();
        let text = HostAuthenticator::new(root.path(), "vm1").unwrap_err().to_string();
        assert!(text.contains("No such file") && text.contains("kops toolbox enroll"), "{text}");
    }
}
