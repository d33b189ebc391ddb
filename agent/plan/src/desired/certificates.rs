//! Certificates and kubeconfigs for components. A machine with the authorities' keys issues them itself. Other machines
//! request them from the control plane's bootstrap server. Also writes keypairs of the cluster, for components that sign with
//! these keypairs.

use crate::resolve::{KUBERNETES_CA, NodeConfig};
use crate::resource::{
    Certificate, CertificateType, Content, DesiredState, Directory, File, Issuer, Kubeconfig, Mode,
    SecretPiece, Subject,
};

/// The subject of a user without groups.
pub(super) fn user(common_name: &str) -> Subject {
    Subject { common_name: common_name.into(), organization: Vec::new() }
}

pub(super) fn user_in_group(common_name: &str, group: &str) -> Subject {
    Subject { common_name: common_name.into(), organization: vec![group.into()] }
}

/// A certificate that this machine itself issues.
pub(super) fn issued(
    node: &NodeConfig,
    name: &str,
    signer: &str,
    certificate_type: CertificateType,
    subject: Subject,
    sans: Vec<String>,
) -> Certificate {
    Certificate {
        name: name.into(),
        signer: signer.into(),
        keypair_id: node.keypair_id(signer).into(),
        certificate_type,
        subject,
        sans,
        issuer: Issuer::Local,
        include_root: false,
    }
}

/// A certificate of a component that runs on every node. A machine with an API server issues this certificate itself. All other machines
/// request it from the bootstrap server; `name` is the certificate's name in the bootstrap protocol.
pub(super) fn of_every_node(
    node: &NodeConfig,
    name: &str,
    signer: &str,
    certificate_type: CertificateType,
    subject: Subject,
    sans: Vec<String>,
) -> Certificate {
    let issuer = if node.has_api_server() { Issuer::Local } else { Issuer::Bootstrap };
    Certificate { issuer, ..issued(node, name, signer, certificate_type, subject, sans) }
}

/// Adds a certificate and its files in `directory`: `<stem>.crt`, `<stem>.key`, and the signer's certificate as `<ca_stem>.crt` if
/// `ca_stem` is given. `owner` owns all these files.
pub(super) fn add_with_files(
    state: &mut DesiredState,
    certificate: Certificate,
    directory: &str,
    stem: &str,
    ca_stem: Option<&str>,
    owner: &str,
) {
    let name = certificate.name.clone();
    let path = |stem: &str, suffix: &str| format!("{directory}/{stem}.{suffix}");
    state.add(certificate);
    state.add(Directory::new(directory));
    state.add(File::new(path(stem, "crt"), Content::Certificate(name.clone())).owned_by(owner));
    state.add(
        File::new(path(stem, "key"), Content::PrivateKey(name.clone())).mode(Mode::PRIVATE).owned_by(owner),
    );
    if let Some(ca_stem) = ca_stem {
        state.add(File::new(path(ca_stem, "crt"), Content::Ca(name)).owned_by(owner));
    }
}

/// Adds a client certificate of kubernetes-ca that this machine issues, and returns the kubeconfig that uses it.
pub(super) fn issued_kubeconfig(
    state: &mut DesiredState,
    node: &NodeConfig,
    name: &str,
    subject: Subject,
) -> Content {
    let certificate = issued(node, name, KUBERNETES_CA, CertificateType::Client, subject, Vec::new());
    kubeconfig(state, node, certificate)
}

/// Adds the client certificate of a component that runs on every node, and returns the kubeconfig that uses it.
pub(super) fn node_kubeconfig(
    state: &mut DesiredState,
    node: &NodeConfig,
    name: &str,
    subject: Subject,
) -> Content {
    let certificate = of_every_node(node, name, KUBERNETES_CA, CertificateType::Client, subject, Vec::new());
    kubeconfig(state, node, certificate)
}

/// Adds a client certificate and returns the kubeconfig that uses it.
fn kubeconfig(state: &mut DesiredState, node: &NodeConfig, certificate: Certificate) -> Content {
    let content = Content::Kubeconfig(Kubeconfig {
        certificate: certificate.name.clone(),
        server: node.api_server_url(),
    });
    state.add(certificate);
    content
}

pub(super) fn private_key_file(node: &NodeConfig, keyset: &str, path: &str) -> File {
    let key =
        SecretPiece::KeysetPrivateKey { keyset: keyset.to_owned(), id: node.keypair_id(keyset).to_owned() };
    File::new(path, Content::SecretText(vec![key])).mode(Mode::PRIVATE)
}

pub(super) fn certificate_file(node: &NodeConfig, keyset: &str, path: &str) -> File {
    File::text(path, node.keypair_certificate(keyset)).mode(Mode::PRIVATE)
}
