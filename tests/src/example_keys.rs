//! Makes new keys and tokens for the example cluster, in the form in which kOps stores them.

use std::fs::{self, File};
use std::io::Read;
use std::ops::Range;
use std::path::Path;

use anyhow::{Context, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose, PKCS_RSA_SHA256,
    RsaKeySize, SerialNumber, date_time_ymd,
};
use serde_json::json;
use serde_yaml::Value;

/// The keysets of a cluster that has the etcd clusters `main` and `events` (upstream:
/// `pkg/model/bootstrapscript.go`, `KeypairNamesForInstanceGroup`).
pub const KEYSETS: [&str; 8] = [
    "apiserver-aggregator-ca",
    "etcd-clients-ca",
    "etcd-manager-ca-events",
    "etcd-manager-ca-main",
    "etcd-peers-ca-events",
    "etcd-peers-ca-main",
    "kubernetes-ca",
    "service-account",
];

/// The tokens that kOps makes for every cluster (upstream: `pkg/tokens`).
pub const TOKENS: [&str; 9] = [
    "admin",
    "kube",
    "kube-proxy",
    "kubelet",
    "system:controller_manager",
    "system:dns",
    "system:logging",
    "system:monitoring",
    "system:scheduler",
];

/// A keyset with one key.
#[derive(Clone)]
pub struct Keyset {
    /// The keyset's name, which is also the common name of the certificate.
    pub name: String,
    /// The key's id, which is also the serial number of the certificate.
    pub id: u64,
    /// PEM.
    pub certificate: String,
    /// The RSA key in PEM, PKCS #1, like kOps' keys.
    pub private_key: String,
}

impl Keyset {
    /// Makes an RSA key and a CA certificate for this key. kOps also makes a CA certificate for
    /// `service-account`.
    pub fn make(name: &str, id: u64) -> anyhow::Result<Keyset> {
        // The years are fixed, so that no test depends on the date.
        Keyset::make_valid(name, id, 2026..2046)
    }

    /// Like [`Keyset::make`], with a certificate that is valid in these years.
    pub fn make_valid(name: &str, id: u64, years: Range<i32>) -> anyhow::Result<Keyset> {
        let key = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048)?;
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.serial_number = Some(SerialNumber::from(id));
        params.not_before = date_time_ymd(years.start, 1, 1);
        params.not_after = date_time_ymd(years.end, 1, 1);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key).with_context(|| format!("signing {name}"))?.pem();
        let private_key = pem("RSA PRIVATE KEY", rsa_private_key(key.serialized_der())?);
        Ok(Keyset { name: name.to_owned(), id, certificate, private_key })
    }

    pub fn issuer(&self) -> anyhow::Result<Issuer<'static, KeyPair>> {
        Ok(Issuer::from_ca_cert_pem(&self.certificate, KeyPair::from_pem(&self.private_key)?)?)
    }

    /// The keyset as the content of `keyset.yaml` (upstream: `pkg/apis/kops/v1alpha2/keyset.go`).
    pub fn yaml(&self) -> String {
        format!(
            "apiVersion: kops.k8s.io/v1alpha2\nkind: Keyset\nmetadata:\n  name: {name}\nspec:\n  keys:\n  - id: \"{id}\"\n    \
             privateMaterial: {private}\n    publicMaterial: {public}\n  primaryId: \"{id}\"\n  type: Keypair\n",
            name = self.name,
            id = self.id,
            private = STANDARD.encode(&self.private_key),
            public = STANDARD.encode(&self.certificate),
        )
    }
}

/// Makes all of [`KEYSETS`] in parallel, one thread for each.
pub fn make_keysets() -> anyhow::Result<Vec<Keyset>> {
    std::thread::scope(|scope| {
        let makers: Vec<_> = (7_100_000_001..)
            .zip(KEYSETS)
            .map(|(id, name)| scope.spawn(move || Keyset::make(name, id)))
            .collect();
        makers
            .into_iter()
            .map(|maker| maker.join().map_err(|_| anyhow::anyhow!("making a key panicked"))?)
            .collect()
    })
}

/// The beginning of every token of the example, so that tests can search output for tokens.
pub const TOKEN_MARK: &str = "TokenOfTheExample";

