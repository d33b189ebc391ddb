//! Renewal: a working Node presents its kubelet's certificate, and gets the same response as for a bootstrap request. kOps' kops-controller
//! does not support renewal: it answers a renewal request with 404, and a bootstrap request of a Ready Node with 409.
//!
//! The protocol is kops-agent's own: see `docs/certificate-renewal.md`. This module decides whether a certificate and a Node belong to the
//! machine that the cloud has verified.

use thiserror::Error;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::node_config::is_dns_name;
use crate::identity::provider_ids::name_one_machine;
use crate::identity::{aws, host};

/// The path of renewal requests, next to `/bootstrap`.
pub const PATH: &str = "/renew";

const USER_PREFIX: &str = "system:node:";
const GROUP: &str = "system:nodes";
/// The maximum length of a text that a message repeats from a certificate or a Node, in characters.
const LONGEST_NAME: usize = 253;

/// The holder of the presented certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    pub node_name: String,
    /// The certificate's serial number in hexadecimal digits.
    pub serial: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RenewalRefusal {
    #[error("the request presents no client certificate")]
    NoCertificate,
    #[error("the client certificate is for {0:?}, not for a node's kubelet")]
    NotANode(String),
    #[error(
        "the client certificate is for the node {certificate}, but the request comes from the machine of the node {verified}"
    )]
    OtherNode {
        /// The node in the certificate.
        certificate: String,
        /// The node that the cloud reports.
        verified: String,
    },
    #[error("the Node {0} no longer exists: the machine must bootstrap, not renew")]
    NoNode(String),
    #[error("the Node {node} has the provider ID {provider_id:?}, but the requesting machine is {instance}")]
    OtherInstance {
        node: String,
        /// The Node's `spec.providerID`.
        provider_id: String,
        instance: String,
    },
}

impl RenewalRefusal {
    /// A short reason for metrics, the log, and the response.
    pub fn reason(&self) -> &'static str {
        match self {
            RenewalRefusal::NoCertificate => "NoClientCertificate",
            RenewalRefusal::NotANode(_) => "CertificateOfNoNode",
            RenewalRefusal::OtherNode { .. } => "CertificateOfOtherNode",
            RenewalRefusal::NoNode(_) => "NodeNotFound",
            RenewalRefusal::OtherInstance { .. } => "NodeOfOtherInstance",
        }
    }
}

/// The holder of this certificate (DER). TLS has already checked the certificate: `kubernetes-ca` signed it, it is valid now, its usage
/// allows clients, and the client has its key.
///
/// The certificate must be a kubelet's by the rules of kube-apiserver's node authorizer: exactly one common name `system:node:NAME`, and
/// exactly one organization `system:nodes`. It must also have the usage `clientAuth`, because TLS accepts a certificate without usages for
/// any use.
pub fn holder(certificate: Option<&[u8]>) -> Result<Holder, RenewalRefusal> {
    let certificate = certificate.ok_or(RenewalRefusal::NoCertificate)?;
    let unreadable = |_| RenewalRefusal::NotANode("an unreadable subject".into());
    let (_, certificate) = X509Certificate::from_der(certificate).map_err(unreadable)?;
    let subject = certificate.subject();
    let no_node = || RenewalRefusal::NotANode(shortened(&subject.to_string()));
    let names: Vec<_> = subject.iter_common_name().map(|name| name.as_str()).collect();
    let groups: Vec<_> = subject.iter_organization().map(|group| group.as_str()).collect();
    let (&[Ok(name)], &[Ok(GROUP)]) = (names.as_slice(), groups.as_slice()) else {
        return Err(no_node());
    };
    let usage = certificate.extended_key_usage().ok().flatten();
    if !usage.is_some_and(|usage| usage.value.client_auth) {
        return Err(no_node());
    }
    let node_name = name.strip_prefix(USER_PREFIX).filter(|name| is_dns_name(name)).ok_or_else(no_node)?;
    let serial = hex::encode(certificate.raw_serial());
    Ok(Holder { node_name: node_name.to_owned(), serial })
}

