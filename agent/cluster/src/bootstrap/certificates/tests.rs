#![allow(clippy::unwrap_used)]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::*;

// openssl made these keys only for this test. The private keys are deleted.
const RSA_2048: &str = "-----BEGIN RSA PUBLIC KEY-----\n\
    MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAvJR0KzcWD/krtzVyg3Dz\n\
    mvOhBqWucsEEtkNME53cCmLk+YWunDjkw2Q/ywE9kKAjVb3zQ7NF545noHLdSy4L\n\
    sQlDeRqP7qTxM7AJVlqdIpjk40M3BpjslXlOGJX7905h7nAukalQOVYgDHuZxRMM\n\
    tAXT+h5NyUigEjzn3knHv69FfXV+70vizC6Ls+UrFWupFbFKYp0j8AnX8gUEjzpm\n\
    7OAfOuP8mXr1cdlMJD2cUSE4xPFD227K4l3Gk0RIIJkHSXU2feIqe6xnIjGe2lvB\n\
    0d43dFcCBVRSedqB1W1bF4IZ51mce7ZJ9EmiSFJE+DAfrBnhz4TeXXCUhuY79xM9\n\
    bQIDAQAB\n\
    -----END RSA PUBLIC KEY-----\n\
    ";
const RSA_1024: &str = "-----BEGIN RSA PUBLIC KEY-----\n\
    MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQCmtZ7vL+XHZiartfTdALlc8bK+\n\
    87K10bc5w4JqQXI4SjZhlqw5Q3UIOzAO7JgE4P4IQvYpKfic1iO37ejZzMkNfKlO\n\
    g0MXFQyqry7obl3HwqJd2JuyTMNo8wFp8u9n09426UIkM2+mFEMaj+EWcMe2QtQ1\n\
    E7HQvXnmYPVh7SFBkQIDAQAB\n\
    -----END RSA PUBLIC KEY-----\n\
    ";
const P256: &str = "-----BEGIN RSA PUBLIC KEY-----\n\
    MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEc6aMUr9iXdjAE3STQFTUxWKecktD\n\
    bORdBRC3eyMSVlJwu3Kyi6h/JolwYB1hdr8ezM7zUp9Wo8R8zlx8Frtkcg==\n\
    -----END RSA PUBLIC KEY-----\n\
    ";
const P384: &str = "-----BEGIN RSA PUBLIC KEY-----\n\
    MHYwEAYHKoZIzj0CAQYFK4EEACIDYgAEHJz/91LFFOipMMMSXIAXb4NkDhF6q4Wt\n\
    Cu6PDNgidLn3Ml4L8VrSM3l3GNTtBxNgVyfJAU0H+b1JqzFYrD9Ew3KWShQUQtZf\n\
    5OxHHMlNIYXTaH73F+VSmcJRFyGFm1Ir\n\
    -----END RSA PUBLIC KEY-----\n\
    ";
const P521: &str = "-----BEGIN RSA PUBLIC KEY-----\n\
    MIGbMBAGByqGSM49AgEGBSuBBAAjA4GGAAQBa0v7RxUXyFi19H1ge1qFWtwq+jqh\n\
    eunysFaU23DdtybSR/7YdHaV0vlc1gyiuX4BThYkejuQ5ORTVmZsT9voqR4AIqjw\n\
    15+B9zHJppViDX+U47O7UXy+F88RX2zD6KTW2exVJ6j/ro/oe+ZkqrBlpDa0ezWY\n\
    yKdG2iE3aS55EW4FNbE=\n\
    -----END RSA PUBLIC KEY-----\n\
    ";
const P224: &str = "-----BEGIN RSA PUBLIC KEY-----\n\
    ME4wEAYHKoZIzj0CAQYFK4EEACEDOgAEU4qa8julajGmVrbES6PFB7ExwftszuBZ\n\
    0tPMOIK2v5xKr2OcGiHFmGtzmnVoWIMB1TNLfaQWYFc=\n\
    -----END RSA PUBLIC KEY-----\n\
    ";
const ED25519: &str = "-----BEGIN RSA PUBLIC KEY-----\n\
    MCowBQYDK2VwAyEAV16lVK3VFWEh7dAVi6O9mSeuUkCCwlIct3rBXIGPNtw=\n\
    -----END RSA PUBLIC KEY-----\n\
    ";

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn ids(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, id)| ((*name).to_owned(), (*id).to_owned())).collect()
}

fn ask(name: &str, key: &str, trusted: &BTreeMap<String, String>) -> Result<Order, CertificateRefusal> {
    let names = ["i-1".to_owned(), "10.0.0.1".to_owned()];
    let cert_names = set(&["kubelet", "kubelet-server", "kube-proxy", "etcd-client-cilium", "invented"]);
    let keypair_ids = ids(&[("kubernetes-ca", "7"), ("etcd-clients-ca-cilium", "8")]);
    let asker = Asker { node_name: "i-1", certificate_names: &names };
    order(name, key, trusted, &asker, &Offer { cert_names: &cert_names, keypair_ids: &keypair_ids })
}

