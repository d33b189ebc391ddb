use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kops_agent_pki::{NodeKey, first_der};
use kops_agent_plan::resource::{CertificateType, File, Mode, Subject};
use kops_agent_tests::authority::{Authority as TestAuthority, Pair};
use rcgen::{CertificateParams, KeyPair, PKCS_RSA_SHA256};
use time::Duration;
use time::macros::datetime;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::*;
use kops_agent_spec::failure::Failing as _;

const NOW: OffsetDateTime = datetime!(2026-11-21 12:00 UTC);

/// A store with the keyset `kubernetes-ca`. The ID of an item is its index.
struct Store(Vec<PemPair>);

impl Secrets for Store {
    fn keyset_item(&self, keyset: &str, id: &str) -> Option<PemPair> {
        let index = if id.is_empty() { 0 } else { id.parse().ok()? };
        (keyset == "kubernetes-ca").then(|| self.0.get::<usize>(index).cloned())?
    }

    fn trusted_certificates(&self, _keyset: &str) -> Option<String> {
        Some(self.0.iter().map(|item| item.certificate.as_str()).collect())
    }

    fn secret(&self, _name: &str) -> Option<Vec<u8>> {
        None
    }

    fn bootstrap_certificate(&self, _name: &str) -> Option<PemPair> {
        None
    }
}

fn ca(key: KeyPair, from: OffsetDateTime, to: OffsetDateTime) -> PemPair {
    let Pair { certificate, private_key } =
        TestAuthority::of_key("kubernetes-ca", key, from, to).unwrap().pair();
    PemPair { certificate, private_key }
}

fn good_ca() -> PemPair {
    ca(KeyPair::generate().unwrap(), NOW - Duration::days(300), NOW + Duration::days(3650))
}

fn wanted(id: &str) -> Certificate {
    Certificate {
        name: "kubelet-server".into(),
        signer: "kubernetes-ca".into(),
        keypair_id: id.into(),
        certificate_type: CertificateType::Server,
        subject: Subject { common_name: "kubelet".into(), organization: vec!["system:nodes".into()] },
        sans: vec!["i-0123".into(), "10.0.0.1".into(), "fd00::1".into(), " ".into()],
        issuer: Issuer::Local,
        include_root: false,
    }
}

fn state(certificate: Certificate) -> DesiredState {
    let mut state = DesiredState::default();
    state.add(File::new("/pki/a.crt", Content::Certificate(certificate.name.clone())));
    state.add(File::new("/pki/a.key", Content::PrivateKey(certificate.name.clone())).mode(Mode::PRIVATE));
    state.add(certificate);
    state
}

fn write(root: &Path, pair: &PemPair) {
    std::fs::create_dir_all(root.join("pki")).unwrap();
    std::fs::write(root.join("pki/a.crt"), &pair.certificate).unwrap();
    std::fs::write(root.join("pki/a.key"), &pair.private_key).unwrap();
}

/// Issues `wanted`, and then checks the issued certificate against `then` at the time `NOW + later`. Returns why the certificate would be
/// replaced.
fn why(wanted: Certificate, then: Certificate, store: &Store, later: Duration) -> Option<String> {
    let temp = tempfile::tempdir().unwrap();
    let root = Root::open(temp.path()).unwrap();
    let first = state(wanted.clone());
    let mut certificates = Certificates::observe(&root, &first, store, NOW, 7).unwrap();
    assert_eq!(certificates.observed(&wanted.name), None);
    certificates.issue(&wanted.name).unwrap();
    write(temp.path(), certificates.entries[wanted.name.as_str()].pair.as_ref().unwrap());
    let second = state(then.clone());
    let certificates = Certificates::observe(&root, &second, store, NOW + later, 7).unwrap();
    match certificates.observed(&then.name).unwrap() {
        Observed::Certificate(observed) => observed.replace,
        other => panic!("{other:?}"),
    }
}

fn refusal(item: PemPair) -> crate::Error {
    let temp = tempfile::tempdir().unwrap();
    let (root, state) = (Root::open(temp.path()).unwrap(), state(wanted("0")));
    Certificates::observe(&root, &state, &Store(vec![item]), NOW, 0).err().unwrap()
}