impl Holder {
    /// Checks that the certificate's node is the node that the cloud reports for the machine.
    pub fn is_verified_as(&self, node_name: &str) -> Result<(), RenewalRefusal> {
        match self.node_name == node_name {
            true => Ok(()),
            false => Err(RenewalRefusal::OtherNode {
                certificate: self.node_name.clone(),
                verified: shortened(node_name),
            }),
        }
    }
}

/// Checks that the machine's Node exists and names this machine. `provider_id` is the Node's `spec.providerID`, or `None` if there is no
/// Node. `instance` is the cloud's name for the machine.
///
/// If a Node is deleted and the machine registers again, the Node's uid changes, but the machine does not. Therefore the uid is ignored.
pub fn is_of_instance(node: &str, provider_id: Option<&str>, instance: &str) -> Result<(), RenewalRefusal> {
    let provider_id = provider_id.ok_or_else(|| RenewalRefusal::NoNode(node.to_owned()))?;
    // The Node of an enrolled host has no providerID, so its name identifies the host.
    let is_host = provider_id.is_empty() && instance == host::instance(node);
    // Azure ignores case, and its services spell resource ids in different cases, so case is ignored here.
    let is_of_azure = provider_id.starts_with("azure://") && provider_id.eq_ignore_ascii_case(instance);
    let is_of_aws = aws::instance_id(provider_id).is_ok_and(|id| id == instance);
    let is_same = name_one_machine(provider_id, instance) || is_host || is_of_aws || is_of_azure;
    match is_same && !instance.is_empty() {
        true => Ok(()),
        false => Err(RenewalRefusal::OtherInstance {
            node: node.to_owned(),
            provider_id: shortened(provider_id),
            instance: instance.to_owned(),
        }),
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(LONGEST_NAME).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_node_belongs_to_the_instance_in_its_provider_id() {
        let id = "i-0123456789abcdef0";
        let (on_gce, on_hetzner) = ("gce://p/us-test1-a/n", "hcloud://4711");
        for (provider_id, instance) in
            [("aws:///us-test-1a/i-0123456789abcdef0", id), (on_gce, on_gce), (on_hetzner, on_hetzner)]
        {
            is_of_instance("n", Some(provider_id), instance).unwrap();
        }
        for (provider_id, instance) in [
            ("aws:///us-test-1a/i-0123456789abcdef1", id),
            ("gce://p/us-test1-a/n2", on_gce),
            ("gce://p/us-test1-b/n", on_gce),
            ("hcloud://47112", on_hetzner),
            ("", id),
            ("", ""),
        ] {
            let refusal = is_of_instance("n", Some(provider_id), instance).unwrap_err();
            assert_eq!(refusal.reason(), "NodeOfOtherInstance", "{provider_id} {instance}");
        }
        assert_eq!(is_of_instance("n", None, id).unwrap_err().reason(), "NodeNotFound");
        is_of_instance("vm1", Some(""), "kops-system/vm1").unwrap();
        is_of_instance("n", Some("linode:///4711"), "linode://4711").unwrap();
        is_of_instance("n", Some("linode:///4712"), "linode://4711").unwrap_err();
        is_of_instance("n", Some(""), "linode://4711").unwrap_err();
        is_of_instance("n", Some("azure:///subscriptions/A/x"), "azure:///subscriptions/a/X").unwrap();
        let refusal = is_of_instance("n", Some("AZURE:///subscriptions/a/X"), "azure:///subscriptions/a/X");
        assert_eq!(refusal.unwrap_err().reason(), "NodeOfOtherInstance");
        for (node, provider_id) in [("vm2", ""), ("vm1", on_gce), ("vm1", on_hetzner)] {
            let refusal = is_of_instance(node, Some(provider_id), "kops-system/vm1").unwrap_err();
            assert_eq!(refusal.reason(), "NodeOfOtherInstance", "{node} {provider_id}");
        }
    }
}