#[test]
fn each_certificate_name_has_its_subject_and_signer() {
    let trusted = ids(&[("kubernetes-ca", "7"), ("etcd-clients-ca-cilium", "8")]);
    for (name, signer, id, subject, is_server) in [
        ("kubelet", "kubernetes-ca", "7", "system:nodes/system:node:i-1", false),
        ("kubelet-server", "kubernetes-ca", "7", "/i-1", true),
        ("kube-proxy", "kubernetes-ca", "7", "/system:kube-proxy", false),
        ("etcd-client-cilium", "etcd-clients-ca-cilium", "8", "/cilium", false),
    ] {
        let Order { certificate, .. } = ask(name, RSA_2048, &trusted).unwrap();
        assert_eq!((certificate.signer.as_str(), certificate.keypair_id.as_str()), (signer, id));
        let Subject { common_name, organization } = certificate.subject;
        assert_eq!(format!("{}/{common_name}", organization.join(",")), subject);
        assert_eq!(certificate.certificate_type == CertificateType::Server, is_server);
        // The names come from the cloud. Only a serving certificate has names.
        assert_eq!(certificate.sans.len(), if is_server { 2 } else { 0 });
    }
}

#[test]
fn certificates_that_the_cluster_does_not_enable_are_not_issued() {
    for name in ["kube-router", "admin", "invented", "", "kubelet\n"] {
        assert_eq!(ask(name, RSA_2048, &ids(&[])), Err(CertificateRefusal::NotEnabled), "{name:?}");
    }
}

#[test]
fn a_machine_that_trusts_another_key_pair_is_rejected() {
    let other = |trusted: &[(&str, &str)]| ask("kubelet", RSA_2048, &ids(trusted)).unwrap_err().to_string();
    assert!(other(&[("kubernetes-ca", "6")]).contains("\"6\" of kubernetes-ca"));
    assert!(other(&[("etcd-clients-ca-cilium", "8")]).contains("\"\" of kubernetes-ca"));
    assert!(ask("kubelet", RSA_2048, &ids(&[])).is_ok(), "clients before kOps 1.22 say nothing");
}

/// Changes the last byte of a key. In an EC key this byte is part of the point's y.
fn with_another_y(pem: &str) -> String {
    let block = Pem::iter_from_buffer(pem.as_bytes()).next().unwrap().unwrap();
    let mut der = block.contents;
    *der.last_mut().unwrap() ^= 1;
    let base64 = STANDARD.encode(der);
    format!("-----BEGIN {PUBLIC_KEY_LABEL}-----\n{base64}\n-----END {PUBLIC_KEY_LABEL}-----\n")
}

#[test]
fn a_point_outside_its_curve_is_not_certified() {
    for key in [P256, P384] {
        assert!(ask("kubelet", key, &ids(&[])).is_ok());
        let off = with_another_y(key);
        assert_eq!(ask("kubelet", &off, &ids(&[])), Err(CertificateRefusal::UnfitKey), "{off}");
    }
}

#[test]
fn only_a_strong_key_is_certified() {
    for key in [RSA_2048, P256, P384] {
        let order = ask("kubelet", key, &ids(&[])).unwrap();
        assert!(SubjectPublicKeyInfo::from_der(&order.public_key_der).is_ok());
    }
    for key in [RSA_1024, P224, P521, ED25519] {
        assert_eq!(ask("kubelet", key, &ids(&[])), Err(CertificateRefusal::UnfitKey), "{key}");
    }
    for key in ["", "junk", &RSA_2048.replace("RSA PUBLIC", "PUBLIC"), &RSA_2048.replace("MIIB", "MIIC")] {
        assert_eq!(ask("kubelet", key, &ids(&[])), Err(CertificateRefusal::NoKey), "{key}");
    }
}

#[test]
fn bit_lengths_ignore_leading_zeros() {
    assert_eq!([bits(&[]), bits(&[0, 0]), bits(&[0, 0, 1]), bits(&[0, 0x80, 0])], [0, 0, 1, 16]);
}

/// A certificate's lifetime is 455 days plus up to 30 days. The hash of the Node's name decides the extra time (upstream: `issueCert`).
#[test]
fn lifetimes_are_spread_by_the_hash_of_the_nodes_name() {
    assert_eq!(455 * 24 + extra_hours("i-0123456789abcdef0"), 11_069);
    assert_eq!(455 * 24 + extra_hours("node-1"), 11_359);
}