fn error(item: PemPair) -> String {
    refusal(item).to_string()
}

#[test]
fn a_wrong_clock_and_a_temporary_error_are_no_configuration_errors() {
    let days = Duration::days;
    let key = || KeyPair::generate().unwrap();
    for (from, to) in [(NOW + days(1), NOW + days(9)), (NOW - days(9), NOW - days(1))] {
        let error = refusal(ca(key(), from, to));
        assert!(!error.kind().is_configuration(), "{error}");
    }
    let name = || "kubelet".to_owned();
    let changed = CertificateError::Changed { name: name() };
    let not_asked = CertificateError::NoBootstrap { name: name(), keyset: "kubernetes-ca".into() };
    assert!(!changed.kind().is_configuration() && !not_asked.kind().is_configuration());
    let foreign = refusal(PemPair { private_key: key().serialize_pem(), ..good_ca() });
    assert!(foreign.kind().is_configuration(), "{foreign}");
}

#[test]
fn every_field_of_an_issued_certificate_is_as_wanted() {
    for (kind, client, server, encipherment) in [
        (CertificateType::Client, true, false, false),
        (CertificateType::Server, false, true, true),
        (CertificateType::ClientServer, true, true, true),
    ] {
        let item = good_ca();
        let authority = Authority::load("kubernetes-ca", "0", item.clone(), NOW).unwrap();
        let pair = authority
            .issue(&Certificate { certificate_type: kind, ..wanted("0") }, NOW, lifetime(7))
            .unwrap();
        let (leaf, ca) = (first_der(&pair.certificate).unwrap(), first_der(&item.certificate).unwrap());
        let leaf = X509Certificate::from_der(&leaf).unwrap().1;
        let ca = X509Certificate::from_der(&ca).unwrap().1;

        leaf.verify_signature(Some(ca.public_key())).unwrap();
        assert_eq!(leaf.issuer().as_raw(), ca.subject().as_raw());
        assert_eq!(leaf.subject().to_string(), "O=system:nodes, CN=kubelet");
        assert_eq!(leaf.validity().not_before.to_datetime(), NOW - Duration::hours(48));
        assert_eq!(leaf.validity().not_after.to_datetime(), NOW + Duration::days(455) + Duration::hours(7));
        assert_eq!(leaf.raw_serial().len(), 16);
        assert!(!leaf.is_ca() && leaf.basic_constraints().unwrap().is_some_and(|x| x.critical));
        let usage = leaf.key_usage().unwrap().unwrap();
        assert!(usage.critical && usage.value.digital_signature());
        assert_eq!(usage.value.key_encipherment(), encipherment);
        let extended = leaf.extended_key_usage().unwrap().unwrap().value;
        assert_eq!((extended.client_auth, extended.server_auth), (client, server));
        assert!(!extended.any && extended.other.is_empty());
        let names: Vec<String> = leaf
            .subject_alternative_name()
            .unwrap()
            .unwrap()
            .value
            .general_names
            .iter()
            .map(|x| format!("{x:?}"))
            .collect();
        assert_eq!(names.len(), 3, "{names:?}");
        assert!(names[0].starts_with("DNSName") && names[1].starts_with("IPAddress"), "{names:?}");
        assert_eq!(leaf.public_key().parsed().unwrap().key_size(), 256);
        let identifiers = |certificate: &X509Certificate<'_>, own: bool| {
            certificate.iter_extensions().find_map(|extension| match extension.parsed_extension() {
                x509_parser::extensions::ParsedExtension::SubjectKeyIdentifier(id) if own => {
                    Some(id.0.to_vec())
                }
                x509_parser::extensions::ParsedExtension::AuthorityKeyIdentifier(id) if !own => {
                    id.key_identifier.as_ref().map(|id| id.0.to_vec())
                }
                _ => None,
            })
        };
        assert_eq!(identifiers(&leaf, false), identifiers(&ca, true));
        assert!(identifiers(&leaf, true).is_some());
    }
}