/// The `distrustTimestamp` of a distrusted key. Any timestamp makes a key distrusted, even a future one.
pub const DISTRUSTED: &str = "2026-06-01T00:00:00Z";

/// Changes the `spec` of a `keyset.yaml`.
pub fn edit_keyset(file: &Path, edit: impl FnOnce(&mut Value)) -> anyhow::Result<()> {
    let mut document: Value = serde_yaml::from_str(&fs::read_to_string(file)?)?;
    edit(&mut document["spec"]);
    Ok(fs::write(file, serde_yaml::to_string(&document)?)?)
}

/// The content of a file in `secrets/` with a new token (upstream: `upup/pkg/fi/secrets.go`).
pub fn make_token_file() -> anyhow::Result<String> {
    Ok(json!({ "Data": STANDARD.encode(format!("{TOKEN_MARK}{}", random_token(32)?)) }).to_string())
}

/// The PKCS #1 key in a PKCS #8 key: `SEQUENCE { version, algorithm, OCTET STRING }` (RFC 5958).
fn rsa_private_key(pkcs8: &[u8]) -> anyhow::Result<&[u8]> {
    const INTEGER: u8 = 0x02;
    const OCTET_STRING: u8 = 0x04;
    const SEQUENCE: u8 = 0x30;
    let (fields, _) = read_der(pkcs8, SEQUENCE)?;
    let (_version, fields) = read_der(fields, INTEGER)?;
    let (_algorithm, fields) = read_der(fields, SEQUENCE)?;
    Ok(read_der(fields, OCTET_STRING)?.0)
}

/// The content of the first element of `der`, and the bytes after this element. The element must have this
/// tag.
fn read_der(der: &[u8], tag: u8) -> anyhow::Result<(&[u8], &[u8])> {
    let (&found, rest) = der.split_first().context("DER ends early")?;
    ensure!(found == tag, "DER tag {found:#x} in the place of {tag:#x}");
    let (&length, rest) = rest.split_first().context("DER ends early")?;
    let (length, rest) = match length {
        0..=0x7f => (usize::from(length), rest),
        _ => {
            let (octets, rest) =
                rest.split_at_checked(usize::from(length & 0x7f)).context("DER ends early")?;
            (octets.iter().fold(0, |sum, octet| sum << 8 | usize::from(*octet)), rest)
        }
    };
    rest.split_at_checked(length).context("DER ends early")
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<_> = text.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789AZ";

/// Letters and digits from the kernel's random source.
pub fn random_token(length: usize) -> anyhow::Result<String> {
    let mut bytes = vec![0; length];
    File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .context("reading /dev/urandom")?;
    Ok(bytes.iter().map(|byte| char::from(ALPHABET[usize::from(byte % 64)])).collect())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_keyset_is_written_in_kops_form() {
        let keyset = Keyset::make("kubernetes-ca", 42).unwrap();
        let yaml: serde_yaml::Value = serde_yaml::from_str(&keyset.yaml()).unwrap();
        assert_eq!(yaml["kind"], "Keyset");
        assert_eq!(yaml["spec"]["primaryId"], "42");
        let key = &yaml["spec"]["keys"][0];
        let material = |field: &str| STANDARD.decode(key[field].as_str().unwrap()).unwrap();
        assert_eq!(material("publicMaterial"), keyset.certificate.as_bytes());
        assert!(material("privateMaterial").starts_with(b"-----BEGIN RSA PRIVATE KEY-----\nMII"));
    }

    #[test]
    fn the_private_key_matches_the_certificate() {
        let keyset = Keyset::make("service-account", 43).unwrap();
        let modulus = |arguments: &[&str], input: &str| {
            let folder = tempfile::tempdir().unwrap();
            let pem = folder.path().join("pem");
            std::fs::write(&pem, input).unwrap();
            let output = Command::new("openssl").args(arguments).arg("-in").arg(&pem).output().unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        assert_eq!(
            modulus(&["rsa", "-noout", "-modulus"], &keyset.private_key),
            modulus(&["x509", "-noout", "-modulus"], &keyset.certificate)
        );
    }
}