fn pem(label: &str, der: &[u8]) -> String {
    let encoded = STANDARD.encode(der);
    let lines: Vec<&str> =
        encoded.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

/// Converts a P-256 key from PKCS#8 to the `EC PRIVATE KEY` form (RFC 5915).
fn sec1(pkcs8: &[u8]) -> Vec<u8> {
    let at = pkcs8.windows(5).position(|bytes| bytes == [2, 1, 1, 4, 32]).unwrap() + 5;
    let public = &pkcs8[pkcs8.len() - 65..];
    let curve = [0xa0, 10, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];
    [&[0x30, 0x77, 2, 1, 1, 4, 32][..], &pkcs8[at..at + 32], &curve, &[0xa1, 68, 3, 66, 0], public].concat()
}

#[test]
fn authorities_with_keys_of_every_kind_and_form_sign() {
    let life = || (NOW - Duration::days(1), NOW + Duration::days(3650));
    let rsa = KeyPair::generate_for(&PKCS_RSA_SHA256).unwrap();
    // The PKCS#8 form of a 2048-bit RSA key has 26 bytes before the PKCS#1 form.
    let pkcs1 = pem("RSA PRIVATE KEY", &rsa.serialized_der()[26..]);
    let ec = KeyPair::generate().unwrap();
    let sec1 = pem("EC PRIVATE KEY", &sec1(ec.serialized_der()));
    for (key, other_form) in [(rsa, pkcs1), (ec, sec1)] {
        let item = ca(key, life().0, life().1);
        let same = PemPair { private_key: other_form, ..item.clone() };
        for item in [item, same] {
            assert_eq!(why(wanted("0"), wanted("0"), &Store(vec![item]), Duration::ZERO), None);
        }
    }
}

#[test]
fn a_good_certificate_is_kept_and_any_other_replaced() {
    let store = Store(vec![good_ca(), good_ca()]);
    let check = |then: Certificate, later| why(wanted("0"), then, &store, later);
    assert_eq!(check(wanted("0"), Duration::ZERO), None);
    // The lifetime of the certificate is 457 days and 7 hours. After two thirds of this time, the certificate is due for renewal. At
    // `NOW`, two days of the lifetime have passed.
    assert_eq!(check(wanted("0"), Duration::days(302)), None);
    let left = "less than a third of its life is left";
    assert_eq!(check(wanted("0"), Duration::days(303)).as_deref(), Some(left));
    assert_eq!(check(wanted("0"), Duration::days(500)).as_deref(), Some("it has expired"));
    let clock = check(wanted("0"), Duration::days(-100)).unwrap();
    assert!(clock.contains("clock"), "{clock}");
    let signer = check(wanted("1"), Duration::ZERO).unwrap();
    assert!(signer.contains("not signed by a trusted kubernetes-ca"), "{signer}");
    let names = check(Certificate { sans: vec!["other".into()], ..wanted("0") }, Duration::ZERO).unwrap();
    assert!(names.contains("names"), "{names}");
    let subject = Subject { common_name: "other".into(), organization: vec![] };
    let subject = check(Certificate { subject, ..wanted("0") }, Duration::ZERO).unwrap();
    assert!(subject.contains("subject"), "{subject}");
    let kind = Certificate { certificate_type: CertificateType::Client, ..wanted("0") };
    let kind = check(kind, Duration::ZERO).unwrap();
    assert!(kind.contains("usages are wrong"), "{kind}");
}

#[test]
fn files_that_do_not_belong_together_are_replaced() {
    let store = Store(vec![good_ca()]);
    let temp = tempfile::tempdir().unwrap();
    let root = Root::open(temp.path()).unwrap();
    let state = state(wanted("0"));
    let mut certificates = Certificates::observe(&root, &state, &store, NOW, 0).unwrap();
    certificates.issue("kubelet-server").unwrap();
    let one = certificates.entries["kubelet-server"].pair.clone().unwrap();
    certificates.issue("kubelet-server").unwrap();
    let other = certificates.entries["kubelet-server"].pair.clone().unwrap();
    assert_ne!(one, other);

    let replace =
        || match Certificates::observe(&root, &state, &store, NOW, 0).unwrap().observed("kubelet-server") {
            Some(Observed::Certificate(observed)) => observed.replace.unwrap(),
            other => panic!("{other:?}"),
        };
    // A run that is killed between the writes of the certificate and of the key leaves a certificate and a key that do not match.
    write(temp.path(), &PemPair { certificate: other.certificate, private_key: one.private_key.clone() });
    assert_eq!(replace(), "its key does not belong to it");
    std::fs::remove_file(temp.path().join("pki/a.key")).unwrap();
    assert_eq!(replace(), "its certificate or its key is missing");
    write(temp.path(), &PemPair { certificate: "garbage".into(), private_key: one.private_key });
    assert_eq!(replace(), "it cannot be read");
}

#[test]
fn no_certificate_outlives_its_authority_or_is_renewed_for_nothing() {
    let short = ca(KeyPair::generate().unwrap(), NOW - Duration::days(9), NOW + Duration::days(1));
    let store = Store(vec![short]);
    assert_eq!(why(wanted("0"), wanted("0"), &store, Duration::hours(23)), None);
}

#[test]
fn unfit_authorities_are_refused() {
    let days = Duration::days;
    let key = || KeyPair::generate().unwrap();
    let expired = error(ca(key(), NOW - days(9), NOW - days(1)));
    assert!(expired.contains("expired on 2026-11-20 12:00 UTC"), "{expired}");
    let future = error(ca(key(), NOW + days(1), NOW + days(9)));
    assert!(future.contains("set the clock"), "{future}");
    let foreign = error(PemPair { private_key: key().serialize_pem(), ..good_ca() });
    assert!(foreign.contains("does not belong to its certificate"), "{foreign}");
    let leaf = CertificateParams::new(vec!["a".into()]).unwrap();
    let leaf_key = key();
    let leaf = leaf.self_signed(&leaf_key).unwrap().pem();
    let not_ca = error(PemPair { certificate: leaf, private_key: leaf_key.serialize_pem() });
    assert!(not_ca.contains("valid only from") || not_ca.contains("not a certificate authority"), "{not_ca}");
    let garbage = error(PemPair { certificate: "x".into(), private_key: "y".into() });
    assert!(garbage.contains("holds no PEM certificate"), "{garbage}");

    let temp = tempfile::tempdir().unwrap();
    let (root, state) = (Root::open(temp.path()).unwrap(), state(wanted("5")));
    let missing = Certificates::observe(&root, &state, &Store(vec![]), NOW, 0).err().unwrap().to_string();
    assert!(missing.contains("item \"5\" of keyset kubernetes-ca is not in the state store"), "{missing}");
}

fn bootstrapped() -> Certificate {
    Certificate { issuer: Issuer::Bootstrap, keypair_id: String::new(), sans: Vec::new(), ..wanted("") }
}

/// A store without CA keys. `issued` is the certificate from kops-controller. `kept` says whether a certificate that cannot be renewed
/// stays in use.
struct NoKeys {
    store: Store,
    issued: Option<PemPair>,
    kept: bool,
}

impl Secrets for NoKeys {
    fn keyset_item(&self, _keyset: &str, _id: &str) -> Option<PemPair> {
        None
    }

    fn trusted_certificates(&self, keyset: &str) -> Option<String> {
        self.store.trusted_certificates(keyset)
    }

    fn secret(&self, _name: &str) -> Option<Vec<u8>> {
        None
    }

    fn bootstrap_certificate(&self, _name: &str) -> Option<PemPair> {
        self.issued.clone()
    }

    fn keeps_certificate(&self, _name: &str) -> bool {
        self.kept
    }
}

#[test]
fn a_node_signs_for_itself_only_if_it_may_read_the_key() {
    let temp = tempfile::tempdir().unwrap();
    let root = Root::open(temp.path()).unwrap();
    let state = state(bootstrapped());
    let store = Store(vec![good_ca()]);
    let mut certificates = Certificates::observe(&root, &state, &store, NOW, 0).unwrap();
    certificates.issue("kubelet-server").unwrap();
    assert!(certificates.certificate("kubelet-server").is_some());

    let store = NoKeys { store, issued: None, kept: false };
    let mut certificates = Certificates::observe(&root, &state, &store, NOW, 0).unwrap();
    let error = certificates.issue("kubelet-server").unwrap_err().to_string();
    assert!(error.contains("this run has not requested the certificate from kops-controller"), "{error}");
    assert_eq!(certificates.ca("kubelet-server"), store.trusted_certificates("kubernetes-ca"));
}

#[test]
fn a_certificate_from_kops_controller_may_have_any_names() {
    let temp = tempfile::tempdir().unwrap();
    let root = Root::open(temp.path()).unwrap();
    let store = Store(vec![good_ca()]);
    let authority = Authority::load("kubernetes-ca", "0", store.0[0].clone(), NOW).unwrap();
    let issued = authority.issue(&wanted("0"), NOW, lifetime(7)).unwrap();
    let store = NoKeys { store, issued: Some(issued.clone()), kept: false };
    let state = state(bootstrapped());
    let mut certificates = Certificates::observe(&root, &state, &store, NOW, 0).unwrap();
    certificates.issue("kubelet-server").unwrap();
    assert_eq!(certificates.private_key("kubelet-server"), Some(issued.private_key.clone()));

    write(temp.path(), &issued);
    let why = |kept: bool, later: Duration| {
        let store = NoKeys { store: Store(store.store.0.clone()), issued: None, kept };
        let certificates = Certificates::observe(&root, &state, &store, NOW + later, 0).unwrap();
        match certificates.observed("kubelet-server").unwrap() {
            Observed::Certificate(observed) => observed.replace,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(why(false, Duration::ZERO), None);
    assert_eq!(why(false, Duration::days(303)).as_deref(), Some("less than a third of its life is left"));
    // If a certificate cannot be renewed, it stays in use until it expires.
    assert_eq!(why(true, Duration::days(303)), None);
    assert_eq!(why(true, Duration::days(500)).as_deref(), Some("it has expired"));
}

/// Two CAs are trusted. First one of them signs, and later the other. If the node can get a new certificate, it requests one. Otherwise it
/// keeps its certificate.
#[test]
fn a_certificate_of_an_old_trusted_authority_is_replaced() {
    let temp = tempfile::tempdir().unwrap();
    let root = Root::open(temp.path()).unwrap();
    let (old, new) = (good_ca(), good_ca());
    let authority = Authority::load("kubernetes-ca", "0", old.clone(), NOW).unwrap();
    write(temp.path(), &authority.issue(&wanted("0"), NOW, lifetime(7)).unwrap());
    let id_of = |item: &PemPair| {
        let der = first_der(&item.certificate).unwrap();
        X509Certificate::from_der(&der).unwrap().1.serial.to_string()
    };
    let why = |id: String, kept: bool| {
        let store = NoKeys { store: Store(vec![old.clone(), new.clone()]), issued: None, kept };
        let state = state(Certificate { keypair_id: id, ..bootstrapped() });
        let certificates = Certificates::observe(&root, &state, &store, NOW, 0).unwrap();
        match certificates.observed("kubelet-server").unwrap() {
            Observed::Certificate(observed) => (observed.replace, observed.is_due),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(why(id_of(&old), false), (None, false));
    let signs_no_more = "it is signed by an old kubernetes-ca that is still trusted but no longer signs";
    assert_eq!(why(id_of(&new), false), (Some(signs_no_more.to_owned()), true));
    assert_eq!(why(id_of(&new), true), (None, false));
    assert_eq!(
        why("7".to_owned(), false),
        (None, false),
        "no trusted certificate has this ID as its serial number"
    );
}

#[test]
fn a_public_key_is_sent_in_upstreams_form() {
    let key = NodeKey::generate("kubelet").unwrap();
    let lines: Vec<String> = key.public_pem().lines().map(str::to_owned).collect();
    assert_eq!(lines[0], "-----BEGIN RSA PUBLIC KEY-----");
    assert_eq!(lines[lines.len() - 1], "-----END RSA PUBLIC KEY-----");
    let der = STANDARD.decode(lines[1..lines.len() - 1].concat()).unwrap();
    let (rest, spki) = x509_parser::prelude::SubjectPublicKeyInfo::from_der(&der).unwrap();
    assert!(rest.is_empty());
    assert_eq!(spki.parsed().unwrap().key_size(), 2048);
    assert_eq!(format!("{key:?}"), "NodeKey(redacted)");
    assert!(key.with_certificate("").private_key.starts_with("-----BEGIN PRIVATE KEY-----"));
}
